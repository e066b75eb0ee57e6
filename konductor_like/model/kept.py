"""Records that a Node's annotation does not contain: the Lease keeps them in short (rule 21)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from konductor_like.model.nodes import NodeRecord, NodeState


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """The record of one Node whose annotation could not be written."""

    name: str
    record: NodeRecord
    """The record in short; its ``machine`` has the Node's UID."""
    beside: str = ""
    """The digest of the annotation that the Node had then; empty if it had none."""
    ahead: bool = False
    """Whether it was noted before the taint or the release that it is of: it counts once the Node shows that
    write."""

    @property
    def uid(self) -> str:
        """The UID of the Node."""
        return self.record.machine.node_uid if self.record.machine else ""

    @property
    def act(self) -> str:
        """The id of the write that made the record; it tells two entries of one Node apart."""
        act = self.record.act
        return f"{act.id} {act.at.isoformat()}" if act else ""

    def counts_for(self, state: NodeState) -> bool:
        """Whether this record counts for the Node, in place of its annotation.

        It counts as long as the Node has the annotation that it had then, or none any more. An annotation
        that somebody has written since is newer.
        """
        text = state.as_read.record
        is_present = text is None or digest(text) == self.beside
        is_written = not self.ahead or state.tainted == self.record.life.claimed
        return bool(self.uid) and state.as_read.uid == self.uid and is_present and is_written


def kept_beside(state: NodeState, record: NodeRecord, text: str | None, *, ahead: bool = False) -> KeptRecord:
    """Return what to keep of a Node whose annotation stays ``text`` although its record is ``record``."""
    machine = replace(record.machine or state.machine, node_uid=state.as_read.uid)
    record = replace(record, machine=machine)
    return KeptRecord(state.name, record, digest(text), ahead)


def with_kept(states: Mapping[str, NodeState], kept: Iterable[KeptRecord]) -> Mapping[str, NodeState]:
    """Return the nodes with the records that are known of them: of the annotation, or of the Lease.

    Everybody who reads Nodes, to decide or to show them, reads them through this function.
    """
    known = {
        each.name: replace(states[each.name], record=each.record, record_problem=None, record_kept=True)
        for each in kept
        if each.name in states and each.counts_for(states[each.name])
    }
    return {**states, **known} if known else states


def digest(text: str | None) -> str:
    """Return what identifies the text of an annotation; empty without one."""
    return "" if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
