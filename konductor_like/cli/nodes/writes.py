"""The common part of commands that write nodes: decide, write, retry after a conflict, print the result.

``KONDUCTOR_WRITE_CONCURRENCY`` nodes are read or written at once, each by one thread, and the results are
printed in the order of the nodes. Ctrl-C begins no further node, and the command says what it has done.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

from konductor_like.cli import session
from konductor_like.cli.columns import count
from konductor_like.cli.options import DryRun, tell_if_verbose
from konductor_like.cli.output import API_VERSION, say, say_json, tell, warn
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.similar_names import missing_node_hints
from konductor_like.cluster.api.client import (
    KUBE_TIMEOUT_SECONDS,
    KubeClient,
    ReadOnlyKubeClient,
    ServerDryRunClient,
    node_path,
)
from konductor_like.cluster.api.errors import KubeError, KubeNotFound
from konductor_like.cluster.events import NodeEvents, event_subject
from konductor_like.cluster.lease.annotations import forget_records, keep_record
from konductor_like.cluster.node.decoder import PageDecoder, node_decoder
from konductor_like.cluster.node.patch import Form, wanted_text
from konductor_like.cluster.node.writer import DryRunWriter, NoDeadline, NodeWriter, Outcome, WriteResult
from konductor_like.model import Change, KeptRecord, NodeState, Verb, kept_beside
from konductor_like.model.text import listed
from konductor_like.policy.fleet.known_nodes import known_nodes
from konductor_like.settings import Settings

ROUNDS = 5
"""Attempts to write a node that other writers keep changing."""
NODES_IN_WARNING = 5
"""Number of nodes that a warning names; it counts the others."""
_SUFFIX = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}


_CLIENTS: Mapping[DryRun, type[ReadOnlyKubeClient]] = {
    DryRun.NONE: KubeClient,
    DryRun.CLIENT: ReadOnlyKubeClient,
    DryRun.SERVER: ServerDryRunClient,
}


def connected(
    dry_run: DryRun, kubeconfig: str | None, context: str | None
) -> AbstractContextManager[tuple[ReadOnlyKubeClient, Settings]]:
    """Connect the client for this kind of dry run. Raises CommandError or KubeConfigError."""
    return session.connected(_CLIENTS[dry_run], kubeconfig, context)


class CannotWriteError(Exception):
    """The node must not be written as the person asked; the message, after the node's name, is the reason."""


