"""The work of ``reset``: which nodes it is about, and what a release of one says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from konductor_like.cli.dryrun import DryRun
from konductor_like.cli.observation import read_controller
from konductor_like.cli.streams import warn
from konductor_like.cli.writing import NodeWork
from konductor_like.cluster.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeError, KubeNotFound
from konductor_like.cluster.lease_annotations import LeaseView, add_control_act
from konductor_like.cluster.node_store import list_nodes
from konductor_like.model import Change, Control, ControlAct, NodeState, Source, Verb
from konductor_like.policy.change import tainting
from konductor_like.policy.release import purge, release, unix_ns
from konductor_like.policy.rules import Rules
from konductor_like.settings import Settings

_DONE = {Verb.UNTAINT: "untainted", Verb.RECORD: "released (no taint)", Verb.PURGE: "purged"}


class Reset(NodeWork):
    """One reset of any number of nodes."""

    done_word = "reset"

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        reason: str,
        purge: bool,
    ) -> None:
        super().__init__(client, settings, dry_run)
        self._reason = reason
        self._purge = purge
        self._in_earnest = dry_run is DryRun.NONE
        self._read_ns: Mapping[Source, int] = {}
        self._policy: Rules | None = None

    def affected(self, selector: str | None) -> list[NodeState]:
        """Every node that a reset without names is about: those that ``status`` calls faulty or held."""
        states = list_nodes(self.client, self.decode, selector).values()
        if self._purge:
            return [state for state in states if purge(state) is not None]
        return [state for state in states if state.tainted or tainting(state.record)]

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """See :meth:`NodeWork.carry_out`; a release covers what the controller has read, and no more."""
        if states and not self._purge:
            controller, _ = read_controller(self.client, self.settings)
            self._policy = controller.settings.policy if controller.settings else None
            if controller.problem is not None:
                warn(f"old lines may taint again: cannot tell what was read so far ({controller.problem})")
            now_ns = unix_ns(self.at())  # nothing is read before it happens, whatever a spoilt cursor says
            self._read_ns = {source: min(ns, now_ns) for source, ns in controller.read_ns.items()}
        if self._purge and isinstance(self.client, KubeClient) and self._in_earnest:
            self._remember(self.client, sum(state.tainted for state in states))
        super().carry_out(states)

    def _remember(self, client: KubeClient, nodes: int) -> None:
        """Note on the Lease what the nodes will not tell: the brake must not fill the room at once."""
        if not nodes:
            return
        at = self.at()

        def purge(before: LeaseView) -> ControlAct:
            policy = before.settings.policy if before.settings else Rules()
            cooldown = timedelta(seconds=policy.brake_cooldown_seconds)
            last = before.controls.purge
            lately = last.nodes if last is not None and at - last.at < cooldown else 0
            return ControlAct(Control.PURGE, at, self.by, nodes=lately + nodes)

        namespace = self.settings.lease_namespace(client.namespace if client.in_cluster else None)
        try:
            add_control_act(client, namespace, self.settings.lease_name, purge)
        except KubeNotFound:
            return  # no controller has ever run: there is no brake
        except KubeError as error:
            warn(f"the brake may use the room at once, because the Lease cannot tell it: {error}")

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWork.decide`."""
        if self._purge:
            return purge(state)
        return release(
            state,
            at=self.at(),
            by=self.by,
            reason=self._reason,
            how="reset",
            read_ns=self._read_ns,
            rules=self._policy,
        )

    def told(self, before: NodeState, change: Change) -> str:
        """See :meth:`NodeWork.told`."""
        del before
        return _DONE[change.verb]

    def unchanged(self, state: NodeState) -> str:
        """See :meth:`NodeWork.unchanged`."""
        del state
        return "no trace of us" if self._purge else "no taint"

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """See :meth:`NodeWork.warnings`; and what the advice still asks for although the node was let go."""
        yield from super().warnings(before, change)
        if change.record is not None and (warning := change.record.releases[0].warning):
            yield warning
