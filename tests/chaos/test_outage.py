"""After two hours without Loki the collectors deliver their backlog: no fault is lost, none acts twice."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

import pytest

from konductor_like.settings import Settings
from tests.chaos.lines import Lines
from tests.chaos.machines import FATAL, GPUS, Occurrence
from tests.chaos.setup import ENDPOINT, Setup
from tests.chaos.traffic import Trouble
from tests.chaos.wire import LOKI
from tests.chaos.world import World

OUTAGE_SECONDS = 2 * 3600
SILENCE_SECONDS = 600
DELIVERY_SECONDS = 600
ROUND_SECONDS = 15


class Backlog(Lines):
    """Collectors that keep lines on disk while ``keeping`` is set, and deliver them in order."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.queue: list[tuple[str, str, int, Occurrence | None]] = []
        """The lines that are kept, the oldest first."""
        self.keeping = False

    def ship(
        self,
        name: str,
        text: str,
        timestamp_ns: int,
        occurrence: Occurrence | None,
        *,
        delay_seconds: float = 0.0,
        note: str = "",
    ) -> None:
        """Queue a line while ``keeping`` is set, else ship it to Loki."""
        if self.keeping:
            self.queue.append((name, text, timestamp_ns, occurrence))
        else:
            super().ship(name, text, timestamp_ns, occurrence, delay_seconds=delay_seconds, note=note)

    def deliver(self, count: int) -> None:
        """Send the ``count`` oldest lines of the queue."""
        for name, text, timestamp_ns, occurrence in self.queue[:count]:
            self.push(name, text, timestamp_ns, occurrence, "0")
        del self.queue[:count]


def lived(nodes: int, faults: int, *, restart: bool) -> World:
    """Return a world after ten minutes, the outage, the silence after it, the backlog, and half an hour."""
    world = World(Setup(plain=(False,) * nodes), seed=5)
    with world.clock.installed():
        live(world, faults, restart=restart)
    return world


def live(world: World, faults: int, *, restart: bool) -> None:
    world.settings = Settings(log_endpoint=ENDPOINT, brake_max_percent=100.0, tail=False)
    places = [(name, code, gpu) for name in world.names for code in FATAL for gpu in GPUS]
    lines = world.lines = Backlog(world)
    rng = random.Random(7)
    rng.shuffle(places)

    def rounds(span_seconds: int, each: int = 0) -> None:
        for _ in range(span_seconds // ROUND_SECONDS):
            world.advance(ROUND_SECONDS)
            lines.deliver(each)
            world.round_of_all()

    world.start(0)
    rounds(600)
    lines.keeping = True
    world.traffic.troubles.planned.append(Trouble(LOKI, "down", 10**9))
    for name, code, gpu in places[:faults]:
        world.advance(OUTAGE_SECONDS / faults)
        world.lines.happen(name, code, gpu)
        world.round_of_all()
    world.traffic.troubles.clear()
    rounds(SILENCE_SECONDS)
    if restart:
        controller = world.processes[0]
        assert controller is not None
        world.kill(controller)
        world.start(0)
    each = len(lines.queue) * ROUND_SECONDS // DELIVERY_SECONDS + len(world.names)
    while lines.queue:
        rounds(ROUND_SECONDS, each)
    lines.keeping = False
    rounds(1800)


def check(world: World, faults: int) -> None:
    """Check that every fault is counted once on its node, and that the node is tainted."""
    counts: Counter[int] = Counter()
    for name in {occurrence.node for occurrence in world.occurrences if occurrence.in_loki}:
        node = world.nodes.stored(name)
        assert node is not None
        state = world.decode(node)
        assert state.tainted, name
        counts.update(incident.count for incident in state.record.incidents)
    assert counts == {1: faults}


def test_faults_during_an_outage_of_loki_are_acted_upon_once() -> None:
    check(lived(nodes=4, faults=20, restart=True), 20)


@pytest.mark.bench
@pytest.mark.parametrize("restart", [False, True], ids=["one controller", "killed before the backlog comes"])
def test_500_faults_within_an_outage_of_two_hours_are_acted_upon_once(restart: bool) -> None:
    begun = time.perf_counter()
    check(lived(nodes=100, faults=500, restart=restart), 500)

    sys.stdout.write(
        f"\n2 h outage, backlog from 10 to 20 minutes after it, 500 faults on 100 nodes"
        f"{', controller killed in between' if restart else ''}: 0 lost, 0 twice "
        f"(simulated in {time.perf_counter() - begun:.0f} s)\n"
    )
