"""Replay a saved incident: ``python -m tools.replay_incident FILE [--rules FILE]``.

The lines of a file of ``konductor-like incident save`` are played through the controller's own code, and the
outcome is compared with what the controller did. The exit status is 3 if it differs, and 2 for a file that
cannot be read. ``--rules`` plays other rules than those that were in force.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from konductor_like.backtest.history import Page, polls
from konductor_like.backtest.result import Outage, Verdicts
from konductor_like.backtest.simulation import SimulatedNodes, Simulation, healthy_node
from konductor_like.build import this_program
from konductor_like.catalog import RulesError, UserRules, load_catalog, read_user_rules
from konductor_like.cli.columns import count, fault_name, stamp_of_ns
from konductor_like.cli.errors import CommandError, describe, print_error
from konductor_like.cli.incident.gather import KIND, VERSION, digest
from konductor_like.cli.output import Paragraph, say_paragraphs
from konductor_like.cli.rules import load
from konductor_like.cluster.lenient_json import Fields, Ns, read
from konductor_like.cluster.node import record as records
from konductor_like.cluster.published import Published, decode_settings
from konductor_like.detection import Detector
from konductor_like.detection.validate_rules import validated
from konductor_like.exits import Exit
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
    LogLine,
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

GPU_NODES_MOST = 100_000
"""GPU nodes of the fleet, at most: a replay makes each of them."""
BYTES_MOST = 64 * 2**20
"""Bytes of a file that is read, at most."""
ARRIVAL_SECONDS = 5.0
"""Seconds that a line may take from the kernel to Loki; in a replay it is there at once."""
_POD_POLL_SECONDS = 15.0
_OTHER = IncidentKey("xid.79", None)
_CONTROLS = "a pause and a reset of the brake are not saved: `konductor-like history --timeline` shows them"
_OTHER_RULES = "use --rules FILE with rules that this program reads"


class IncidentFileError(Exception):
    """The file is no saved incident of this version, or is damaged; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A node whose lines were saved."""

    name: str
    pool: str | None = None
    domain: str | None = None
    """The multi-node NVLink domain."""
    record: NodeRecord = field(default_factory=NodeRecord)
    """What the record told before the incident: earlier times out, releases, probation."""


@dataclass(frozen=True, slots=True)
class SavedOutage:
    """A taint that the controller set on a saved node."""

    node: str
    at: datetime
    rule: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class OtherOutage:
    """A time out of service of another node, which takes a place of the brake."""

    since: datetime
    until: datetime | None = None
    """When it ended; None if it lasted."""


@dataclass(frozen=True, slots=True)
class OtherNodes:
    """The GPU nodes of one pool, without the saved nodes."""

    gpu_nodes: int
    pool: str | None = None
    outages: tuple[OtherOutage, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedIncident:
    """One saved incident."""

    node: str
    start: datetime
    end: datetime
    """The span of the lines."""
    saved_at: datetime
    program: str
    """Version and build of the program that saved it."""
    controller: str
    """Version and build of the controller; empty if they are not known."""
    settings: Published
    """The controller's settings, without names of namespaces and selectors."""
    rules: str | None
    """The text of the rules file; None for the built-in rules alone."""
    with_pods: bool
    nodes: tuple[SavedNode, ...]
    others: tuple[OtherNodes, ...]
    outages: tuple[SavedOutage, ...]
    lines: tuple[LogLine, ...]
    missing: tuple[str, ...] = ()
    """What the file does not have, in sentences."""


