"""Resets, taints and acknowledgements by people, with the same records and patches as the controller's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property

from konductor_like.cli.columns import count, fault_name
from konductor_like.cli.nodes.writes import CannotWriteError, NodeWrites
from konductor_like.cli.options import DryRun
from konductor_like.cli.output import warn
from konductor_like.cli.session import lease_namespace
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeError, KubeNotFound
from konductor_like.cluster.lease.annotations import LeaseView, add_control_act, forget_records
from konductor_like.cluster.node.decoder import PageDecoder, node_decoder
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.model import (
    OPT_OUT_LABEL,
    Change,
    Control,
    ControlAct,
    Incident,
    IncidentKey,
    NodeState,
    SkipReason,
    Snapshot,
    Verb,
)
from konductor_like.model.controls import NAMES_MOST
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import admit
from konductor_like.policy.fleet.known_nodes import known_nodes
from konductor_like.policy.node.gpu_counts import short_words
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.needs import NodeNeed, fault_of
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.node.undone import Undone, undone
from konductor_like.policy.operator import operator_taint
from konductor_like.policy.recovery.validation import is_under_way
from konductor_like.policy.wording import name_of, why_held

_PURGES_TOGETHER = timedelta(minutes=10)
"""Time for which the names of an earlier purge stay on the Lease: a script may purge nodes one by one."""


def asked_about(need: NodeNeed) -> IncidentKey | None:
    """Return what identifies a need of a node in a question; None for one that no fault asks for."""
    return need.by.key if need.by else None


class _Releases(NodeWrites):
    """A write that takes taints off, also of nodes whose faults nobody has repaired."""

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWrites.warnings`; also say that a validation ends with the taint."""
        yield from super().warnings(before, change)
        yield from self.undone(before).sentences
        tested = before.record.validation
        if tested is not None and is_under_way(tested) and not (change.record and change.record.validation):
            yield f"its validation at level {tested.level} is cancelled"

    may_release: Collection[tuple[str, IncidentKey | None]] | None = None
    """By node and key, the needs that the person was asked about; None if they want no question."""

    @property
    def policy(self) -> PolicyConfig | None:
        """The controller's settings; None if they are not known."""
        return self.controller.settings.policy if self.controller.settings else None

    def undone(self, state: NodeState) -> Undone:
        """Return what the write leaves undone, for the question and the warnings."""
        return undone(state, at=self.at(), reason=self.reason, policy=self.policy)

    def cause(self, state: NodeState) -> str:
        """Return the fault for which the node is released: ``xid 79``, ``a person's taint``."""
        fault = fault_of(state.record, tainted=state.tainted)
        if fault is None:
            return "no recorded fault"
        return name_of(fault) if fault.by_person else fault_name(fault.key.rule)

    def refuse_later_faults(self, state: NodeState) -> None:
        """Raise CannotWriteError for a fault that came after the person was asked, or was not asked."""
        if self.may_release is None:
            return
        needs = self.undone(state).needs
        new = tuple(each for each in needs if (state.name, asked_about(each)) not in self.may_release)
        if new:
            words = Undone(new).words
            raise CannotWriteError(f"failed meanwhile and was not {self.done_word}: it needs {words}")


