"""A Node that was deleted and made anew keeps its record, and no fault acts twice."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.cluster.lease import annotations as lease_annotations
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import (
    Coverage,
    EventReason,
    IncidentState,
    LogLine,
    Machine,
    NodeRecord,
    Source,
    Verb,
)
from konductor_like.policy.node.release import release
from tests.controller.reconciling import Scene, monitor, xid
from tests.policy.scenes import at, node, ns

BOOT = "6f0c1d7e-2f43-4c52-9f5a-0d8a4f3b2c11"


def record(sequence: int = 100, *, seconds: float = 1) -> LogLine:
    """Xid 79 as our reader prints it, with its boot."""
    prefix = f"kmsg/1 boot={BOOT} seq={sequence} facility=0 priority=3 "
    return replace(xid(), timestamp_ns=ns(seconds), text=prefix + xid(stamp=sequence).text)


class Story:
    """One cluster and its reconciler."""

    def __init__(self, boot: str = "boot-a") -> None:
        self.boot = boot
        self.scene = Scene(
            nodes={f"gpu-{number}": node(f"gpu-{number}", boot=boot) for number in range(1, 11)},
            fleet=monitor(Metrics()),
        )
        self.turn(seconds=0)

    def turn(self, *lines: object, seconds: float) -> None:
        self.scene.run(*lines, seconds=seconds)  # type: ignore[arg-type]  # lines, as the scene takes them

    def reset(self, name: str, seconds: float) -> None:
        """Run ``konductor-like reset NAME``."""
        state = self.scene.cluster.nodes[name]
        read_ns = {Source.KERNEL: ns(seconds)}
        change = release(state, at=at(seconds), by="ann", reason="swapped", read_ns=read_ns)
        assert change is not None
        self.scene.cluster.write_all([(state, change)])
        released = self.scene.cluster.nodes[name]
        self.scene.cluster.nodes[name] = replace(released, taints=(), record=change.record or NodeRecord())

    def stop(self, seconds: float) -> None:
        """End the controller; its knowledge is on the nodes and on the Lease."""
        self.stopped_seconds = seconds
        payload = lease_annotations.LeasePayload(self.scene.reconciler.checkpoint())
        lease = lease_annotations.annotated({}, lease_annotations.encode_payload(payload))
        self.start = lease_annotations.view(lease).checkpoint

    def begin(self) -> None:
        """Start the next controller at the Lease's cursor."""
        assert self.start is not None
        before, released = Coverage(at(self.stopped_seconds)), self.start.released
        fleet = monitor(Metrics(), before=before, released=released)
        self.scene = Scene(nodes=self.scene.cluster.nodes, start=self.start, fleet=fleet)

    def delete(self, name: str) -> None:
        del self.scene.cluster.nodes[name]

    def register(self, name: str, seconds: float) -> None:
        """Make the Node anew: the same machine and boot, without annotation and taint."""
        machine = Machine(f"uid-{seconds}", f"system-{name}", self.boot)
        self.scene.cluster.nodes[name] = replace(node(name), machine=machine, created_ns=ns(seconds))


def reset_and_stopped() -> Story:
    """Taint and reset a node, then end the controller."""
    story = Story(BOOT)
    story.turn(record(), seconds=2)
    story.reset("gpu-1", 30)
    story.turn(seconds=31)
    story.stop(40)
    return story


def test_a_taint_that_was_deleted_with_its_node_is_written_again() -> None:
    story = Story()
    story.turn(xid(), seconds=2)
    story.delete("gpu-1")
    story.turn(seconds=60)
    story.register("gpu-1", 90)

    story.turn(seconds=100)

    assert story.scene.cluster.tainted == {"gpu-1"}
    [incident] = story.scene.cluster.nodes["gpu-1"].record.incidents
    assert (incident.state, incident.count) == (IncidentState.ACTIVE, 1)


def test_a_reset_outlives_the_node_that_it_was_written_on() -> None:
    story = Story()
    story.turn(xid(), seconds=2)
    story.reset("gpu-1", 30)
    story.turn(seconds=40)
    story.delete("gpu-1")
    story.turn(seconds=60)
    story.register("gpu-1", 90)
    story.turn(seconds=95)

    story.turn(xid(seconds=100), seconds=101)  # its kernel log is printed and read again

    assert story.scene.cluster.tainted == set()
    story.turn(xid(seconds=120, stamp=115), seconds=121)
    assert story.scene.cluster.tainted == {"gpu-1"}


def test_a_reset_outlives_its_node_although_no_controller_saw_it_register_again() -> None:
    story = reset_and_stopped()
    story.delete("gpu-1")
    story.register("gpu-1", 90)
    story.begin()

    story.turn(record(), seconds=100)  # its kernel lines since boot are read again
    story.turn(record(seconds=110), seconds=111)  # and its reader prints the whole log again

    assert story.scene.cluster.tainted == set()
    [mark] = story.scene.cluster.nodes["gpu-1"].record.releases
    assert (mark.by, mark.reason) == ("ann", "swapped")
    story.turn(record(130, seconds=120), seconds=121)
    assert story.scene.cluster.tainted == {"gpu-1"}


def test_a_fault_while_no_controller_ran_taints_a_node_that_was_reset_and_made_anew() -> None:
    story = reset_and_stopped()
    story.delete("gpu-1")
    story.register("gpu-1", 90)
    story.begin()

    story.turn(record(), record(120, seconds=60), seconds=100)

    assert story.scene.cluster.tainted == {"gpu-1"}


def test_a_taint_that_was_deleted_with_its_node_while_no_controller_ran_is_written_again() -> None:
    story = Story(BOOT)
    story.turn(record(), seconds=2)
    story.stop(40)
    story.delete("gpu-1")
    story.register("gpu-1", 90)
    story.begin()

    story.turn(record(), seconds=100)

    assert story.scene.cluster.tainted == {"gpu-1"}


def test_a_reset_is_remembered_over_two_controllers_until_its_node_is_there_again() -> None:
    story = reset_and_stopped()
    story.delete("gpu-1")
    story.begin()
    story.turn(seconds=60)
    story.stop(70)
    story.register("gpu-1", 90)
    story.begin()

    story.turn(record(), seconds=100)

    assert story.scene.cluster.tainted == set()


def test_lines_read_again_for_a_node_made_anew_count_once() -> None:
    story = Story()
    story.turn(xid(), xid(stamp=101), seconds=2)
    story.delete("gpu-1")
    story.turn(seconds=60)
    story.register("gpu-1", 90)
    story.turn(seconds=95)

    story.turn(xid(), xid(stamp=101), seconds=120)

    [incident] = story.scene.cluster.nodes["gpu-1"].record.incidents
    assert incident.count == 2
    assert [change.verb for change in story.scene.cluster.written].count(Verb.TAINT) == 2
    events = [reason for _, reason in story.scene.cluster.events if reason is EventReason.TAINTED]
    assert len(events) == 2
