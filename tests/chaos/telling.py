"""What stories are made of: a fault, a round, a strike, each as a seed has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.machines import FATAL
from tests.chaos.steps import Step

Story = Callable[[random.Random, int], list[Step]]
"""Draws the steps of a story about one node."""

LATE_SHARES = (0.0, 0.0, 0.0, 0.0, 0.05, 0.5, 0.95, 2.0)
"""How late a line arrives, as a share of what the schedule's settings allow."""
SPANS_SECONDS = (1.0, 5.0, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (320.0, 700.0, 1500.0, 5400.0)


def xid(r: random.Random, node: int, codes: Sequence[int] = FATAL) -> Step:
    """A fault, most often at once in Loki."""
    return s.Xid(node, r.choice(codes), r.randrange(2), r.choice(LATE_SHARES))


def beat(r: random.Random) -> Step:
    """A round of the first controller, or now and then of the second."""
    return s.Beat(0 if r.random() < 0.8 else 1)


def wait(r: random.Random) -> Step:
    """A short while."""
    return s.Wait(r.choice(SPANS_SECONDS))


def strike(r: random.Random) -> Step:
    """SIGKILL or SIGSTOP somewhere in the next rounds."""
    slot, after, writes = r.choice((0, 0, 0, 1)), r.random() < 0.5, r.random() < 0.5
    requests = r.choice((0, 0, 1)) if writes else r.randrange(10)
    if r.random() < 0.6:
        return s.Kill(slot, requests, after, writes)
    return s.Stop(slot, requests, after, r.randint(1, 9), writes)


def release(r: random.Random, node: int) -> Step:
    """Somebody lets the node go."""
    chance = r.random()
    if chance < 0.55:
        return p.Reset(node)
    return p.Reset(None) if chance < 0.7 else p.Untaint(node)


def again(r: random.Random, node: int) -> Step:
    """Old lines come once more."""
    return s.Replay(node) if r.random() < 0.6 else s.Reread(node, r.choice((0.0, 15.0)))
