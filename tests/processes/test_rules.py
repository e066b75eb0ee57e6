"""Users' rules in the real controller: it reads them again when their file changes, and on SIGHUP."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_63, XID_79
from tests.catalog.user_files import OWN_RULE
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes

NIC = "mlx5_core 0000:3d:00.0: device's health compromised - reached miss count"
FATAL_NIC = OWN_RULE.replace("severity: suspect", "severity: fatal")


def swap(file: Path, text: str) -> None:
    """Replace the file atomically."""
    new = file.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(file)


def test_rules_change_under_the_running_controller_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    swap(file, "overrides:\n  xid.79.mode: shadow\n")
    with Stage(gpu_nodes=6) as stage:
        controller = stage.start_controller(
            KONDUCTOR_RULES_FILE=str(file),
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.1",
            KONDUCTOR_BRAKE_MAX_PERCENT="100",
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)
        stage.kernel("gpu-01", XID_79)
        would = "node `gpu-01` has dmesg error that would have tainted it"
        until(logged(controller, would), "on trial", controller)

        swap(file, "overrides:\n  xid.63.severity: fatal\n")
        until(logged(controller, "new: xid.63.severity; gone: xid.79.mode"), "the file is read", controller)
        stage.kernel("gpu-02", XID_63)
        until(lambda: stage.node("gpu-02").tainted, "the new rules hold", controller)

        swap(file, "overrides:\n  xid.63.severity: none of them\n")
        until(logged(controller, "The earlier rules stay in force"), "the file is refused", controller)
        stage.kernel("gpu-03", XID_63)
        until(lambda: stage.node("gpu-03").tainted, "the old rules go on", controller)

        swap(file, FATAL_NIC)
        until(logged(controller, "new: site.nic_down"), "Loki is asked for another literal", controller)
        stage.kernel("gpu-04", NIC)
        until(lambda: stage.node("gpu-04").health == "faulty", "what nobody knew before taints", controller)

        controller.process.send_signal(signal.SIGHUP)
        until(logged(controller, "The rules have not changed"), "the file is read again", controller)
        assert not stage.node("gpu-01").tainted
        assert not logged(controller, "Traceback")()
