"""The verdict on one node: its fault, its need, why it stays out, and the one answer to "what now?".

Every surface renders it: the decision's Events and labels, ``status``, ``explain`` and notifications. The
verdict is pure. A surface passes what it knows in addition to the Node: the guards, whether the node can be
written, and whether its kernel log is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from konductor_like.model import (
    Incident,
    IncidentState,
    MetBy,
    Needs,
    NodeRecord,
    NodeState,
    Role,
    Severity,
    ValidationVerdict,
    Verb,
)
from konductor_like.model.text import span_text
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.endings import OPEN, identity, is_grave
from konductor_like.policy.node.health import Health, tainting
from konductor_like.policy.node.needs import (
    REPLACE_ADVICE,
    counting,
    fault_of,
    met_words,
    need_of,
    need_of_incident,
    unrepaired,
)
from konductor_like.policy.recovery.guards import ORDER, PASSING, Blocker, Guard, lasting_blocker
from konductor_like.policy.recovery.validation import (
    is_of_this_time,
    is_under_way,
    lower,
    need_is_met,
    progress_words,
    stage_words,
    verdict_words,
)
from konductor_like.policy.wording import check_and_release, name_of

GRAVEST_FIRST = {severity: place for place, severity in enumerate(Severity)}
_UNREAD = "check that the controller runs; its log and /readyz show why it does not read the kernel logs"
_SILENT = "look at the kernel-log reader's pod on this node and at the log collector"
_DOCTOR = "`konductor-like doctor` names the cause"
_ACCUSING = (Severity.FATAL, Severity.TEST, Severity.SUSPECT)


class Action(StrEnum):
    """What a person, or the controller itself, does next for a node."""

    NONE = "none"
    WAIT = "wait"
    """The node returns by itself."""
    FIX_CONTROLLER = "fix-controller"
    """The controller cannot write the node, or does not read the kernel logs."""
    FIX_READER = "fix-reader"
    """The node's kernel log does not arrive."""
    FIND_ROOT_CAUSE = "find-root-cause"
    """The failure began on another node."""
    REPLACE = "replace"
    """The node failed too often."""
    CHECK_AND_RELEASE = "check-and-release"
    """The need was met: diagnostics show whether the node is whole, then a person releases it."""
    REPAIR = "repair"
    """The advice on the fault says how."""
    IDENTIFY = "identify"
    """No recorded fault explains the taint."""
    CLEAR_RECORD = "clear-record"
    """Somebody damaged the node's record."""


_MENDED = {
    Guard.SILENT: (Action.FIX_READER, _SILENT),
    Guard.LEASE_UNREAD: (Action.FIX_CONTROLLER, _DOCTOR),
    Guard.WRITE_FAILS: (Action.FIX_CONTROLLER, _DOCTOR),
    Guard.NOT_RUNNING: (Action.FIX_CONTROLLER, _DOCTOR),
}
"""The guards that are no matter of the node, and what ends them: then the node returns by itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one node at one moment."""

    fault: Incident | None
    """The node's fault (:func:`fault_of`), or else the gravest that may explain the state, or None."""
    needs: Needs | None
    """What the node needs; None for a node that is neither faulty nor held nor suspect."""
    blockers: tuple[Blocker, ...]
    """Why a tainted node stays out, in the order of :class:`Guard`; empty for a node in service."""
    action: Action
    advice: str
    """The action in words; empty if there is nothing to do."""

    @property
    def why_not_returned(self) -> str | None:
        """Why a tainted node does not return by itself now; None if only the time must pass in which its
        kernel log is heard, and for a node in service."""
        return next((words for guard, words in self.blockers if guard is not Guard.TOO_YOUNG), None)


def verdict(
    state: NodeState,
    blockers: Iterable[Blocker],
    policy: PolicyConfig,
    health: Health,
    *,
    refused: str = "",
    unwritten: Verb | None = None,
    unread: bool = False,
) -> Verdict:
    """Return the verdict on a node.

    ``blockers`` keep a tainted node out. ``refused``: why the controller cannot write the node, empty if it
    can; ``unwritten`` is that write. ``unread``: the controller reads no kernel log.
    """
    found = dict.fromkeys(blockers) if state.faulty else ()
    in_order = tuple(sorted(found, key=lambda blocker: ORDER[blocker.guard]))
    fault = fault_of(state.record, tainted=state.tainted) or next(iter(accusing(state)), None)
    if refused:
        cordon = f"; until then `kubectl cordon {state.name}` keeps new jobs away"
        refused = f"{refused}; {_DOCTOR}{cordon if unwritten is Verb.TAINT and not state.tainted else ''}"
    if unwritten is Verb.RECORD and fault is not None:
        refused = ""  # the fault is worse than a record that is behind
    action, advice = _next(state, fault, in_order, policy, refused)
    if action is Action.NONE and not advice and health is Health.UNKNOWN:
        action, advice = (Action.FIX_CONTROLLER, _UNREAD) if unread else (Action.FIX_READER, _SILENT)
    return Verdict(fault, need_of(state.record, tainted=state.tainted), in_order, action, advice)


