"""Events are sent after the writes, beside the reconcile. What side work promises: `test_side_work.py`."""

from __future__ import annotations

from typing import Any, cast

from konductor_like.controller.side.announcer import Announcer
from konductor_like.controller.side.work import running
from konductor_like.model import Change, EventReason, Verb
from tests.policy.scenes import node


class Sender:
    """Remembers the Events that were sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, *event: object) -> bool:
        self.sent.append(event)
        return len(self.sent) > 1


def test_the_events_of_a_change_and_of_the_fleet_are_sent_before_the_end() -> None:
    nodes, fleet = Sender(), Sender()
    announcer = Announcer(cast("Any", nodes), cast("Any", fleet), lambda: {"name": "lease"})
    also = ((EventReason.ENDED, "xid 63 ended"),)

    with running(*announcer.threads):
        announcer.announce(
            node(), Change("gpu-1", Verb.RECORD, None, None, EventReason.RECORDED, "x", also=also)
        )
        announcer.announce(node(), Change("gpu-1", Verb.RECORD, None, None))
        announcer.fleet(EventReason.SILENT, "40 nodes are silent", "act-1")

    assert {(state.name, reason, message) for state, reason, message, *_ in nodes.sent} == {
        ("gpu-1", EventReason.RECORDED, "x"),
        ("gpu-1", EventReason.ENDED, "xid 63 ended"),
    }
    assert fleet.sent == [({"name": "lease"}, EventReason.SILENT, "40 nodes are silent", "act-1")]
    names = [thread.name for queue in announcer.threads for thread in queue._threads]
    assert names == ["events-0", "events-1", "events-2", "lease-events"]
