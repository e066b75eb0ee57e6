from __future__ import annotations

import json
import string
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.cluster.lenient_json import dumps
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.record import RECORD_BYTES, decode, encode
from konductor_like.detection import find
from konductor_like.model import (
    RECORD_ANNOTATION,
    UNSHARED,
    Act,
    Fault,
    FaultKind,
    Gpu,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    MetBy,
    NodeRecord,
    Quarantine,
    Release,
    ReleaseHow,
    Role,
    Severity,
    Snapshot,
    Source,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.release import release as let_go
from tests.cluster.scenes import BOOT, NOON, NOON_NS, OURS, incident, raw_node, record, release

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers(0, (1 << 64) - 1)
STAMPS = st.integers(0, 253_402_300_799 * 10**9)
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- hypothesis wants bare bounds
NAMES = TEXTS.filter(bool)
HOWS = st.sampled_from(ReleaseHow)
BOOTS = st.none() | st.sampled_from([BOOT, "b"])
UNKNOWN = st.dictionaries(
    st.sampled_from(["later", "mîne"]),
    st.integers() | st.text(max_size=9) | st.lists(st.booleans(), max_size=3),
).map(lambda found: tuple(sorted((name, dumps(value)) for name, value in found.items())))
"""Fields that a later version may write."""
PLACES = st.builds(KernelPosition, BOOTS, st.none() | NUMBERS, st.none() | NUMBERS)
POSITIONS = PLACES | st.builds(
    lambda place, stamp_us, plain_us: replace(place, stamp_us=stamp_us, plain_us=(stamp_us or 0) + plain_us),
    PLACES,
    st.none() | st.integers(1, 2**40),
    st.integers(1, 2**40),
)
UUID = "GPU-509665ad-b600-ac93-3616-d754b23d636d"
INCIDENTS = st.builds(
    Incident,
    key=st.builds(
        IncidentKey, st.sampled_from(["xid.79", "xid.31", "sxid.12028"]) | TEXTS, st.none() | NAMES
    ),
    kind=st.sampled_from(FaultKind),
    severity=st.sampled_from(Severity),
    state=st.sampled_from(IncidentState),
    count=st.integers(1, (1 << 64) - 1),
    first_ns=STAMPS,
    last_ns=STAMPS,
    last=POSITIONS,
    code=st.none() | NUMBERS,
    evidence=TEXTS,
    title=TEXTS,
    advice=TEXTS,
    needs=TEXTS,
    source=st.sampled_from(Source),
    before_install=st.booleans(),
    released_ns=st.none() | STAMPS,
    user_written=st.booleans(),
    job=st.none() | NAMES,
    failure_group=st.none() | NAMES,
    role=st.none() | st.sampled_from(Role),
    root_cause=st.none() | NAMES,
    escalated_because=TEXTS,
    ended_ns=st.none() | STAMPS,
    met_ns=st.none() | STAMPS,
    met_by=st.none() | st.sampled_from(MetBy),
    unknown=UNKNOWN,
)
IDENTIFIED = st.builds(
    lambda found, serial: replace(found, key=found.key._replace(gpu="0000:4e:00"), uuid=UUID, serial=serial),
    INCIDENTS,
    st.sampled_from(["", "1650124014249"]),
)
RELEASES = st.builds(
    Release,
    at=MOMENTS,
    by=TEXTS,
    reason=TEXTS,
    how=HOWS,
    read=POSITIONS,
    read_ns=st.dictionaries(st.sampled_from(Source), STAMPS),
    warning=st.none() | NAMES,
    unknown=UNKNOWN,
)
LIVES = st.builds(
    Life,
    tainted_at=st.none() | MOMENTS,
    hold_until=st.none() | MOMENTS,
    replace_since=st.none() | MOMENTS,
    contested_at=st.none() | MOMENTS,
    probation_until=st.none() | MOMENTS,
    quarantines=st.lists(
        st.builds(Quarantine, MOMENTS, MOMENTS, TEXTS, HOWS, st.booleans(), st.none() | NAMES), max_size=3
    ).map(tuple),
)
VALIDATIONS = st.builds(
    Validation,
    stage=st.sampled_from(ValidationStage),
    level=st.integers(2, 4),
    asked_at=MOMENTS,
    by=TEXTS,
    waits=TEXTS,
    why=TEXTS,
    tries=st.integers(0, 9),
    attempt=TEXTS,
    boot_id=st.none() | NAMES,
    began_at=st.none() | MOMENTS,
    read=POSITIONS,
    read_ns=st.dictionaries(st.sampled_from(Source), STAMPS),
    expected_gpus=st.integers(0, 16),
    job_uid=TEXTS,
    ended_at=st.none() | MOMENTS,
    read_end_ns=st.integers(1, 10**18),
    verdict=st.none() | st.sampled_from(ValidationVerdict),
    driver=TEXTS,
    gpus=st.lists(
        st.builds(Gpu, st.just("0000:4e:00"), st.just(UUID), st.sampled_from(["", "165"])), max_size=2
    ).map(tuple),
)
RECORDS = st.builds(
    NodeRecord,
    machine=st.none() | st.builds(Machine, NAMES, st.none() | NAMES, BOOTS),
    life=LIVES,
    incidents=st.lists(INCIDENTS | IDENTIFIED, max_size=4).map(tuple),
    releases=st.lists(RELEASES, max_size=2).map(tuple),
    read=POSITIONS,
    past_boots=st.lists(TEXTS, max_size=3).map(tuple),
    booted_after_ns=st.none() | STAMPS,
    gpus=st.none() | NUMBERS,
    gpu_layout=st.just(UNSHARED) | NAMES,
    quiet_since=st.none() | MOMENTS,
    validation=st.none() | VALIDATIONS,
    act=st.none() | st.builds(Act, TEXTS, MOMENTS, TEXTS),
    unknown=UNKNOWN,
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(written: NodeRecord) -> None:
    assert decode(encode(written)) == (written, None)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (
            NodeRecord,
            (
                "machine life incidents releases read past_boots booted_after_ns gpus gpu_layout "
                "quiet_since validation act unknown"
            ),
        ),
        (
            Life,
            (
                "tainted_at model driver hold_until replace_since removed_at "
                "removed_by first_removed_at put_backs put_back_at contested_at probation_until quarantines"
            ),
        ),
        (
            Incident,
            (
                "key kind severity state count first_ns last_ns last code evidence title advice source "
                "before_install first_us doubt released_ns user_written job failure_group role root_cause "
                "needs escalated_because ended_ns met_ns met_by uuid serial unknown"
            ),
        ),
        (Release, "at by reason how read read_ns warning needs boot_id unknown"),
        (Machine, "node_uid system_id boot_id"),
        (KernelPosition, "boot_id sequence stamp_us plain_us"),
        (Quarantine, "tainted_at released_at rule how relapse gpu model driver in_service_at"),
        (
            Validation,
            (
                "stage level asked_at by reason waits tries attempt boot_id began_at read read_ns "
                "expected_gpus job_uid ended_at read_end_ns verdict why driver gpus"
            ),
        ),
        (Act, "id at rules"),
    ],
)
def test_a_field_that_is_added_is_not_forgotten_here(kind: type, written: str) -> None:
    assert [field.name for field in fields(kind)] == written.split()


