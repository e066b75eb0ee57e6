"""The stable JSON and YAML form of a status report (schema ``konductor-like/v1``, described in docs/cli.md).

Within ``v1`` fields are only ever added. A moment is RFC 3339 in UTC; what is not known is null, never left
out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from konductor_like.cli.columns import fault_name, moment
from konductor_like.cli.covering import CoverageReport
from konductor_like.cli.happenings import EventReport
from konductor_like.cli.report import ControllerReport, NodeReport, StatusReport
from konductor_like.model import BrakeState, Incident, Release, Source

if TYPE_CHECKING:
    from konductor_like.cluster.published import Published

API_VERSION = "konductor-like/v1"


def status_document(report: StatusReport) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "time": stamp(report.now),
        "brake": brake_document(report.brake, report.controller),
        "controller": _controller(report.controller, report.now),
        "coverage": _coverage(report.coverage),
        "events": [event_document(event) for event in report.events],
        "nodes": [node_document(node) for node in report.nodes],
    }


def stamp(when: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second."""
    return None if when is None else f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def brake_document(brake: BrakeState, controller: ControllerReport) -> dict[str, Any]:
    """The brake, its bounds and what it holds."""
    known = controller.settings is not None
    return {
        "holding": brake.holding,
        "gpuNodes": brake.gpu_nodes,
        "out": brake.out,
        "bound": brake.bound if known else None,
        "problem": controller.why_unset or None,
        "unavailable": brake.unavailable if known else None,
        "pools": [
            {"pool": pool.pool, "gpuNodes": pool.gpu_nodes, "out": pool.out, "bound": pool.bound}
            for pool in brake.pools
        ],
        "rate": brake.pace
        and {
            "taints": brake.pace.taints,
            "most": brake.pace.most,
            "windowSeconds": brake.pace.window_seconds,
            "freesAt": stamp(brake.pace.frees_at),
        },
        "cooling": brake.cooling if known else None,
        "deleted": brake.deleted if known else None,
        "rearmsAt": stamp(brake.rearms_at),
        "pause": brake.pause
        and {
            "at": stamp(brake.pause.at),
            "by": brake.pause.by,
            "reason": brake.pause.reason,
            "until": stamp(brake.pause.until),
        },
        "held": [
            {"node": held.node, "why": held.why and held.why.value, "fault": incident_document(held.incident)}
            for held in brake.held
        ],
    }


def _controller(controller: ControllerReport, now: datetime) -> dict[str, Any]:
    return {
        "lease": controller.lease,
        "running": controller.alive(now) if controller.readable else None,
        "holder": controller.holder,
        "renewed": stamp(controller.renewed),
        "readUpTo": {source.value: stamp(moment(ns)) for source, ns in controller.read_ns.items()},
        "coverageAt": stamp(controller.coverage_at),
        "unreadSince": {
            source.value: stamp(since) for source in Source if (since := controller.unread_since(now, source))
        },
        "problem": controller.problem,
        "settings": controller.settings and settings_document(controller.settings),
    }


def settings_document(settings: Published) -> dict[str, Any]:
    """What the controller decides by."""
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
        "gpuNodeSelector": settings.gpu_node_selector,
        "nodeSelector": settings.node_selector,
        "poolLabel": settings.pool_label,
        "domainLabel": settings.domain_label,
        "watchedNamespaces": list(settings.namespaces),
        "furtherNamespaces": settings.further_namespaces,
        "staleSeconds": settings.stale_seconds,
    }


def _coverage(coverage: CoverageReport | None) -> dict[str, Any] | None:
    if coverage is None:
        return None
    return {
        "measured": coverage.measured,
        "unknown": list(coverage.unknown),
        "notMeasured": coverage.not_measured,
        "gaps": [
            {
                "from": stamp(moment(gap.start_ns)),
                "to": None if gap.end_ns is None else stamp(moment(gap.end_ns)),
                "nodes": list(gap.nodes),
            }
            for gap in coverage.gaps
        ],
        "ambiguous": list(coverage.ambiguous),
        "lost": [
            {"node": node, "records": loss.records, "at": stamp(moment(loss.at_ns))}
            for node, loss in coverage.lost
        ],
        "unparsed": [
            {"node": node, "lines": seen.lines, "at": stamp(moment(seen.at_ns))}
            for node, seen in coverage.unparsed
        ],
        "misnamed": [
            {"name": name, "faults": each.faults, "at": stamp(moment(each.at_ns))}
            for name, each in coverage.misnamed
        ],
    }


def node_document(node: NodeReport) -> dict[str, Any]:
    """One node."""
    return {
        "name": node.name,
        "state": node.health.value,
        "qualifier": node.qualifier or None,
        "tainted": node.tainted,
        "coverage": node.coverage.value,
        "since": stamp(node.since),
        "fault": incident_document(node.fault) if node.fault else None,
        "advice": node.advice or None,
        "faults": [incident_document(incident) for incident in node.incidents],
        "releases": [release_document(release) for release in node.releases],
        "holdUntil": stamp(node.hold_until),
        "replaceSince": stamp(node.replace_since),
        "contestedAt": stamp(node.contested_at),
        "timesOut": [
            {"from": stamp(stint.tainted_at), "to": stamp(stint.released_at), "rule": stint.rule}
            for stint in node.quarantines
        ],
        "warnings": list(node.warnings),
        "notes": list(node.notes),
    }


def event_document(event: EventReport) -> dict[str, Any]:
    """One event on many nodes."""
    return {
        "name": event.name,
        "shared": event.shared,
        "start": stamp(moment(event.start_ns)),
        "origins": [*event.origins, *event.gone],
        "unclear": list(event.unclear),
        "collateral": list(event.collateral),
    }


def incident_document(incident: Incident) -> dict[str, Any]:
    """One fault on one node."""
    ack = incident.ack
    return {
        "name": fault_name(incident.key.rule),
        "rule": incident.key.rule,
        "kind": incident.kind.value,
        "code": incident.code,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        "state": incident.state.value,
        "count": incident.count,
        "firstSeen": stamp(moment(incident.first_ns)),
        "lastSeen": stamp(moment(incident.last_ns)),
        "source": None if incident.by_person else incident.source.value,
        "beforeInstall": incident.before_install,
        "writtenByUser": incident.user_written,
        "bootID": incident.last.boot_id,
        "title": incident.title,
        "advice": incident.advice,
        "evidence": incident.evidence,
        "job": incident.job,
        "event": incident.event,
        "role": incident.role and incident.role.value,
        "origin": incident.origin,
        "grounds": incident.grounds or None,
        "ack": ack and {"at": stamp(ack.at), "by": ack.by, "reason": ack.reason},
        "endedAt": stamp(moment(incident.ended_ns)) if incident.ended_ns is not None else None,
        "releasedAt": stamp(moment(incident.released_ns)) if incident.released_ns is not None else None,
    }


def release_document(release: Release) -> dict[str, Any]:
    """One release."""
    return {
        "at": stamp(release.at),
        "by": release.by,
        "reason": release.reason or None,
        "how": release.how,
        "warning": release.warning,
    }
