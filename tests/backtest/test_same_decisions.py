"""A backtest decides as the controller would: the same nodes, for the same reasons, at the same polls."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from konductor_like.backtest.history import Page, polls
from konductor_like.backtest.simulation import SimulatedNodes, Simulation
from konductor_like.catalog import UserRules, load_catalog, read_user_rules
from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.controller.loop.leadership import IDLE_SECONDS
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import DryRunEvents, DryRunNodes, WatchedNodes
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.query.logql import kernel_query, pod_query
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Checkpoint, LogLine, Machine, NodeState, Source, Verb
from konductor_like.model.time import span_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.loki import LokiServer
from tests.backtest.histories import POD, SECOND_NS, START_NS, WrittenLine, history, nccl, xid
from tests.chaos.wire import loki_client
from tests.policy.scenes import node

SECONDS, NODES = 1800, 12
END_NS = START_NS + SECONDS * SECOND_NS
USERS = """
overrides:
  xid.31.threshold: 3 in 20m on one gpu
  xid.43.threshold: 2 in 20m on one node from distinct jobs
  xid.63.together_with: xid.94 within 10m on one node
  xid.48.mode: shadow
rules:
  - id: site.nic_down
    source: kernel
    severity: fatal
    title: The NIC is gone
    advice: Look at the cable.
    needs: inspection
    contains: [health compromised]
    patterns: ['mlx5_core {pci}: .{0,80}health compromised']
    match: ["mlx5_core 0000:3d:00.0: device's health compromised - reached miss count"]
    no_match: ['mlx5_core 0000:3d:00.0: firmware version 28.39.1002']
"""


@dataclass(frozen=True)
class Case:
    """A choice of settings, rules and nodes."""

    settings: dict[str, Any] = field(default_factory=dict)
    rules: str = "rules: []"
    pools: int = 0
    domains: int = 0
    poll_seconds: int = 5
    """Seconds between polls of kernel lines; pod lines are polled a third as often."""

    @property
    def interval_ns(self) -> dict[Source, int]:
        poll_ns = self.poll_seconds * SECOND_NS
        return {Source.KERNEL: poll_ns, Source.POD: 3 * poll_ns}

    @property
    def book(self) -> UserRules:
        return read_user_rules(self.rules, "rules.yaml", load_catalog())

    @property
    def nodes(self) -> dict[str, NodeState]:
        """All nodes, spread over ``pools``; every second one is in one of ``domains`` NVLink domains."""
        found = {}
        for number in range(1, NODES + 1):
            name = f"gpu-{number}"
            pool = f"pool-{number % self.pools}" if self.pools else None
            domain = f"rack-{number % self.domains}" if self.domains and number % 2 else None
            found[name] = replace(node(name), machine=Machine(f"uid-{name}"), pool=pool, domain=domain)
        return found

    def full_settings(self) -> Settings:
        """The settings, with the pods' namespace watched."""
        return Settings(
            log_endpoint="http://loki",
            tail=False,
            watched_namespaces=(POD["k8s_namespace_name"],),
            **{"brake_max_percent": 100, **self.settings},
        )

    def policy(self) -> PolicyConfig:
        return self.full_settings().policy().with_escalations(self.book.catalog.escalations, "1")


CASES = {
    "no limit": Case(),
    "a low bound": Case({"brake_max_percent": 17}),
    "a rate limit": Case({"brake_rate_nodes": 1, "brake_rate_window_seconds": 300}),
    "the user's thresholds, rules on trial, rules of his own": Case(rules=USERS),
    "faults in NVLink domains": Case(domains=2, poll_seconds=10),  # some are decided between two polls
    "all of it": Case({"brake_max_percent": 40, "brake_pool_max_percent": 50}, USERS, pools=2, domains=2),
}


class _Cluster:
    """A cluster whose nodes no other writer changes."""

    problem: Exception | None = None

    def __init__(self, nodes: dict[str, NodeState]) -> None:
        self._nodes = nodes

    def snapshot(self) -> dict[str, NodeState]:
        return self._nodes


@dataclass(frozen=True, order=True)
class Taint:
    """One taint: the node, the rule, the grounds and the time."""

    node: str
    rule: str
    grounds: str
    at_ns: int = field(compare=False)


