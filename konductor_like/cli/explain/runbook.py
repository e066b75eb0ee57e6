"""``explain`` of an alert or of an Event's reason: names its runbook."""

from __future__ import annotations

from konductor_like.model import EventReason

PAGES = (
    "CollectorFallsBehind",
    "GPUBrakeHolding",
    "GPUFaultHeldByBrake",
    "GPUFaultTainted",
    "GPUNodeRelapsed",
    "GPUReturnsStopped",
    "GPUTaintContested",
    "GPUTaintedNodeDeleted",
    "KernelLogOverrun",
    "KernelLogSilent",
    "KonductorLikeAbsent",
    "KonductorLikeBlind",
    "KonductorLikeBrakeHolds",
    "KonductorLikeCursorLags",
    "KonductorLikeFaultHeld",
    "KonductorLikeGPUsMissing",
    "KonductorLikeKernelLogsUnread",
    "KonductorLikeLinesNotUnderstood",
    "KonductorLikeLinesWithoutNode",
    "KonductorLikeNodeKeepsFailing",
    "KonductorLikeNodeNameAmbiguous",
    "KonductorLikeNodeNameUnknown",
    "KonductorLikeNodeTainted",
    "KonductorLikeNodesRelapse",
    "KonductorLikeNodesUnknown",
    "KonductorLikeNotificationsFail",
    "KonductorLikePausedForLong",
    "KonductorLikePodLogsUnread",
    "KonductorLikeReturnsStopped",
    "KonductorLikeRulesRejected",
    "KonductorLikeStageSlow",
    "KonductorLikeTaintContested",
    "KonductorLikeTaintsLate",
    "LokiRefusesLines",
    "NodeNameAmbiguous",
    "NodeNameUnknown",
)
"""The alerts and reasons of Events that have a page of their own under docs/runbooks."""
_FOLDER = "docs/runbooks"


def runbooks() -> dict[str, str]:
    """Return the path of each runbook, by the name of its alert or of its Event's reason."""
    others = {reason.value: f"{_FOLDER}/other-events.md#{reason.value.lower()}" for reason in EventReason}
    return others | {name: f"{_FOLDER}/{name}.md" for name in PAGES}


def runbook_of(name: str) -> tuple[str, str] | None:
    """Return the name as it is written in the documentation, and the path; None for any other name."""
    return {each.lower(): (each, path) for each, path in runbooks().items()}.get(name.lower())