class NodeWrites(ABC):
    """One kind of write to any number of nodes; ``done`` and ``failed`` count the nodes."""

    done_word: ClassVar[str]
    """The participle for messages: ``released``, as in *was not released*."""
    kind: ClassVar[str]
    """The kind of the JSON document."""
    unchanged: ClassVar[str]
    """Why a node needed no write, for the message."""

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        settings: Settings,
        dry_run: DryRun,
        *,
        reason: str,
        claimed: str | None = None,
        output: Literal["text", "name", "json"] = "text",
    ) -> None:
        """``claimed`` is the name after ``--by``."""
        self.client, self.settings, self.dry_run = client, settings, dry_run
        self.reason, self._claimed, self._output = reason, claimed, output
        self.done, self.failed = 0, 0
        self._results: list[dict[str, Any]] = []
        self._hints: dict[str, None] = {}
        self.told: Collection[tuple[str, str]] = ()
        """By node, warnings that were printed before the write, and are not printed again."""
        self._warnings: dict[str, list[str]] = {}
        """By warning, the nodes that it is about."""
        self._kept: dict[str, tuple[KeptRecord, ...]] = {}
        """By UID of the Nodes without room, what the Lease kept of them before."""
        self._stopping = threading.Event()
        self._writer: NodeWriter | DryRunWriter = DryRunWriter()
        self._events: NodeEvents | None = None
        if isinstance(client, KubeClient):
            self._writer = NodeWriter(
                client,
                self.decode,
                NoDeadline(),
                timeout_seconds=KUBE_TIMEOUT_SECONDS,
                sleep=self._stopping.wait,
                keep=self._keep,
            )
            if dry_run is DryRun.NONE:
                self._events = NodeEvents(client, session.local_user(), sleep=self._stopping.wait)

    @cached_property
    def by(self) -> str:
        """The person for the record, asked from the API server at the first use."""
        return session.who(self.client, self._claimed)

    @cached_property
    def controller(self) -> ControllerReport:
        """The controller's Lease, read at the first use."""
        return session.read_controller(self.client, self.settings)

    @cached_property
    def decode(self) -> PageDecoder:
        """The decoder of Nodes."""
        return node_decoder()

    @abstractmethod
    def decide(self, state: NodeState) -> Change | None:
        """Return the change to write, or None if the node needs no change. Raises CannotWriteError."""

    @abstractmethod
    def done_text(self, change: Change) -> str:
        """Return the result of a write, to print after the node's name."""

    def warnings(self, before: NodeState, change: Change) -> Iterator[str]:
        """Yield warnings about a node that was written."""
        if before.record_problem and change.record is not None:
            yield f"its record was replaced, it could not be read: {before.record_problem}"

    def at(self) -> datetime:
        """Return the cluster's time; a laptop's clock that runs ahead would release later faults, too."""
        return session.cluster_now(self.client)

    def named(self, names: Sequence[str]) -> list[NodeState]:
        """Read the nodes of these names; print a message for a missing node and count it as failed."""
        with self._threads() as threads:
            asked = {name: threads.submit(self._read, name) for name in dict.fromkeys(names)}
            try:
                states = [(name, future.result()) for name, future in asked.items()]
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        missing = [name for name, state in states if state is None]
        for name in missing:
            self.fail(name, "not found")
        if missing:
            self._hints.update(dict.fromkeys(missing_node_hints(self.client, missing)))
        return [state for _, state in states if state is not None]

    def _read(self, name: str) -> NodeState | None:
        try:
            return self.known(self.decode(self.client.get(node_path(name))))
        except KubeNotFound:
            return None

    def known(self, state: NodeState) -> NodeState:
        """Return the node with the record that is known of it: the Lease may have it."""
        return known_nodes({state.name: state}, self.controller.controls)[state.name]

    @property
    def _lease(self) -> tuple[KubeClient, str, str]:
        """The client that writes, and the Lease's namespace and name."""
        client = cast("KubeClient", self.client)  # only a client that writes comes here
        return client, session.lease_namespace(client, self.settings), self.settings.lease_name

    def _keep(self, state: NodeState, change: Change, form: Form) -> None:
        """Keep on the Lease the record that the Node has no room for. Raises a KubeError for a release.

        It is kept before the Node is written: else the controller would not know who took the taint off.
        """
        if change.record is None or self.dry_run is not DryRun.NONE:
            return
        text, ahead = wanted_text(state, change, form), change.verb is not Verb.RECORD
        kept = kept_beside(state, change.record, text, ahead=ahead)
        try:
            self._kept.setdefault(kept.uid, keep_record(*self._lease, kept))
        except KubeNotFound:
            pass  # no controller has ever run: nobody reads what the Lease keeps
        except KubeError as error:
            if change.verb is Verb.UNTAINT:
                raise
            lost = f"its record is neither on the Node nor on the Lease: {error}"
            self._warnings.setdefault(lost, []).append(f"node/{state.name}")

    def _take_back(self, state: NodeState, result: WriteResult) -> None:
        """Take back what was kept for a write that was not made, or that the Node had room for."""
        before = self._kept.pop(state.as_read.uid, None)
        if before is None or (result.outcome is Outcome.APPLIED and not result.has_record):
            return
        try:
            forget_records(*self._lease, {state.as_read.uid}, before)
        except KubeError as error:
            told = f"the Lease keeps a record of it that does not count: {error}"
            self._warnings.setdefault(told, []).append(f"node/{state.name}")

    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.write_concurrency, thread_name_prefix="node")

    def carry_out(self, states: Sequence[NodeState]) -> None:
        """Decide and write; decide again on a node that changed meanwhile, at most :data:`ROUNDS` times.

        After Ctrl-C the nodes that were not begun stay as they are; KeyboardInterrupt is raised again.
        """
        asked = states
        try:
            for _ in range(ROUNDS):
                if not states:
                    break
                states = self._round(states)
            for state in states:
                self.fail(state.name, f"keeps changing and was not {self.done_word}; try again")
        except KeyboardInterrupt:
            self._interrupted(asked)
            self._conclude()
            raise
        self._conclude()

    def _conclude(self) -> None:
        """Print the warnings, the hints and the document."""
        for warning, nodes in self._warnings.items():
            warn(f"{listed(nodes, NODES_IN_WARNING)}: {warning}")
        for hint in self._hints:
            tell(f"hint: {hint}")
        if self._output == "json":
            say_json(
                {
                    "apiVersion": API_VERSION,
                    "kind": self.kind,
                    "dryRun": self.dry_run.value,
                    "nodes": self._results,
                }
            )

    def _interrupted(self, asked: Sequence[NodeState]) -> None:
        """Print how many of the nodes have no result, because of Ctrl-C."""
        told = self._told()
        left = [state.name for state in asked if state.name not in told]
        message = f"was not {self.done_word}: interrupted"
        self._results += [_result(name, "failed", message) for name in left]
        tell(f"interrupted: {len(left)} of {count(len(asked), 'node')} not {self.done_word}")

    def _told(self) -> set[str]:
        return {each["name"] for each in self._results}

    def fail(self, node: str, message: str) -> None:
        """Print why a node was not written, and count it. The message follows the node's name."""
        self.failed += 1
        self._results.append(_result(node, "failed", message))
        tell(f"node/{node} {message}")

    def _succeed(self, node: str, result: str, message: str, warnings: Sequence[str] = ()) -> None:
        """Print the result for a node, and count it."""
        self.done += 1
        self._results.append(_result(node, result, message, warnings))
        for warning in (each for each in warnings if (node, each) not in self.told):
            self._warnings.setdefault(warning, []).append(f"node/{node}")
        if self._output != "json":
            say([f"node/{node}" if self._output == "name" else f"node/{node} {message}"])

    def _round(self, states: Sequence[NodeState]) -> list[NodeState]:
        """Try each node once; return the fresh states of the nodes to decide on again."""
        decided = []
        for state in states:
            try:
                decided.append((state, self.decide(state)))
            except CannotWriteError as error:
                self.fail(state.name, str(error))
        # The block waits at its end for all writes: a closed output does not stop what the person asked for.
        with self._threads() as threads:
            under_way = [
                (state, threads.submit(self._write, state, change) if change else None)
                for state, change in decided
            ]
            try:
                return [fresh for each in under_way if (fresh := self._tell(*each))]
            except KeyboardInterrupt:
                # In this order: a thread whose wait the event ends must find no further node.
                threads.shutdown(wait=False, cancel_futures=True)
                self._stopping.set()
                told = self._told()
                for state, future in under_way:
                    if future is not None and not future.cancelled() and state.name not in told:
                        self._tell(state, future)
                raise

    def _write(self, state: NodeState, change: Change) -> WriteResult:
        """Write one node, and send the Event that reports the write."""
        result = self._writer.write(state, change)
        self._take_back(state, result)
        written = result.state if result.outcome is Outcome.APPLIED else None
        if self._events is not None and change.event is not None and written is not None:
            self._events.send(written, change.event, change.message, event_subject(change), change.act_id)
        return result

    def _tell(self, before: NodeState, future: Future[WriteResult] | None) -> NodeState | None:
        """Wait for the write of a node and print its result; after a conflict return its fresh state."""
        if future is not None:
            return self._handle_result(before, future.result())
        self._succeed(before.name, "unchanged", f"unchanged ({self.unchanged})")
        return None

    def _handle_result(self, before: NodeState, result: WriteResult) -> NodeState | None:
        """Print the result of one write; after a conflict return the node's fresh state."""
        change = result.change
        match result.outcome:
            case Outcome.CONFLICT if result.state is not None:
                return self.known(result.state)
            case Outcome.APPLIED:
                self._applied(before, result)
            case Outcome.GONE:
                self.fail(change.node, "not found")
            case _:
                why = str(result.error)
                was = "may or may not have been" if result.outcome_unknown else "was not"
                self.fail(change.node, f"{was} {self.done_word}: {why}")
                if result.error and result.error.hint:
                    self._hints[result.error.hint] = None
        return None

    def _applied(self, before: NodeState, result: WriteResult) -> None:
        change = result.change
        message = f"{self.done_text(change)}{_SUFFIX[self.dry_run]}"
        warnings = list(self.warnings(before, change))
        if not result.has_record:
            warnings.append(
                f"there is no room for its record, which the Lease keeps in short: {result.refusal}"
            )
        self._succeed(change.node, "changed", message, warnings)
        if change.act_id:
            tell_if_verbose(f"node/{change.node}: audit id {change.act_id}")


def _result(node: str, result: str, message: str, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of a node in the JSON document."""
    return {"name": node, "result": result, "message": message, "warnings": list(warnings)}
