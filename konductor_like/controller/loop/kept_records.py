"""Records that Nodes have no room for: this process has them whole, and the Lease in short (rule 21)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from konductor_like.cluster.lease.kept import Kept, that_fit
from konductor_like.cluster.node.writer import REFUSED_SECONDS
from konductor_like.model import Change, Controls, KeptRecord, NodeState, kept_beside, with_kept

AGAIN = timedelta(seconds=REFUSED_SECONDS)
"""Time after which a record is written to its Node again: somebody may have made room."""
WAITS = timedelta(minutes=1)
"""Time for which the release of a command on the Lease waits for the Node to show it."""
_ACTS_MOST = 1000


class KeptRecords:
    """The records that are not on their Nodes. One thread changes them; any thread may look."""

    def __init__(self) -> None:
        self.content = Kept()
        """The entries that the Lease should have."""
        self._records: Mapping[str, KeptRecord] = {}
        self._tried: dict[str, datetime] = {}
        self._waiting: dict[str, datetime] = {}
        """By entry of the Lease that does not count yet, when it was first seen."""
        self._asked_for: set[tuple[str, str | None]] = set()
        """The Nodes, by UID, and their records in short for which the Lease was read."""
        self._handled: deque[str] = deque(maxlen=_ACTS_MOST)
        """Entries of the Lease that were taken over, are our own, or count for no Node."""

    def over(self, states: Mapping[str, NodeState]) -> Mapping[str, NodeState]:
        """Return the nodes with the records that are known of them."""
        return with_kept(states, self._records.values())

    def see(
        self,
        read: Mapping[str, NodeState],
        controls: Controls,
        now: datetime,
        latest: Callable[[], Controls] | None = None,
    ) -> Mapping[str, NodeState]:
        """Look at Nodes and Lease, and return the nodes with the records that are known of them.

        ``latest`` reads the Lease now. It is asked when such a Node has lost its taint, or has a record in
        short that is not known: a command that wrote the Node has noted it there first.
        """
        found = {
            name: each for name, each in self._records.items() if name in read and each.counts_for(read[name])
        }
        gone = [name for name, each in found.items() if each.record.life.claimed and not read[name].tainted]
        shorts = {
            (state.as_read.uid, state.as_read.record)
            for name, state in read.items()
            if state.record_kept and name not in found
        }
        if latest is not None and (gone or shorts - self._asked_for):
            controls = latest()
        self._asked_for = shorts
        if controls.kept or controls.tainted or found or self._records:
            self._take_over(found, read, controls, now)
            for name in gone:
                if _is_purged(found[name], controls):
                    del found[name]
            self._set(found)
        return self.over(read)

    def wrote(self, state: NodeState, change: Change, now: datetime, *, has_record: bool) -> None:
        """Take in a write: ``state`` is the Node after it, ``has_record`` whether it has the whole record."""
        found = {name: each for name, each in self._records.items() if name != state.name}
        if not has_record and change.record is not None:
            found[state.name] = kept_beside(state, change.record, state.as_read.record)
            self._tried[state.name] = now
        if found or self._records:
            self._set(found)

    def due(self, now: datetime) -> frozenset[str]:
        """Return the nodes whose record should be tried again on the Node."""
        tried = self._tried
        return frozenset(name for name in self._records if not tried[name] <= now < tried[name] + AGAIN)

    def _take_over(
        self, found: dict[str, KeptRecord], read: Mapping[str, NodeState], controls: Controls, now: datetime
    ) -> None:
        """Take over what others wrote on the Lease: the leader before us, or a command."""
        handled = {*self._handled, *(each.act for each in found.values())}
        waiting = {}
        for each in controls.kept:
            if each.act in handled:
                continue
            state = read.get(each.name)
            if state is not None and each.counts_for(state):
                found[each.name] = kept_beside(state, each.record, state.as_read.record)
                self._tried[each.name] = now
            elif state is not None and each.ahead and each.uid == state.as_read.uid:  # not written yet
                since = self._waiting.get(each.act, now)
                if since <= now < since + WAITS:
                    waiting[each.act] = since
                    continue
            self._handled.append(each.act)
        self._waiting = waiting

    def _set(self, found: Mapping[str, KeptRecord]) -> None:
        for each in found.values():
            if each.act not in self._handled:
                self._handled.append(each.act)
        self._tried = {name: at for name, at in self._tried.items() if name in found}
        self._records = found
        self.content = Kept(tuple(that_fit(found.values())), frozenset(self._handled))


def _is_purged(kept: KeptRecord, controls: Controls) -> bool:
    """Whether somebody has removed everything of ours from the Node since."""
    purge, act = controls.purge, kept.record.act
    if purge is None or (act is not None and purge.at < act.at):
        return False
    return purge.may_name(kept.name)