@given(RECORDS)
def test_every_json_library_writes_the_text_alike(written: NodeRecord) -> None:
    """The API server compares strings in their written form, so the text must have only one such form."""
    assert not set(encode(written)) - set(string.ascii_letters + string.digits + string.punctuation + " ")
    assert not set(encode(written)) & set("<>&")


@given(RECORDS)
def test_a_record_that_was_read_is_written_unchanged(written: NodeRecord) -> None:
    text = encode(written)

    assert encode(decode(text)[0]) == text


@given(st.text(max_size=200) | ANY_JSON.map(json.dumps))
def test_whatever_a_person_typed_is_read_without_an_error(text: str) -> None:
    found, problem = decode(text)

    assert isinstance(found, NodeRecord)
    assert problem is None or problem


@given(RECORDS, st.data())
def test_a_mangled_record_can_be_written_again(written: NodeRecord, data: st.DataObject) -> None:
    parts = json.loads(encode(written))
    name = data.draw(st.sampled_from([*parts]))
    parts[name] = data.draw(ANY_JSON)

    saved, _ = decode(json.dumps(parts))

    assert decode(encode(saved)) == (saved, None)


def test_a_record_reads_like_this() -> None:
    written = record(
        incident(), incident(gpu="0000:5e:00", seconds=3), releases=(release(reason="new board"),)
    )

    assert json.loads(encode(written)) == {
        "v": 2,
        "tainted": "2026-05-06T12:00:00Z",
        "machine": {"uid": "uid-gpu-1", "system": "4c4c4544-0051-3310-8052-b4c04f564d33", "boot": BOOT},
        "read": {"seq": 1200, "us": 6_000_000},
        "rules": {
            "xid.79": {
                "kind": "xid",
                "code": 79,
                "severity": "fatal",
                "title": "GPU lost",
                "advice": "Reboot the node.",
                "needs": "reboot",
            }
        },
        "incidents": [
            {
                "rule": "xid.79",
                "gpu": "0000:3b:00",
                "state": "active",
                "count": 1,
                "first": "2026-05-06T12:00:00Z",
                "last": "2026-05-06T12:00:00Z",
                "at": {"seq": 1000, "us": 5_000_000},
                "line": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            },
            {
                "rule": "xid.79",
                "gpu": "0000:5e:00",
                "state": "active",
                "count": 1,
                "first": "2026-05-06T12:00:03Z",
                "last": "2026-05-06T12:00:03Z",
                "at": {"seq": 1003, "us": 5_000_003},
                "line": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            },
        ],
        "releases": [
            {
                "at": "2026-05-06T12:00:00Z",
                "by": "kim",
                "reason": "new board",
                "how": "reset",
                "read": {"seq": 900, "us": 4_000_000},
                "until": {"kernel": "2026-05-06T12:00:00Z", "pod": "2026-05-06T11:59:59.999999995Z"},
            }
        ],
    }


