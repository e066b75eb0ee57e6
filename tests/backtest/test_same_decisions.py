"""A backtest decides as the controller would have: the same nodes, for the same, in the same order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from konductor_like.backtest.arriving import arrivals
from konductor_like.backtest.fleet import Fleet
from konductor_like.backtest.play import Player, play
from konductor_like.backtest.simulation import Assumed
from konductor_like.cluster.writer import RehearsedWriter
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.rehearsal import RehearsedEvents, RehearsedNodes
from konductor_like.controller.report import Report
from konductor_like.controller.tick import Tick
from konductor_like.detection import packaged
from konductor_like.detection.joining import Joiner
from konductor_like.loki.client import LokiClient
from konductor_like.loki.logql import kernel_query
from konductor_like.loki.reader import SourceReader
from konductor_like.model import Checkpoint, Machine, NodeState, Source, Verb
from konductor_like.sandbox.loki import LokiServer
from konductor_like.settings import Settings
from tests.backtest.histories import SECOND_NS, START_NS, Said, history, pages
from tests.policy.scenes import node

SECONDS, POLL_SECONDS, NODES = 1800, 5, 10
Taints = list[tuple[str, str, int]]


class _Cluster:
    """Nodes that nobody else writes."""

    problem: Exception | None = None

    def __init__(self) -> None:
        names = [f"gpu-{number}" for number in range(1, NODES + 1)]
        self._nodes = {name: replace(node(name), machine=Machine(f"uid-{name}")) for name in names}

    def snapshot(self) -> dict[str, NodeState]:
        return self._nodes


def by_the_controller(said: list[Said], settings: Settings) -> Taints:
    """What the controller's own reader and tick do, polling while the lines come."""
    clock_ns = START_NS
    nodes, metrics, writer = RehearsedNodes(_Cluster()), Metrics(), RehearsedWriter()
    taints: Taints = []
    with LokiServer(now_ns=lambda: clock_ns) as loki:
        url = settings.model_copy(update={"log_endpoint": loki.url})
        with LokiClient(url) as client:
            query = kernel_query(url, packaged().anchors(Source.KERNEL))
            reader = SourceReader(Source.KERNEL, client, query, url)
            reader.start_from(START_NS)
            start = Checkpoint({Source.KERNEL: START_NS}, 0)
            tick = Tick(
                nodes,
                writer,
                RehearsedEvents(),
                Report(metrics, rehearsal=True),
                metrics,
                rules=settings.rules,
                start=start,
                unknown_node_seconds=600,
                detect=Joiner().detect,
            )
            left = list(said)
            while clock_ns < START_NS + SECONDS * SECOND_NS:
                clock_ns += POLL_SECONDS * SECOND_NS
                while left and left[0].at_ns < clock_ns:
                    loki.push(left[0].labels, [(left[0].at_ns, left[0].text)])
                    left.pop(0)
                batch = reader.poll(clock_ns)
                now = datetime.fromtimestamp(clock_ns / 1e9, UTC)
                plan = tick.run(batch.lines, {Source.KERNEL: batch.upto_ns}, now)
                reader.commit(batch)
                taints += [
                    (change.node, change.incident.key.rule, clock_ns)
                    for change in plan.changes
                    if change.verb is Verb.TAINT and change.incident is not None
                ]
    return taints


def by_the_backtest(said: list[Said], settings: Settings) -> Taints:
    """The same history played."""
    poll_ns, end_ns = POLL_SECONDS * SECOND_NS, START_NS + SECONDS * SECOND_NS
    fleet = Fleet(_Cluster().snapshot().values(), complete=True)
    player = Player(packaged(), settings.rules(), Assumed(None, poll_ns), fleet)
    play(
        arrivals({Source.KERNEL: pages(said, end_ns)}, {Source.KERNEL: poll_ns}, poll_ns),
        [player],
    )
    outages = player.finish(end_ns).outages
    in_order = sorted(outages, key=lambda one: one.start_ns)
    return [(one.node, one.incident.key.rule, one.start_ns) for one in in_order]


@pytest.mark.parametrize("brake_percent", [100, 30])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_controller_and_the_backtest_taint_the_same_nodes_at_the_same_polls(
    seed: int, brake_percent: float
) -> None:
    settings = Settings(brake_max_percent=brake_percent, tail=False)
    said = history(seed, seconds=SECONDS, nodes=NODES)

    live, past = by_the_controller(said, settings), by_the_backtest(said, settings)

    assert len(live) >= 3
    assert sorted((node, rule) for node, rule, _ in past) == sorted((node, rule) for node, rule, _ in live)
    when = {node: at_ns for node, _, at_ns in past}
    for name, _, at_ns in live:
        assert abs(when[name] - at_ns) <= POLL_SECONDS * SECOND_NS, name
    assert [at_ns for *_, at_ns in past] == sorted(at_ns for *_, at_ns in past)
