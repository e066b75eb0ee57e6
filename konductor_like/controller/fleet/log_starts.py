"""Decides which records were lost before a kernel-log reader began.

A reader that finds the beginning of the ring buffer overwritten prints ``kmsg/1 gap … from=0``. It cannot
know whether an earlier reader had printed those records. The controller knows: a heartbeat says up to which
record an earlier reader had printed everything::

    heartbeat seq=100   the reader is replaced   gap from=0 to=4999   heartbeat seq=5200
                                                 lost: 101 to 4999

Only heartbeats from before the gap line count, because those after it come from the new reader. Heartbeats
that arrive too late are not taken into account: then more counts as lost than was lost.
"""

from __future__ import annotations

from collections.abc import Collection

from konductor_like.detection import Heartbeat, Overrun

BEATS_KEPT = 3
"""Heartbeats of a node that are kept. Lines are read in order nearly always, so the last ones decide."""


class LogStarts:
    """Remembers up to which record the present boot of each node was heard."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {}
        """By node, a boot, and time and sequence of the last heartbeats that were read of it."""
        self._decided: dict[str, tuple[str, int]] = {}
        """By node, a boot, and the last record of the gaps at its beginning that were decided."""

    def note_heartbeat(self, node: str, heartbeat: Heartbeat, at_ns: int) -> None:
        """Note a heartbeat by its Loki timestamp."""
        boot, beats = self._beats.get(node, ("", ()))
        if boot != heartbeat.boot_id:
            boot, beats = heartbeat.boot_id, ()
        self._beats[node] = boot, (*beats, (at_ns, heartbeat.sequence))[-BEATS_KEPT:]

    def lost(self, node: str, gap: Overrun, at_ns: int) -> Overrun | None:
        """Return the part of a gap from record 0 on that nobody heard; None if there is none, or no new one.

        ``at_ns`` is the Loki timestamp of the gap's line.
        """
        boot, last = self._decided.get(node, ("", -1))
        if boot == gap.boot_id and gap.last <= last:
            return None
        self._decided[node] = gap.boot_id, gap.last
        boot, beats = self._beats.get(node, ("", ()))
        heard = [sequence for ns, sequence in beats if boot == gap.boot_id and ns < at_ns]
        first = max(heard, default=-1) + 1
        return Overrun(gap.boot_id, first, gap.last, gap.last + 1 - first) if first <= gap.last else None

    def forget_others(self, names: Collection[str]) -> None:
        """Forget all nodes but these."""
        self._beats = {name: beats for name, beats in self._beats.items() if name in names}
        self._decided = {name: decided for name, decided in self._decided.items() if name in names}
