"""The work of ``reset``: decide, write, decide again where somebody was faster, say what came of it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta

from konductor_like.cli import clock
from konductor_like.cli.observation import read_controller
from konductor_like.cli.reset import DryRun
from konductor_like.cli.streams import say, tell, warn
from konductor_like.cluster import paths
from konductor_like.cluster.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.decode import settled_decoder
from konductor_like.cluster.errors import KubeNotFound
from konductor_like.cluster.events import NodeEvents
from konductor_like.cluster.fence import NoFence
from konductor_like.cluster.store import list_nodes
from konductor_like.cluster.transport import JSON_PATCH, JsonObject
from konductor_like.cluster.writer import NodeWriter, Outcome, RehearsedWriter, WriteResult
from konductor_like.controller.announcer import about
from konductor_like.model import Change, NodeState, Source, Verb
from konductor_like.policy.change import tainting
from konductor_like.policy.release import purge, release
from konductor_like.settings import Settings

ROUNDS = 5
"""How often a node that keeps changing under our hands is decided anew."""
_SUFFIX = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}
_DONE = {Verb.UNTAINT: "untainted", Verb.RECORD: "released (no taint)", Verb.PURGE: "purged"}


class ServerDryRunClient(KubeClient):
    """Lets the server check every patch and store nothing."""

    def patch(
        self,
        path: str,
        body: object,
        content_type: str = JSON_PATCH,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> JsonObject:
        """See :meth:`KubeClient.patch`."""
        return super().patch(path, body, content_type, {**(params or {}), "dryRun": "All"}, timeout_seconds)


@contextmanager
def writing_client(
    settings: Settings, kubeconfig: str | None, context: str | None, dry_run: DryRun
) -> Iterator[ReadOnlyKubeClient]:
    """A client that can do as much as the kind of dry run allows. Raises KubeConfigError."""
    kind = {
        DryRun.NONE: KubeClient,
        DryRun.CLIENT: ReadOnlyKubeClient,
        DryRun.SERVER: ServerDryRunClient,
    }[dry_run]
    with closing(kind.connect(kubeconfig, context, settings.kube_timeout_seconds)) as client:
        yield client


class Reset:
    """One reset of any number of nodes; counts what was ``done`` and what ``failed``."""

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        reason: str,
        purge: bool,
    ) -> None:
        self.done = 0
        self.failed = 0
        self._client = client
        self._decode = settled_decoder(settings)
        self._suffix = _SUFFIX[dry_run]
        self._reason = reason
        self._purge = purge
        self._by = who()
        self._hints: dict[str, None] = {}
        self._settings = settings
        self._read_ns: Mapping[Source, int] = {}
        self._writer: NodeWriter | RehearsedWriter = RehearsedWriter()
        self._events: NodeEvents | None = None
        if isinstance(client, KubeClient):
            self._writer = NodeWriter(
                client,
                self._decode,
                NoFence(),
                timeout_seconds=settings.kube_timeout_seconds,
                write_concurrency=settings.write_concurrency,
            )
            if dry_run is DryRun.NONE:
                self._events = NodeEvents(client, self._by)

    def named(self, names: Sequence[str]) -> list[NodeState]:
        """The nodes of these names; one that is not there is told and counts as failed."""
        states = []
        for name in dict.fromkeys(names):
            try:
                states.append(self._decode(self._client.get(paths.node(name))))
            except KubeNotFound:
                self._fail(f"node/{name} not found")
        return states

    def affected(self, selector: str | None) -> list[NodeState]:
        """Every node that a reset without names is about: those that ``status`` calls faulty or held."""
        states = list_nodes(self._client, self._decode, selector).values()
        if self._purge:
            return [state for state in states if purge(state) is not None]
        return [state for state in states if state.tainted or tainting(state.record)]

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """Decide and write; a node that changed meanwhile is decided on again, a bounded number of times."""
        if states and not self._purge:
            self._read_ns = self._read_so_far()
        for _ in range(ROUNDS):
            if not states:
                break
            states = self._round(states)
        for state in states:
            self._fail(f"node/{state.name} keeps changing and was not reset; try again")
        for hint in self._hints:
            tell(f"hint: {hint}")

    def _round(self, states: Sequence[NodeState]) -> list[NodeState]:
        """One attempt at each node; gives back the fresh states of those to decide on again."""
        decided = [(state, self._decide(state)) for state in states]
        written = [(state, change) for state, change in decided if change is not None]
        results = iter(self._writer.write_all(written))
        again = []
        for state, change in decided:
            if change is None:
                self._unchanged(state)
            elif fresh := self._judge(state, next(results)):
                again.append(fresh)
        return again

    def _decide(self, state: NodeState) -> Change | None:
        if self._purge:
            return purge(state)
        return release(
            state,
            # By the cluster's clock: a laptop's that runs ahead would cover faults that are still to come.
            at=clock.now() + timedelta(seconds=self._client.clock_ahead_seconds),
            by=self._by,
            reason=self._reason,
            how="reset",
            read_ns=self._read_ns,
            rules=self._settings.rules(),
        )

    def _judge(self, before: NodeState, result: WriteResult) -> NodeState | None:
        """Say how one write ended; gives back the fresh state of a node to decide on again."""
        change = result.change
        match result.outcome:
            case Outcome.CONFLICT if result.state is not None:
                return result.state
            case Outcome.APPLIED if result.state is not None:
                self._applied(before, change, result.state)
            case Outcome.GONE:
                self._fail(f"node/{change.node} not found")
            case _:
                unknown = "; it may have been reset all the same" if result.outcome_unknown else ""
                self._fail(f"node/{change.node}: {result.error}{unknown}")
                if result.error and result.error.hint:
                    self._hints[result.error.hint] = None
        return None

    def _applied(self, before: NodeState, change: Change, state: NodeState) -> None:
        self.done += 1
        say([f"node/{change.node} {_DONE[change.verb]}{self._suffix}"])
        if before.record_problem and not self._purge:
            warn(
                f"node/{change.node}: its record was replaced, it could not be read: {before.record_problem}"
            )
        if change.record is not None and (warning := change.record.releases[0].warning):
            warn(f"node/{change.node}: {warning}")
        if self._events is not None and change.event is not None:
            self._events.send(state, change.event, change.message, about(change), change.act_id)

    def _unchanged(self, state: NodeState) -> None:
        self.done += 1
        why = "no trace of us" if self._purge else "no taint"
        say([f"node/{state.name} unchanged ({why})"])

    def _fail(self, message: str) -> None:
        self.failed += 1
        tell(message)

    def _read_so_far(self) -> Mapping[Source, int]:
        """How far the controller has read: the release covers that much evidence and no more."""
        controller, _ = read_controller(self._client, self._settings)
        if controller.problem is not None:
            warn(f"old lines may taint again: cannot tell what was read so far ({controller.problem})")
        return controller.read_ns


def who() -> str:
    """Who runs this, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a pod's uid need not be in its /etc/passwd
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
