"""The reasons for which a test would not taint its node, asked from the controller's own decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from konductor_like.catalog import UserRules
from konductor_like.cli.status.report import Fleet
from konductor_like.detection import Detector
from konductor_like.model import (
    CoverageState,
    Fault,
    Incident,
    KernelPosition,
    NodeState,
    Severity,
    SkipReason,
    Snapshot,
    Source,
    Verb,
)
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of, stamp, unix_ns
from konductor_like.policy.decide import decide
from konductor_like.policy.node.endings import COMMAND_TEST
from konductor_like.policy.node.health import tainting
from konductor_like.policy.wording import name_of, why_not_tainted

RULE = "xid.14"
GPU = "0000:ff:1f"
"""No GPU has this PCI bus id: a GPU is device 0 behind its port, or on a low bus of a virtual machine."""
KEPT_TEST = "konductor-like kept"
"""Words in the line of a test with ``--keep``; they are no longer than :data:`COMMAND_TEST`."""
_LATE = KernelPosition(None, 1 << 60, 1 << 60)
"""A place in the kernel log after every line so far."""
_USER_WRITTEN = "KONDUCTOR_USER_WRITTEN=ignore: lines that are written to /dev/kmsg are no faults"


@dataclass(slots=True)
class Forecast:
    """The outcome that a person may expect of a test."""

    stops: list[str] = field(default_factory=list)
    """Why the test would not taint the node."""
    notes: list[str] = field(default_factory=list)
    """Further facts to know before the test."""


def line_of(token: str, *, keep: bool = False) -> str:
    """Return the kernel line of a test; the token comes early, because records cut long lines.

    With ``keep``, the test ends as one by hand does.
    """
    return f"NVRM: Xid (PCI:{GPU}): 14, {KEPT_TEST if keep else COMMAND_TEST} {token}"


def forecast(state: NodeState, fleet: Fleet, rules: UserRules) -> Forecast:
    """Return what a test of the node is to expect; ``rules`` are those of this machine."""
    found = Forecast()
    found.stops += _controller_stops(fleet)
    if state.tainted:
        found.stops.append(_why_tainted(tainting(state.record)))
    elif not state.is_gpu_node:
        found.stops.append("it has no GPU, as far as its Node shows")
    else:
        _decide(found, state, fleet, rules)
    found.notes += _notes(state, fleet, rules)
    return found


def _why_tainted(reasons: Sequence[Incident]) -> str:
    if reasons and all(each.severity is Severity.TEST for each in reasons):
        began = stamp(moment_of(min(each.first_ns for each in reasons)))
        return f"another test of it is running, begun at {began}: wait for its end"
    names = listed([name_of(each) for each in reasons], 3) or "an unknown reason"
    return f"it is tainted already, for {names}: a test would show nothing"


def _controller_stops(fleet: Fleet) -> Iterator[str]:
    controller = fleet.controller
    if not controller.readable:
        yield f"whether the controller runs is not known: {controller.problem}"
    if stopped := controller.why_not_running(fleet.now):
        yield stopped
    elif (since := controller.unread_since(fleet.now)) is not None:
        yield f"the controller has not read the kernel logs since {stamp(since)}"


def _decide(found: Forecast, state: NodeState, fleet: Fleet, rules: UserRules) -> None:
    """Ask the controller's decision about the line of a test."""
    finding = Detector(rules.catalog).find(line_of("0"), Source.KERNEL)
    if finding is None or finding.shadow or finding.severity is not Severity.TEST:
        made = "a rule in shadow mode" if finding and finding.shadow else finding and finding.severity.value
        found.stops.append(f"the rules make {made or 'nothing'} of an Xid 14: `konductor-like rules show 14`")
        return
    position = replace(_LATE, boot_id=state.machine.boot_id)
    finding = finding._replace(position=position, user_written=True)
    fault = Fault(finding, Source.KERNEL, unix_ns(fleet.now), state.name)
    snapshot = Snapshot(fleet.nodes, controls=fleet.controller.controls, ambiguous=fleet.controller.ambiguous)
    policy = fleet.controller.policy.with_escalations(rules.catalog.escalations, rules.digest)
    plan = decide(snapshot, [fault], policy, fleet.now)
    if any(each.node == state.name and each.verb is Verb.TAINT for each in plan.changes):
        return
    refused = [each for each in plan.refused if (each.node, each.key) == (state.name, fault.key)]
    ignored = [each.reason for each in plan.ignored if each.fault is fault]
    why = next((why_not_tainted(each, state, plan.brake) for each in refused), "".join(ignored[:1]))
    if any(each.why is SkipReason.USER_WRITTEN for each in refused):
        why = _USER_WRITTEN
    if any(each.why is SkipReason.DEFERRED for each in refused):
        found.notes.append(f"the taint waits: {why}")
    else:
        found.stops.append(f"the controller would not taint it: {why}")


def _notes(state: NodeState, fleet: Fleet, rules: UserRules) -> Iterator[str]:
    controller = fleet.controller
    if controller.readable and controller.settings is None:
        yield f"what the brake and the settings allow is not known: {controller.why_settings_unknown}"
    if controller.settings is not None and controller.settings.rules_digest != rules.digest:
        yield "the controller runs other rules than this machine has: they may treat Xid 14 differently"
    coverage = controller.coverage.of(state.name) if controller.coverage else None
    if coverage is not None and coverage is not CoverageState.MEASURED:
        yield "its kernel-log heartbeat does not arrive, so the test's line may not arrive either"
    if state.unschedulable:
        yield "it is cordoned, so the scheduler places nothing there in any case"
