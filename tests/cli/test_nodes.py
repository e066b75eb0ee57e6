"""``reset``, ``taint`` and ``ack`` beyond their transcripts: writes, questions and conflicts."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.cli.nodes.commands import rule_of
from konductor_like.cli.options import with_plain_dry_run
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.lease_annotations import view
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.cluster.node_record import decode
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, Controls, IncidentState, NodeRecord, Source
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, OUR_TAINT, ago_ns, faulty

TAINT = ("taint", "gpu-2", "--reason", "riser swap")


def record_of(server: KubernetesServer, name: str) -> NodeRecord:
    """Return the record on a node."""
    record, problem = decode(server.node(name)["metadata"]["annotations"][RECORD_ANNOTATION])
    assert problem is None
    return record


def controls_of(server: KubernetesServer) -> Controls:
    """Return the acts that people wrote on the Lease."""
    [lease] = server.objects("leases", "konductor-like")
    return view(lease).controls


def test_after_two_dashes_dry_run_is_a_name() -> None:
    assert with_plain_dry_run(["--dry-run", "--", "--dry-run"]) == ["--dry-run=client", "--", "--dry-run"]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ([], None),
        (["XID.63"], "xid.63"),
        (["nvrm fallen off bus"], "nvrm.fallen_off_bus"),
        (["operator"], "operator"),
    ],
    ids=str,
)
def test_a_rule_may_be_named_as_people_write_it(words: list[str], rule: str | None) -> None:
    assert rule_of(words) == rule


def test_the_release_has_person_reason_and_cursor_by_the_clusters_clock(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konductor_like.cli.session.who", lambda: "kim@laptop")
    monkeypatch.setattr(KubeClient, "clock_ahead_seconds", -5.0)
    server = cluster("one faulty")

    assert run("reset", "gpu-1", "--reason", "riser swapped").code == 0

    record = record_of(server, "gpu-1")
    release = record.releases[0]
    assert (release.by, release.reason, release.how) == ("kim@laptop", "riser swapped", "reset")
    assert release.at == NOW - timedelta(seconds=5)  # not by the laptop's clock, which runs ahead
    assert release.read_ns == {Source.KERNEL: ago_ns(9), Source.POD: ago_ns(11)}
    assert [each.state for each in record.incidents] == [IncidentState.RELEASED]
    assert HEALTH_LABEL not in server.node("gpu-1")["metadata"]["labels"]
    [event] = server.objects("events", "default")
    assert event["reason"] == "GPUFaultReleased"
    assert record.act is not None
    assert event["message"].endswith(f"(audit id {record.act.id})")


def test_an_event_that_cannot_be_sent_does_not_fail_the_reset(cluster: Cluster, run: Run) -> None:
    cluster("one faulty").access.deny("create", "events")

    assert run("reset", "gpu-1").code == 0


@pytest.mark.parametrize("how", ["--dry-run", "--dry-run=server"])
@pytest.mark.parametrize(
    "command", [("reset",), ("reset", "--purge"), TAINT, ("ack", "gpu-1", "--reason", "x")], ids=" ".join
)
def test_a_dry_run_changes_nothing(command: tuple[str, ...], how: str, cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    before = server.objects("nodes")

    assert run(*command, how).code == 0

    assert server.objects("nodes") == before
    assert server.objects("events", "default") == []
    assert controls_of(server).purge is None
    sent = [call.request.params["dryRun"] for call in server.calls("patch")]
    assert bool(sent) is ("server" in how)
    assert all(value == ["All"] for value in sent)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (409, "node/gpu-1 keeps changing and was not reset; try again"),
        (404, "node/gpu-1 not found"),
    ],
)
def test_a_node_that_cannot_be_written_is_reported(
    status: int, said: str, cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")
    server.mishaps.add(refusal(status), times=None, when=matching("PATCH", "/nodes/gpu-1"))

    done = run("reset", "gpu-1")

    assert done.code == 1
    assert said in done.err


def test_a_node_that_fails_does_not_stop_the_others(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.put_node(faulty("gpu-3"))
    server.access.deny("patch", "nodes", name="gpu-1")

    assert run("reset", "--yes").code == 3
    assert not decode_node(server.node("gpu-3")).tainted


def test_a_record_mangled_by_hand_is_replaced_with_a_warning(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.edit_node("gpu-1", lambda node: node["metadata"]["annotations"].update({RECORD_ANNOTATION: "{"}))

    assert "node/gpu-1: its record was replaced" in run("reset", "gpu-1").err
    assert record_of(server, "gpu-1").releases


class Keyboard(io.StringIO):
    """A terminal on which a person types this text."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "typed", "status", "untainted"),
    [
        ([], "y\n", 0, True),
        ([], "n\n", 1, False),
        ([], "", 1, False),
        (["-y"], "", 0, True),
        (["gpu-1"], "", 0, True),
        (["--dry-run"], "", 0, False),
    ],
    ids=["yes", "no", "end of input", "-y", "by name", "dry run"],
)
def test_on_a_terminal_a_reset_of_all_nodes_asks_first(
    arguments: list[str],
    typed: str,
    status: int,
    untainted: bool,
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard(typed))

    assert run("reset", *arguments).code == status
    assert decode_node(server.node("gpu-1")).tainted is not untainted


