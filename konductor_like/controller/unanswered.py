"""Counts that were written without an answer: the node may tell of them already, or never will."""

from __future__ import annotations

from collections.abc import Mapping

from konductor_like.model import Change, NodeState, TallyKey, Unsettled
from konductor_like.policy.book import without_told

WRITES_MOST = 8
"""So many writes of one node are remembered, the latest of all; tries are ever further apart."""

Tallies = Mapping[str, Mapping[TallyKey, Unsettled]]


class Unanswered:
    """Remembers them until the node is seen to have changed: then it is known which of them happened."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[str | None, tuple[Unsettled, ...]]] = {}
        """By node, its record as the writes found it, and what they told of."""

    def note(self, state: NodeState, change: Change) -> None:
        """A write was sent, and nobody knows what came of it."""
        if not change.grown:
            return
        found = state.as_read.record
        text, before = self._sent.get(state.name, (found, ()))
        self._sent[state.name] = (found, ((before if text == found else ()) + change.grown)[-WRITES_MOST:])

    def forget(self, node: str) -> None:
        """A later write was answered, and tells of all."""
        self._sent.pop(node, None)

    def settled(self, nodes: Mapping[str, NodeState], tallies: Tallies) -> Tallies:
        """The tallies without what the nodes turn out to tell of."""
        for name, (text, sent) in list(self._sent.items()):
            state = nodes.get(name)
            if state is not None and state.as_read.record == text:
                continue  # it has not happened yet, as far as anybody can see
            del self._sent[name]
            if state is not None and name in tallies:
                tallies = {**tallies, name: without_told(state.record, tallies[name], sent)}
        return tallies
