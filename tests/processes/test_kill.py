"""The kill test: SIGKILL at any moment loses no fault and repeats none; one of two controllers acts."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter

import pytest

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_31, XID_63, XID_79
from tests.processes.waiting import logged, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

WIDE_OPEN = {"KONDUCTOR_BRAKE_MAX_PERCENT": "100", "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1"}


def taints_written(stage: Stage) -> Counter[str]:
    """Return the number of accepted writes that taint each node."""
    return Counter(
        call.name
        for call in stage.cluster.calls("patch", "nodes")
        if call.status == 200
        and any(op["path"].startswith("/spec/taints") and op["op"] != "test" for op in call.body)
    )


def event_names(stage: Stage) -> list[str]:
    created = [call for call in stage.cluster.calls("create", "events") if call.status == 201]
    return [call.body["metadata"]["name"] for call in created]


def test_a_controller_that_is_killed_repeatedly_misses_no_fault_and_repeats_none() -> None:
    dice = random.Random(1)
    with Stage(gpu_nodes=24) as stage:
        faulty = set(dice.sample(stage.gpu_nodes, 6))
        lines = [(name, XID_79) for name in faulty for _ in range(3)]
        lines += [(name, dice.choice([XID_31, XID_63])) for name in stage.gpu_nodes for _ in range(2)]
        dice.shuffle(lines)
        pause = threading.Event()
        sent_all = threading.Event()

        def print_kernel_lines() -> None:
            for name, text in lines:
                stage.kernel(name, text)
                pause.wait(0.08)
            sent_all.set()

        controller = stage.start_controller(**WIDE_OPEN)
        talker = threading.Thread(target=print_kernel_lines)
        talker.start()
        for _ in itertools.count():
            # The kill comes at a random moment: between two polls, in a query, in a write, or after it.
            target = len(taints_written(stage)) + dice.choice([0, 1, 2])
            until(
                lambda target=target: sent_all.is_set() or len(taints_written(stage)) >= target,  # type: ignore[misc]  # mypy cannot type a default in a lambda
                "some taints or the end of the lines",
                controller,
            )
            pause.wait(dice.uniform(0, 0.7))
            controller.kill()
            if sent_all.is_set():
                break
            controller = stage.start_controller(**WIDE_OPEN)
        talker.join()
        controller = stage.start_controller(**WIDE_OPEN)
        stage.kernel("gpu-01", XID_63)
        until(
            lambda: {node.name for node in stage.nodes() if node.tainted} == faulty,
            "every faulty node is tainted",
            controller,
        )
        until(lambda: all(node.recorded(31) or node.recorded(63) for node in stage.nodes()), "all is read")

        until(logged(controller, "Reading Loki"), "the last one leads", controller)
        assert controller.stop() == 0
        assert {node.name for node in stage.nodes() if node.tainted} == faulty
        assert taints_written(stage) == Counter(dict.fromkeys(faulty, 1))
        assert len(event_names(stage)) == len(set(event_names(stage)))


def test_one_of_two_controllers_acts_and_the_other_takes_over() -> None:
    with Stage(gpu_nodes=12) as stage:
        pair = [stage.start_controller(**WIDE_OPEN) for _ in range(2)]
        until(lambda: any(logged(c, "Reading Loki")() for c in pair), "one leads", *pair)
        until(lambda: any(logged(c, "stands by")() for c in pair), "the other stands by", *pair)
        leader, standby = sorted(pair, key=lambda c: logged(c, "stands by")())

        for name in ("gpu-01", "gpu-02", "gpu-03"):
            stage.kernel(name, XID_79)
        until(lambda: len(taints_written(stage)) == 3, "three taints", *pair)
        assert not logged(standby, "tainted.")()

        assert leader.stop() == 0
        until(logged(standby, "Reading Loki from the saved cursor"), "it takes over", standby)
        stage.kernel("gpu-04", XID_79)
        until(lambda: stage.node("gpu-04").tainted, "the new leader taints", standby)

        # The stand-in notes a call after it has answered.
        expected = Counter({f"gpu-0{i}": 1 for i in (1, 2, 3, 4)})
        until(lambda: taints_written(stage) == expected, "each node is tainted once", standby)
