"""Records in short: what a Node without room keeps, and what the Lease keeps of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.lease.kept import KEPT_BYTES
from konductor_like.cluster.node.record import decode, encode
from konductor_like.cluster.node.short_record import SHORT_BYTES, short
from konductor_like.model import IncidentState, NodeRecord, Quarantine, ReleaseHow, Severity, Source
from tests.cluster.scenes import BOOT, NOON, NOON_NS, incident, record, release
from tests.cluster.test_node_record import RECORDS

UID = "7a1d0c6e-1b7c-4d0a-8b45-9c3f6d2e1a00"


def wide(written: NodeRecord) -> NodeRecord:
    """The record with ids as long as real ones."""
    assert written.machine is not None
    return replace(written, machine=replace(written.machine, node_uid=UID))


def read(text: str | None) -> NodeRecord:
    assert text is not None
    found, problem = decode(text)
    assert problem is None
    return found


@given(RECORDS, st.sampled_from([SHORT_BYTES, KEPT_BYTES]))
def test_a_record_in_short_is_never_longer_and_always_readable(written: NodeRecord, most: int) -> None:
    text = short(written, most)

    assert text is None or len(text.encode()) <= most
    assert text is None or decode(text)[1] is None


def test_three_hundred_bytes_say_the_fault_of_a_tainted_node_its_need_and_its_boot() -> None:
    old = incident(31, severity=Severity.SUSPECT, seconds=7)
    full = wide(record(old, incident(79, gpu="0000:4e:00", seconds=5), releases=(release(),)))

    found = read(short(full, SHORT_BYTES))

    [kept] = found.incidents
    assert (kept.key.rule, kept.key.gpu, kept.needs) == ("xid.79", "0000:4e:00", "reboot")
    assert (kept.severity, kept.state) == (Severity.FATAL, IncidentState.ACTIVE)
    assert BOOT in (kept.last.boot_id, found.machine and found.machine.boot_id)
    assert found.life.tainted_at == NOON


def test_three_hundred_bytes_say_what_a_release_covers() -> None:
    mark = replace(release(reason="r" * 200), by="kim.longname@company.example.com", warning="w" * 300)
    mark = replace(mark, needs="reboot inspection", boot_id=BOOT)
    full = wide(record(replace(incident(), state=IncidentState.RELEASED), tainted=False, releases=(mark,)))

    found = read(short(full, SHORT_BYTES))

    [kept] = found.releases
    assert (kept.at, kept.read, kept.how) == (mark.at, mark.read, ReleaseHow.RESET)
    assert kept.read_ns[Source.KERNEL] == mark.read_ns[Source.KERNEL]
    assert not found.life.claimed


def test_three_hundred_bytes_say_that_a_returned_node_is_on_probation() -> None:
    full = wide(
        record(tainted=False, releases=(replace(release(), by="konductor-like", how=ReleaseHow.REBOOT),))
    )
    full = replace(full, life=replace(full.life, probation_until=NOON))

    assert read(short(full, SHORT_BYTES)).life.probation_until == NOON


def test_the_release_of_the_whole_node_by_a_person_is_kept_before_a_later_one_of_some_faults() -> None:
    whole = release()
    part = replace(release(60), how=ReleaseHow.PART)
    full = wide(record(tainted=False, releases=(part, whole)))

    assert read(short(full, SHORT_BYTES)).releases[0].how is ReleaseHow.RESET


def test_the_lease_keeps_the_fault_the_position_and_the_bound_of_the_release() -> None:
    others = [incident(code, severity=Severity.SUSPECT, line="x" * 240) for code in (31, 43, 13, 48, 63)]
    faults = [incident(79, seconds=5, line="x" * 240), *others]
    full = wide(record(*faults, releases=(release(),)))

    found = read(short(full, KEPT_BYTES))

    assert found.machine == full.machine
    assert found.read == full.read
    assert found.incidents[0].key.rule == "xid.79"
    assert found.incidents[0].last == faults[0].last
    assert (found.releases[0].read, found.releases[0].read_ns) == (release().read, release().read_ns)
    assert found.life.tainted_at == NOON


def test_a_hold_and_a_mark_for_replacement_survive_on_the_lease() -> None:
    full = wide(record(incident()))
    past = tuple(Quarantine(NOON, NOON, "xid.79", gpu="g" * 60, relapse=True) for _ in range(10))
    life = replace(full.life, hold_until=NOON, replace_since=NOON, quarantines=past)

    found = read(short(replace(full, life=life), KEPT_BYTES))

    assert (found.life.hold_until, found.life.replace_since) == (NOON, NOON)


def test_the_lease_keeps_an_open_fault_of_a_node_that_was_released_before() -> None:
    marks = (replace(release(60), how=ReleaseHow.PART), release(reason="r" * 200))
    past = tuple(Quarantine(NOON, NOON, "xid.95", gpu="0000:9a:00") for _ in range(10))
    closed = replace(incident(95), state=IncidentState.RELEASED)
    held = replace(incident(79, seconds=5), state=IncidentState.HELD)
    full = wide(record(closed, held, tainted=False, releases=marks))

    found = read(short(replace(full, life=replace(full.life, quarantines=past)), 800))

    assert (found.incidents[0].key.rule, found.incidents[0].state) == ("xid.79", IncidentState.HELD)
    assert found.releases[0].how is ReleaseHow.RESET


@pytest.mark.parametrize("chars", [9000, 120])
def test_the_texts_of_somebody_else_make_no_record_longer_than_its_bound(chars: int) -> None:
    """A kubelet or a hand may have written them; the next write must not fail for their length."""
    long = "é" * chars
    full = record(replace(incident(), key=incident().key._replace(rule=long, gpu=long)))
    past = (Quarantine(NOON, NOON, long, ReleaseHow.RESET, gpu=long, model=long, driver=long),) * 10
    life = replace(full.life, quarantines=past, model=long, driver=long)
    full = replace(full, life=life, past_boots=(long,) * 9, gpu_layout=long, booted_after_ns=NOON_NS)

    text = encode(full)

    assert len(text.encode()) <= 8192
    assert decode(text)[1] is None
    assert decode(text)[0].life.claimed