@pytest.mark.parametrize(
    "line",
    [
        f"kmsg/1 boot={BOOT} seq={'9' * 19} facility=0 priority=3 [{'9' * 12}.999999] {{}}",
        f"3,{'9' * 19},{'9' * 19},-;{{}}",
    ],
    ids=["our reader's", "/dev/kmsg"],
)
def test_the_highest_position_that_detection_takes_can_be_read_again(line: str) -> None:
    finding = find(line.format("NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."), Source.KERNEL)
    assert finding is not None
    assert finding.position.sequence == 10**19 - 1
    seen = replace(incident(), last=finding.position)
    written = replace(record(), incidents=(seen,), read=finding.position)

    assert decode(encode(written)) == (written, None)


def test_an_incident_that_differs_from_its_rule_keeps_its_difference() -> None:
    plain = incident()
    other = replace(
        plain, key=IncidentKey("xid.79", "0000:5e:00"), code=None, severity=Severity.TEST, advice=""
    )

    assert decode(encode(record(plain, other)))[0].incidents == (plain, other)


def _edited(**changes: Any) -> str:
    parts = json.loads(encode(record(incident(), releases=(release(),))))
    return json.dumps({**parts, **changes})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "it is not JSON", id="emptied"),
        pytest.param("see JIRA-1234", "it is not JSON", id="a note"),
        pytest.param("[1]", "it is not a JSON object", id="a list"),
        pytest.param("{}", "the record has version unknown", id="no version"),
        pytest.param(_edited(tainted="today"), "tainted is not a time", id="a time in words"),
        pytest.param(_edited(tainted=True), "tainted is not a time", id="true for a time"),
        pytest.param(_edited(read={"seq": -1}), "read.seq is not a whole number", id="a negative number"),
        pytest.param(_edited(incidents={}), "incidents is not a list", id="an object for a list"),
        pytest.param(_edited(incidents=["x"]), "incidents[0]: is not an object", id="a word for an incident"),
        pytest.param(_edited(incidents=[{}]), "incidents[0]: rule is missing", id="an empty incident"),
        pytest.param(
            _edited(incidents=[{"rule": "xid.79", "state": "gone"}]),
            "incidents[0].state is none of active, held, pending, released; "
            "incidents[0]: kind, severity or state is missing",
            id="a state that does not exist",
        ),
        pytest.param(
            _edited(incidents=[{"rule": "xid.79", "state": "active"}]),
            "incidents[0]: first and last are missing",
            id="an incident without a time",
        ),
        pytest.param(
            _edited(releases=[{"by": "kim"}]), "releases[0]: at is missing", id="a timeless release"
        ),
        pytest.param(
            _edited(boots=["a", 1]), "boots: has an item that is not text", id="a number for a boot"
        ),
        pytest.param(_edited(incidents=[{}, {}, 3, 4, 5]), "and 2 more", id="more than fits in a line"),
    ],
)
def test_unreadable_fields_are_reported(text: str, problem: str) -> None:
    assert problem in str(decode(text)[1])


def test_the_rest_of_a_mangled_record_is_saved() -> None:
    found, problem = decode(_edited(tainted=5, machine="none"))

    assert problem == "machine is not an object; tainted is not a time"
    assert found.life.tainted_at is None
    assert [kept.key for kept in found.incidents] == [IncidentKey("xid.79", "0000:3b:00")]
    assert [kept.by for kept in found.releases] == ["kim"]


