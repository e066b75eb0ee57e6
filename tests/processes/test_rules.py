"""Users' rules in the real process: another valid file starts it again, a bad one changes nothing."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from konductor_like_sandbox.demo.stage import COMMAND, Stage
from konductor_like_sandbox.demo.story import XID_63, XID_79
from tests.benchmarks.test_steady_bench import free_port
from tests.catalog.user_files import OWN_RULE
from tests.processes.test_status import answer
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

NIC = "mlx5_core 0000:3d:00.0: device's health compromised - reached miss count"
FATAL_NIC = OWN_RULE.replace("severity: suspect", "severity: fatal")


@pytest.fixture(autouse=True)
def _forked() -> None:
    """Start the programs as users do: a forked one has no command line of its own to start again."""


def swap(file: Path, text: str) -> None:
    """Replace the file atomically."""
    new = file.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(file)


def test_the_process_starts_again_for_other_valid_rules_and_a_bad_file_changes_nothing(
    tmp_path: Path,
) -> None:
    file, port, log = tmp_path / "rules.yaml", free_port(), tmp_path / "log"
    swap(file, "overrides:\n  xid.63.severity: fatal\n")
    with Stage(gpu_nodes=6) as stage, log.open("w") as said:
        settings = {
            "KONDUCTOR_RULES_FILE": str(file),
            "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1",
            "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
        }
        controller = stage.start_controller(KONDUCTOR_LISTEN=f"127.0.0.1:{port}", **settings)
        dry_run = subprocess.Popen(
            (*COMMAND, "run", "--dry-run"),
            env=stage.child_environment(KONDUCTOR_LISTEN="off", **settings),
            stderr=said,
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)

        swap(file, "overrides:\n  xid.63.severity: none of them\n")
        controller.process.send_signal(signal.SIGHUP)
        until(logged(controller, "The earlier rules stay in force"), "the file is refused", controller)
        assert "\nkonductor_like_rules_rejected 1.0\n" in answer(port, "/metrics")
        stage.kernel("gpu-01", XID_63)
        until(lambda: stage.node("gpu-01").tainted, "the old rules go on", controller)
        assert not stage.node("gpu-02").tainted

        swap(file, FATAL_NIC)
        until(logged(controller, "The controller starts again"), "the file is valid", controller)
        until(logged(controller, "site.nic_down"), "the new rules are in force", controller)
        stage.kernel("gpu-03", NIC)
        until(lambda: stage.node("gpu-03").health == "faulty", "what nobody knew before taints", controller)
        stage.kernel("gpu-04", XID_63)
        stage.kernel("gpu-05", XID_79)
        until(lambda: stage.node("gpu-05").tainted, "the built-in rules hold", controller)
        assert not stage.node("gpu-04").tainted
        assert "\nkonductor_like_rules_rejected 0.0\n" in answer(port, "/metrics")
        assert answer(port, "/healthz").startswith("ok")

        controller.process.send_signal(signal.SIGHUP)
        until(logged(controller, "The rules have not changed"), "the file is read again", controller)
        file.unlink()
        until(logged(controller, "is gone"), "a file that is gone is refused", controller)
        assert controller.stop() == 0
        assert not logged(controller, "Traceback")()
        assert sum("The controller starts again" in line for line in controller.log) == 1

        until(lambda: "site.nic_down" in log.read_text(), "the dry run starts again, too")
        dry_run.terminate()
        assert dry_run.wait(timeout=30) == 0
        assert "Traceback" not in log.read_text()
