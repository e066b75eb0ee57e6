"""``reset`` beyond its transcripts: what it writes, what it asks, what it does when somebody is faster."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.cli.app import execute
from konductor_like.cli.dryrun import with_plain_dry_run
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.lease_annotations import view
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.cluster.node_record import decode
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, Controls, IncidentState, NodeRecord, Source
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.scenes import NOW, OUR_TAINT, ago_ns, faulty

Cluster = Callable[[str], KubernetesServer]


def reset(*arguments: str) -> int:
    """Run the command; its exit status."""
    return execute(["reset", *arguments], "konductor-like")


def record_of(server: KubernetesServer, name: str) -> NodeRecord:
    """The record on a node."""
    record, problem = decode(server.node(name)["metadata"]["annotations"][RECORD_ANNOTATION])
    assert problem is None
    return record


def controls_of(server: KubernetesServer) -> Controls:
    """What people wrote on the Lease."""
    [lease] = server.objects("leases", "konductor-like")
    return view(lease).controls


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        (["--dry-run"], ["--dry-run=client"]),
        (["--dry-run", "gpu-1"], ["--dry-run=client", "gpu-1"]),
        (["--dry-run=server"], ["--dry-run=server"]),
        (["--", "--dry-run"], ["--", "--dry-run"]),
    ],
    ids=["alone", "before a name", "with a value", "as a name"],
)
def test_dry_run_may_stand_alone(typed: list[str], understood: list[str]) -> None:
    assert with_plain_dry_run(typed) == understood


def test_the_release_says_who_why_and_up_to_where(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("konductor_like.cli.writing.who", lambda: "kim@laptop")

    assert reset("gpu-1", "--reason", "riser swapped") == 0

    release = record_of(server, "gpu-1").releases[0]
    assert (release.by, release.reason, release.how, release.at) == (
        "kim@laptop",
        "riser swapped",
        "reset",
        NOW,
    )
    assert release.read_ns == {Source.KERNEL: ago_ns(9), Source.POD: ago_ns(11)}
    assert [each.state for each in record_of(server, "gpu-1").incidents] == [IncidentState.RELEASED]


def test_a_cursor_from_the_future_covers_nothing_that_is_still_to_come(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubeClient, "clock_ahead_seconds", -10.0)  # the scene's cursors are 9 and 11 s old
    server = cluster("one faulty")

    assert reset("gpu-1") == 0

    release = record_of(server, "gpu-1").releases[0]
    assert release.read_ns == {Source.KERNEL: ago_ns(10), Source.POD: ago_ns(11)}


def test_a_laptops_clock_that_runs_ahead_covers_nothing_that_is_still_to_come(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubeClient, "clock_ahead_seconds", -3600.0)
    server = cluster("one faulty")

    assert reset("gpu-1") == 0

    assert record_of(server, "gpu-1").releases[0].at == NOW - timedelta(hours=1)


def test_an_event_tells_of_it_and_the_health_label_goes(cluster: Cluster) -> None:
    server = cluster("one faulty")
    reset("gpu-1")

    assert [event["reason"] for event in server.objects("events", "default")] == ["GPUFaultReleased"]
    assert HEALTH_LABEL not in server.node("gpu-1")["metadata"]["labels"]


def test_an_event_that_cannot_be_sent_does_not_fail_the_reset(cluster: Cluster) -> None:
    server = cluster("one faulty")
    server.access.deny("create", "events")

    assert reset("gpu-1") == 0


def test_other_taints_stay_where_they_are(cluster: Cluster) -> None:
    server = cluster("one faulty")
    others = [
        {"key": "maintenance", "value": "yes", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "effect": "NoExecute"},
    ]
    server.edit_node("gpu-1", lambda node: node["spec"].update(taints=[others[0], OUR_TAINT, others[1]]))

    assert reset("--yes") == 0
    assert server.node("gpu-1")["spec"]["taints"] == others


@pytest.mark.parametrize("dry_run", ["--dry-run", "--dry-run=client", "--dry-run=server"])
def test_a_dry_run_changes_nothing(dry_run: str, cluster: Cluster) -> None:
    server = cluster("every state")
    before = server.objects("nodes")

    assert reset(dry_run) == 0
    assert reset(dry_run, "--purge") == 0
    assert server.objects("nodes") == before
    assert server.objects("events", "default") == []


def test_a_client_dry_run_sends_no_write_and_a_server_one_says_all(cluster: Cluster) -> None:
    server = cluster("one faulty")
    reset("--dry-run=client")
    reset("--dry-run=client", "gpu-1")
    assert server.calls("patch") == []

    reset("--dry-run=server")
    assert [call.request.params["dryRun"] for call in server.calls("patch")] == [["All"]]


def test_when_somebody_is_faster_the_node_is_decided_on_again(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    # The server says 409 once, as it does when another write came in between.
    server.mishaps.add(refusal(409), when=matching("PATCH", "/nodes/gpu-1"))

    assert reset("gpu-1") == 0
    assert capsys.readouterr().out == "node/gpu-1 untainted\n"
    assert not decode_node(server.node("gpu-1")).tainted


def test_a_node_that_keeps_changing_is_given_up_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    server.mishaps.add(refusal(409), times=None, when=matching("PATCH", "/nodes/gpu-1"))

    assert reset("gpu-1") == 1
    assert "node/gpu-1 keeps changing and was not reset; try again" in capsys.readouterr().err


def test_a_node_deleted_meanwhile_is_not_found(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    server = cluster("one faulty")
    server.mishaps.add(refusal(404), when=matching("PATCH", "/nodes/gpu-1"))

    assert reset("gpu-1") == 1
    assert "node/gpu-1 not found" in capsys.readouterr().err


def test_one_node_that_fails_does_not_keep_the_others(cluster: Cluster) -> None:
    server = cluster("one faulty")
    server.put_node(faulty("gpu-3"))
    server.access.deny("patch", "nodes", name="gpu-1")

    assert reset("--yes") == 3
    assert not decode_node(server.node("gpu-3")).tainted


def test_a_record_mangled_by_hand_is_replaced_and_that_is_told(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    server.edit_node("gpu-1", lambda node: node["metadata"]["annotations"].update({RECORD_ANNOTATION: "{"}))

    assert reset("gpu-1") == 0
    assert "node/gpu-1: its record was replaced" in capsys.readouterr().err
    assert record_of(server, "gpu-1").releases


class Keyboard(io.StringIO):
    """A terminal on which this is typed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "typed", "status", "untainted"),
    [
        ([], "y\n", 0, True),
        ([], "n\n", 1, False),
        ([], "\n", 1, False),
        ([], "", 1, False),
        (["--yes"], "", 0, True),
        (["-y"], "", 0, True),
        (["gpu-1"], "", 0, True),
        (["--dry-run"], "", 0, False),
    ],
    ids=["yes", "no", "return", "end of input", "--yes", "-y", "by name", "dry run"],
)
def test_on_a_terminal_a_reset_of_all_is_asked_about(
    arguments: list[str],
    typed: str,
    status: int,
    untainted: bool,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard(typed))

    assert reset(*arguments) == status
    assert decode_node(server.node("gpu-1")).tainted is not untainted


