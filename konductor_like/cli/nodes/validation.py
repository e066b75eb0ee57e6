"""The wish for a validation, its cancellation, and the wait for its verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from time import sleep
from typing import NamedTuple

from konductor_like.cli import session
from konductor_like.cli.nodes.writes import CannotWriteError, NodeWrites
from konductor_like.cli.session import ControllerReport
from konductor_like.cluster.api.client import ReadOnlyKubeClient, node_path
from konductor_like.cluster.api.errors import KubeError, KubeNotFound
from konductor_like.cluster.node.decoder import PageDecoder, node_decoder
from konductor_like.cluster.node.store import listed_slices
from konductor_like.model import Change, NodeState, Validation, ValidationStage, ValidationVerdict
from konductor_like.model.time import stamp
from konductor_like.policy.operator import cancel_validation, validate
from konductor_like.policy.recovery.validation import (
    is_under_way,
    level_for,
    lower,
    stage_words,
    verdict_words,
    why_not_testable,
)
from konductor_like.settings import Settings

LOOK_SECONDS = 5.0
"""Seconds between two looks at a validation, which takes minutes or hours."""
_DOCTOR = "`konductor-like doctor` names the cause"
_IMAGE = "set KONDUCTOR_VALIDATION_IMAGE, and apply manifests/validation.yaml"
_BY_FILE = "set KONDUCTOR_RETURN and KONDUCTOR_RECOVERY, and delete the ConfigMap konductor-like-recovery"
_REHEARSES = "with KONDUCTOR_RECOVERY=on the controller validates nodes"


class Refusal(NamedTuple):
    """Why a node is not validated, and the way out."""

    why: str
    way_out: str


def refusal(state: NodeState, controller: ControllerReport, now: datetime) -> Refusal | None:
    """Return the first reason for which a wish would lead to nothing; None without one."""
    policy, name = controller.policy, state.name
    if not controller.readable:
        return Refusal(f"whether a controller runs is not known: {controller.problem}", _DOCTOR)
    if stopped := controller.why_not_running(now):
        return Refusal(stopped, _DOCTOR)
    if controller.settings is None:
        return Refusal(controller.why_settings_unknown, _DOCTOR)
    if not policy.validates:
        return Refusal("the controller has no image for validations", _IMAGE)
    if policy.rehearses:
        return Refusal("KONDUCTOR_RECOVERY is rehearse, so no validation begins", _REHEARSES)
    if policy.recovery_by_file:
        return Refusal("the file of KONDUCTOR_RECOVERY_FILE is there, so no validation begins", _BY_FILE)
    if not state.tainted:
        taint = f"`konductor-like taint {name} --reason '...'` first"
        return Refusal("the node is not tainted, and a validation takes all its GPUs", taint)
    if is_under_way(state.record.validation):
        ends = (
            f"`konductor-like explain {name}` shows it, and `konductor-like validate {name} --cancel` ends it"
        )
        return Refusal(
            f"a validation is under way already: {lower(stage_words(state.record.validation))}", ends
        )
    if why := next(why_not_testable(state), ""):
        return Refusal(
            why, f"ask again when that has changed; `konductor-like explain {name}` shows the node"
        )
    return None


class Wish(NodeWrites):
    """A person's wish for a validation of one node."""

    kind = "Validation"
    done_word = "validated"
    unchanged = "validated already"
    level: int | None = None
    """None for the level that the node's faults ask for."""
    asked_at: datetime
    """When the wish was made; unset before :meth:`decide`."""

    @cached_property
    def decode(self) -> PageDecoder:
        """The controller's decoder of Nodes: its settings and ResourceSlices decide what may be tested."""
        return node_decoder(self.controller.settings, listed_slices(self.client))

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`."""
        self.asked_at = now = self.at()
        if refused := refusal(state, self.controller, now):
            self._hints[refused.way_out] = None
            raise CannotWriteError(f"was not validated: {refused.why}")
        level = self.level or level_for(state.record, self.controller.policy, now)
        return validate(state, level, by=self.by, at=self.asked_at, reason=self.reason)

    def done_text(self, change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        wished = change.record.validation if change.record else None
        return f"will be validated at level {wished.level}" if wished else "unchanged"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWrites.warnings`; also warn that a pass at this level returns no node."""
        yield from super().warnings(before, change)
        policy = self.controller.policy
        least = level_for(before.record, policy, self.asked_at)
        if policy.returns_by_validation and (self.level or least) < least:
            yield f"a pass at level {self.level} does not return it: its faults ask for level {least}"


class Cancellation(NodeWrites):
    """The end of a wish, or of an attempt whose Job the controller then deletes."""

    kind = "Cancellation"
    done_word = "changed"
    unchanged = "no validation under way"

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`."""
        change = cancel_validation(state, at=self.at())
        if change is None:
            raise CannotWriteError("has no validation that waits or runs: there is nothing to cancel")
        return change

    def done_text(self, _change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        return "is not validated any more"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWrites.warnings`; also say what the cancellation does not end."""
        yield from super().warnings(before, change)
        validation, controller = before.record.validation, self.controller
        stopped = controller.why_not_running(self.at())
        if stopped and validation is not None and validation.stage is ValidationStage.RUNNING:
            yield f"its Job runs until a controller deletes it: {stopped}"
        if controller.policy.returns_by_validation and not controller.policy.rehearses:
            yield "the controller itself asks for the next one, unless something keeps the node out"


class Step(NamedTuple):
    """How far a validation is; with its verdict nothing follows."""

    lines: tuple[str, ...]
    verdict: ValidationVerdict | None = None


def step_of(validation: Validation | None, asked_at: datetime) -> Step:
    """Return how far the validation is that was asked for then."""
    if validation is None:
        words = "has no validation any more: it was cancelled, or the node was released"
        return Step((words,), ValidationVerdict.UNKNOWN)
    if validation.asked_at != asked_at:
        words = f"another validation was asked for, by {validation.by} at {stamp(validation.asked_at)}"
        return Step((words,), ValidationVerdict.UNKNOWN)
    if validation.stage is not ValidationStage.ENDED or validation.verdict is None:
        return Step((lower(stage_words(validation)),))
    return Step((lower(verdict_words(validation)), *map(str, validation.gpus)), validation.verdict)


def follow(
    client: ReadOnlyKubeClient,
    settings: Settings,
    node: str,
    asked_at: datetime,
    tell: Callable[[str], None],
    tell_trouble: Callable[[str], None],
) -> ValidationVerdict:
    """Tell each step of the validation once, until its verdict.

    The wait survives an API server that does not answer, and a controller that does not run: it tells both.
    """
    decode, told_trouble = node_decoder(), ""
    told: tuple[str, ...] = ()
    while True:
        trouble = ""
        try:
            step = step_of(decode(client.get(node_path(node))).record.validation, asked_at)
            trouble = "" if step.verdict else _stopped(client, settings)
        except KubeNotFound:
            step = Step(("was deleted",), ValidationVerdict.UNKNOWN)
        except KubeError as error:
            step, trouble = Step(told), str(error)
        if step.lines != told:
            told = step.lines
            for line in told:
                tell(line)
            sys.stdout.flush()
        if trouble and trouble != told_trouble:
            tell_trouble(trouble)
        told_trouble = trouble
        if step.verdict is not None:
            return step.verdict
        sleep(LOOK_SECONDS)


def _stopped(client: ReadOnlyKubeClient, settings: Settings) -> str:
    return session.read_controller(client, settings).why_not_running(session.cluster_now(client))
