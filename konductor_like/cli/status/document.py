"""The JSON and YAML form of a status report (``konductor-like/v1``); docs/reference/json.md describes it.

Within ``v1`` fields are only ever added. A moment is RFC 3339 in UTC. An unknown value is null; its field is
never left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import fault_name, natural, stamp, stamp_of_ns
from konductor_like.cli.output import API_VERSION, camel_case, fields_of
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.attempts import attempts_document
from konductor_like.cli.status.counts import state_counts
from konductor_like.cli.status.coverage import CoverageSummary, by_name, latest_first
from konductor_like.cli.status.node import NodeReport
from konductor_like.cli.status.report import StatusReport
from konductor_like.cli.status.shared_failures import FailureReport
from konductor_like.cluster.published import Published
from konductor_like.model import (
    BrakeState,
    CoverageState,
    Incident,
    Needs,
    Release,
    Source,
    Validation,
    ValidationStage,
)
from konductor_like.policy.node.endings import over_ns, release_ns
from konductor_like.policy.node.health import Health
from konductor_like.policy.node.needs import latest_met


def status_document(report: StatusReport, states: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the report as plain dicts, lists, strings, numbers and None.

    With ``states`` the nodes are those in these states; the summary counts the others too.
    """
    brake, controller, now = report.brake, report.controller, report.now
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "time": stamp(report.now),
        "summary": _summary(report),
        "brake": brake_document(brake, controller),
        "controller": _controller(controller, now),
        "coverage": _coverage(report.coverage),
        "returns": controller.settings
        and {
            "byReboot": controller.policy.returns_by_reboot,
            "byValidation": controller.policy.returns_by_validation,
            "rehearsed": controller.policy.rehearses,
            "stopped": bool(report.returns_stopped),
        },
        "failureGroups": [failure_document(each) for each in report.failures],
        "jobsNowProblem": report.jobs_problem or None,
        "nodes": [node_document(node) for node in report.nodes if not states or node.words & states],
    }


def _summary(report: StatusReport) -> dict[str, int]:
    counts = state_counts(report)
    return {
        "nodes": len(report.nodes),
        **{camel_case(health.value.replace(" ", "_")): counts[health] for health in Health},
        "notRebooted": sum(Needs.REBOOT in node.released_with for node in report.nodes),
        "releasedWithNeed": sum(bool(node.released_with) for node in report.nodes),
        "cordoned": sum(node.state.unschedulable for node in report.nodes),
        "notReady": sum(not node.state.ready for node in report.nodes),
        "validationsWaiting": report.validations[ValidationStage.ASKED],
        "validationsRunning": report.validations[ValidationStage.RUNNING],
    }


def brake_document(brake: BrakeState, controller: ControllerReport) -> dict[str, Any]:
    """Return the brake, its bounds and the nodes that it holds."""
    known = controller.settings is not None
    return {
        **fields_of(brake, "holding", "gpu_nodes", "out"),
        "bound": brake.bound if known else None,
        "problem": controller.why_settings_unknown or None,
        "unavailable": brake.unavailable if known else None,
        "pools": [fields_of(pool, "pool", "gpu_nodes", "out", "bound") for pool in brake.pools],
        "rate": brake.pace and fields_of(brake.pace, "taints", "most", "window_seconds", "frees_at"),
        "cooling": brake.cooling if known else None,
        "deleted": brake.deleted if known else None,
        "rearmsAt": stamp(brake.rearms_at),
        "pause": brake.pause and fields_of(brake.pause, "at", "by", "reason", "until"),
        "held": [
            {**fields_of(held, "node", "why"), "fault": incident_document(held.incident)}
            for held in brake.held
        ],
    }


def _controller(controller: ControllerReport, now: datetime) -> dict[str, Any]:
    unread = {source.value: controller.unread_since(now, source) for source in Source}
    return {
        "lease": controller.lease,
        "running": controller.alive(now) if controller.readable else None,
        **fields_of(controller, "holder", "renewed"),
        "version": controller.program and controller.program.version,
        "build": controller.program and controller.program.build,
        "otherBuild": controller.other_build(now) or None,
        "readUpTo": {source.value: stamp_of_ns(ns) for source, ns in controller.read_ns.items()},
        "coverageAt": stamp(controller.coverage.at if controller.coverage else None),
        "unreadSince": {source: stamp(since) for source, since in unread.items() if since},
        "problem": controller.problem,
        "attempts": attempts_document(controller.attempts),
        "settings": controller.settings and _settings(controller.settings),
    }


def _settings(settings: Published) -> dict[str, Any]:
    policy = settings.policy
    return {
        "version": settings.version,
        "rules": settings.rules_digest,
        "brake": {
            "maxPercent": policy.brake_max_percent,
            "maxNodes": policy.brake_max_nodes,
            "poolMaxPercent": policy.brake_pool_max_percent,
            "rateNodes": policy.brake_rate_nodes,
            "rateWindowSeconds": policy.brake_rate_window_seconds,
            "countUnavailable": policy.brake_count_unavailable,
            "cooldownSeconds": policy.brake_cooldown_seconds,
        },
        **fields_of(settings, "gpu_node_selector", "node_selector", "pool_label", "domain_label"),
        "watchedNamespaces": list(settings.namespaces),
        **fields_of(settings, "further_namespaces", "stale_seconds"),
    }