def decode(text: str) -> SavedIncident:
    """Read a file's text. Raises IncidentFileError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise IncidentFileError("it is no saved incident, or it is damaged")
    if (version := found.get("version")) != VERSION:
        raise IncidentFileError(f"it has version {version!s:.20}, and this program reads version {VERSION}")
    given = found.pop("sha256", None)
    if given != digest(found):
        raise IncidentFileError("it was changed after it was saved, or it is damaged")
    fields = read(text)
    settings, problem = decode_settings(json.dumps(found.get("settings")))
    node, start, end = fields.need("node", str), fields.need("from", datetime), fields.need("to", datetime)
    saved_at = fields.need("savedAt", datetime)
    others = fields.decoded("others", _others)
    nodes, outages = fields.decoded("nodes", _node), fields.decoded("outages", _outage)
    lines = fields.decoded("lines", _line)
    missing = fields.texts("missing")
    if sum(each.gpu_nodes for each in others) > GPU_NODES_MOST:
        fields.complain(f"gpuNodes are more than {GPU_NODES_MOST:,} in all")
    problem = problem or fields.problem
    if problem or settings is None or not (node and start and end and saved_at):
        raise IncidentFileError(f"it cannot be read: {problem or 'settings, node or times are missing'}")
    return SavedIncident(
        *(node, start, end, saved_at),
        program=fields.get("program", str) or "",
        controller=fields.get("controller", str) or "",
        settings=settings,
        rules=fields.get("rules", str),
        with_pods=fields.get("withPods", bool) or False,
        nodes=nodes,
        others=others,
        outages=outages,
        lines=tuple(sorted(lines, key=lambda line: line.timestamp_ns)),
        missing=missing,
    )


def _line(found: Fields) -> LogLine | None:
    at_ns, text = found.need("at", Ns), found.need("text", str)
    if at_ns is None or text is None:
        return None
    labels = found.get("labels", dict)
    if labels is not None and not all(isinstance(value, str) for value in labels.values()):
        found.complain("labels are not text")
        return None
    return LogLine(
        Source.KERNEL if labels is None else Source.POD,
        at_ns,
        text,
        labels or {},
        *(found.get(name, str) for name in ("node", "namespace", "pod", "container")),
    )


def _node(found: Fields) -> SavedNode | None:
    name = found.need("name", str)
    if name is None:
        return None
    record = records.record_in(found.inner("record"))
    return SavedNode(name, found.get("pool", str), found.get("domain", str), record)


def _outage(found: Fields) -> SavedOutage | None:
    node, at, rule = found.need("node", str), found.need("at", datetime), found.need("rule", str)
    return SavedOutage(node, at, rule, found.get("gpu", str)) if node and at and rule else None


def _others(found: Fields) -> OtherNodes | None:
    number = found.need("gpuNodes", int)
    return (
        None
        if number is None
        else OtherNodes(number, found.get("pool", str), found.decoded("outages", _other_outage))
    )


def _other_outage(found: Fields) -> OtherOutage | None:
    since = found.need("since", datetime)
    return OtherOutage(since, found.get("until", datetime)) if since else None


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


def read_file(path: Path) -> SavedIncident:
    """Read a file. Raises CommandError in one sentence, with the status of a wrong configuration."""
    try:
        if path.stat().st_size > BYTES_MOST:
            raise CommandError(f"{path} is no saved incident: it is too large", status=Exit.USAGE)
        return decode(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: it is no text in UTF-8", status=Exit.USAGE) from error
    except IncidentFileError as error:
        raise CommandError(f"{path}: {error}", status=Exit.USAGE) from error
    except OSError as error:
        raise CommandError(describe(error), status=Exit.USAGE) from error


def rules_of(incident: SavedIncident, other: Path | None) -> UserRules:
    """Return the saved rules, or those of another file. Raises CommandError."""
    if other is not None:
        return load(other)
    if incident.rules is None:
        return UserRules(load_catalog())
    try:
        return validated(read_user_rules(incident.rules, "the saved rules", load_catalog()))
    except RulesError as error:
        problems = (str(each) for each in error.problems)
        raise CommandError(*problems, hint=_OTHER_RULES, status=Exit.USAGE) from error


def summary(incident: SavedIncident, rules: UserRules, other: Path | None) -> Iterator[Paragraph]:
    """Yield what is replayed."""
    yield "Incident", f"{incident.node}, {stamp(incident.start)} to {stamp(incident.end)}"
    program = str(this_program())
    by = "this build" if program == incident.program else f"{incident.program}; this is {program}"
    yield "Saved", f"{stamp(incident.saved_at)} by {by}"
    lines = [line for line in incident.lines if line.source is Source.KERNEL]
    pods = len(incident.lines) - len(lines)
    told = count(pods, "pod line") if incident.with_pods else "pod lines were not saved"
    yield "Lines", f"{count(len(lines), 'kernel line')} of {count(len(incident.nodes), 'node')}; {told}"
    yield "Rules", f"{other}, instead of the saved ones" if other else f"as saved ({rules.digest})"
    yield "Missing", list(incident.missing)


def outcome(incident: SavedIncident, rules: UserRules) -> tuple[list[str], bool]:
    """Return the outcome of a replay in words, and whether it is the same."""
    result = replay(incident, rules)
    if result.nothing:
        return [f"nothing to replay: {result.nothing}"], True
    if not result.same:
        hint = [_CONTROLS] if result.controls else []
        return [*(f"differs: {each}" for each in result.differences), *hint], False
    own = next((each for each in result.verdicts.outages if each.node == incident.node), None)
    held = next((span.why.value for span in result.verdicts.held if span.node == incident.node), "")
    if own is None:
        return [f"the same: {incident.node} is not tainted{f' (held back: {held})' if held else ''}"], True
    key = own.incident.key
    fault = f"{fault_name(key.rule)}{on_device(key)}"
    others = len({each.node for each in result.verdicts.outages}) - 1
    more = (
        f"; so {'is' if others == 1 else 'are'} {count(others, 'node')} of its failure group"
        if others
        else ""
    )
    return [f"the same: {incident.node} is tainted for {fault} at {stamp_of_ns(own.start_ns)}{more}"], True


def main(words: Sequence[str] | None = None) -> int:
    """Replay one file, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.replay_incident", allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path, help="a file of `konductor-like incident save`")
    parser.add_argument("--rules", metavar="FILE", type=Path, help="other rules than those in force")
    typed = parser.parse_args(words)
    try:
        incident = read_file(typed.file)
        rules = rules_of(incident, typed.rules)
    except CommandError as error:
        print_error(error)
        return error.status
    result, is_same = outcome(incident, rules)
    say_paragraphs([*summary(incident, rules, typed.rules), ("Result", result)])
    return Exit.OK if is_same else Exit.PARTLY


if __name__ == "__main__":
    raise SystemExit(main())