def _next(
    state: NodeState,
    fault: Incident | None,
    blockers: tuple[Blocker, ...],
    policy: PolicyConfig,
    refused: str,
) -> tuple[Action, str]:
    """Return the next action, and its words; the first that applies."""
    name, record = state.name, state.record
    if refused:
        return Action.FIX_CONTROLLER, refused
    lasting = [blocker for blocker in blockers if blocker.guard not in PASSING]
    if state.tainted and not lasting:
        return Action.WAIT, _waits(state, blockers, policy)
    if lasting and all(blocker.guard in _MENDED for blocker in lasting):
        action, how = _MENDED[lasting[0].guard]
        return action, f"does not return by itself now: {lasting[0].words}; {how}"
    is_unexplained = state.tainted and not counting(record, tainted=True) and not record.life.marked
    if fault is not None and not is_unexplained:
        return action_on(fault, state, validates=policy.validates_on_wish)
    if state.tainted and state.record_problem:
        words = f"its record is damaged, so nothing explains the taint. {check_and_release(name)}"
        return Action.CLEAR_RECORD, words
    if state.tainted:
        return Action.IDENTIFY, f"find out who tainted it, then `konductor-like reset {name}`"
    if state.record_problem:
        return (
            Action.CLEAR_RECORD,
            f"somebody edited its record; `konductor-like reset {name} --purge` removes the record",
        )
    return Action.NONE, ""


def _waits(state: NodeState, blockers: tuple[Blocker, ...], policy: PolicyConfig) -> str:
    """Return when the node returns by itself."""
    tested = state.record.validation
    first = next((blocker for blocker in blockers if blocker.guard is not Guard.TOO_YOUNG), None)
    if first is not None and first.guard is Guard.VALIDATING:
        is_begun = tested is not None and is_under_way(tested)
        how = f"it {progress_words(tested)}" if tested and is_begun else "the controller begins it by itself"
        return f"returns by itself after a validation that passes; {how}"
    if first is not None:
        return f"returns by itself later: {first.words}"
    if policy.returns_by_validation and tested is not None:
        return (
            f"returns by itself when its kernel log is read beyond the test: {lower(verdict_words(tested))}"
        )
    heard = f"its kernel log was heard for {span_text(round(policy.return_quiet_seconds))} since the reboot"
    return f"returns by itself when {heard}, without a gap"


def action_on(incident: Incident, state: NodeState, *, validates: bool = False) -> tuple[Action, str]:
    """Return what to do about a fault on this node as it is now, and the words.

    ``validates``: the controller tests the node's GPUs if a person asks for it.
    """
    if follows := follows_from(incident):
        return Action.FIND_ROOT_CAUSE, follows
    is_met = incident.met_by is not None
    if state.faulty and state.record.life.marked and (is_met or incident.needs != Needs.REPLACEMENT):
        return Action.REPLACE, f"The node failed too often. {REPLACE_ADVICE}"
    own = unrepaired(state) if incident.by_person else []
    met = met_words(incident)
    if met or (need_is_met(incident, None) if not incident.by_person else not own):
        told = f"Its need was {met}. " if met else ""
        if tested := _by_validation(state, validates=validates):
            return tested[0], f"{told}{tested[1]}"
    if met:
        release = check_and_release(state.name, validates=validates)
        return Action.CHECK_AND_RELEASE, f"Its need was {met}. {release}"
    if own:
        words = f"Before that the node needs: {need_of_incident(own[0])} ({name_of(own[0])})."
        return Action.REPAIR, f"{incident.advice} {words}"
    return Action.REPAIR if incident.advice else Action.NONE, incident.advice


