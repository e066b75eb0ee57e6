"""Commands use the controller's settings from the Lease, and never this machine's."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli.controls import brake_lines
from konductor_like.cli.session import ControllerReport
from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.record import encode
from konductor_like.cluster.published import SETTINGS_ANNOTATION, Published, encode_settings
from konductor_like.model import RECORD_ANNOTATION, BrakeState, Pace, Quarantine
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, ago, faulty, note_on_the_lease, settings_of
from tests.cluster.test_resource_slices import put_slice

DRY_TAINT = ("--reason", "x", "--dry-run")


def publish(folder: Path, settings: Published) -> None:
    note_on_the_lease(folder, SETTINGS_ANNOTATION, encode_settings(settings))


def stop_the_controller(folder: Path) -> None:
    """Release the Lease, as the controller does at its end."""
    with closing(KubeClient.connect(str(folder / "kubeconfig"), None, 10)) as client:
        path = lease_path("konductor-like", "konductor-like")
        client.patch(path, [{"op": "replace", "path": "/spec/holderIdentity", "value": ""}])


def brake_of(run: Run) -> dict[str, Any]:
    brake: dict[str, Any] = run("status", "-o", "json").document["brake"]
    return brake


def test_the_brakes_bound_is_the_controllers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    cluster("every state")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_PERCENT", "100")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_NODES", "7")
    assert brake_of(run)["bound"] == 2

    publish(tmp_path, settings_of(PolicyConfig(brake_max_percent=50)))
    assert brake_of(run)["bound"] == 6

    publish(tmp_path, settings_of(PolicyConfig(brake_max_nodes=0)))
    assert brake_of(run)["bound"] == 0


@pytest.mark.parametrize(
    "written",
    [None, "oops", encode_settings(settings_of(by="another-pod"))],
    ids=["older", "mangled", "of who led before an older one took over"],
)
def test_without_published_settings_the_bounds_are_not_known(
    written: str | None, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    cluster("brake full")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_PERCENT", "100")
    monkeypatch.setenv("KONDUCTOR_POOL_LABEL", "kubernetes.io/arch")
    monkeypatch.setenv("KONDUCTOR_BRAKE_POOL_MAX_PERCENT", "100")
    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, written)

    brake = brake_of(run)

    assert brake["bound"] is None
    assert brake["problem"].startswith("the controller's settings are not known: ")
    assert brake["pools"] == []
    assert {held["why"] for held in brake["held"]} == {None}
    assert run("brake", "status", "-o", "json").document["bound"] is None
    assert run("explain", "node", "gpu-2", "-o", "json").document["heldBack"] == []
    assert (
        "the reason is not known: the controller's settings are not known"
        in run("explain", "node", "gpu-2").out
    )
    assert "whether the brake allows the taint is not known" in run("taint", "gpu-2", *DRY_TAINT).err


def test_a_pause_is_shown_although_the_settings_are_not_known(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("brake full")
    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, None)
    assert run("pause", "--reason", "roll-out").code == 0

    assert {held["why"] for held in brake_of(run)["held"]} == {"paused"}
    assert run("explain", "node", "gpu-2", "-o", "json").document["heldBack"][0]["why"] == "paused"
    assert "would not have tainted it now: tainting is paused" in run("taint", "gpu-2", *DRY_TAINT).err


def test_the_controllers_settings_decide_which_nodes_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    server = cluster("healthy")
    marked = make_cpu_node("rack-7")
    marked["metadata"]["labels"]["example.com/gpus"] = "yes"
    server.put_node(marked)
    monkeypatch.setenv("KONDUCTOR_NODE_SELECTOR", "team=nobody")
    assert brake_of(run)["gpuNodes"] == 2
    assert run("taint", "gpu-1", *DRY_TAINT).err == ""

    publish(tmp_path, settings_of(gpu_node_selector="example.com/gpus", node_selector="team=training"))

    assert brake_of(run)["gpuNodes"] == 3
    assert "the controller's KONDUCTOR_NODE_SELECTOR excludes it" in run("taint", "gpu-1", *DRY_TAINT).err


def test_a_node_with_a_resource_slice_is_a_gpu_node_for_a_persons_taint_too(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy").put_node(make_cpu_node("dra-1"))
    assert run("taint", "dra-1", *DRY_TAINT).code == 1

    with closing(KubeClient.connect(str(tmp_path / "kubeconfig"), None, 10)) as client:
        put_slice(client, "dra-1")
    assert run("taint", "dra-1", *DRY_TAINT).code == 0


def test_pools_are_the_controllers(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    server = cluster("healthy")
    node = faulty("gpu-3")
    node["metadata"]["labels"]["pool"] = "h100"
    server.put_node(node)
    publish(tmp_path, settings_of(PolicyConfig(brake_pool_max_percent=30), pool_label="pool"))

    assert brake_of(run)["pools"] == [{"pool": "h100", "gpuNodes": 1, "out": 1, "bound": 1}]


def test_the_controllers_settings_decide_how_long_a_log_may_be_unread(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    monkeypatch.setenv("KONDUCTOR_HEARTBEAT_STALE_SECONDS", "1")
    assert run("status", "--exit-code").code == 0

    publish(tmp_path, settings_of(stale_seconds=10.0))
    assert run("status", "--exit-code").code == 5


def test_a_held_node_that_the_brake_would_allow_waits_for_a_running_controller(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("brake full")
    publish(tmp_path, settings_of(PolicyConfig(brake_max_percent=100)))
    assert "no longer held; will be tainted within seconds" in run("brake", "status").out

    stop_the_controller(tmp_path)
    assert "no longer held; will be tainted when a controller runs" in run("brake", "status").out
    assert "will be tainted when a controller runs" in run("explain", "node", "gpu-2").out


def test_the_brake_without_a_running_controller_says_that_no_node_is_tainted(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("brake full")
    assert "no controller runs" not in run("brake", "status").out

    stop_the_controller(tmp_path)
    assert "no controller runs, so no node is tainted: " in run("brake", "status").out


@pytest.mark.parametrize(
    "command", [("pause", "--reason", "x"), ("resume",), ("brake", "reset")], ids=" ".join
)
def test_an_order_to_a_controller_that_does_not_run_warns(
    command: tuple[str, ...], cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    warning = "warning: the controller does not run; it applies this when it starts\n"
    assert warning not in run("pause", "--reason", "roll-out").err

    stop_the_controller(tmp_path)
    done = run(*command)

    assert done.code == 0
    assert warning in done.err


def test_resume_tells_which_nodes_the_brake_still_holds(cluster: Cluster, run: Run) -> None:
    server = cluster("brake full")
    assert run("pause", "--reason", "roll-out").code == 0
    held = "the brake still holds 7 nodes: 1 of 8 GPU nodes are out of service, the limit is 1\n"
    assert run("resume").out == f"tainting resumed\n{held}"

    server.access.deny("list", "nodes")
    done = run("resume")
    assert (done.code, done.out) == (0, "tainting unchanged (it was not paused)\n")
    assert "warning: the nodes that the brake still holds are not known: " in done.err


def test_the_brakes_cool_down_names_its_end_and_the_command_that_ends_it() -> None:
    brake = BrakeState(gpu_nodes=10, out=1, bound=2, cooling=1, rearms_at=ago(-540))
    running = ControllerReport(
        "ns/lease", holder="pod", renewed=NOW, duration_seconds=30, settings=settings_of()
    )

    first, second, *_ = brake_lines(brake, running, NOW)
    assert first == "Brake:       1 of at most 2 (20 % of 10 GPU nodes) is out of service; none held"
    until = "until 2026-05-06T12:09:00Z (in 9m); `konductor-like brake reset` ends it"
    freed = "1 node released or deleted recently still counts as out of service"
    assert second == f"Cool-down:   {freed} {until}"


@pytest.mark.parametrize(
    ("settings", "most", "share"),
    [
        ({"brake_max_nodes": 5}, 5, "KONDUCTOR_BRAKE_MAX_NODES, for 300 GPU nodes"),
        ({"brake_max_nodes": 60}, 60, "20 % of 300 GPU nodes"),
        ({"brake_max_percent": 1.5}, 4, "1.5 % of 300 GPU nodes"),
    ],
    ids=["nodes", "as many", "percent"],
)
def test_the_brakes_limit_is_shown_as_the_setting_that_makes_it(
    settings: dict[str, Any], most: int, share: str
) -> None:
    brake = BrakeState(gpu_nodes=300, out=1, bound=most)
    running = ControllerReport("ns/lease", settings=settings_of(PolicyConfig(**settings)))

    first, *_ = brake_lines(brake, running, NOW)

    assert first == f"Brake:       1 of at most {most} ({share}) is out of service; none held"


def test_the_names_of_held_nodes_can_be_passed_on(cluster: Cluster, run: Run) -> None:
    cluster("brake full")

    assert run("brake", "status", "-o", "name").out.split() == [f"node/gpu-{n}" for n in range(2, 9)]


def test_explain_warns_when_the_controller_runs_other_rules(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster("healthy")
    assert "other rules" not in run("explain", "node", "gpu-1").out

    publish(tmp_path, settings_of(rules_digest="0badcafe"))
    told = "the controller runs other rules (0badcafe) than this machine has"
    assert told in run("explain", "node", "gpu-1").out
    assert told in run("explain", "node", "gpu-1", "-o", "json").document["otherRules"]

    shown = run("explain", "xid", "79", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert told in shown.err
    assert "taints the node at once" in shown.out
    assert run("explain", "xid", "79").err == ""  # reads no cluster without --context or --kubeconfig


def test_the_warning_of_a_reset_counts_by_the_controllers_days_or_not_at_all(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    server = cluster("healthy")
    node = faulty("gpu-3")
    stint = Quarantine(ago(172_800), ago(172_700), "xid.79")
    record = decode_node(node).record
    record = replace(record, life=replace(record.life, hold_until=ago(-3600), quarantines=(stint,)))
    node["metadata"]["annotations"][RECORD_ANNOTATION] = encode(record)
    server.put_node(node)
    publish(tmp_path, settings_of(PolicyConfig(repeat_days=3)))
    assert "it failed 2 times in 3 days" in run("reset", "gpu-3", "--yes", "--dry-run").err

    note_on_the_lease(tmp_path, SETTINGS_ANNOTATION, None)
    assert "it failed before" in run("reset", "gpu-3", "--yes", "--dry-run").err


def test_brake_status_says_how_many_of_the_nodes_out_of_service_take_no_place_from_a_fault() -> None:
    pace = Pace(4, 3, 3600, None, tests=1)
    brake = BrakeState(gpu_nodes=10, out=3, bound=2, tests=1, pace=pace)
    running = ControllerReport("konductor-like/konductor-like", settings=settings_of(PolicyConfig()))

    lines = list(brake_lines(brake, running, NOW))

    no_place = "; 1 of them for a test alone (Xid 14: it takes no place from a fault)"
    assert f"3 of at most 2 (20 % of 10 GPU nodes) are out of service{no_place}; none held" in lines[0]
    [rate] = [line for line in lines if line.startswith("Rate:")]
    assert "4 of at most 3 taints in the last" in rate
    assert rate.endswith(no_place)
