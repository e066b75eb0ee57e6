"""Outages: one for each time that a node was out of service, told by the audit trail, the record, or both.

An outage is the same one if node and begin are the same. The record's ``tainted`` and ``out``, and the
trail's ``out_since``, are the same time to the microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from konductor_like.history.trail import ACKNOWLEDGED, DELETE, TrailLine
from konductor_like.model import (
    OPERATOR_RULE,
    IncidentKey,
    NodeRecord,
    NodeState,
    Quarantine,
    ReleaseHow,
    Severity,
)
from konductor_like.model.time import moment_of, unix_ns
from konductor_like.policy.node.lifecycle import QUARANTINES_KEPT, failure_of
from konductor_like.policy.node.needs import fault_of

TEST_RULE = "xid.14"
GPU_NAME = re.compile(r"GPU-[0-9a-f-]{4,36}|[0-9a-z]{1,32}", re.IGNORECASE | re.ASCII)
"""A name that a person types: a UUID or the begin of it, or a serial number."""
_LATE = timedelta(days=1)
"""Time by which the last line of a fault may be older than its taint: thresholds look back a day at most."""
_SAME = timedelta(seconds=1)
"""Difference up to which two times of one end are the same."""


_WORDS = {
    ReleaseHow.RESET: "reset",
    ReleaseHow.PART: "reset",
    ReleaseHow.BY_HAND: "taint removed",
    ReleaseHow.REBOOT: "returned after a reboot",
    ReleaseHow.VALIDATED: "returned after a validation",
    ReleaseHow.TEST_ENDED: "the test ended",
    ReleaseHow.PURGED: "purged",
    ReleaseHow.DELETED: "Node deleted",
}


def how_words(how: str) -> str:
    """Return how a node was released, in words."""
    return _WORDS.get(ReleaseHow(how), "released")


class Kind(StrEnum):
    """Why a node was out of service."""

    FAILURE = "failure"
    TEST = "test"
    PERSON = "person"
    """A person tainted the node, and no fault."""


class End(StrEnum):
    """How much is known of the end of an outage."""

    ENDED = "ended"
    OUT = "out"
    """The node is out of service now."""
    UNKNOWN = "unknown"
    """The node is not out of service any more, or does not exist, and nothing tells when it ended."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One time out of service of one node."""

    node: str
    since: datetime
    until: datetime | None = None
    """When it ended; None if it goes on, or if that is not known."""
    rule: str = ""
    gpu: str | None = None
    severity: str = ""
    uuid: str = ""
    serial: str = ""
    """UUID and serial number of the GPU that failed; empty if they are not known."""
    how: str = ""
    """How it ended, as the record says it; also ``purged`` and ``deleted``. Empty without an end."""
    by: str | None = None
    """The person who ended it; None for the controller, and if nobody is known."""
    reason: str = ""
    """The person's reason for the end."""
    begun_by: str | None = None
    """The person who tainted the node; None for the controller."""
    relapse: bool = False
    """Whether the node failed again on the probation after it."""
    model: str = ""
    driver: str = ""
    rack: str = ""
    gpus: int | None = None
    """The number of the node's GPUs; None if it is not known."""
    failure_group: str = ""
    evidence: str = ""
    end: End = End.UNKNOWN
    last_told: datetime | None = None
    """When the trail last told of it."""
    in_trail: bool = False
    in_record: bool = False
    differs: bool = False
    """Whether trail and record tell different ends."""

    @property
    def kind(self) -> Kind:
        """Why the node was out of service."""
        if self.rule == OPERATOR_RULE or (not self.rule and self.begun_by is not None):
            return Kind.PERSON
        return Kind.TEST if self.rule == TEST_RULE or self.severity == Severity.TEST else Kind.FAILURE

    @property
    def how_ended(self) -> str:
        """How it ended, in words: ``reset by kim``, ``reboot``, ``still out``."""
        if self.end is End.OUT:
            return "still out"
        how = how_words(self.how) if self.end is End.ENDED else "end not known"
        return f"{how} by {self.by}" if self.by else how

    def is_of_gpu(self, name: str) -> bool:
        """Whether this GPU failed; ``name`` matches ``GPU_NAME``."""
        is_begin = "-" in name and self.uuid.casefold().startswith(name.casefold())
        return is_begin or name == self.serial

    def seconds(self, start: datetime, end: datetime) -> float:
        """Return the seconds of the outage between two times.

        An outage whose end is not known counts up to the last line that told of it: at least so long it was.
        """
        until = self.until or (end if self.end is End.OUT else self.last_told or self.since)
        return max(0.0, (min(until, end) - max(self.since, start)).total_seconds())


