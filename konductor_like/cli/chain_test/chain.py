"""The stages that a test's line passes after it was written: Loki, the controller's taint, the Event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic, sleep

from konductor_like.cli import session
from konductor_like.cli.chain_test.forecast import GPU, RULE
from konductor_like.cli.nodes.writes import NodeWrites
from konductor_like.cluster.api.client import KubeClient, events_path, node_path
from konductor_like.cluster.api.errors import KubeForbidden
from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.cluster.events import ACT_ANNOTATION, NAMESPACE
from konductor_like.cluster.node.decoder import PageDecoder
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.logql import kernel_query
from konductor_like.model import (
    Change,
    EventReason,
    Incident,
    IncidentKey,
    IncidentState,
    MetBy,
    NodeState,
    Source,
    Verb,
)
from konductor_like.model.edge_errors import EdgeError
from konductor_like.model.text import clipped, listed
from konductor_like.model.time import SECOND_NS, moment_of, stamp
from konductor_like.policy.node.health import tainting
from konductor_like.policy.operator import end_test
from konductor_like.policy.wording import name_of
from konductor_like.settings import Settings

LOOK_SECONDS = 0.5
"""Seconds between two looks at the stages."""
_BEFORE_NS = 300 * SECOND_NS
_AFTER_NS = 900 * SECOND_NS
"""The window in which Loki is asked for the line; a node's clock may be wrong."""
_LINES = 10


class Stage(ABC):
    """One stage; ``last`` is what was seen of it last."""

    last = ""
    skipped = ""
    """Why the stage cannot be looked at; empty if it can."""
    missed = ""
    """Why the stage will not come any more; empty if it may."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def look(self) -> bool:
        """Return whether the line has come through. Raises a KubeError or a LokiError."""

    def why_missing(self) -> str:
        """Return what was seen last."""
        return self.last


def follow(stages: Sequence[Stage], timeout_seconds: float, tell: Callable[[str], None]) -> list[Stage]:
    """Look at the stages until all were seen, one will not come, or the time is over; return the unseen."""
    began, waiting = monotonic(), list(stages)
    while True:
        for stage in list(waiting):
            try:
                seen = stage.look()
            except EdgeError as error:
                seen, stage.last = False, str(error)
            if seen:
                tell(f"{stage.name} after {monotonic() - began:.1f} s")
            elif stage.skipped:
                tell(f"{stage.name}: not looked at: {stage.skipped}")
            if seen or stage.skipped:
                waiting.remove(stage)
        is_over = not waiting or monotonic() - began >= timeout_seconds
        if is_over or any(stage.missed for stage in waiting):
            return waiting
        sleep(LOOK_SECONDS)


class InLoki(Stage):
    """The line is in Loki, under the node's name."""

    def __init__(self, settings: Settings, node: str, token: str, *, reachable: bool) -> None:
        super().__init__("in Loki")
        self._label, self._node = settings.node_label, node
        self._query = kernel_query(settings, [token])
        self._client: LokiClient | None = None
        if not reachable:
            self.skipped = "LOG_ENDPOINT is not set here"
            return
        try:
            self._client = LokiClient(settings)
            self.look()
        except LokiError as error:
            self.skipped = str(error)

    def close(self) -> None:
        """Close the connections to Loki."""
        if self._client is not None:
            self._client.close()

    def look(self) -> bool:
        """See :meth:`Stage.look`."""
        if self._client is None:
            return False
        now_ns = self._client.now_ns()
        found = self._client.query_range(self._query, now_ns - _BEFORE_NS, now_ns + _AFTER_NS, _LINES)
        names = {entry.labels.get(self._label, "") for entry in found.entries}
        if not names:
            self.last = "Loki has no such line"
        elif self._node not in names:
            other = clipped(", ".join(sorted(names)), 80)
            self.last = f"Loki has the line under the node name {other!r} ({self._label})"
        return self._node in names


