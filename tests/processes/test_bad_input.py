"""Bad input for the controller: it logs problem and remedy, loses no fault, and shows no traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, TAINT_KEY
from konductor_like_sandbox.demo.stage import CONTROLLER, RunningController, Stage
from konductor_like_sandbox.demo.story import XID_63, XID_79
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import HTML, Request
from konductor_like_sandbox.kubernetes.errors import refusal
from tests.processes import forked
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

QUICK = {"KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=6) as ready:
        yield ready


def asks_for_kernel_lines(request: Request) -> bool:
    query = request.param("query")
    return request.path.endswith("/query_range") and "NVRM" in query and "dmesg" in query


def refused_start(stage: Stage, **settings: str) -> str:
    """Start a controller that must end with exit code 2, and return its log."""
    ended = forked.run(CONTROLLER, env=stage.child_environment(KONDUCTOR_LISTEN="off", **settings))
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def assert_running_without_traceback(controller: RunningController) -> None:
    assert not logged(controller, "Traceback")()
    assert controller.process.poll() is None


MISHAPS = {
    "HTML": Mishap(status=200, body="<html>Sign in</html>", content_type=HTML),
    "truncated JSON": Mishap(cut_body_to=60),
}
"""Failures of Loki by a part of their log lines; ``tests/loki/test_client_failures.py`` has all kinds."""


def test_a_failing_loki_is_logged_and_no_fault_is_lost(stage: Stage) -> None:
    controller = stage.start_controller(**QUICK, KONDUCTOR_BRAKE_MAX_PERCENT="100")
    until(logged(controller, "Reading Loki"), "it leads", controller)
    for name, (expected, mishap) in zip(stage.gpu_nodes, MISHAPS.items(), strict=False):
        stage.loki.mishaps.add(mishap, times=None, when=asks_for_kernel_lines)
        stage.kernel(name, XID_79)
        until(logged(controller, expected), expected, controller)
        assert not stage.node(name).tainted

        stage.loki.mishaps.clear()
        until(lambda: stage.node(name).tainted, "the line is read once Loki works", controller)  # noqa: B023  # called at once

    assert_running_without_traceback(controller)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            {"LOG_ENDPOINT": "loki:3100", "KONDUCTOR_POLL_INTERVAL_SECONDS": "soon"},
            ["LOG_ENDPOINT", "loki:3100", "http://", "KONDUCTOR_POLL_INTERVAL_SECONDS", "soon"],
            id="no URL, text for a number",
        ),
        pytest.param({"KUBECONFIG": "/nowhere/config"}, ["/nowhere/config"], id="kubeconfig"),
        pytest.param(
            {"LOG_ENDPOINT": "https://127.0.0.1:9", "KONDUCTOR_LOKI_CA_FILE": "/nowhere/ca.pem"},
            ["/nowhere/ca.pem"],
            id="CA file",
        ),
    ],
)
def test_a_wrong_setting_ends_the_controller_with_code_2(
    stage: Stage, settings: dict[str, str], expected: list[str]
) -> None:
    shown = refused_start(stage, **settings)

    for part in expected:
        assert part in shown


def test_a_bad_rules_file_ends_the_controller_with_code_2_and_lists_every_problem(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("overrides:\n  xid.79.mode: loud\n  xid.80.severity: bad\n", "utf-8")

    shown = refused_start(stage, KONDUCTOR_RULES_FILE=str(file))

    assert "rules.yaml:2, overrides, xid.79.mode: 'loud' is not one of" in shown
    assert "rules.yaml:3, overrides, xid.80.severity: 'bad' is not one of" in shown


def test_a_missing_permission_is_named_at_the_start(stage: Stage) -> None:
    stage.cluster.access.deny("patch", "nodes")

    shown = refused_start(stage)

    assert "patch" in shown
    assert "nodes" in shown


def test_the_controller_logs_and_survives_nodes_that_people_edited(stage: Stage) -> None:
    def scribble(node: dict[str, dict[str, object]]) -> None:
        node["metadata"]["annotations"] = {RECORD_ANNOTATION: '{"v":1,"incidents":[{"rule":'}

    def own_taint(node: dict[str, dict[str, object]]) -> None:
        node["spec"]["taints"] = [
            {"key": "gpu", "value": "x", "effect": "NoExecute"},
            {"key": TAINT_KEY, "value": "maybe", "effect": "NoSchedule"},
        ]

    stage.cluster.edit_node("gpu-01", scribble)
    stage.cluster.edit_node("gpu-02", own_taint)
    controller = stage.start_controller(**QUICK)
    until(
        logged(controller, "node gpu-01: the controller cannot read all of the record"),
        "the record",
        controller,
    )
    until(logged(controller, f"{TAINT_KEY}=maybe:NoSchedule"), "the taint", controller)

    stage.kernel("gpu-01", XID_79)
    until(
        lambda: stage.cluster.node("gpu-01")["metadata"]["labels"].get(HEALTH_LABEL) == "faulty",
        "gpu-01 is tainted all the same, and its record is whole again",
        controller,
    )
    assert stage.node("gpu-01").recorded(79)

    assert stage.cluster.node("gpu-02")["spec"]["taints"][0]["key"] == "gpu"
    assert HEALTH_LABEL not in stage.cluster.node("gpu-02")["metadata"]["labels"]
    assert_running_without_traceback(controller)


def test_odd_lines_are_counted_and_hide_no_fault(stage: Stage) -> None:
    controller = stage.start_controller(**QUICK)
    until(logged(controller, "Reading Loki"), "it leads", controller)
    stage.push("", XID_79)
    stage.push("gone-node", XID_79)
    stage.push("gpu-04", "NVRM: Xid (PCI:0000:9a:00): 31, " + "x" * 250_000)
    stage.push("gpu-04", "NVRM: \x00\x00 Xid \ufffd\x1b[31m(\x00")
    stage.push("gpu-05", "\x00NVRM: Xid (PCI:0000:9a:00): 63, pid=1\x00")
    stage.kernel("gpu-06", XID_79)

    until(logged(controller, "name no node"), "the line without a node", controller)
    until(
        logged(controller, "node gone-node, but the cluster has no such Node"), "the unknown node", controller
    )
    until(lambda: stage.node("gpu-04").recorded(31), "the long line", controller)
    until(lambda: stage.node("gpu-06").tainted, "the good line", controller)
    assert [node.name for node in stage.nodes() if node.tainted] == ["gpu-06"]
    assert_running_without_traceback(controller)


def test_settings_without_effect_and_a_lease_held_elsewhere_are_named(stage: Stage) -> None:
    wrong = {"WATCHED_NAMESPACE": "ml", "WATCHED_NAMESPACES": "ml,kube-system"}
    first = stage.start_controller(**QUICK, **wrong, KONDUCTOR_LIKE_PORT="tcp://x")
    until(logged(first, "Reading Loki"), "the first leads", first)
    assert logged(first, "did you mean WATCHED_NAMESPACES?")()
    assert logged(first, "kube-system is left out")()
    assert not logged(first, "KONDUCTOR_LIKE_PORT")()

    second = stage.start_controller("--once", **QUICK)

    until(lambda: second.process.poll() is not None, "it does not wait with --once", second)
    assert second.process.returncode == 1
    assert logged(second, "has the Lease")()
    assert logged(second, "--dry-run")()


def test_a_dry_run_logs_its_changes_and_writes_nothing(stage: Stage) -> None:
    stage.kernel("gpu-01", XID_79)
    stage.kernel("gpu-02", XID_63)
    stage.cluster.clear_calls()

    dry_run = run_once(stage, "--dry-run")

    assert dry_run.process.returncode == 0
    until(logged(dry_run, "Node gpu-01 tainted. (dry run)"), "it says so")
    assert logged(dry_run, "a dry run has no saved cursor")()
    assert {call.verb for call in stage.cluster.calls()} <= {"get", "list", "watch"}


def run_once(stage: Stage, *arguments: str, **settings: str) -> RunningController:
    """Run a controller that reads to the present, acts and ends."""
    controller = stage.start_controller(*arguments, "--once", **QUICK, **settings)
    until(lambda: controller.process.poll() is not None, "it ends", controller)
    return controller


def test_a_run_with_once_reads_to_the_present_acts_and_ends(stage: Stage) -> None:
    stage.kernel("gpu-01", XID_79)

    controller = run_once(stage)

    assert controller.process.returncode == 0, list(controller.log)
    assert stage.node("gpu-01").tainted
    [lease] = stage.cluster.objects("leases", "konductor-like")
    cursor = json.loads(lease["metadata"]["annotations"]["trainy.konduktor.ai/cursor"])
    assert set(cursor["read"]) == {"kernel", "pod"}


def test_a_run_with_once_fails_if_a_due_write_failed(stage: Stage) -> None:
    stage.kernel("gpu-01", XID_79)
    stage.cluster.mishaps.add(refusal(403), times=None, when=lambda request: request.method == "PATCH")

    controller = run_once(stage)

    assert controller.process.returncode == 1


def test_a_run_with_once_can_be_stopped_while_loki_hangs(stage: Stage) -> None:
    stage.loki.mishaps.add(Mishap(delay_seconds=3600), times=None, when=asks_for_kernel_lines)
    controller = stage.start_controller("--once", **QUICK)
    until(logged(controller, "Reading Loki"), "it reads", controller)

    controller.process.terminate()

    assert controller.process.wait(timeout=20) == 1


LOST = (
    "NVRM: The NVIDIA GPU 0000:c7:00.0",
    "NVRM: (PCI ID: 10de:2335) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def test_a_user_written_record_is_ignored_by_a_setting_and_a_fault_of_several_lines_is_not(
    stage: Stage,
) -> None:
    stage.kernel("gpu-01", f"<12>{XID_79}")
    for line in LOST:
        stage.kernel("gpu-02", line)

    run_once(stage, KONDUCTOR_USER_WRITTEN="ignore")

    assert [node.name for node in stage.nodes() if node.tainted] == ["gpu-02"]
    [incident] = stage.node("gpu-02").record["incidents"]
    assert (incident["rule"], incident["gpu"]) == ("nvrm.fallen_off_bus", "0000:c7:00")
