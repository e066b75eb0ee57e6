"""The work of ``taint`` and ``ack``: what a person wants, through the same record and the same patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from konductor_like.cli.columns import count, fault_name
from konductor_like.cli.dryrun import DryRun
from konductor_like.cli.observation import read_controller
from konductor_like.cli.writing import NodeWork
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.model import OPT_OUT_LABEL, Change, Incident, NodeState, Refusal, Snapshot, Verb
from konductor_like.policy.brake import admit
from konductor_like.policy.brakewords import why_held
from konductor_like.policy.by_hand import acknowledge, operator_taint
from konductor_like.policy.release import name_of
from konductor_like.policy.rules import Rules
from konductor_like.settings import Settings


class OperatorTaint(NodeWork):
    """A person's taint of any number of nodes."""

    done_word = "tainted"

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        reason: str,
        names_only: bool = False,
    ) -> None:
        self._controller, self._coverage = read_controller(client, settings)
        super().__init__(
            client,
            settings,
            dry_run,
            names_only=names_only,
            controllers=self._controller.settings,
            sliced=listed_slices(client),
        )
        self._reason = reason
        self._why_not: Mapping[str, str] = {}

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """See :meth:`NodeWork.carry_out`; the brake is looked at first, so that it can be told."""
        wanted: dict[str, Incident] = {}
        for state in states:
            change = self._change(state)
            if change is not None and change.verb is Verb.TAINT and change.incident is not None:
                wanted[state.name] = change.incident
        settings = self._controller.settings
        if wanted:
            snapshot = Snapshot(
                list_nodes(self.client, self.decode),
                controls=self._controller.steering,
                ambiguous=self._coverage.ambiguous if self._coverage else frozenset(),
            )
            wanted = {name: incident for name, incident in wanted.items() if name in snapshot.nodes}
            admission = admit(wanted, snapshot, settings.policy if settings else Rules(), self.at())
            self._why_not = {
                name: why_held(why, admission.brake, snapshot.nodes[name].pool)
                for name, why in admission.refused.items()
                if settings is not None or why is Refusal.PAUSED
            }
        super().carry_out(states)

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWork.decide`; what is no GPU node is never tainted (design rule 20)."""
        if not state.is_gpu_node:
            unknown = self._controller.why_unset
            as_known = f", as far as can be told ({unknown})" if unknown else ""
            self.fail(f"node/{state.name} has no GPU{as_known}, and only GPU nodes are tainted")
            return None
        if state.blocked and not state.tainted:
            self.fail(
                f"node/{state.name}: a taint with our key and effect, and another value, is there already"
            )
            return None
        return self._change(state)

    def told(self, before: NodeState, change: Change) -> str:
        """See :meth:`NodeWork.told`."""
        del before
        return "tainted" if change.verb is Verb.TAINT else "was tainted already; the reason was added"

    def unchanged(self, state: NodeState) -> str:
        """See :meth:`NodeWork.unchanged`."""
        del state
        return "tainted for this reason already"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWork.warnings`; and what would have kept the controller from it."""
        yield from super().warnings(before, change)
        if change.verb is not Verb.TAINT:
            return
        if self._controller.settings is None:
            yield f"whether the brake has room for it cannot be told: {self._controller.why_unset}"
        if change.node in self._why_not:
            yield f"the controller would not have tainted it now: {self._why_not[change.node]}"
        if before.opted_out:
            yield f"it bears the label {OPT_OUT_LABEL}, so the controller leaves it alone"
        if not before.selected:
            yield "the controller's KONDUCTOR_NODE_SELECTOR leaves it out, so the controller leaves it alone"

    def _change(self, state: NodeState) -> Change | None:
        return operator_taint(state, at=self.at(), by=self.by, reason=self._reason)


class Acknowledgement(NodeWork):
    """A person's word that the faults of a node are known; of one ``rule``, or of all."""

    done_word = "acknowledged"

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        rule: str | None,
        reason: str,
        names_only: bool = False,
    ) -> None:
        super().__init__(client, settings, dry_run, names_only=names_only)
        self._rule = rule
        self._reason = reason

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWork.decide`."""
        change = acknowledge(state, self._rule, at=self.at(), by=self.by, reason=self._reason)
        if change is None and self._rule is not None:
            recorded = sorted({fault_name(each.key.rule) for each in state.record.incidents})
            known = f"; recorded are {', '.join(recorded)}" if recorded else ""
            self.fail(f"node/{state.name} has no open {fault_name(self._rule)} on record{known}")
        return change

    def told(self, before: NodeState, change: Change) -> str:
        """See :meth:`NodeWork.told`."""
        del before
        seen = [each for each in change.record.incidents if _is_of(each, change)] if change.record else []
        stays = "; the taint stays" if change.health == "faulty" else ""
        names = list(dict.fromkeys(map(name_of, seen)))  # under two severities a fault is two incidents
        more = f" and {count(len(names) - 3, 'more fault')}" if names[3:] else ""
        return f"acknowledged: {', '.join(names[:3])}{more}{stays}"

    def unchanged(self, state: NodeState) -> str:
        """See :meth:`NodeWork.unchanged`."""
        del state
        return "nothing stands against it"


def _is_of(incident: Incident, change: Change) -> bool:
    """Whether this very act acknowledged it."""
    mine = change.incident.ack if change.incident else None
    return incident.ack is not None and incident.ack == mine