@pytest.mark.parametrize("version", [None, 1, 3, "2"])
def test_a_record_of_another_version_is_refused_whole_and_its_taint_stays(version: object) -> None:
    written = json.loads(encode(record(incident(), releases=(release(),))))
    text = json.dumps({**written, "v": version})
    state = decode_node(raw_node(annotations={RECORD_ANNOTATION: text}, taints=[OURS]))

    assert state.record == NodeRecord()
    assert "only version 2; run the version that wrote the record" in str(state.record_problem)
    assert not decide(Snapshot({state.name: state}), (), PolicyConfig(), NOON).changes


@pytest.mark.parametrize("room", [True, False])
def test_fields_of_a_later_version_are_written_back_where_there_is_room(room: bool) -> None:
    extra = {"ticket": {"by": ["kim", None]}, "note": "x" * (9 if room else RECORD_BYTES)}
    parts = json.loads(encode(record(incident(), releases=(release(),))))
    for place in (parts, parts["incidents"][0], parts["releases"][0]):
        place |= extra if place is parts else {"ticket": 7}

    found, problem = decode(json.dumps(parts))
    again = json.loads(encode(replace(found, life=replace(found.life, hold_until=NOON))))

    assert problem is None
    rest = {"hold_until": "2026-05-06T12:00:00Z", "truncated": "unknown fields left out"}
    if room:
        assert again == {**parts, "hold_until": rest["hold_until"]}
    else:
        known = encode(record(incident(), releases=(release(),)))
        assert again == {**json.loads(known), **rest}


def test_neither_the_controller_nor_a_reset_drops_fields_of_a_later_version() -> None:
    parts = json.loads(encode(record(incident(), releases=(release(),), tainted=False)))
    for place in (parts, parts["incidents"][0], parts["releases"][0]):
        place["ticket"] = 7
    state = decode_node(raw_node(annotations={RECORD_ANNOTATION: json.dumps(parts)}, taints=[OURS]))
    assert state.record.machine is not None
    state = replace(state, machine=state.record.machine)
    finding = find("NVRM: Xid (PCI:0000:5e:00): 31, pid=7, MMU Fault", Source.KERNEL)
    assert finding is not None
    fault = Fault(finding, Source.KERNEL, NOON_NS + 10**10, state.name)

    (ours,) = decide(Snapshot({state.name: state}), [fault], PolicyConfig(), NOON).changes
    theirs = let_go(state, at=NOON, by="kim", reason="", read_ns={})

    for change in (ours, theirs):
        assert change is not None
        assert change.record is not None
        written = json.loads(encode(change.record))
        assert written["ticket"] == 7
        assert [each.get("ticket") for each in written["incidents"] if each["rule"] == "xid.79"] == [7]
        assert [each.get("ticket") for each in written["releases"]][-1] == 7


def test_fields_that_are_nested_too_deep_are_not_kept() -> None:
    found, problem = decode(_edited(deep=json.loads("[" * 300 + "]" * 300), flat=[1]))

    assert (found.unknown, problem) == ((("flat", "[1]"),), None)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"v":' + "9" * 6000 + "}"], ids=["deep", "a long number"])
def test_a_hostile_text_is_a_problem_and_not_a_crash(text: str) -> None:
    assert decode(text)[1] is not None


def test_lone_surrogates_do_not_reach_the_server() -> None:
    text = encode(record(incident(line="bad \ud800 byte")))

    assert decode(text)[0].incidents[0].evidence == "bad ? byte"


# The limit of 8 KiB.


def _many(count: int, **parts: Any) -> tuple[Incident, ...]:
    return tuple(incident(gpu=f"0000:{n:02x}:00", seconds=n, **parts) for n in range(count))


