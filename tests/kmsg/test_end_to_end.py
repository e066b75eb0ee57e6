"""A line written to this machine's /dev/kmsg taints a node once, on the whole path with stand-in servers."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from konductor_like.kmsg import BOOT_ID, DEVICE
from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.kmsg.pipeline import Collector, DmesgPod
from tests.processes.forked import CONSTANTS, forking
from tests.processes.waiting import until

NODE = "gpu-01"
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', {}, GPU has fallen off the bus."
XID_63 = "NVRM: Xid (PCI:0000:4e:00): 63, pid=2201, {}, Row Remapper: New row marked for remapping"


def _why_not() -> str:
    if "KUBERNETES_SERVICE_HOST" in os.environ or Path("/var/lib/kubelet").exists():
        return "this is a Kubernetes node or a pod: a real controller may read this kernel's log"
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        return f"it takes the right to read and write {DEVICE}: {error.strerror}"
    return ""


pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(_why_not()), reason=_why_not())]


@pytest.fixture
def echo() -> Iterator[Callable[[str], None]]:
    """Writes to the kernel log, under a lock against other runs of this test."""

    def write(text: str) -> None:
        descriptor = os.open(
            DEVICE, os.O_WRONLY
        )  # opened for each line: the kernel accepts ten lines per opener
        try:
            os.write(descriptor, text.encode() + b"\n")
        finally:
            os.close(descriptor)

    with Path(DEVICE).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield write


@pytest.fixture
def stage() -> Iterator[Stage]:
    with forking(), Stage(gpu_nodes=1) as ready:
        boot_id = Path(BOOT_ID).read_text(encoding="ascii").strip()
        ready.cluster.put_node(make_node(NODE, boot_id=boot_id))
        yield ready


def _sequence(line: str) -> int:
    head = re.match(r"kmsg/1 boot=\S+ seq=(\d+) facility=1 ", line)
    assert head is not None, line
    return int(head[1])


class Chain:
    """The dmesg pod, the collector and the controller for one node."""

    def __init__(self, stage: Stage, logs: Path) -> None:
        self._stage = stage
        self._logs = logs
        self._collector = Collector(stage.loki, NODE)
        self._controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
            **{CONSTANTS: "policy.change:RECORD_INTERVAL_SECONDS=1"},
        )

    def pod(self, restart: int) -> DmesgPod:
        """Return the dmesg pod after ``restart`` restarts."""
        return DmesgPod(self._logs, NODE, restart)

    def until_recorded(self, pod: DmesgPod, code: int, text: str) -> None:
        """Wait until the record on the node covers the line with ``text``, and so every line before it."""

        def recorded() -> bool:
            self._collector.ship(pod.log)
            lines = [line for line in self._collector.shipped if text in line]
            incidents = self._stage.node(NODE).record.get("incidents", ())
            positions = [each["at"]["seq"] for each in incidents if each["rule"] == f"xid.{code}"]
            return bool(lines and positions) and max(positions) >= _sequence(lines[0])

        until(recorded, f"the node's record covers {text}", self._controller)

    def tainted(self) -> bool:
        """Whether the node is tainted."""
        return self._stage.node(NODE).tainted

    def reset(self) -> None:
        """Reset the node as an operator does."""
        done = self._stage.run("reset", NODE, "--yes")
        assert done.returncode == 0, done.stderr

    def copies(self, text: str) -> int:
        """Return the number of lines with this text that went to Loki."""
        return sum(text in line for line in self._collector.shipped)


def test_an_echoed_xid_taints_a_node_once_and_the_next_one_again(
    tmp_path: Path, stage: Stage, echo: Callable[[str], None]
) -> None:
    run = secrets.token_hex(8)  # the kernel log may still have lines of earlier runs
    first, second, talk = (f"name={name}-{run}" for name in ("first", "second", "talk"))
    chain = Chain(stage, tmp_path)

    with chain.pod(restart=0) as pod:
        echo(XID_79.format(first))
        chain.until_recorded(pod, 79, first)
        assert chain.tainted()
    assert pod.code == 0
    chain.reset()
    assert not chain.tainted()

    with chain.pod(restart=1) as pod:  # which reads the whole buffer again
        echo(XID_63.format(talk))
        chain.until_recorded(pod, 63, talk)
        assert chain.copies(first) == 2
        assert not chain.tainted()

        echo(XID_79.format(second))
        chain.until_recorded(pod, 79, second)
        assert chain.tainted()
