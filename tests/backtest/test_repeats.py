"""Repeats that wait for a reason to look at their node change nothing that is decided."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.backtest.arriving import arrivals
from konductor_like.backtest.fleet import Fleet, node
from konductor_like.backtest.play import Player, play
from konductor_like.backtest.reading import Page
from konductor_like.backtest.repeats import WAIT_MOST, Repeats
from konductor_like.backtest.simulation import Assumed
from konductor_like.backtest.values import Verdicts
from konductor_like.catalog import load_catalog, read_user_rules
from konductor_like.detection import Detector
from konductor_like.model import Fault, NodeState, Plan, Snapshot, Source
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from tests.backtest.histories import GPUS, SECOND_NS, START_NS, Said, nccl, xid

POLL_NS = 5 * SECOND_NS
HOUR = 3600
RULES = """
overrides:
  xid.31.threshold: 3 in 1h on one gpu
  xid.43.threshold: 4 in 24h on one node from distinct jobs
  xid.63.together_with: xid.13 within 2h on one node
"""


def said_by(rng: random.Random, nodes: int, hours: float) -> list[Said]:
    """Mostly the same faults of the same GPUs again and again; jobs that fail; at times a GPU that dies."""
    said: list[Said] = []
    for _ in range(round(60 * hours)):
        name, at = f"gpu-{rng.randint(1, nodes)}", rng.uniform(1, hours * HOUR - 60)
        code = rng.choices([43, 45, 13, 31, 63, 94, 48, 79], [60, 60, 20, 6, 3, 3, 2, 2])[0]
        said += [
            xid(name, at + number, code, rng.choice(GPUS[:2])) for number in range(rng.choice([1, 1, 1, 5]))
        ]
    for number in range(round(hours)):
        at, job = rng.uniform(1, hours * HOUR - 60), f"job-{number}"
        said += [
            nccl(f"gpu-{rng.randint(1, nodes)}", at + rng.random() * 4, job)
            for _ in range(rng.choice([1, 4]))
        ]
    return sorted(said, key=lambda one: one.at_ns)


def played(said: list[Said], hours: float, rules: str) -> Verdicts:
    book = read_user_rules(rules, "rules.yaml", load_catalog())
    policy = PolicyConfig(brake_max_percent=25).under(book.catalog.escalations, "1")
    fleet = Fleet([node(f"gpu-{number}") for number in range(1, 9)], complete=True)
    player = Player(Detector(book.catalog), policy, Assumed(HOUR * SECOND_NS, POLL_NS), fleet)
    end_ns = START_NS + round(hours * HOUR) * SECOND_NS
    pages = {
        source: [Page([one.line for one in said if one.source is source], end_ns)]
        for source in (Source.KERNEL, Source.POD)
    }
    play(arrivals(pages, {Source.KERNEL: POLL_NS, Source.POD: 3 * POLL_NS}, POLL_NS), [player])
    return player.finish(end_ns)


@pytest.mark.parametrize("rules", ["", RULES], ids=["packaged rules", "rules of the user's"])
@pytest.mark.parametrize("seed", range(3))
def test_what_waits_changes_no_decision(seed: int, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hours, waited = 12.0, 0
    said = said_by(random.Random(seed), nodes=6, hours=hours)
    keep = Repeats.keep

    def counting(self: Repeats, fault: Fault, state: NodeState, *, is_related: bool) -> bool:
        nonlocal waited
        waits = keep(self, fault, state, is_related=is_related)
        waited += waits
        return waits

    monkeypatch.setattr(Repeats, "keep", counting)
    with_waiting = played(said, hours, rules)
    monkeypatch.setattr(Repeats, "keep", lambda *_, **__: False)
    at_once = played(said, hours, rules)

    assert waited > 100
    assert len(at_once.outages) > 4
    assert with_waiting == at_once


@pytest.mark.parametrize("seed", range(2))
def test_looking_only_where_something_may_have_changed_changes_no_decision(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said_by(random.Random(seed), nodes=6, hours=8)
    in_part = played(said, 8, RULES)

    def whole(snapshot: Snapshot, *arguments: Any) -> Plan:
        return decide(replace(snapshot, attention=None), *arguments)

    monkeypatch.setattr(Repeats, "keep", lambda *_, **__: False)
    monkeypatch.setattr("konductor_like.backtest.simulation.decide", whole)

    assert len(in_part.outages) > 3
    assert played(said, 8, RULES) == in_part


def test_of_one_node_only_so_many_wait_and_none_is_lost() -> None:
    fleet = Fleet([node("gpu-1")], complete=True)
    player = Player(Detector(load_catalog()), PolicyConfig(), Assumed(None, POLL_NS), fleet)
    lines = [xid("gpu-1", seconds, 43).line for seconds in range(3 * WAIT_MOST)]
    most = 0

    for number, line in enumerate(lines):
        player.step(START_NS + number * POLL_NS, [line], all_asked_for=True)
        most = max(most, len(player.simulation._repeats._waiting.get("gpu-1", ())))

    assert most == WAIT_MOST
    assert player.finish(START_NS + len(lines) * POLL_NS).faults == len(lines)
