"""Commands speak of the controller's settings, as they stand on the Lease, and never of this machine's."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli import report
from konductor_like.cli.app import execute
from konductor_like.cluster.client import KubeClient, lease_path
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.cluster.node_record import encode
from konductor_like.cluster.published import SETTINGS_ANNOTATION, Published, encode_settings
from konductor_like.model import RECORD_ANNOTATION, Stint
from konductor_like.policy import Rules
from konductor_like.sandbox.fleet import make_cpu_node
from konductor_like.sandbox.kubernetes import KubernetesServer
from konductor_like.settings import Settings
from tests.cli.scenes import ago, faulty, note_on_the_lease, settings_of

Cluster = Callable[[str], KubernetesServer]


def run(*arguments: str) -> int:
    """Run the command; its exit status."""
    return execute(arguments, "konductor-like")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What it says with ``-o json``."""
    assert run(*arguments, "-o", "json") == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def publish(folder: Path, settings: Published) -> None:
    note_on_the_lease(folder, SETTINGS_ANNOTATION, encode_settings(settings))


def stop_the_controller(folder: Path) -> None:
    """It lets go of the Lease, as at its end."""
    with closing(KubeClient.connect(str(folder / "kubeconfig"), None, 10)) as client:
        client.patch(
            lease_path("konductor-like", "konductor-like"),
            {"spec": {"holderIdentity": ""}},
            "application/merge-patch+json",
        )


def bound(capsys: pytest.CaptureFixture[str]) -> int | None:
    found: int | None = document(capsys, "status")["brake"]["bound"]
    return found


def test_the_brakes_bound_is_the_controllers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("every state")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_PERCENT", "100")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_NODES", "7")
    assert bound(capsys) == 2

    publish(tmp_path, settings_of(Rules(brake_max_percent=50)))
    assert bound(capsys) == 6

    publish(tmp_path, settings_of(Rules(brake_max_nodes=0)))
    assert bound(capsys) == 0


@pytest.mark.parametrize(
    "written",
    [None, "oops", encode_settings(settings_of(by="another-pod"))],
    ids=["older", "mangled", "of who led before an older one took over"],
)
def test_where_the_controller_does_not_say_the_bounds_are_not_known(
    written: str | None,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    cluster("brake full")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_PERCENT", "100")
    monkeypatch.setenv("KONDUCTOR_POOL_LABEL", "kubernetes.io/arch")
    monkeypatch.setenv("KONDUCTOR_BRAKE_POOL_MAX_PERCENT", "100")
    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, written)

    brake = document(capsys, "status")["brake"]

    assert brake["bound"] is None
    assert brake["problem"].startswith("the controller's settings are not known: ")
    assert brake["pools"] == []
    assert {held["why"] for held in brake["held"]} == {None}
    assert document(capsys, "breaker", "status")["bound"] is None
    story = document(capsys, "explain", "node", "gpu-2")
    assert story["heldBack"] == []
    assert run("explain", "node", "gpu-2") == 0
    assert "why cannot be told: the controller's settings are not known" in capsys.readouterr().out
    assert run("taint", "gpu-2", "--reason", "x", "--dry-run") == 0
    assert "whether the brake has room for it cannot be told" in capsys.readouterr().err


def test_a_pause_is_told_though_the_settings_are_not_known(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("brake full")
    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, None)
    assert run("pause", "--reason", "roll-out") == 0
    capsys.readouterr()

    assert {held["why"] for held in document(capsys, "status")["brake"]["held"]} == {"paused"}
    assert document(capsys, "explain", "node", "gpu-2")["heldBack"][0]["why"] == "paused"
    assert run("taint", "gpu-2", "--reason", "x", "--dry-run") == 0
    assert "would not have tainted it now: tainting is paused" in capsys.readouterr().err