class Reset(_Releases):
    """One release of any number of nodes: it covers the faults that the controller has read so far."""

    kind = "Reset"
    done_word = "released"
    unchanged = "no taint"

    def affected(self, selector: str | None) -> list[NodeState]:
        """Return the nodes that a reset without names releases: those that ``status`` calls faulty or held.

        An ignored node without the taint is left alone: only a reset by its name closes its faults.
        """
        states = list(map(self.known, list_nodes(self.client, self.decode, selector).values()))
        return [s for s in states if s.faulty or (tainting(s.record) and not s.opted_out)]

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """See :meth:`NodeWrites.carry_out`."""
        if states and (problem := self.controller.problem) is not None:
            warn(f"old lines may taint again: it is not known up to where logs were read ({problem})")
        super().carry_out(states)

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`."""
        self.refuse_later_faults(state)
        return release(
            state,
            at=self.at(),
            by=self.by,
            reason=self.reason,
            read_ns=self.controller.read_ns,
            policy=self.policy,
        )

    def done_text(self, change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        return "untainted" if change.verb is Verb.UNTAINT else "released (no taint)"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWrites.warnings`; also warn about missing GPUs."""
        yield from super().warnings(before, change)
        if change.record is not None and (short := short_words(replace(before, record=change.record))):
            yield f"it has {short}"


class Purge(_Releases):
    """A release that also removes every taint, label and annotation of Konductor-like."""

    kind = "Purge"
    done_word = "purged"
    unchanged = "no taint, label or record of the controller"

    def affected(self, selector: str | None) -> list[NodeState]:
        """Return every node with a taint, label or annotation of Konductor-like."""
        states = map(self.known, list_nodes(self.client, self.decode, selector).values())
        return [state for state in states if purge(state) is not None]

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """Note the purge on the Lease first: without their records the nodes cannot inform the brake."""
        if records := sum(state.as_read.record is not None for state in states):
            lost = "is lost" if self.dry_run is DryRun.NONE else "would be lost"
            warn(
                f"the record of faults and releases of {count(records, 'node')} {lost}: "
                "old kernel-log lines may taint again"
            )
        tainted = sum(state.tainted for state in states)
        kept = {state.as_read.uid for state in states if state.record_kept}
        # The controller brings a claim back that is lost without a purge.
        is_noted = tainted or kept or any(state.record.life.claimed for state in states)
        if is_noted and isinstance(self.client, KubeClient) and self.dry_run is DryRun.NONE:
            self._note(self.client, tainted, [state.name for state in states], kept)
        super().carry_out(states)

    def _note(self, client: KubeClient, nodes: int, names: Sequence[str], kept: Collection[str]) -> None:
        """Note the purge on the Lease, for the brake's cool-down (the number), and for the audit trail.

        The Lease forgets the records that it keeps of the Nodes with these UIDs.
        """
        at = self.at()

        def act(lease: LeaseView) -> ControlAct:
            policy = lease.settings.policy if lease.settings else PolicyConfig()
            cooldown = timedelta(seconds=policy.brake_cooldown_seconds)
            last = lease.controls.purge
            lately = last.nodes if last is not None and at - last.at < cooldown else 0
            before = last.names if last is not None and at - last.at < _PURGES_TOGETHER else ()
            few = tuple(dict.fromkeys((*names, *before)))[:NAMES_MOST]
            return ControlAct(Control.PURGE, at, self.by, self.reason, nodes=lately + nodes, names=few)

        place = lease_namespace(client, self.settings), self.settings.lease_name
        try:
            add_control_act(client, *place, act)
            if kept:
                forget_records(client, *place, kept)
        except KubeNotFound:
            return  # no controller has ever run: there is no brake
        except KubeError as error:
            warn(
                "the controller may bring the records back, and the brake may taint other nodes at once, "
                f"because the Lease cannot be written: {error}"
            )

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`."""
        self.refuse_later_faults(state)
        return purge(state)

    def done_text(self, _change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        return "purged"


class OperatorTaint(NodeWrites):
    """A person's taint of any number of nodes."""

    kind = "Taint"
    done_word = "tainted"
    unchanged = "already tainted for this reason"
    _why_not: Mapping[str, str] = {}
    """By node, why the brake would have held the taint back."""

    @cached_property
    def decode(self) -> PageDecoder:
        """The controller's decoder of Nodes: settings and ResourceSlices decide what a GPU node is."""
        return node_decoder(self.controller.settings, listed_slices(self.client))

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """Ask the brake first, for the warnings; then see :meth:`NodeWrites.carry_out`."""
        wanted = {
            state.name: change.incident
            for state in states
            if (change := self._change(state)) and change.verb is Verb.TAINT and change.incident
        }
        if wanted:
            self._why_not = self._refused(wanted)
        super().carry_out(states)

    def _refused(self, wanted: Mapping[str, Incident]) -> Mapping[str, str]:
        """Return, by node, why the brake would have held the taint back.

        Without the controller's settings only a pause is a known reason.
        """
        controller = self.controller
        nodes = known_nodes(list_nodes(self.client, self.decode), controller.controls)
        snapshot = Snapshot(nodes, controls=controller.controls, ambiguous=controller.ambiguous)
        existing = {name: incident for name, incident in wanted.items() if name in nodes}
        admission = admit(existing, snapshot, controller.policy, self.at())
        return {
            name: why_held(why, admission.brake, nodes[name].pool)
            for name, why in admission.refused.items()
            if controller.settings is not None or why is SkipReason.PAUSED
        }

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`; a node without a GPU is never tainted (rule 20)."""
        if not state.is_gpu_node:
            unknown = self.controller.why_settings_unknown
            as_known = f", as far as known ({unknown})" if unknown else ""
            raise CannotWriteError(f"has no GPU{as_known}, and only GPU nodes are tainted")
        if state.blocked and not state.tainted:
            raise CannotWriteError("has a taint with the controller's key and effect, but another value")
        return self._change(state)

    def done_text(self, change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        return "tainted" if change.verb is Verb.TAINT else "was already tainted; the reason was added"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWrites.warnings`; also warn if the controller would not have tainted the node."""
        yield from super().warnings(before, change)
        if change.verb is not Verb.TAINT:
            return
        if self.controller.settings is None:
            yield f"whether the brake allows the taint is not known: {self.controller.why_settings_unknown}"
        if change.node in self._why_not:
            yield f"the controller would not have tainted it now: {self._why_not[change.node]}"
        if before.opted_out:
            yield f"it has the label {OPT_OUT_LABEL}, so the controller does not taint it"
        if not before.selected:
            yield "the controller's KONDUCTOR_NODE_SELECTOR excludes it, so the controller does not taint it"

    def _change(self, state: NodeState) -> Change | None:
        return operator_taint(state, at=self.at(), by=self.by, reason=self.reason)
