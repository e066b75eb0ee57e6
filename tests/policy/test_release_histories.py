"""Random histories of faults, replays, releases, reboots and restarts, over both forms of a kernel line.

Two promises are checked after each step: a fatal line that arrived and that no release covers keeps the
taint, and without such a line the node has no taint. The record passes through its annotation, so that a
record that does not fit is part of the histories.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from konductor_like.cluster.node.record import decode, encode, is_shortened
from konductor_like.model import Change, Fault, KernelPosition, RecentEvidence, Source
from konductor_like.policy.node.release import release
from tests.policy.scenes import Cluster, at, fault, fleet, ns

NODE = "gpu-1"
RULES = ("xid.79", "xid.48", "xid.95", "xid.119", "xid.64")
GPUS = tuple(f"0000:{number:02x}:00" for number in range(8))
STEPS = {"fault": 35, "replay": 15, "reset": 10, "by hand": 5, "reboot": 8, "restart": 10}
"""What happens, and how often in a hundred steps."""
HOUR = 3600.0


@dataclass(frozen=True)
class Line:
    """A fatal kernel line as the kernel printed it."""

    boot: str
    number: int
    rule: str
    gpu: str
    stamp: float


@dataclass
class History:
    """One node's life, and what must be true of it."""

    seed: int
    names_boot: bool
    """Whether a line has the form of the kernel-log reader; a plain ``dmesg`` names no boot."""
    cluster: Cluster = field(default_factory=lambda: Cluster(fleet(20)))
    boot: str = "b0"
    booted: float = 0.0
    now: float = 0.0
    number: int = 0
    printed: list[Line] = field(default_factory=list)
    in_loki: list[tuple[Line, float]] = field(default_factory=list)
    reasons: set[Line] = field(default_factory=set)
    """The fatal lines that arrived and that no release covers."""
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.cluster.reboot(NODE, self.boot)

    def step(self) -> None:
        """Let some time pass, then do one thing."""
        self.now += self.random.choice([5.0, 5.0, 30.0, 30.0, 100.0, 400.0, 2000.0])
        self.tick()
        kind = self.random.choices([*STEPS], [*STEPS.values()])[0]
        done = getattr(self, f"do_{kind.replace(' ', '_')}")()
        self.happened[kind] += done is not False
        self.tick()

    def do_fault(self) -> None:
        new = []
        for _ in range(self.random.choice([1, 1, 2, 5])):
            self.number += self.random.randint(1, 3)
            stamp = self.now - self.booted + self.number / 1000
            new.append(Line(self.boot, self.number, *self.chosen(), stamp))
        self.printed += new
        self.deliver([(line, self.now) for line in new])
        self.reasons |= {*new}

    def do_replay(self) -> bool:
        """The kernel-log reader starts again, and prints the buffer from some line on."""
        lines = [line for line in self.printed if line.boot == self.boot]
        first = self.random.randrange(len(lines) + 1)
        self.deliver([(line, self.now) for line in lines[first:]])
        return first < len(lines)

    def do_reset(self) -> bool:
        read = {Source.KERNEL: ns(self.now)}
        change = release(self.cluster.nodes[NODE], at=at(self.now), by="ann", reason="seen", read_ns=read)
        if change is None:
            return False
        self.write(change)
        self.reasons.clear()
        return True

    def do_by_hand(self) -> bool:
        if not self.cluster.nodes[NODE].tainted:
            return False
        self.cluster.untaint_by_hand(NODE)
        self.reasons.clear()
        return True

    def do_reboot(self) -> None:
        self.now += 90
        self.boot, self.booted = f"b{self.now}", self.now - 60
        self.number = 0
        self.cluster.reboot(NODE, self.boot, reported=self.booted)

    def do_restart(self) -> None:
        """Another controller starts from what is on the Node, and reads the last hour again."""
        state = self.cluster.nodes[NODE]
        if not state.record.empty:
            text = encode(state.record)
            self.happened["shortened record"] += is_shortened(text)
            self.cluster.nodes[NODE] = replace(state, record=decode(text)[0])
        self.cluster.snapshot = replace(self.cluster.snapshot, grown={}, window=RecentEvidence())
        self.tick(*(self.arrived(*each) for each in self.in_loki if each[1] >= self.now - HOUR))

    def chosen(self) -> tuple[str, str]:
        return self.random.choice(RULES), self.random.choice(GPUS)

    def deliver(self, lines: list[tuple[Line, float]]) -> None:
        self.in_loki += lines
        self.tick(*(self.arrived(*each) for each in lines))

    def arrived(self, line: Line, seconds: float) -> Fault:
        """The line as Loki has it since ``seconds``."""
        found = fault(NODE, seconds=seconds, rule=line.rule, gpu=line.gpu, text=f"{line} " + "x" * 200)
        stamp_us = round(line.stamp * 1e6)
        place = KernelPosition(line.boot, line.number, stamp_us)
        place = place if self.names_boot else KernelPosition(None, None, stamp_us)
        return replace(found, finding=found.finding._replace(position=place))

    def write(self, change: Change) -> None:
        self.cluster.apply(change)

    def tick(self, *faults: Fault) -> None:
        read = {Source.KERNEL: ns(self.now)}
        self.cluster.snapshot = replace(self.cluster.snapshot, read_ns=read)
        self.cluster.tick(*faults, seconds=self.now)


@pytest.mark.parametrize("names_boot", [True, False], ids=["kernel-log reader", "plain dmesg"])
def test_the_taint_is_there_exactly_for_the_fatal_lines_that_no_release_covers(names_boot: bool) -> None:
    happened: Counter[str] = Counter()
    for seed in range(30):
        story = History(seed, names_boot)
        for number in range(40):
            story.step()
            tainted = story.cluster.nodes[NODE].tainted
            assert tainted is bool(story.reasons), (seed, number, sorted(map(str, story.reasons))[:3])
        happened += story.happened

    assert {*STEPS} <= {*happened}
    assert min(happened[each] for each in STEPS) >= 20, happened
    assert happened["shortened record"] >= 20