def test_the_question_names_the_nodes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("brake full")
    monkeypatch.setattr("sys.stdin", Keyboard("n\n"))
    reset()

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Reset 8 nodes: gpu-1, gpu-2, " in printed.err


def test_the_question_of_a_purge_says_what_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("every state")
    monkeypatch.setattr("sys.stdin", Keyboard("n\n"))

    assert reset("--purge") == 1

    asked = capsys.readouterr().err
    assert "Purge 8 nodes: gpu-1, gpu-2, " in asked
    assert "is lost" in asked
    assert "may taint them again" in asked


@pytest.mark.parametrize("stdin", [io.StringIO("n\n"), io.StringIO("y\n"), None], ids=["n", "y", "closed"])
@pytest.mark.parametrize(
    "arguments", [[], ["--purge"], ["-l", "kubernetes.io/hostname=gpu-1"]], ids=["all", "purge", "selector"]
)
def test_without_a_terminal_a_reset_without_names_needs_yes_whatever_the_pipe_says(
    arguments: list[str],
    stdin: io.StringIO | None,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = cluster("one faulty")
    before = server.objects("nodes")
    monkeypatch.setattr("sys.stdin", stdin)

    assert reset(*arguments) == 2

    assert "--yes" in capsys.readouterr().err
    assert server.objects("nodes") == before
    assert server.calls() == []

    assert reset(*arguments, "--yes") == 0
    assert not decode_node(server.node("gpu-1")).tainted


def test_purging_leaves_nothing_of_ours(cluster: Cluster) -> None:
    server = cluster("every state")
    twin = server.node("gpu-7")["spec"]["taints"]

    assert reset("--purge", "--yes") == 0
    for node in server.objects("nodes"):
        assert "konduktor" not in str(_without_others(node))
    assert server.node("gpu-7")["spec"]["taints"] == twin


def _without_others(node: dict[str, Any]) -> dict[str, Any]:
    """What of a Node could be ours: not the opt-out label, not another's taint, not the field history."""
    metadata = {key: value for key, value in node["metadata"].items() if key != "managedFields"}
    labels = {key: value for key, value in metadata["labels"].items() if not key.endswith("/ignore")}
    taints = [taint for taint in node["spec"].get("taints", ()) if taint == OUR_TAINT]
    return {"metadata": {**metadata, "labels": labels}, "taints": taints}


def test_a_purge_notes_on_the_lease_how_many_it_brought_back(cluster: Cluster) -> None:
    server = cluster("every state")
    tainted = sum(OUR_TAINT in node["spec"].get("taints", ()) for node in server.objects("nodes"))
    assert tainted > 1

    assert reset("--purge", "gpu-1") == 0
    assert reset("--purge", "--yes") == 0

    purge = controls_of(server).purge
    assert purge is not None
    assert (purge.at, purge.nodes) == (NOW, tainted)


@pytest.mark.parametrize("how", ["--dry-run", "--dry-run=server"])
def test_a_rehearsed_purge_notes_nothing(how: str, cluster: Cluster) -> None:
    server = cluster("every state")

    assert reset("--purge", how) == 0

    assert controls_of(server).purge is None


def test_a_purge_of_nodes_in_service_notes_nothing(cluster: Cluster) -> None:
    server = cluster("one faulty")

    assert reset("gpu-2", "--purge") == 0

    assert controls_of(server).purge is None


def test_a_purge_without_the_right_to_the_lease_goes_on_and_says_what_that_means(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    server.access.deny("update", "leases", "*")

    assert reset("gpu-1", "--purge") == 0

    assert "the brake may use the room at once" in capsys.readouterr().err
    assert "taints" not in server.node("gpu-1")["spec"]
