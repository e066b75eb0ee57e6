"""Looking only at the nodes that need it comes to the same as looking through all of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from konductor_like.model import Severity
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide, needs_attention
from tests.policy.scenes import Cluster, at, fault, fleet


@pytest.mark.parametrize("seed", range(8))
def test_a_caller_that_names_the_nodes_to_look_at_gets_the_same_plan(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(fleet(8), PolicyConfig(brake_max_percent=30))
    taints = 0
    for step in range(40):
        seconds = 30.0 * step
        faults = [
            fault(
                f"gpu-{rng.randint(1, 9)}",
                seconds=seconds,
                stamp=100 + seconds,
                severity=rng.choice([Severity.FATAL, Severity.SUSPECT, Severity.APPLICATION]),
                rule=rng.choice(["xid.79", "xid.31", "xid.48"]),
            )
            for _ in range(rng.choice([0, 0, 1, 3]))
        ]
        if rng.random() < 0.2:
            cluster.untaint_by_hand(f"gpu-{rng.randint(1, 8)}")
        if rng.random() < 0.1:
            cluster.reboot(f"gpu-{rng.randint(1, 8)}", f"boot-{step}")
        whole = replace(cluster.snapshot, nodes=cluster.nodes)
        attention = frozenset(name for name, state in cluster.nodes.items() if needs_attention(state))
        asked = decide(replace(whole, attention=attention), faults, cluster.rules, at(seconds))

        plan = cluster.tick(*faults, seconds=seconds)

        assert asked.changes == plan.changes
        assert set(asked.refused) == set(plan.refused)
        assert (asked.grown, asked.window) == (plan.grown, plan.window)
        assert asked.brake == plan.brake or not asked.refused
        taints += sum(change.verb.value == "taint" for change in plan.changes)
    assert taints > 1