class Tainted(Stage):
    """The node has the controller's taint, and its record names the test."""

    act = ""
    """The id of the write that set the taint."""
    incident: Incident | None = None
    """The incident of this test in the record, if there is one; it may be released."""

    def __init__(
        self, client: KubeClient, settings: Settings, decode: PageDecoder, before: NodeState, token: str
    ) -> None:
        """``before`` is the node before the line was written."""
        super().__init__("tainted")
        self._client, self._settings, self._decode = client, settings, decode
        self._node, self._token = before.name, token
        self._ended = {each.first_ns for each in _tests(before) if not _is_open(each)}

    def look(self) -> bool:
        """See :meth:`Stage.look`."""
        state: NodeState = self._decode(self._client.get(node_path(self._node)))
        tests = _tests(state)
        self.incident = next((each for each in tests if self._token in each.evidence), None)
        self.missed = ""
        if self.incident is None:
            self.last = "the node's record has no Xid 14 of this test"
            others = [each for each in tests if each.first_ns not in self._ended]
            if others:  # an incident tells only its first line, and a release covers the lines before it
                began = stamp(moment_of(others[0].first_ns))
                self.missed = (
                    f"another test of the node ran at the same time, begun at {began}: run this one again"
                )
        elif not _is_open(self.incident):
            is_late = self.incident.met_by is MetBy.TIME
            why = "its line was more than two minutes old when it was read" if is_late else "it was released"
            self.missed = f"the test ended before its taint was seen: {why}"
        elif not state.tainted:
            self.last = f"the test is recorded as {self.incident.state.value}, and the node is not tainted"
        else:
            self.act = state.record.act.id if state.record.act else ""
            return True
        return False

    @property
    def is_open(self) -> bool:
        """Whether the record had this test at the last look, and a release ends it."""
        return self.incident is not None and _is_open(self.incident)

    def why_missing(self) -> str:
        """See :meth:`Stage.why_missing`; also say how far the controller has read."""
        reached = session.read_controller(self._client, self._settings).reached_ns.get(Source.KERNEL)
        if reached is None:
            return self.last
        return f"{self.last}; the controller has read kernel logs up to {stamp(moment_of(reached))}"


class Reported(Stage):
    """The Event about the taint."""

    def __init__(self, client: KubeClient, node: str, token: str, tainted: Tainted) -> None:
        super().__init__(f"Event {EventReason.TAINTED}")
        self._client, self._node, self._token, self._tainted = client, node, token, tainted
        self.last = "there is no Event about the test's taint"

    def look(self) -> bool:
        """See :meth:`Stage.look`."""
        if self._tainted.incident is None:
            return False
        about = f"involvedObject.kind=Node,involvedObject.name={self._node}"
        try:
            events = self._client.list_pages(events_path(NAMESPACE), dict, {"fieldSelector": about}).items
        except KubeForbidden as error:
            self.skipped = str(error)
            return False
        return any(map(self._is_ours, events))

    def _is_ours(self, event: JsonObject) -> bool:
        act = (json_object(event, "metadata").get("annotations") or {}).get(ACT_ANNOTATION)
        is_ours = self._token in str(event.get("message")) or (act is not None and act == self._tainted.act)
        return is_ours and event.get("reason") in (EventReason.TAINTED, EventReason.RELAPSED)


class Recorded(Stage):
    """The node's record has the test, so that it can be released; or has had it."""

    def __init__(self, tainted: Tainted) -> None:
        super().__init__("recorded")
        self._tainted = tainted

    def look(self) -> bool:
        """See :meth:`Stage.look`."""
        self._tainted.look()
        return self._tainted.incident is not None


class EndOfTest(NodeWrites):
    """The end of the test, which the controller would end two minutes after its line."""

    kind = "EndOfTest"
    done_word = "released"
    unchanged = "the test has ended"

    def decide(self, state: NodeState) -> Change | None:
        """See :meth:`NodeWrites.decide`."""
        test = IncidentKey(RULE, GPU)
        return end_test(state, test, at=self.at(), by=self.by, reason=self.reason)

    def done_text(self, change: Change) -> str:
        """See :meth:`NodeWrites.done_text`."""
        if change.verb is Verb.UNTAINT or change.record is None:
            return "untainted: the test has ended"
        stays = listed(list(map(name_of, tainting(change.record))), 3)
        return f"the test has ended; the taint stays, for {stays}" if stays else "the test has ended"


def _tests(state: NodeState) -> list[Incident]:
    return [each for each in state.record.incidents if each.key == (RULE, GPU)]


def _is_open(incident: Incident) -> bool:
    return incident.state is not IncidentState.RELEASED
