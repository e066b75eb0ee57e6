"""What people do to nodes, for the audit trail: seen on the Nodes, which the commands write directly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.controller.reporting.audit import Audit
from konductor_like.model import ControlAct, Controls, NodeState, Quarantine, ReleaseHow, Verb
from konductor_like.model.time import EPOCH
from konductor_like.policy.operator import PersonsAct, persons_acts

CLOCKS_APART = timedelta(days=1)
"""Time that the clock of a person's machine may be wrong, or that Nodes were written while nobody looked."""
RECENT = timedelta(minutes=10)
"""Age up to which the purge that the Lease notes is the one that was just seen on a Node."""


class PersonsWrites:
    """Logs what people do to nodes, from what has changed on the Nodes. For one thread.

    Each act is logged at least once: a controller that begins to lead logs the acts of the last day again,
    and those of the time in which no controller led.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._since: datetime | None = None
        self._seen: dict[str, NodeState] | None = None

    def begin(self, looked_at: datetime) -> None:
        """Begin a leadership; ``looked_at`` is when a controller last looked at the Nodes."""
        self._since, self._seen = max(looked_at, EPOCH + CLOCKS_APART) - CLOCKS_APART, None

    def see(
        self,
        nodes: Mapping[str, NodeState],
        controls: Controls,
        now: datetime,
        latest: Callable[[], Controls] | None = None,
        kept: Collection[str] = (),
    ) -> None:
        """Look at the Nodes, and log what people have done since the last look.

        The records of ``kept`` nodes are in memory, so a missing annotation is no purge.

        ``controls`` may be some seconds old. ``latest`` reads the Lease now: it names the person of a purge.
        """
        before, self._seen = self._seen, dict(nodes)
        since = now - CLOCKS_APART if self._since is None else self._since
        self._since = None
        were_out = {} if before is not None else {each.machine.node_uid: each for each in controls.tainted}
        for name, state in nodes.items():
            known = None if before is None else before.get(name)
            if known is state or (before is None and state.record.empty):
                continue
            if known is not None and known.as_read.uid != state.as_read.uid:
                known = None  # another Node of that name: no person purged the record
            was = were_out.get(state.as_read.uid)
            out_since = was.tainted_at if was else None
            for act in persons_acts(known, state, since=since, now=now, out_since=out_since):
                if act.verb is Verb.PURGE and name in kept:
                    continue
                if act.verb is Verb.PURGE and latest is not None:
                    controls, latest = latest(), None
                self._log(state, act, controls.purge, now, is_new=known is not None)
        if before is None:
            lost = {name: state for name, state in nodes.items() if name not in kept}
            self._log_purged_meanwhile(lost, controls, now)

    def wrote(self, states: Mapping[str, NodeState]) -> None:
        """Take Nodes that the controller has just written: what changed there was no person's act."""
        if self._seen is not None:
            self._seen.update(states)

    def _log_purged_meanwhile(
        self, nodes: Mapping[str, NodeState], controls: Controls, now: datetime
    ) -> None:
        """Log the Nodes that the last leader knew as tainted, and that have neither taint nor record now.

        The Lease notes only the last purge, which may have been another one, so nobody is named.
        """
        for was in controls.tainted:
            state = nodes.get(was.name)
            if state is None or state.tainted or state.record_kept or state.as_read.record is not None:
                continue
            # Without a reason its taint was a test's, or on the way and never written.
            if was.why and state.as_read.uid == was.machine.node_uid:
                ended = Quarantine(was.tainted_at, now, "", ReleaseHow.PURGED)
                act = PersonsAct(Verb.PURGE, "", None, now, was.why, ReleaseHow.PURGED, ended=ended)
                self._audit.done_by_person(state, act, None, is_new=False)

    def _log(
        self, state: NodeState, act: PersonsAct, purge: ControlAct | None, now: datetime, *, is_new: bool
    ) -> None:
        latest = state.record.act
        act_id = latest.id if latest is not None and latest.at == act.at else None
        is_noted = purge is not None and state.name in purge.names and now - purge.at < RECENT
        if act.verb is Verb.PURGE and purge is not None and is_noted:
            ended = replace(act.ended, released_at=purge.at) if act.ended else None
            act = replace(act, by=purge.by, at=purge.at, reason=purge.reason, ended=ended)
        self._audit.done_by_person(state, act, act_id, is_new=is_new)