def mixed_history(seed: int) -> list[WrittenLine]:
    """Return single faults, replays, failed jobs (some after dead hardware) and links of a whole domain."""
    rng = random.Random(seed)
    written = history(seed, seconds=SECONDS, nodes=NODES)
    for number in range(6):
        at = rng.uniform(60, SECONDS - 120)
        ranks = rng.sample([f"gpu-{each}" for each in range(1, NODES + 1)], 4)
        written += [nccl(name, at + rng.random() * 4, f"job-{number}") for name in ranks]
        written += [xid(name, at + rng.random() * 4, 43) for name in ranks[:3]]
        if number % 3 == 0:
            written.append(xid(ranks[0], at - 1, 79))
    for _ in range(2):
        at = rng.uniform(60, SECONDS - 120)
        first, *others = rng.sample([f"gpu-{each}" for each in range(1, NODES, 2)], NODES // 2)
        written += [xid(first, at, 149), *(xid(name, at + 1.2 + rng.random() * 2, 149) for name in others)]
    for _ in range(2):
        at, text = rng.uniform(60, SECONDS - 60), "mlx5_core 0000:3d:00.0: device's health compromised"
        at_ns = START_NS + round(at * SECOND_NS)
        written.append(WrittenLine(f"gpu-{rng.randint(1, NODES)}", at_ns, f"[{1000 + at:.6f}] {text}"))
    return sorted(written, key=lambda one: one.at_ns)


def by_the_controller(written: list[WrittenLine], case: Case) -> list[Taint]:
    """Return the taints of the controller's own readers and reconciler, which poll while lines arrive.

    Between two polls it reconciles every few seconds, as :meth:`Leadership.run` does.
    """
    clock_ns = START_NS
    nodes, metrics, writer = (
        DryRunNodes(cast("WatchedNodes", _Cluster(case.nodes))),
        Metrics(),
        DryRunWriter(),
    )
    detector, policy, taints = Detector(case.book.catalog), case.policy(), list[Taint]()
    loki, settings = LokiServer(now_ns=lambda: clock_ns), case.full_settings()

    def exchange(server: str, request: Request, timeout_seconds: float) -> Reply:  # noqa: ARG001  # as it is called
        return loki._api.handle(request)

    with closing(loki_client(settings, exchange, lambda: "", lambda: clock_ns / 1e9)) as client:
        pods = pod_query(settings, detector.anchors(Source.POD))
        assert pods is not None
        kernel = kernel_query(settings, detector.anchors(Source.KERNEL))
        readers = {
            source: SourceReader(source, client, query, settings, START_NS)
            for source, query in {Source.KERNEL: kernel, Source.POD: pods}.items()
        }
        report, events = Report(metrics, dry_run=True), DryRunEvents()
        reconciler = Reconciler(
            nodes,
            Observer(nodes, report),
            Writes(nodes, writer, events, report, metrics),
            events,
            report,
            metrics,
            policy=policy,
            start=Checkpoint(dict.fromkeys(readers, START_NS), 0),
            unknown_node_seconds=600,
            detect=MultilineDetector(detector).detect,
        )
        left = list(written)
        while clock_ns < END_NS:
            clock_ns += min(case.poll_seconds * SECOND_NS, span_ns(IDLE_SECONDS))
            while left and left[0].at_ns < clock_ns:
                loki.push(left[0].labels, [(left[0].at_ns, left[0].text)])
                left.pop(0)
            batches = {
                source: reader.poll(clock_ns)
                for source, reader in readers.items()
                if clock_ns % case.interval_ns[source] == 0
            }
            lines: list[LogLine] = [line for batch in batches.values() for line in batch.lines]
            read_ns = {source: batch.upto_ns for source, batch in batches.items()}
            plan = reconciler.run(lines, read_ns, datetime.fromtimestamp(clock_ns / 1e9, UTC))
            for source, batch in batches.items():
                readers[source].commit(batch)
            taints += [
                Taint(change.node, change.incident.key.rule, change.incident.escalated_because, clock_ns)
                for change in plan.changes
                if change.verb is Verb.TAINT and change.incident is not None
            ]
    return taints


def by_the_backtest(written: list[WrittenLine], case: Case) -> list[Taint]:
    """Return the taints of a backtest over the same history."""
    nodes = SimulatedNodes(case.nodes.values(), complete=True)
    simulation = Simulation(
        Detector(case.book.catalog),
        case.policy(),
        nodes,
        poll_ns=case.interval_ns[Source.KERNEL],
        release_after_ns=None,
    )
    pages = {
        source: [Page([one.line for one in written if one.source is source], END_NS)]
        for source in case.interval_ns
    }
    for poll_ns, lines in polls(pages, case.interval_ns):
        if lines:
            simulation.poll(poll_ns, lines)
    simulation.finish(END_NS)
    outages = simulation.verdicts().outages
    return [
        Taint(one.node, one.incident.key.rule, one.incident.escalated_because, one.start_ns)
        for one in outages
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_controller_and_the_backtest_taint_the_same_nodes_at_the_same_polls(name: str) -> None:
    case, written = CASES[name], mixed_history(1)

    live, past = by_the_controller(written, case), by_the_backtest(written, case)

    assert len(live) >= 2
    assert sorted(past) == sorted(live)
    when = {taint.node: taint.at_ns for taint in past}
    for taint in live:
        assert abs(when[taint.node] - taint.at_ns) <= case.interval_ns[Source.KERNEL], taint


def test_the_cases_show_what_they_are_for() -> None:
    written = [mixed_history(1), mixed_history(2)]

    def taints(name: str) -> list[Taint]:
        return [taint for one in written for taint in by_the_backtest(one, CASES[name])]

    free = taints("no limit")
    for limited in ("a low bound", "a rate limit", "faults in NVLink domains"):
        assert len(taints(limited)) < len(free), limited
    by_users = taints("the user's thresholds, rules on trial, rules of his own")
    assert {"site.nic_down", "xid.31"} <= {taint.rule for taint in by_users}
    assert any("times within" in taint.grounds for taint in by_users)
    assert any("together with" in taint.grounds for taint in by_users)
    assert "xid.48" in {taint.rule for taint in free} - {taint.rule for taint in by_users}