@pytest.mark.parametrize(
    ("arguments", "scene", "asked"),
    [
        ([], "brake full", ["Reset 8 nodes: gpu-1, gpu-2, "]),
        (["--purge"], "every state", ["Purge 8 nodes: gpu-1, gpu-2, ", "are lost", "may taint them again"]),
    ],
    ids=["reset", "purge"],
)
def test_the_question_names_the_nodes_and_what_is_lost(
    arguments: list[str],
    scene: str,
    asked: list[str],
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster(scene)
    monkeypatch.setattr("sys.stdin", Keyboard("n\n"))

    done = run("reset", *arguments)

    assert done.out == ""
    assert all(part in done.err for part in asked)


def test_with_standard_input_closed_a_reset_without_names_needs_yes(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", None)

    assert run("reset").code == 2
    assert server.calls() == []
    assert run("reset", "--yes").code == 0
    assert not decode_node(server.node("gpu-1")).tainted


def test_purging_leaves_nothing_of_ours(cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    twin = server.node("gpu-7")["spec"]["taints"]

    assert run("reset", "--purge", "--yes").code == 0
    for node in server.objects("nodes"):
        assert "konduktor" not in str(_without_others(node))
    assert server.node("gpu-7")["spec"]["taints"] == twin


def _without_others(node: dict[str, Any]) -> dict[str, Any]:
    """Return what may be ours on a Node, without the opt-out label, others' taints and managedFields."""
    metadata = {key: value for key, value in node["metadata"].items() if key != "managedFields"}
    labels = {key: value for key, value in metadata["labels"].items() if not key.endswith("/ignore")}
    taints = [taint for taint in node["spec"].get("taints", ()) if taint == OUR_TAINT]
    return {"metadata": {**metadata, "labels": labels}, "taints": taints}


def test_a_purge_notes_on_the_lease_the_number_of_purged_nodes(cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    tainted = sum(OUR_TAINT in node["spec"].get("taints", ()) for node in server.objects("nodes"))
    assert tainted > 1

    assert run("reset", "--purge", "gpu-11").code == 0  # in service
    assert controls_of(server).purge is None
    assert run("reset", "--purge", "gpu-1").code == 0
    assert run("reset", "--purge", "--yes").code == 0

    purge = controls_of(server).purge
    assert purge is not None
    assert (purge.at, purge.nodes) == (NOW, tainted)


def test_a_purge_without_the_right_to_the_lease_goes_on_with_a_warning(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.access.deny("update", "leases", "*")

    done = run("reset", "gpu-1", "--purge")

    assert done.code == 0
    assert "the brake may taint other nodes at once" in done.err
    assert "taints" not in server.node("gpu-1")["spec"]


def test_a_taint_is_one_patch_with_its_tests_and_an_event_of_the_same_name(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")

    done = run(*TAINT, "-v")

    assert done.code == 0
    assert len(server.calls("patch")) == 1
    record = record_of(server, "gpu-2")
    [event] = server.objects("events", "default")
    assert server.node("gpu-2")["spec"]["taints"] == [OUR_TAINT]
    assert server.node("gpu-2")["metadata"]["labels"][HEALTH_LABEL] == "faulty"
    assert record.act is not None
    assert record.tainted_at == NOW
    assert event["metadata"]["annotations"] == {"trainy.konduktor.ai/act": record.act.id}
    assert event["message"].endswith(f"(audit id {record.act.id})")
    assert f"node/gpu-2: act {record.act.id}" in done.err


def test_a_node_that_changed_meanwhile_is_decided_again(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    patch = KubeClient.patch
    theirs = {"key": "team", "value": "a", "effect": "NoSchedule"}

    def late(self: KubeClient, *arguments: object, **options: object) -> object:
        monkeypatch.setattr(KubeClient, "patch", patch)
        server.edit_node("gpu-2", lambda node: node["spec"].update(taints=[theirs]))
        return patch(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(KubeClient, "patch", late)

    assert run(*TAINT).code == 0
    assert server.node("gpu-2")["spec"]["taints"] == [theirs, OUR_TAINT]


def test_anothers_taint_in_our_place_is_left_alone(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    theirs = [{**OUR_TAINT, "value": "someone-elses"}]
    server.edit_node("gpu-2", lambda node: node["spec"].update(taints=theirs))

    done = run(*TAINT)

    assert done.code == 1
    assert "already has a taint with our key" in done.err
    assert server.node("gpu-2")["spec"]["taints"] == theirs
