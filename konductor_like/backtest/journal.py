"""What happened in a simulation, kept as spans; bounded, since a bad rule may act without end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from konductor_like.backtest.values import HeldBack, Load, Outage, Verdicts
from konductor_like.model import Incident, Plan, Refusal, Refused, Verb

KEPT_MOST = 50_000
"""Outages, spans held back and changes of the load, each; of more only the number is told."""
_WAITING = frozenset({Refusal.BRAKE, Refusal.RATE, Refusal.COOLDOWN, Refusal.OPTED_OUT, Refusal.NOT_SELECTED})


@dataclass(slots=True)
class Journal:
    """Takes what every decision came to."""

    outages: list[Outage] = field(default_factory=list)
    held: list[HeldBack] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    faults: int = 0
    dropped: int = 0
    open_outages: dict[str, Outage] = field(default_factory=dict)
    open_held: dict[str, HeldBack] = field(default_factory=dict)

    def copy(self) -> Journal:
        """Another one that goes on from here."""
        return replace(
            self,
            outages=list(self.outages),
            held=list(self.held),
            loads=list(self.loads),
            open_outages=dict(self.open_outages),
            open_held=dict(self.open_held),
        )

    def decided(self, now_ns: int, plan: Plan) -> list[Outage]:
        """Note what a plan did; gives the outages that began."""
        self.faults += len(plan.counted)
        begun = [
            Outage(change.node, now_ns, None, change.incident)
            for change in plan.changes
            if change.verb is Verb.TAINT and change.incident is not None
        ]
        for outage in begun:
            self.open_outages[outage.node] = outage
        if plan.refused or self.open_held:
            self._refused(now_ns, plan.refused)
        return begun

    def released(self, now_ns: int, node: str) -> None:
        """The node is back."""
        outage = self.open_outages.pop(node, None)
        if outage is not None:
            self._keep(self.outages, replace(outage, end_ns=now_ns))

    def kept_out(self, node: str, why: str) -> None:
        """It does not come back when that was assumed."""
        if node in self.open_outages:
            self.open_outages[node] = replace(self.open_outages[node], why_longer=why)

    def load(self, now_ns: int, out: int) -> None:
        """So many nodes are out now."""
        if out != (self.loads[-1].out if self.loads else 0):
            self._keep(self.loads, Load(now_ns, out))

    def verdicts(self, rules: str, gpu_nodes: int) -> Verdicts:
        """All of it, by time."""
        outages = sorted([*self.outages, *self.open_outages.values()], key=lambda o: (o.start_ns, o.node))
        held = sorted([*self.held, *self.open_held.values()], key=lambda h: (h.start_ns, h.node))
        return Verdicts(
            rules, tuple(outages), tuple(held), tuple(self.loads), self.faults, gpu_nodes, self.dropped
        )

    def _refused(self, now_ns: int, refused: Iterable[Refused]) -> None:
        now_held: dict[str, HeldBack] = {}
        for item in refused:
            incident = item.about if item.why in _WAITING else None
            if not isinstance(incident, Incident) or item.node in now_held:
                continue
            before = self.open_held.get(item.node)
            same = before is not None and before.why is item.why
            now_held[item.node] = (
                before if before and same else HeldBack(item.node, now_ns, None, item.why, incident)
            )
        for name, span in self.open_held.items():
            if now_held.get(name) is not span:
                self._keep(self.held, replace(span, end_ns=now_ns))
        self.open_held = now_held

    def _keep(self, into: list, what: object) -> None:  # type: ignore[type-arg]  # one of three lists
        if len(into) < KEPT_MOST:
            into.append(what)
        else:
            self.dropped += 1