def _by_validation(state: NodeState, *, validates: bool) -> tuple[Action, str] | None:
    """Return what to do by the validation of a tainted node that is repaired; None without one."""
    tested, release = state.record.validation, f"`konductor-like reset {state.name}`"
    if not state.faulty or tested is None or not is_of_this_time(tested, state.record):
        return None
    if is_under_way(tested):
        return Action.CHECK_AND_RELEASE, f"{stage_words(tested)}. After a pass, release the node: {release}."
    if tested.verdict is ValidationVerdict.PASS:
        is_present = tested.boot_id == state.machine.boot_id
        words = f"{verdict_words(tested)}: release the node: {release}."
        return (Action.CHECK_AND_RELEASE, words) if is_present else None
    again = check_and_release(state.name, validates=validates)
    if tested.verdict is ValidationVerdict.FAIL:
        return Action.REPAIR, f"{verdict_words(tested)}. Have that repaired. {again}"
    return Action.CHECK_AND_RELEASE, f"{verdict_words(tested)}. {again}"


def follows_from(incident: Incident) -> str:
    """Return the advice for an incident that another node's failure caused; empty for any other."""
    if incident.role is not Role.COLLATERAL or incident.root_cause is None:
        return ""
    return f"it followed from a failure on {incident.root_cause}: look there first"


def accusing(state: NodeState) -> list[Incident]:
    """Return the incidents that may explain a state other than healthy, the gravest first.

    An incident of another boot never explains a taint. A collateral incident explains a state only if it
    taints.
    """

    def accuses(incident: Incident) -> bool:
        if incident.state is IncidentState.RELEASED:
            return False
        if incident.state is IncidentState.PENDING:
            return not state.tainted
        explained = incident.role is Role.COLLATERAL
        return incident.taints or (incident.severity in _ACCUSING and not explained)

    return sorted(
        filter(accuses, state.record.incidents),
        # The incident that taints the node comes first, before any suspicion.
        key=lambda incident: (not incident.taints, GRAVEST_FIRST[incident.severity], incident.first_ns),
    )


def reboot_words(state: NodeState, record: NodeRecord, policy: PolicyConfig, now: datetime) -> str:
    """Return what a reboot means for a node with open incidents; empty without either.

    ``state`` has the record as it was read, ``record`` is the one after the boot.
    """
    known = state.record.machine
    if known is None or not state.machine.rebooted_since(known):
        return ""
    if not any(each.state in OPEN and is_grave(each) for each in state.record.incidents):
        return ""
    return " ".join(("The machine has rebooted.", *_consequences(state, record, policy, now)))


def _consequences(state: NodeState, record: NodeRecord, policy: PolicyConfig, now: datetime) -> Iterator[str]:
    after, boot_id = replace(state, record=record), state.machine.boot_id
    reasons = [each for each in tainting(record) if each.last.boot_id != boot_id] if state.faulty else []
    by_reboot = [name_of(each) for each in reasons if each.met_by is MetBy.REBOOT]
    if by_reboot:
        yield f"That meets the needs of {', '.join(by_reboot)}."
    unmet = [f"{name_of(each)} ({need_of_incident(each)})" for each in reasons if each.met_by is None]
    if unmet:
        yield f"It does not meet the needs of {', '.join(unmet)}."
    elif again := [each for each in unrepaired(after) if each.last.boot_id in (None, boot_id)]:
        yield f"It has failed again since: {', '.join(map(name_of, again))}."
    elif reasons:
        blocker = lasting_blocker(after, policy, now)
        release = check_and_release(state.name, validates=policy.validates_on_wish)
        stays = "The taint stays" if state.tainted else "The node stays faulty"
        if blocker is None:
            explain = f"`konductor-like explain node {state.name}`"
            first = ", after a validation" if policy.returns_by_validation else ""
            yield f"The node returns by itself, on probation{first}, if nothing speaks against it: {explain}."
        elif blocker.guard is Guard.RETURNS_OFF:
            yield f"{stays}. {release}"
        else:
            yield f"{stays}, because {blocker.words}. {release}"
    before = {identity(each) for each in state.record.incidents if each.state is IncidentState.HELD}
    held = [each for each in record.incidents if identity(each) in before]
    if over := [name_of(each) for each in held if each.state is IncidentState.RELEASED]:
        yield f"Held back until now, and ended by the reboot: {', '.join(over)}."
    if held := [each for each in held if each.state is IncidentState.HELD]:
        yield f"Still held back, because a reboot does not repair it: {', '.join(map(name_of, held))}."