def _coverage(report: CoverageSummary | None) -> dict[str, Any] | None:
    if report is None:
        return None
    coverage = report.coverage
    return {
        "measured": len(report.nodes(CoverageState.MEASURED)),
        "unknown": report.nodes(CoverageState.UNKNOWN),
        "notMeasured": len(report.nodes(CoverageState.NOT_MEASURED)),
        "gaps": [
            {"from": stamp_of_ns(gap.start_ns), "to": stamp_of_ns(gap.end_ns), "nodes": nodes}
            for gap, nodes in report.gaps()
        ],
        "ambiguous": sorted(coverage.ambiguous, key=natural),
        "lost": _facts("node", by_name(coverage.lost), "records"),
        "unparsed": _facts("node", by_name(coverage.unparsed), "lines"),
        "misnamed": _facts("name", latest_first(coverage.misnamed), "faults"),
    }


def _facts(label: str, facts: Iterable[tuple[str, object]], number: str) -> list[dict[str, Any]]:
    return [{label: name, **fields_of(fact, number, "at_ns")} for name, fact in facts]


def node_document(node: NodeReport) -> dict[str, Any]:
    """Return one node."""
    record = node.state.record
    met = latest_met(record, tainted=node.state.tainted)
    return {
        "name": node.name,
        "state": node.health.value,
        "qualifier": node.qualifier or None,
        "tainted": node.state.tainted,
        "ignored": node.state.opted_out,
        "cordoned": node.state.unschedulable,
        "ready": node.state.ready,
        "plannedWork": [
            fields_of(each, "name", "in_progress", "at_ns", "since_ns", "text") for each in node.state.planned
        ],
        **fields_of(node.verdict, "needs"),
        **fields_of(node, "severity"),
        "needsMet": met and {"by": met.met_by, "at": stamp_of_ns(met.met_ns)},
        **fields_of(node, "coverage", "since"),
        "fault": incident_document(node.fault, record.releases) if node.fault else None,
        "advice": node.verdict.advice or None,
        "action": node.verdict.action.value,
        "faults": [incident_document(incident, record.releases) for incident in record.incidents],
        "releases": [
            {**fields_of(release, "at", "by", "reason", "how", "warning"), "reason": release.reason or None}
            for release in record.releases
        ],
        "releasedWith": list(node.released_with),
        **fields_of(record.life, "hold_until", "replace_since", "contested_at", "probation_until"),
        "whyNotReturned": node.verdict.why_not_returned,
        "guards": list(dict.fromkeys(blocker.guard.value for blocker in node.verdict.blockers)),
        "timesOut": [
            {"from": stamp(each.tainted_at), "to": stamp(each.released_at)}
            | fields_of(each, "rule", "how", "relapse", "gpu")
            | {"how": each.how or None, "model": each.model or None, "driver": each.driver or None}
            | {"endedBy": mark and mark.by, "reason": (mark and mark.reason) or None}
            for each in record.life.quarantines
            for mark in (record.release_at(each.released_at),)
        ],
        "validation": record.validation and validation_document(record.validation),
        "jobsNow": None if node.jobs is None else list(node.jobs),
        **fields_of(node, "warnings", "notes"),
    }


def validation_document(validation: Validation) -> dict[str, Any]:
    """Return the validation of one node."""
    is_begun = validation.began_at is not None
    return {
        **fields_of(validation, "stage", "level", "by", "asked_at"),
        "reason": validation.reason or None,
        "attempt": validation.attempt or None,
        "tries": validation.tries,
        "since": stamp(validation.began_at),
        "bootID": validation.boot_id,
        "endedAt": stamp(validation.ended_at),
        "waits": validation.waits or None,
        **fields_of(validation, "verdict"),
        "why": validation.why or None,
        "driver": validation.driver or None,
        "expectedGPUs": validation.expected_gpus if is_begun else None,
        "gpus": [{"bus": gpu.bus, "uuid": gpu.uuid, "serial": gpu.serial or None} for gpu in validation.gpus],
    }


def failure_document(failure: FailureReport) -> dict[str, Any]:
    """Return one failure group."""
    return {
        **fields_of(failure, "name", "shared", "start_ns"),
        "rootCauses": [*failure.root_causes, *failure.gone],
        **fields_of(failure, "unclear", "collateral"),
    }


def incident_document(incident: Incident, releases: Iterable[Release] = ()) -> dict[str, Any]:
    """Return one fault on one node; ``releases`` are those of the node."""
    return {
        "name": fault_name(incident.key.rule),
        "rule": incident.key.rule,
        **fields_of(incident, "kind", "code"),
        "gpu": incident.key.gpu,
        "uuid": incident.uuid or None,
        "serial": incident.serial or None,
        **fields_of(incident, "severity", "state", "count"),
        "firstSeen": stamp_of_ns(incident.first_ns),
        "lastSeen": stamp_of_ns(incident.last_ns),
        "source": incident.source.value if incident.has_line else None,
        "beforeInstall": incident.before_install,
        "doubt": incident.doubt,
        "writtenByUser": incident.user_written,
        "bootID": incident.last.boot_id,
        **fields_of(
            incident, "title", "advice", "needs", "evidence", "job", "failure_group", "role", "root_cause"
        ),
        "escalatedBecause": incident.escalated_because or None,
        "ack": None,  # of an earlier version
        "endedAt": stamp_of_ns(over_ns(incident)),
        "metBy": incident.met_by,
        "metAt": stamp_of_ns(incident.met_ns),
        "releasedAt": stamp_of_ns(release_ns(incident, releases)),
    }