class Ledger:
    """Collects outages from lines of the trail, in any order, and then from the nodes of today."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, datetime], Outage] = {}
        self._existing: dict[str, NodeState] = {}
        self._relapses: set[tuple[str, datetime]] = set()
        """The outages that began with a failure on probation."""
        self._ends: list[TrailLine] = []
        """Ends of outages of which the record did not tell the begin, because somebody had removed it."""
        self.unexplained: list[str] = []
        """The nodes that have our taint now, and of which neither trail nor record tells since when."""
        self.older_lines = 0
        """Lines about taints and releases without ``out_since``, of a controller of an earlier build."""

    def add(self, line: TrailLine) -> None:
        """Take one line of the trail."""
        if not line.applied or line.node is None:
            return
        if line.out_since is None:
            self.older_lines += line.is_older and line.verb in ("taint", "untaint")
            if line.how is not None and not line.is_older:
                self._ends.append(line)
            return
        key = (line.node, line.out_since)
        known = self._found.get(key) or Outage(line.node, line.out_since)
        self._found[key] = _with_line(known, line)
        if line.why == "GPUNodeRelapsed":
            self._relapses.add(key)

    def add_node(self, state: NodeState) -> None:
        """Take the record of a Node that exists now."""
        self._existing[state.name] = state
        for past in state.record.life.quarantines:
            key = (state.name, past.tainted_at)
            told = _with_quarantine(self._found.get(key), state, past)
            self._found[key] = _identified(told, state.record)
        since = state.record.life.tainted_at
        if since is not None and state.faulty:
            key = (state.name, since)
            self._found[key] = _identified(_with_claim(self._found.get(key), state, since), state.record)

    def _settle(self) -> None:
        """Find the outage of each end without a begin, and of each taint that no record claims."""
        for line in self._ends:
            key = self._last_open(line.node or "", line.happened_at)
            if key is not None:
                self._found[key] = _with_line(self._found[key], replace(line, rule=None))
        self._ends = []
        self.unexplained = []
        for name, state in self._existing.items():
            if not state.tainted or state.record.life.claimed:
                continue
            key = self._last_open(name)
            if key is None:
                self.unexplained.append(name)
            else:
                self._found[key] = replace(self._found[key], end=End.OUT)

    def _last_open(self, node: str, before: datetime | None = None) -> tuple[str, datetime] | None:
        known = [key for key in self._found if key[0] == node and (before is None or key[1] <= before)]
        last = max(known, key=lambda key: key[1], default=None)
        return None if last is None or self._found[last].until is not None else last

    def outages(self, nodes: Iterable[str] | None = None) -> list[Outage]:
        """Return the outages in the order of their begin; only those of ``nodes`` if these are given."""
        self._settle()
        chosen = None if nodes is None else set(nodes)
        found: list[Outage] = []
        last: dict[str, int] = {}
        """By node, the place of its latest outage so far."""
        for key in sorted(self._found, key=lambda key: (key[1], key[0])):
            if chosen is not None and key[0] not in chosen:
                continue
            before = last.get(key[0])
            if key in self._relapses and before is not None:
                found[before] = replace(found[before], relapse=True)
            last[key[0]] = len(found)
            found.append(self._found[key])
        return found

    @property
    def nodes(self) -> set[str]:
        """The nodes with an outage."""
        return {node for node, _ in self._found}

    def missing_in_records(self, outages: Iterable[Outage]) -> list[Outage]:
        """Return the outages that the trail tells, and that a record of today should have and does not.

        A record keeps the last ten failures of a Node. It has none of before the Node was created, and none
        after somebody purged it.
        """
        return [each for each in outages if each.in_trail and not each.in_record and self._should_have(each)]

    def _should_have(self, outage: Outage) -> bool:
        state = self._existing.get(outage.node)
        if state is None or outage.kind is not Kind.FAILURE or outage.how in ("purged", "deleted", ""):
            return False
        past = state.record.life.quarantines
        is_full = len(past) >= QUARANTINES_KEPT
        return not is_full and any(each.tainted_at < outage.since for each in past)


def _with_line(known: Outage, line: TrailLine) -> Outage:
    last = max(line.logged_at, known.last_told or line.logged_at)
    known = replace(
        known,
        in_trail=True,
        last_told=last,
        model=line.model or known.model,
        driver=line.driver or known.driver,
        rack=line.rack or known.rack,
        gpus=line.gpus or known.gpus,
    )
    begins = line.how is None and line.why != ACKNOWLEDGED
    is_first = not known.rule or line.rule != OPERATOR_RULE  # a person may taint a node that is out
    if (line.verb == "taint" and is_first) or (begins and line.rule and not known.rule):
        known = replace(
            known,
            rule=line.rule or known.rule,
            gpu=line.gpu if line.rule else known.gpu,
            severity=line.severity or known.severity,
            uuid=line.uuid or "",
            serial=line.serial or "",
            failure_group=line.failure_group or known.failure_group,
            evidence=line.evidence or known.evidence,
            begun_by=line.by,
        )
    if line.how is None or line.verb == "taint":
        return known
    ended = replace(known, until=line.happened_at, how=line.how, by=line.by, end=End.ENDED)
    if line.verb == DELETE:
        return replace(ended, evidence=known.evidence or line.reason or "")
    return _of(replace(ended, reason=line.reason or ""), line.rule or "", line.gpu)


def _of(known: Outage, rule: str, gpu: str | None) -> Outage:
    """Return the outage with the fault that its end, or the record, names."""
    if not rule or (rule, gpu) == (known.rule, known.gpu):
        return known
    if gpu != known.gpu:
        known = replace(known, uuid="", serial="")
    return replace(known, rule=rule, gpu=gpu, severity="" if rule != known.rule else known.severity)


def _identified(outage: Outage, record: NodeRecord) -> Outage:
    """Return the outage with the GPU that failed, if only the record names it.

    After a swap the record may have incidents of two GPUs in one place. If both may be meant, none is named.
    """
    if outage.uuid or outage.gpu is None:
        return outage
    until = outage.until or datetime.max.replace(tzinfo=UTC)
    named = {
        (each.uuid, each.serial)
        for each in record.incidents
        if each.uuid
        and each.key == (outage.rule, outage.gpu)
        and moment_of(each.first_ns) <= until
        and moment_of(each.last_ns) >= outage.since - _LATE
    }
    if len(named) != 1:
        return outage
    [(uuid, serial)] = named
    return replace(outage, uuid=uuid, serial=serial)


def _with_quarantine(known: Outage | None, state: NodeState, past: Quarantine) -> Outage:
    mark = state.record.release_at(past.released_at)
    by = None if mark is None or past.how.by_controller else mark.by
    told = Outage(
        *(state.name, past.tainted_at, past.released_at, past.rule, past.gpu),
        how=past.how.value,
        by=by,
        reason=mark.reason if mark is not None and by is not None else "",
        relapse=past.relapse,
        model=past.model,
        driver=past.driver,
        rack=state.hardware.rack,
        gpus=state.record.gpus,
        failure_group=_group(state, past.rule, past.gpu, past.released_at),
        end=End.ENDED,
        in_record=True,
    )
    if known is None:
        return told
    differs = known.until is not None and (
        abs(known.until - past.released_at) > _SAME or known.how != past.how.value
    )
    return replace(
        _of(known, past.rule, past.gpu),
        until=past.released_at,
        how=past.how.value,
        by=by or known.by,
        reason=told.reason or known.reason,
        relapse=known.relapse or past.relapse,
        model=past.model or known.model,
        driver=past.driver or known.driver,
        failure_group=known.failure_group or told.failure_group,
        end=End.ENDED,
        in_record=True,
        differs=differs,
    )


def _group(state: NodeState, rule: str, gpu: str | None, until: datetime | None) -> str:
    """Return the failure group that the record names for the fault of an outage; empty if it names none.

    A failure group is often found after its first nodes were tainted, and no line of the trail tells it then.
    """
    incident = state.record.incident(IncidentKey(rule, gpu))
    if incident is None or incident.failure_group is None:
        return ""
    is_later = until is not None and incident.first_ns > unix_ns(until)
    return "" if is_later else incident.failure_group


def _with_claim(known: Outage | None, state: NodeState, since: datetime) -> Outage:
    """Return the outage that goes on."""
    life, fault = state.record.life, fault_of(state.record, tainted=True)
    key = failure_of(state.record) or (fault.key if fault else None)
    told = known or Outage(state.name, since)
    if key is not None:
        told = _of(told, key.rule, key.gpu)
    group = _group(state, told.rule, told.gpu, None)
    return replace(
        told,
        failure_group=told.failure_group or group,
        severity=told.severity or (fault.severity.value if fault else ""),
        evidence=told.evidence or (fault.evidence if fault else ""),
        model=told.model or life.model,
        driver=told.driver or life.driver,
        rack=told.rack or state.hardware.rack,
        gpus=told.gpus or state.record.gpus,
        until=None,
        how="",
        by=None,
        reason="",
        end=End.OUT,
        in_record=True,
        differs=told.until is not None,
    )
