"""Replays a saved incident through the controller's own code, and compares it with what was done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from konductor_like.backtest.history import Page, polls
from konductor_like.backtest.incident import OtherNodes, OtherOutage, SavedIncident, SavedNode, SavedOutage
from konductor_like.backtest.result import Outage, Verdicts
from konductor_like.backtest.simulation import SimulatedNodes, Simulation, healthy_node
from konductor_like.catalog import UserRules
from konductor_like.detection import Detector
from konductor_like.model import (
    OPERATOR_RULE,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    Severity,
    Source,
    Taint,
)
from konductor_like.model.time import moment_of, span_ns, stamp, unix_ns
from konductor_like.policy.wording import on_device

ARRIVAL_SECONDS = 5.0
"""Seconds that a line may take from the kernel to Loki; in a replay it is there at once."""
_POD_POLL_SECONDS = 15.0
_OTHER = IncidentKey("xid.79", None)


@dataclass(frozen=True, slots=True)
class Replay:
    """What the rules would have done, and how that differs from what the controller did."""

    verdicts: Verdicts
    differences: tuple[str, ...]
    """Sentences; none if the outcome is the same."""
    controls: bool = False
    """Whether a pause or a reset of the brake, which no file has, could explain a difference."""
    nothing: str = ""
    """Why there is nothing to replay; empty if there is."""

    @property
    def same(self) -> bool:
        """Whether the outcome is the same."""
        return not self.differences


def replay(incident: SavedIncident, rules: UserRules) -> Replay:
    """Play the lines with these rules. Pure."""
    settings = incident.settings
    poll_ns = span_ns(settings.poll_interval_seconds)
    start_ns, end_ns = unix_ns(incident.start), unix_ns(incident.end)
    policy = settings.policy.with_escalations(rules.catalog.escalations, rules.digest)
    others = list(_other_nodes(incident.others))
    nodes = SimulatedNodes(
        [*map(_saved_node, incident.nodes), *(healthy_node(name) for name, _, _ in others)], complete=True
    )
    for each in incident.nodes:  # the simulation begins without marks
        nodes.apply(replace(nodes.snapshot()[each.name], pool=each.pool, record=_fresh(each.record)))
    for name, pool, _ in others:
        nodes.apply(replace(nodes.snapshot()[name], pool=pool))
    simulation = Simulation(
        Detector(rules.catalog), policy, nodes, poll_ns=poll_ns, release_after_ns=None, start_ns=start_ns
    )
    happenings = sorted(_happenings(others, start_ns, end_ns), key=lambda each: each[0])
    pages = {
        source: [Page([line for line in incident.lines if line.source is source], end_ns)]
        for source in Source
    }
    intervals = {Source.KERNEL: poll_ns, Source.POD: max(poll_ns, span_ns(_POD_POLL_SECONDS))}
    for now_ns, lines in polls(pages, intervals):
        while happenings and happenings[0][0] <= now_ns:
            at_ns, name, one = happenings.pop(0)
            nodes.apply(_at(nodes.snapshot()[name], one, at_ns))
            simulation.poll(at_ns, ())
        if lines:
            simulation.poll(now_ns, lines)
    simulation.finish(end_ns + poll_ns + span_ns(ARRIVAL_SECONDS))  # a deferred taint may be due just then
    verdicts = simulation.verdicts()
    if why := nothing_to_replay(incident):
        return Replay(verdicts, (), nothing=why)
    found = list(_differences(incident, verdicts))
    return Replay(verdicts, tuple(words for words, _ in found), any(controls for _, controls in found))


def nothing_to_replay(incident: SavedIncident) -> str:
    """Return why no line of a log explains the taint; empty if one may."""
    for each in incident.outages:
        if each.node != incident.node:
            continue
        if each.rule == OPERATOR_RULE:
            return f"a person tainted {each.node} at {stamp(each.at)}, so there is no decision to replay"
        if each.rule.startswith(f"{FaultKind.NODE}."):
            return (
                f"{each.rule} is a fact that the Node shows, and no line of a log, so it cannot be replayed"
            )
    return ""


def _differences(incident: SavedIncident, verdicts: Verdicts) -> Iterator[tuple[str, bool]]:
    """Yield each difference, and whether an operator's control could explain it."""
    done: dict[str, SavedOutage] = {}
    for each in sorted(incident.outages, key=lambda each: each.at):
        done.setdefault(each.node, each)
    would: dict[str, Outage] = {}
    for outage in verdicts.outages:
        would.setdefault(outage.node, outage)
    allowed = timedelta(seconds=incident.settings.poll_interval_seconds + ARRIVAL_SECONDS)
    names = dict.fromkeys([incident.node, *(node.name for node in incident.nodes), *would])
    for name in names:
        before, after = done.get(name), would.get(name)
        if before is None and after is not None:
            why = _fault(after.incident.key.rule, after.incident.key.gpu)
            too = "is tainted too" if done and name != incident.node else "is tainted"
            at = stamp(moment_of(after.start_ns))
            yield f"{name} {too} ({why}) at {at}; the controller did not taint it", True
        elif before is not None and after is None:
            held = next((span.why.value for span in verdicts.held if span.node == name), "")
            because = f" (held back: {held})" if held else ""
            yield (
                (
                    f"{name} is not tainted{because}; the controller tainted it at {stamp(before.at)} "
                    f"({_fault(before.rule, before.gpu)})"
                ),
                bool(held),
            )
        elif before is not None and after is not None:
            yield from _changed(before, after, allowed)