def test_which_nodes_count_is_the_controllers_word(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = cluster("healthy")
    marked = make_cpu_node("rack-7")
    marked["metadata"]["labels"]["example.com/gpus"] = "yes"
    server.put_node(marked)
    monkeypatch.setenv("KONDUCTOR_NODE_SELECTOR", "team=nobody")
    assert document(capsys, "status")["brake"]["gpuNodes"] == 2
    assert run("taint", "gpu-1", "--reason", "x", "--dry-run") == 0
    assert capsys.readouterr().err == ""

    publish(tmp_path, settings_of(gpu_node_selector="example.com/gpus", node_selector="team=training"))

    assert document(capsys, "status")["brake"]["gpuNodes"] == 3
    assert run("taint", "gpu-1", "--reason", "x", "--dry-run") == 0
    assert "the controller's KONDUCTOR_NODE_SELECTOR leaves it out" in capsys.readouterr().err


def test_pools_are_the_controllers(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = cluster("healthy")
    node = faulty("gpu-3")
    node["metadata"]["labels"]["pool"] = "h100"
    server.put_node(node)
    publish(tmp_path, settings_of(Rules(brake_pool_max_percent=30), pool_label="pool"))

    assert document(capsys, "status")["brake"]["pools"] == [
        {"pool": "h100", "gpuNodes": 1, "out": 1, "bound": 1}
    ]


def test_how_long_a_log_may_go_unread_is_the_controllers_word(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    monkeypatch.setenv("KONDUCTOR_HEARTBEAT_STALE_SECONDS", "1")
    assert {node["state"] for node in document(capsys, "status")["nodes"]} == {"healthy"}

    publish(tmp_path, settings_of(stale_seconds=10.0))
    assert {node["state"] for node in document(capsys, "status")["nodes"]} == {"unknown"}


def test_without_the_settings_the_default_span_holds() -> None:
    assert Settings.model_fields["heartbeat_stale_seconds"].default == report.STALE_SECONDS


def test_a_held_node_that_nothing_holds_waits_for_a_controller_that_runs(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("brake full")
    publish(tmp_path, settings_of(Rules(brake_max_percent=100)))
    assert run("breaker", "status") == 0
    assert "it passes at the next look" in capsys.readouterr().out

    stop_the_controller(tmp_path)
    assert run("breaker", "status") == 0
    assert "it passes when a controller runs" in capsys.readouterr().out
    assert run("explain", "node", "gpu-2") == 0
    assert "it is tainted when a controller runs" in capsys.readouterr().out


def test_explain_says_when_the_controller_runs_other_rules(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster("healthy")
    assert run("explain", "node", "gpu-1") == 0
    assert "other rules" not in capsys.readouterr().out

    publish(tmp_path, settings_of(rules_digest="0badcafe"))
    assert run("explain", "node", "gpu-1") == 0
    assert "the controller runs other rules (0badcafe) than this machine has" in capsys.readouterr().out
    assert "0badcafe" in document(capsys, "explain", "node", "gpu-1")["otherRules"]

    kubeconfig = str(tmp_path / "kubeconfig")
    assert run("explain", "xid", "79", "--kubeconfig", kubeconfig) == 0
    shown = capsys.readouterr()
    assert "the controller runs other rules (0badcafe)" in shown.err
    assert "taint the node at once" in shown.out
    assert run("explain", "xid", "79") == 0  # asks no cluster unless told which
    assert capsys.readouterr().err == ""


def test_a_resets_warning_counts_by_the_controllers_days_or_not_at_all(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = cluster("healthy")
    node = faulty("gpu-3")
    stint = Stint(ago(172_800), ago(172_700), "xid.79")
    record = replace(decode_node(node).record, hold_until=ago(-3600), stints=(stint,))
    node["metadata"]["annotations"][RECORD_ANNOTATION] = encode(record)
    server.put_node(node)
    publish(tmp_path, settings_of(Rules(repeat_days=3)))
    assert run("reset", "gpu-3", "--dry-run") == 0
    assert "it failed 2 times in 3 days" in capsys.readouterr().err

    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, None)
    assert run("reset", "gpu-3", "--dry-run") == 0
    assert "it failed before" in capsys.readouterr().err
