"""Asks Prometheus once a minute which of our alerts fire (rule 44). It delays no taint."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from konductor_like.controller import logs
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideThread
from konductor_like.model import AlertKey, AlertsAnswer, FaultKind
from konductor_like.model.attempts import Doing
from konductor_like.model.edge_errors import EdgeError
from konductor_like.model.text import clipped, listed, printable
from konductor_like.prometheus.answer import EXPORTER_UP, Parsed

ROUND_SECONDS = 60.0
"""Seconds between two questions."""
CLOSE_SECONDS = 1.0
STRANGER_SECONDS = 600.0
"""Seconds for which an alert names no Node until a warning tells it: that of a deleted Node ends soon."""
NAMES_SHOWN, NAME_CHARS = 3, 63
_PAGE = "docs/use/other-tools-alerts.md"


class Prometheus(Protocol):
    """What answers the questions."""

    def ask(self, names: Collection[str], nodes: Collection[str]) -> Parsed:
        """Return which alerts fire. Raises an EdgeError."""


class Alerts(SideThread):
    """The worker of one leadership."""

    def __init__(
        self,
        prometheus: Prometheus,
        exporters: Mapping[str, str],
        nodes: Nodes,
        metrics: Metrics,
        attempts: AttemptLog,
        *,
        changed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``exporters`` are the alerts of the rules in force, and the exporter that each one needs.

        ``changed`` is called when other alerts fire. ``clock`` returns seconds.
        """
        super().__init__(name="alerts", what="alerts", close_seconds=CLOSE_SECONDS)
        self.changed = changed
        self._prometheus = prometheus
        self._exporters = exporters
        self._nodes = nodes
        self._metrics = metrics
        self._attempts = attempts
        self._clock = clock
        self._answer: AlertsAnswer | None = None
        self._strangers: Mapping[str, float] = {}
        """Names that alerts fire for and no Node has, and since when."""
        self._problem = ""
        metrics.alerts_read.set(time.time())  # an alert tells if no good answer follows

    def seen(self) -> AlertsAnswer | None:
        """Return the last answer; None before the first one. Any thread may call it."""
        return self._answer

    def step(self) -> None:
        """Ask, and wait."""
        try:
            self.round()
        finally:
            self.closing.wait(ROUND_SECONDS)

    def round(self) -> None:
        """Ask once."""
        if not self._exporters:  # the rules of all alerts are off
            return
        try:
            parsed = self._prometheus.ask(self._exporters, self._asked())
        except EdgeError as error:
            self._tell(str(error))
            return
        before, self._answer = self._answer, parsed.alerts
        lack = self._lack(parsed)
        if not lack:
            self._metrics.alerts_read.set(parsed.alerts.at_ns / 1e9)
        self._tell(lack)
        if before is None or before.firing.keys() != parsed.alerts.firing.keys():
            self.changed()

    def _asked(self) -> set[str]:
        """Return the nodes whose exporters matter: those with a firing, or with one in the record."""
        firing = set() if self._answer is None else {key.node for key in self._answer.firing}
        return {
            name  # and never a name that only an alert has: it may be anything
            for name, state in self._nodes.snapshot().items()
            if name in firing or any(each.kind is FaultKind.ALERT for each in state.record.incidents)
        }

    def _lack(self, parsed: Parsed) -> str:
        """Return what is wrong with an answer; empty if it can be trusted."""
        strangers = self._lasting_strangers(parsed.alerts.firing)
        if parsed.warnings:  # they may name addresses, and everybody may read the Lease
            return f"Prometheus answers in part only, with {len(parsed.warnings)} warnings"
        if not parsed.watched:
            rules = "load the rules of manifests/gpu_alerts.yaml, or correct KONDUCTOR_ALERTS_MATCHERS"
            return f"Prometheus has no series {EXPORTER_UP}: {rules}"
        if parsed.skipped:
            return f"{parsed.skipped} firing alerts have no label node ({_PAGE})"
        if strangers:
            names = listed([clipped(printable(name), NAME_CHARS) for name in strangers], NAMES_SHOWN)
            return f"alerts fire for {names}, and no Node has this name ({_PAGE})"
        return ""

    def _lasting_strangers(self, firing: Collection[AlertKey]) -> list[str]:
        now, nodes = self._clock(), self._nodes.snapshot()
        names = {key.node for key in firing if key.node not in nodes}
        self._strangers = {name: self._strangers.get(name, now) for name in names}
        return sorted(name for name, since in self._strangers.items() if now - since >= STRANGER_SECONDS)

    def _tell(self, problem: str) -> None:
        """Put a problem, or none, on the Lease; log it when it changes."""
        self._attempts.note(Doing.ALERTS, problem)
        if problem and problem != self._problem:
            logs.warning(f"Alerts: {problem}. Until then such faults may be missing, and do not end.")
        elif self._problem and not problem:
            logs.info("Alerts are read again.")
        self._problem = problem
