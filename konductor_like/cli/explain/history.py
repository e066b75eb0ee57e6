"""The history of a node in ``explain``: its faults, failure groups, earlier outages and releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from konductor_like.cli.columns import age_of, count, fault_name, stamp
from konductor_like.cli.output import Paragraph
from konductor_like.cli.status.node import NodeReport, marks_of
from konductor_like.cli.status.shared_failures import FailureReport, failure_sentence
from konductor_like.model import Incident, IncidentKey, IncidentState, NodeRecord, Release, Role
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of
from konductor_like.policy.node.needs import met_words
from konductor_like.policy.wording import name_of, on_device

FAULTS_SHOWN = 4
MEMBERS_SHOWN = 6
OUTAGES_SHOWN = 10
RELEASES_SHOWN = 2


def history(report: NodeReport, failures: Iterable[FailureReport], now: datetime) -> Iterator[Paragraph]:
    """Yield the most important faults of a node, its ``failures``, its earlier outages and its releases."""
    record = report.state.record
    faults = _in_order(record.incidents, report.fault)
    for incident in faults[:FAULTS_SHOWN]:
        yield "Fault", list(_fault(incident, now))
    if (more := len(faults) - FAULTS_SHOWN) > 0:
        yield "More", f"{count(more, 'more fault')}: `konductor-like explain node {report.name} -o json`"
    for failure in failures:
        yield "Failure group", list(_failure(failure, report.name, now))
    yield "Earlier outages", list(_earlier_outages(record))
    yield "Released", [_release(mark, now) for mark in record.releases[:RELEASES_SHOWN]]


def when(then: datetime, now: datetime) -> str:
    """Return ``3m12s ago (2026-05-06T11:56:48Z)``."""
    return f"{age_of(then, now)} ago ({stamp(then)})"


def _in_order(incidents: Iterable[Incident], fault: Incident | None) -> list[Incident]:
    """Return the incidents: the node's fault, the same one of earlier boots, its GPU's, and the others."""
    key = fault.key if fault else None

    def order(each: Incident) -> tuple[bool, bool, bool, bool, bool, int]:
        is_of_gpu = key is not None and key.gpu is not None and each.key.gpu == key.gpu and each.taints
        is_over = each.state is IncidentState.RELEASED
        return each is not fault, each.key != key, not is_of_gpu, is_over, not each.taints, -each.last_ns

    return sorted(incidents, key=order)


def _fault(incident: Incident, now: datetime) -> Iterator[str]:
    first, last = moment_of(incident.first_ns), moment_of(incident.last_ns)
    times = f"{incident.count} times, " if incident.count > 1 else ""
    until = f", last {when(last, now)}" if incident.count > 1 else ""
    yield f"{name_of(incident)} ({', '.join(marks_of(incident))}), {times}first {when(first, now)}{until}"
    yield f"rule {incident.key.rule}: {incident.title}"
    if incident.evidence:
        what = "line" if incident.has_line else "reason"
        yield f"{what}: {incident.evidence}"
    if (gpu := incident.seen_gpu) is not None:
        yield f"which GPU: {gpu.identity}"
    if incident.user_written:
        yield "written by a user, not by the driver"
    if incident.escalated_because:
        yield f"escalated because: {incident.escalated_because}"
    if incident.ended_ns is not None:
        ended = when(moment_of(incident.ended_ns), now)
        yield f"ended: the driver reported it {ended}; it stays open until this node is released"
    if met := met_words(incident):
        is_over = incident.state is IncidentState.RELEASED
        yield (
            f"ended by {met.removeprefix('met by ')}" if is_over else f"its need, {incident.needs}, was {met}"
        )
    if incident.job:
        yield f"job: {incident.job}"


def _failure(failure: FailureReport, name: str, now: datetime) -> Iterator[str]:
    yield failure_sentence(failure, now)
    role = Role.ROOT_CAUSE
    if name in failure.unclear:
        role = Role.UNCLEAR
    elif name in failure.collateral:
        role = Role.COLLATERAL
    others = [each for each in failure.nodes if each != name]
    yield f"this node: {role.value}; with it: {listed(others, MEMBERS_SHOWN)}"


def _earlier_outages(record: NodeRecord) -> Iterator[str]:
    quarantines = record.life.quarantines
    for each in quarantines[:OUTAGES_SHOWN]:
        span = age_of(each.tainted_at, each.released_at)
        driver = f" with driver {each.driver}" if each.driver else ""
        fault = f"{fault_name(each.rule)}{on_device(IncidentKey(each.rule, each.gpu))}{driver}"
        mark = record.release_at(each.released_at)
        ended = f"by {mark.by} ({mark.how})" if mark else f"by {each.how}" if each.how else ""
        why = f": {mark.reason}" if mark and mark.reason else ""
        again = "; it failed again on probation" if each.relapse else ""
        out = f"{stamp(each.tainted_at)}, for {span}, because of {fault}"
        yield f"{out}{f'; ended {ended}{why}' if ended else ''}{again}"
    if (more := len(quarantines) - OUTAGES_SHOWN) > 0:
        yield f"and {count(more, 'earlier outage')}"


def _release(mark: Release, now: datetime) -> str:
    why = f": {mark.reason}" if mark.reason else ""
    return f"{when(mark.at, now)} by {mark.by} ({mark.how}){why}"
