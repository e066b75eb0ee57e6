"""A Node that was deleted and made anew goes on with what was known of it, and nothing acts twice."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.controller.returning import Returning
from konductor_like.model import EventReason, IncidentState, Machine, NodeRecord, Source, Verb
from konductor_like.policy import release
from tests.controller.ticks import Scene, xid
from tests.policy.scenes import at, node, ns


class Story:
    """One cluster, its tick, and what the term does between them."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.returning = Returning(None)
        self.turn(seconds=0)

    def turn(self, *lines: object, seconds: float) -> None:
        self.recall(seconds)
        self.scene.run(*lines, seconds=seconds)  # type: ignore[arg-type]  # lines, as the scene takes them
        self.recall(seconds)

    def recall(self, seconds: float) -> None:
        for returned in self.returning.look(self.scene.cluster.snapshot(), ns(seconds)):
            if not returned.record.empty:
                self.scene.tick.recall(returned.state.name, returned.record)

    def delete(self, name: str) -> None:
        del self.scene.cluster.nodes[name]

    def register(self, name: str, seconds: float) -> None:
        """The same machine, in the same boot, as a Node without any trace of us."""
        machine = Machine(f"uid-{seconds}", f"system-{name}", "boot-a")
        self.scene.cluster.nodes[name] = replace(node(name), machine=machine, created_ns=ns(seconds))


def test_a_taint_that_went_with_its_node_is_made_again() -> None:
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
    state = story.scene.cluster.nodes["gpu-1"]
    change = release(
        state, at=at(30), by="ann", reason="swapped", how="reset", read_ns={Source.KERNEL: ns(30)}
    )
    assert change is not None
    story.scene.cluster.write_all([(state, change)])
    released = story.scene.cluster.nodes["gpu-1"]
    record = change.record or NodeRecord()
    story.scene.cluster.nodes["gpu-1"] = replace(released, taints=(), record=record)
    story.turn(seconds=40)
    story.delete("gpu-1")
    story.turn(seconds=60)
    story.register("gpu-1", 90)
    story.turn(seconds=95)

    story.turn(xid(seconds=100), seconds=101)  # its kernel log is printed and read again

    assert story.scene.cluster.tainted == set()
    story.turn(xid(seconds=120, stamp=115), seconds=121)
    assert story.scene.cluster.tainted == {"gpu-1"}


def test_the_lines_that_are_read_again_for_it_count_nothing_twice() -> None:
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
