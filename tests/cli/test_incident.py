"""``konductor-like incident save`` and our replay: what a file has, what it never has, and the outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.catalog import UserRules, load_catalog, read_user_rules
from konductor_like.cli.incident import gather
from konductor_like.cli.incident.gather import KIND, digest, without_names
from konductor_like.cluster.published import Published
from konductor_like.model import Life, Quarantine, Release, ReleaseHow, Role, Source
from konductor_like.model.time import text_of
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.loki import LokiServer, shipped
from tests.cli.conftest import Cluster, Done, Run
from tests.cli.past import Past
from tests.cli.scenes import DEAD_GPU, GPU, NOW, ago, ago_ns, note_on_the_lease
from tests.cli.test_case import undescribed
from tools import replay_incident
from tools.replay_incident import (
    IncidentFileError,
    OtherNodes,
    OtherOutage,
    SavedIncident,
    decode,
    outcome,
    replay,
)

FOLDER = Path(__file__).parents[1] / "data" / "incidents"
OUTCOMES = {
    "bus-without-xid": "the same: gpu-03 is tainted for nvrm fallen off bus on GPU 0000:4e:00",
    "held-by-the-brake": "the same: gpu-03 is not tainted (held back: brake)",
    "nvlink-domain": "the same: gpu-03 is tainted for xid 149 on GPU 0000:4e:00",
    "own-rules": "the same: gpu-03 is tainted for xid 31 on GPU 0000:4e:00",
    "relapse-after-a-reboot": "the same: gpu-03 is tainted for xid 79 on GPU 0000:4e:00",
    "sxid": "the same: gpu-03 is tainted for sxid 12028 on switch 0000:c1:00",
    "tainted-by-a-person": "nothing to replay: a person tainted gpu-03",
    "xid-31-not-tainted": "the same: gpu-03 is not tainted",
    "xid-48-with-63-and-64": "the same: gpu-03 is tainted for xid 48 on GPU 0000:4e:00",
    "xid-79": "the same: gpu-03 is tainted for xid 79 on GPU 0000:4e:00",
    "xid-94-threshold": "the same: gpu-03 is tainted for xid 94 on GPU 0000:4e:00",
}
BUILT_IN = UserRules(load_catalog())
Replayed = Callable[..., Done]
NCCL = "x:71:88 [0] socket.cc:500 NCCL WARN socketProgress: Connection closed by remote peer"


def saved(name: str = "xid-79") -> SavedIncident:
    return decode((FOLDER / f"{name}.json").read_text("utf-8"))


def differences(incident: SavedIncident, rules: str = "") -> tuple[str, ...]:
    return replay(
        incident, read_user_rules(rules, "r.yaml", load_catalog()) if rules else BUILT_IN
    ).differences


@pytest.fixture
def replayed(capsys: pytest.CaptureFixture[str]) -> Replayed:
    """Run the tool on a file."""

    def run(*words: object) -> Done:
        code = replay_incident.main([str(each) for each in words])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


def changed(text: str, **fields: Any) -> str:
    """Return the text of a saved incident with other fields, and with the digest that fits them."""
    found = {name: value for name, value in json.loads(text).items() if name != "sha256"} | fields
    return json.dumps({**found, "sha256": digest(found)})


def test_every_saved_incident_has_its_outcome_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_saved_incident_has_the_same_outcome(replayed: Replayed, name: str) -> None:
    done = replayed(FOLDER / f"{name}.json")

    assert done.code == 0, done.out
    [result] = [line for line in done.out.splitlines() if line.startswith("Result: ")]
    assert result.removeprefix("Result:").strip().startswith(OUTCOMES[name])


@pytest.mark.parametrize(
    ("name", "rules", "words"),
    [
        ("xid-79", "overrides: {xid.79.severity: info}", "gpu-03 is not tainted; the controller tainted it"),
        ("xid-31-not-tainted", "overrides: {xid.31.severity: fatal}", "gpu-03 is tainted (xid 31 on GPU"),
        ("xid-79", "overrides: {xid.79.defer_seconds: 5}", "gpu-03 is tainted 8 s later: at"),
        ("own-rules", "overrides: {xid.31.threshold: 3 in 20m on one gpu}", "gpu-03 is not tainted"),
    ],
    ids=["harmless", "fatal", "later", "a higher threshold"],
)  # fmt: skip
def test_other_rules_show_what_they_would_have_done(
    replayed: Replayed, tmp_path: Path, name: str, rules: str, words: str
) -> None:
    (tmp_path / "other.yaml").write_text(rules)

    done = replayed(FOLDER / f"{name}.json", "--rules", tmp_path / "other.yaml")

    assert done.code == 3, done.out
    assert f"differs: {words}" in done.out
    assert "instead of the saved ones" in done.out


def test_a_replay_says_where_it_differs() -> None:
    one = saved()
    [outage] = one.outages
    early, late = timedelta(seconds=-40), timedelta(seconds=40)

    def with_outage(**changes: Any) -> SavedIncident:
        return replace(one, outages=(replace(outage, **changes),))

    assert differences(one) == ()
    assert [each.split(":")[0] for each in differences(with_outage(at=outage.at + early))] == [
        "gpu-03 is tainted 40 s later"
    ]
    assert [each.split(":")[0] for each in differences(with_outage(at=outage.at + late))] == [
        "gpu-03 is tainted 40 s earlier"
    ]
    assert differences(with_outage(rule="xid.48")) == (
        "gpu-03 is tainted for another fault: xid 79 on GPU 0000:4e:00 instead of xid 48 on GPU 0000:4e:00",
    )
    assert "instead of xid 79 on GPU 0000:1b:00" in differences(with_outage(gpu="0000:1b:00"))[0]
    [only] = differences(replace(one, outages=()))
    assert only.startswith("gpu-03 is tainted (xid 79 on GPU 0000:4e:00) at ")
    [line] = one.lines
    [too] = differences(replace(one, lines=(line, replace(line, node="gpu-04"))))
    assert too.startswith("gpu-04 is tainted too (xid 79 on GPU 0000:4e:00)")
    [gone] = differences(replace(one, lines=()))
    assert gone.startswith("gpu-03 is not tainted; the controller tainted it at ")


def test_the_brake_counts_the_other_nodes_that_were_out() -> None:
    one = saved()
    limited = replace(one, settings=replace(one.settings, policy=PolicyConfig(brake_max_percent=20)))

    def with_out(number: int, until: Any = None) -> SavedIncident:
        others = OtherNodes(9, None, (OtherOutage(one.start - timedelta(hours=1), until),) * number)
        return replace(limited, others=(others,))

    assert differences(with_out(1)) == ()
    [held] = differences(with_out(2))
    assert "gpu-03 is not tainted (held back: brake)" in held
    assert differences(with_out(2, one.start + timedelta(hours=1))) == ()


def test_a_replay_that_an_operators_control_may_explain_says_so() -> None:
    one, hint = saved(), "a pause and a reset of the brake are not saved"
    [outage] = one.outages
    limited = replace(one, settings=replace(one.settings, policy=PolicyConfig(brake_max_percent=20)))
    out = OtherNodes(9, None, (OtherOutage(one.start - timedelta(hours=1)),) * 2)
    paused = replace(one, outages=(replace(outage, at=outage.at + timedelta(seconds=300)),))
    cases = {
        "a pause that went on": (replace(one, outages=()), True),
        "a pause that ended": (paused, True),
        "a reset of the brake": (replace(limited, others=(out,)), True),
        "another fault": (replace(one, outages=(replace(outage, rule="xid.48"),)), False),
        "no line": (replace(one, lines=()), False),
    }
    told = {name: outcome(incident, BUILT_IN) for name, (incident, _) in cases.items()}

    assert not any(same for _, same in told.values())
    hinted = {name: words[-1].startswith(hint) for name, (words, _) in told.items()}
    assert hinted == {name: is_hinted for name, (_, is_hinted) in cases.items()}


@pytest.mark.parametrize(("gpu_nodes", "is_read"), [(99_999, True), (100_000, False)])
def test_a_file_with_more_nodes_than_a_replay_can_make_is_refused(gpu_nodes: int, is_read: bool) -> None:
    others = [{"gpuNodes": 1, "outages": []}, {"gpuNodes": gpu_nodes, "pool": "b", "outages": []}]
    text = changed((FOLDER / "xid-79.json").read_text("utf-8"), others=others)
    if is_read:
        assert decode(text).others[1].gpu_nodes == gpu_nodes
    else:
        with pytest.raises(IncidentFileError, match="gpuNodes are more than 100,000 in all"):
            decode(text)


def test_settings_that_are_saved_name_no_site() -> None:
    names: dict[str, Any] = {
        each.name: f"secret-{each.name}" for each in fields(Published) if each.type == "str"
    }
    found = without_names(replace(saved().settings, namespaces=("secret",), **names))
    kept = {name for name in names if getattr(found, name)}

    assert (found.namespaces, found.further_namespaces) == ((), 0)
    assert kept == {
        *("version", "rules_digest", "node_condition"),
        *("pool_label", "domain_label", "rack_label", "node_label", "namespace_label"),
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("fallen off the bus", "gone"), "it was changed after it was saved"),
        (lambda text: text[: len(text) // 2], "it is no saved incident, or it is damaged"),
        (lambda text: text.replace('"version": 1,', '"version": 2,', 1), "it has version 2"),
        (lambda _: "[]", "it is no saved incident"),
        (lambda _: "[" * 100_000, "it is no saved incident"),
        (lambda _: '{"kind": "Backtest"}', "it is no saved incident"),
    ],
    ids=["edited", "cut", "another version", "a list", "deep", "another document"],
)
def test_a_file_that_is_no_whole_saved_incident_is_refused_in_one_sentence(
    replayed: Replayed, tmp_path: Path, change: Any, problem: str
) -> None:
    text = (FOLDER / "xid-79.json").read_text("utf-8")
    (tmp_path / "one.json").write_text(change(text))

    done = replayed(tmp_path / "one.json")

    assert (done.code, done.out) == (2, "")
    [line] = done.err.splitlines()
    assert problem in line


def test_fields_of_a_wrong_type_are_refused_although_the_digest_is_right(
    replayed: Replayed, tmp_path: Path
) -> None:
    text = (FOLDER / "xid-79.json").read_text("utf-8")
    line = json.loads(text)["lines"][0] | {"at": "yesterday"}
    (tmp_path / "one.json").write_text(changed(text, lines=[line]))

    done = replayed(tmp_path / "one.json")

    assert done.code == 2
    assert "lines[0].at is not a time" in done.err


def test_binary_large_and_missing_files_are_refused(
    replayed: Replayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.json").write_bytes(b"\xff\xfe\x00")
    assert replayed(tmp_path / "one.json").code == 2
    assert replayed(tmp_path / "none.json").code == 2
    monkeypatch.setattr(replay_incident, "BYTES_MOST", 10)
    assert "too large" in replayed(FOLDER / "xid-79.json").err


@pytest.fixture
def site(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Past]:
    with LokiServer(now_ns=lambda: ago_ns(0)) as loki:
        monkeypatch.setenv("LOG_ENDPOINT", loki.url)
        monkeypatch.chdir(tmp_path)
        past = Past(cluster("one faulty"), loki)
        past.fill()
        yield past


def written(run: Run, *options: str) -> tuple[Done, str]:
    done = run("incident", "save", "gpu-1", "-o", "one.json", "--since", "1d", *options)
    return done, Path("one.json").read_text("utf-8") if Path("one.json").exists() else ""


def test_a_saved_node_has_lines_settings_and_outage_and_replays_the_same(
    site: Past, run: Run, replayed: Replayed
) -> None:
    site.kernel((150, f"[850.0] {DEAD_GPU}"), node="gpu-2")  # no node of the failure group

    done, text = written(run)
    again = replayed("one.json")

    assert done.code == 0, done.err
    one = decode(text)
    whole = json.loads(text)
    assert (
        undescribed({**whole, "settings": {}, "nodes": [{**whole["nodes"][0], "record": {}}]}, KIND) == set()
    )
    assert [line.text for line in one.lines if "Xid" in line.text] == [f"[799.2] {DEAD_GPU}"]
    assert {line.node for line in one.lines} == {"gpu-1"}
    assert one.missing == (
        "The controller runs other rules (5f2c01d4) than the file has: the built-in ones.",
    )
    assert f"missing: {one.missing[0]}" in done.out
    assert (one.outages[0].at, one.outages[0].rule, one.outages[0].gpu) == (ago(192), "xid.79", GPU)
    assert [each.gpu_nodes for each in one.others] == [1]
    assert (again.code, "the same: gpu-1 is tainted for xid 79" in again.out) == (0, True), again.out


def test_the_nodes_of_the_failure_group_are_saved_too(site: Past, run: Run) -> None:
    group = "tenant-7/Job/llama@2026-05-06T11:57:00Z"
    site.trail(190, node="gpu-2", why="GPUFaultRecorded", rule="xid.45", failure_group=group)
    site.kernel((190, "[810.0] NVRM: Xid (PCI:0000:1b:00): 45, pid=7, Ch 00000008"), node="gpu-2")
    site.edit_record(
        lambda record: replace(
            record,
            incidents=tuple(
                replace(each, failure_group=group, role=Role.ROOT_CAUSE) for each in record.incidents
            ),
        )
    )

    one = decode(written(run)[1])

    assert [node.name for node in one.nodes] == ["gpu-1", "gpu-2"]
    assert {line.node for line in one.lines} == {"gpu-1", "gpu-2"}


def test_lines_of_pods_are_saved_only_if_somebody_asks(site: Past, run: Run) -> None:
    lines = [
        (ago_ns(199), NCCL),
        (ago_ns(198), "a secret about CUDA error handling"),
    ]
    pod = shipped("gpu-1", lines, namespace="default", pod="tenant-7-x", container="x")
    site.loki.push_otlp(pod)
    group = "tenant-7/Job/llama@2026-05-06T11:57:00Z"
    mark = Release(ago(300), "kim", "tenant-7 asked", ReleaseHow.RESET, warning="tenant-7")
    site.edit_record(
        lambda record: replace(
            record,
            releases=(mark,),
            life=Life(ago(192), quarantines=(Quarantine(ago(900), ago(300), "xid.48", ReleaseHow.RESET),)),
            incidents=tuple(
                replace(each, job="tenant-7/Job/llama", failure_group=group) for each in record.incidents
            ),
        )
    )

    without, with_pods = written(run)[1], written(run, "--force", "--with-pods")[1]

    assert "tenant-7" not in without
    assert "kim" not in without
    assert not saved_pods(without)
    assert decode(without).settings.namespaces == ()
    assert [line.text for line in saved_pods(with_pods)] == [NCCL]
    assert "secret" not in with_pods


def saved_pods(text: str) -> list[Any]:
    return [line for line in decode(text).lines if line.source is Source.POD]


def test_the_lines_begin_after_the_last_time_out(site: Past, run: Run) -> None:
    site.kernel((700, f"[300.0] {DEAD_GPU}"))
    past = Quarantine(ago(690), ago(600), "xid.79", ReleaseHow.REBOOT, gpu=GPU)
    site.edit_record(lambda record: replace(record, life=Life(ago(192), quarantines=(past,))))

    one = decode(written(run)[1])

    assert one.start == ago(600)
    assert not [line for line in one.lines if line.timestamp_ns < ago_ns(600)]
    record = one.nodes[0].record
    assert record.life.quarantines == (past,)
    assert record.life.probation_until == ago(600) + timedelta(days=1)


def test_a_node_without_an_outage_is_saved_as_it_is(site: Past, run: Run, replayed: Replayed) -> None:
    site.kernel((150, "[850.0] NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=python3, Ch 1"), node="gpu-2")

    done = run("incident", "save", "gpu-2", "--outage", "0", "-o", "two.json", "--since", "1d")
    again = replayed("two.json")

    one = decode(Path("two.json").read_text("utf-8"))
    assert done.code == 0, done.err
    assert (one.start, one.end) == (ago(86_400), NOW)
    assert "the same: gpu-2 is not tainted" in again.out


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["gpu-2"], 1, "gpu-2 was not out of service"),
        (["gpu-1", "--outage", "2"], 1, "gpu-1 has 1 outage"),
        (["gpu-1", "--outage", "0"], 2, "gpu-1 is out of service since"),
        (["gpu-9", "--outage", "0"], 1, "node/gpu-9 not found"),
    ],
)
def test_what_cannot_be_saved_is_told(run: Run, words: list[str], status: int, problem: str) -> None:
    done = run("incident", "save", *words, "-o", "one.json")

    assert done.code == status
    assert problem in done.err
    assert not Path("one.json").exists()


@pytest.mark.usefixtures("site")
def test_an_existing_file_is_replaced_only_with_force(run: Run) -> None:
    Path("one.json").write_text("mine")

    assert written(run)[0].code == 2
    assert Path("one.json").read_text() == "mine"
    assert written(run, "--force")[0].code == 0


def test_without_loki_or_cluster_nothing_is_saved(
    site: Past, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("KUBECONFIG", "/nowhere")
        no_cluster = written(run)
    site.loki.stop()
    no_loki = written(run)

    assert (no_cluster[0].code, no_cluster[1]) == (1, "")
    assert "the Nodes cannot be read" in no_cluster[0].err
    assert (no_loki[0].code, no_loki[1]) == (1, "")


@pytest.mark.usefixtures("site")
def test_the_rules_file_in_force_is_saved_with_what_is_wrong(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = "overrides: {xid.31.severity: fatal}\n"
    (tmp_path / "rules.yaml").write_text(rules)
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(tmp_path / "rules.yaml"))

    _, text = written(run)
    one = decode(text)

    assert one.rules == rules
    assert re.search(
        r"other rules \(5f2c01d4\) than the file has: those of KONDUCTOR_RULES_FILE", one.missing[0]
    )
    assert str(tmp_path) not in text


def test_without_the_controllers_settings_the_file_says_so(site: Past, run: Run, tmp_path: Path) -> None:
    note_on_the_lease(tmp_path, "trainy.konduktor.ai/settings", None)

    one = decode(written(run)[1])

    assert "The controller's settings are not known" in one.missing[0]
    assert site.loki.line_count


def test_a_storm_is_cut_and_the_file_says_so(site: Past, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "LINES_MOST", 2)
    site.kernel(*((100 - place, f"[9{place}.0] {DEAD_GPU}") for place in range(5)))

    one = decode(written(run)[1])

    assert len(one.lines) == 2
    assert any("There are more lines" in each for each in one.missing)


def test_no_line_at_all_is_told(site: Past, run: Run) -> None:
    site.loki.forget(ago_ns(0))

    assert any("past Loki's retention" in each for each in decode(written(run)[1]).missing)
    assert text_of(ago(192)) in Path("one.json").read_text()