def _changed(before: SavedOutage, after: Outage, allowed: timedelta) -> Iterator[tuple[str, bool]]:
    key = after.incident.key
    if (key.rule, key.gpu) != (before.rule, before.gpu):
        old, new = _fault(before.rule, before.gpu), _fault(key.rule, key.gpu)
        yield f"{before.node} is tainted for another fault: {new} instead of {old}", False
    at = moment_of(after.start_ns)
    apart = at - before.at
    if abs(apart) > allowed:
        when = "later" if apart > timedelta(0) else "earlier"
        seconds = abs(apart).total_seconds()
        words = f"{seconds:.0f} s {when}: at {stamp(at)} instead of {stamp(before.at)}"
        yield f"{before.node} is tainted {words}", True


def _fault(rule: str, gpu: str | None) -> str:
    name = rule.replace(".", " ").replace("_", " ")
    return f"{name}{on_device(IncidentKey(rule, gpu))}"


def _saved_node(node: SavedNode) -> NodeState:
    return replace(healthy_node(node.name), pool=node.pool, domain=node.domain)


def _fresh(record: NodeRecord) -> NodeRecord:
    """Return the record of before; the boots are those that the lines name."""
    return replace(record, machine=None, past_boots=(), read=KernelPosition(), booted_after_ns=None)


def _other_nodes(others: Sequence[OtherNodes]) -> Iterator[tuple[str, str | None, tuple[OtherOutage, ...]]]:
    """Yield a name, the pool and the outages of each other GPU node; each outage gets a node of its own."""
    number = 0
    for each in others:
        for place in range(max(each.gpu_nodes, len(each.outages))):
            number += 1
            yield f"other.{number}", each.pool, each.outages[place : place + 1]


def _happenings(
    others: Sequence[tuple[str, str | None, tuple[OtherOutage, ...]]], start_ns: int, end_ns: int
) -> Iterator[tuple[int, str, OtherOutage]]:
    for name, _, outages in others:
        for one in outages:
            yield max(start_ns, unix_ns(one.since)), name, one
            if one.until is not None and unix_ns(one.until) <= end_ns:
                yield max(start_ns, unix_ns(one.until)), name, one


def _at(state: NodeState, one: OtherOutage, at_ns: int) -> NodeState:
    """Return another node at the begin or the end of its outage."""
    if one.until is not None and at_ns >= unix_ns(one.until):
        past = Quarantine(one.since, one.until, _OTHER.rule, ReleaseHow.RESET)
        return replace(state, taints=(), record=NodeRecord(life=Life(quarantines=(past,))))
    fault = Incident(
        _OTHER, FaultKind.XID, Severity.FATAL, IncidentState.ACTIVE, 1, at_ns, at_ns, KernelPosition()
    )
    record = NodeRecord(life=Life(tainted_at=one.since), incidents=(fault,))
    ours, seen = Taint(TAINT_KEY, TAINT_VALUE, TAINT_EFFECT), replace(state.as_read, record="")
    return replace(state, taints=(ours,), record=record, as_read=seen)