@pytest.mark.parametrize(
    ("relapses", "kept"),
    [((), (0, 1, 2, 3)), ((6, 8), (0, 1, 6, 8)), ((2, 3, 4, 5, 6), (0, 2, 3, 4))],
    ids=["none", "two", "many"],
)
def test_a_full_record_keeps_the_latest_quarantine_and_those_before_a_relapse(
    relapses: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    past = tuple(Quarantine(NOON, NOON, f"xid.{n}", relapse=n in relapses) for n in range(10))

    found = decode(encode(replace(record(*_many(100, line="x" * 500)), life=Life(quarantines=past))))[0]

    assert found.life.quarantines == tuple(past[n] for n in kept)


def test_the_names_of_gpus_are_left_out_before_any_incident() -> None:
    plain = _many(32, line="x" * 500)
    named = tuple(replace(each, uuid=UUID, serial="1650124014249") for each in plain)

    text = encode(record(*named))
    found = decode(text)[0]

    assert len(text.encode()) <= RECORD_BYTES
    assert [kept.key for kept in found.incidents] == [one.key for one in plain]
    assert {kept.uuid + kept.serial for kept in found.incidents} == {""}
    assert json.loads(text)["truncated"] == "lines shortened, UUIDs left out"
    assert {kept.uuid for kept in decode(encode(record(*named[:12])))[0].incidents} == {UUID}


def test_the_name_of_a_gpu_takes_at_most_94_bytes_of_the_record() -> None:
    named = replace(incident(), uuid=UUID, serial="9" * 32)

    assert len(encode(record(named))) - len(encode(record(incident()))) == 94


@pytest.mark.parametrize("typed", [{"uuid": "GPU-1"}, {"uuid": 7}, {"serial": "165"}], ids=str)
def test_a_name_of_a_gpu_that_a_person_damaged_is_ignored(typed: dict[str, Any]) -> None:
    parts = json.loads(encode(record(incident())))
    parts["incidents"][0] |= typed

    [found] = decode(json.dumps(parts))[0].incidents

    assert (found.uuid, found.serial) == ("", "")


def test_lines_are_shortened_before_anything_is_left_out() -> None:
    crowded = record(*_many(16, line="x" * 500))

    text = encode(crowded)
    found = decode(text)[0]

    assert len(text.encode()) <= RECORD_BYTES
    assert json.loads(text)["truncated"] == "lines shortened"
    assert [kept.key for kept in found.incidents] == [one.key for one in crowded.incidents]
    assert found.incidents[0].evidence == "x" * 239 + "…"


def test_incidents_that_never_taint_are_left_out_first_beginning_with_the_oldest() -> None:
    fatal, suspect = _many(12), _many(60, severity=Severity.SUSPECT)
    done = _many(12, state=IncidentState.RELEASED)

    text = encode(record(*suspect, *done, *fatal))
    kept = decode(text)[0].incidents

    assert [one for one in kept if one.state is IncidentState.ACTIVE and one.severity.taints] == [*fatal]
    assert [one for one in kept if one.state is IncidentState.RELEASED] == [*done]
    rest = [one for one in kept if not one.severity.taints]
    assert rest == [*suspect[-len(rest) :]]
    assert 0 < len(rest) < 60
    assert f"{60 - len(rest)} entries left out" in json.loads(text)["truncated"]


def test_released_incidents_go_before_older_releases() -> None:
    done = _many(80, state=IncidentState.RELEASED)
    releases = tuple(release(n) for n in (50, 40, 30))

    found, _ = decode(encode(record(*done, releases=releases, tainted=False)))

    assert found.releases == releases
    assert found.incidents == done[-len(found.incidents) :]


def test_the_newest_release_stays_even_before_live_incidents() -> None:
    live = _many(90)

    found, _ = decode(encode(record(*live, releases=(release(59), release(1)))))

    assert [kept.at for kept in found.releases] == [release(59).at]
    assert found.incidents == live[-len(found.incidents) :]


@settings(max_examples=40)
@given(
    st.lists(INCIDENTS, max_size=60),
    st.lists(RELEASES, max_size=8),
    st.text(st.characters(), max_size=3000),
    st.integers(1, 400),
)
def test_a_record_never_takes_more_than_eight_kilobytes(
    incidents: list[Incident], releases: list[Release], words: str, times: int
) -> None:
    long = [replace(one, evidence=words * times, advice=words) for one in incidents]
    written = NodeRecord(
        Machine(words or "uid", words, words),
        Life(NOON),
        tuple(long),
        tuple(replace(one, reason=words * times) for one in releases),
        KernelPosition(words),
        (words,) * 20,
    )

    text = encode(written)

    assert len(text.encode()) <= RECORD_BYTES
    assert decode(text)[1] is None


@pytest.mark.parametrize("character", ["\0", "\U0001f525", '"'], ids=["control", "four bytes", "quote"])
def test_names_longer_than_any_real_one_still_fit(character: str) -> None:
    long = character * 9000

    text = encode(
        NodeRecord(Machine(long, long, long), Life(NOON), past_boots=(long,) * 9, read=KernelPosition(long))
    )

    assert len(text.encode()) <= RECORD_BYTES
    assert decode(text)[1] is None
