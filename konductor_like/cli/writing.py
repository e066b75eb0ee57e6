"""What commands that write to nodes share: decide, write, decide again where somebody was faster, tell."""

from __future__ import annotations

import getpass
import logging
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta

from konductor_like.cli import clock
from konductor_like.cli.dryrun import DryRun
from konductor_like.cli.streams import say, tell, warn
from konductor_like.cluster.client import KubeClient, ReadOnlyKubeClient, node_path
from konductor_like.cluster.errors import KubeNotFound
from konductor_like.cluster.events import NodeEvents
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_writer import NoDeadline, NodeWriter, Outcome, RehearsedWriter, WriteResult
from konductor_like.cluster.published import Published
from konductor_like.cluster.transport import JSON_PATCH, JsonObject
from konductor_like.controller.announcer import about
from konductor_like.model import Change, NodeState
from konductor_like.settings import Settings

ROUNDS = 5
"""How often a node that keeps changing under our hands is decided anew."""
_SUFFIX = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}


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


class NodeWork(ABC):
    """One kind of write to any number of nodes; counts what was ``done`` and what ``failed``."""

    done_word: str
    """``reset``, as in *was not reset*."""

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        names_only: bool = False,
        controllers: Published | None = None,
        sliced: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """``names_only``: print ``node/NAME`` for each node that was written, as ``-o name`` does.

        ``controllers``: the controller's settings, which say what a GPU node is; where that matters.
        ``sliced``: the nodes that are known to have a ResourceSlice, where that matters.
        """
        self.done = 0
        self.failed = 0
        self.client = client
        self.settings = settings
        self.decode = node_decoder(controllers, sliced)
        self.by = who()
        self._suffix = _SUFFIX[dry_run]
        self._names_only = names_only
        self._hints: dict[str, None] = {}
        self._writer: NodeWriter | RehearsedWriter = RehearsedWriter()
        self._events: NodeEvents | None = None
        if isinstance(client, KubeClient):
            self._writer = NodeWriter(
                client,
                self.decode,
                NoDeadline(),
                timeout_seconds=settings.kube_timeout_seconds,
                write_concurrency=settings.write_concurrency,
            )
            if dry_run is DryRun.NONE:
                self._events = NodeEvents(client, self.by)

    @abstractmethod
    def decide(self, state: NodeState) -> Change | None:
        """What to write, or None where there is nothing to do. May call ``fail``."""

    @abstractmethod
    def told(self, before: NodeState, change: Change) -> str:
        """What was done, behind the node's name."""

    @abstractmethod
    def unchanged(self, state: NodeState) -> str:
        """Why there was nothing to do."""

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """What a person must hear about a node that was written."""
        if before.record_problem and change.record is not None:
            yield f"its record was replaced, it could not be read: {before.record_problem}"

    def at(self) -> datetime:
        """Now, by the cluster's clock: a laptop's that runs ahead would cover faults still to come."""
        return clock.now() + timedelta(seconds=self.client.clock_ahead_seconds)

    def named(self, names: Sequence[str]) -> list[NodeState]:
        """The nodes of these names; one that is not there is told and counts as failed."""
        states = []
        for name in dict.fromkeys(names):
            try:
                states.append(self.decode(self.client.get(node_path(name))))
            except KubeNotFound:
                self.fail(f"node/{name} not found")
        return states

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """Decide and write; a node that changed meanwhile is decided on again, a bounded number of times."""
        for _ in range(ROUNDS):
            if not states:
                break
            states = self._round(states)
        for state in states:
            self.fail(f"node/{state.name} keeps changing and was not {self.done_word}; try again")
        for hint in self._hints:
            tell(f"hint: {hint}")

    def fail(self, message: str) -> None:
        """Tell what could not be done, and count it."""
        self.failed += 1
        tell(message)

    def _round(self, states: Sequence[NodeState]) -> list[NodeState]:
        """One attempt at each node; gives back the fresh states of those to decide on again."""
        failed = self.failed
        decided = []
        for state in states:
            change = self.decide(state)
            if change is not None or self.failed == failed:
                decided.append((state, change))
            failed = self.failed
        results = iter(self._writer.write_all([(state, change) for state, change in decided if change]))
        again = []
        for state, change in decided:
            if change is None:
                self._nothing_to_do(state)
            elif fresh := self._judge(state, next(results)):
                again.append(fresh)
        return again

    def _judge(self, before: NodeState, result: WriteResult) -> NodeState | None:
        """Say how one write ended; gives back the fresh state of a node to decide on again."""
        change = result.change
        match result.outcome:
            case Outcome.CONFLICT if result.state is not None:
                return result.state
            case Outcome.APPLIED if result.state is not None:
                self._applied(before, change, result.state)
            case Outcome.GONE:
                self.fail(f"node/{change.node} not found")
            case _:
                unknown = (
                    f"; it may have been {self.done_word} all the same" if result.outcome_unknown else ""
                )
                self.fail(f"node/{change.node}: {result.error}{unknown}")
                if result.error and result.error.hint:
                    self._hints[result.error.hint] = None
        return None

    def _applied(self, before: NodeState, change: Change, state: NodeState) -> None:
        self.done += 1
        self._say(change.node, self.told(before, change) + self._suffix)
        if change.act_id and logging.getLogger("konductor_like").isEnabledFor(logging.DEBUG):
            tell(f"node/{change.node}: act {change.act_id}")
        for warning in self.warnings(before, change):
            warn(f"node/{change.node}: {warning}")
        if self._events is not None and change.event is not None:
            self._events.send(state, change.event, change.message, about(change), change.act_id)

    def _nothing_to_do(self, state: NodeState) -> None:
        self.done += 1
        self._say(state.name, f"unchanged ({self.unchanged(state)})")

    def _say(self, name: str, what: str) -> None:
        say([f"node/{name}" if self._names_only else f"node/{name} {what}"])


def who() -> str:
    """Who runs this, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a pod's uid need not be in its /etc/passwd
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
