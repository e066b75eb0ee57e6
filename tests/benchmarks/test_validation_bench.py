"""The time from a line in Loki to the taint, with and without validations under way.

With validations: somebody asks for 50, two run and hang, and every answer about their Jobs takes eight
seconds. The rest is as in the bench of the latency.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import pytest

from konductor_like.cluster.preflight import VALIDATION_POLICY, admission_objects
from konductor_like.settings import Settings
from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_79
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import Request
from tests.benchmarks.test_latency_bench import idle_cluster, percentile, print_percentiles
from tests.processes.waiting import until
from tests.scenarios.test_validations import IMAGE, SPACE
from tests.scenarios.test_validations_beside_taints import wish_validations

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SEED = 6
WISHED, FAULTS = 50, 60
SLOW_SECONDS = 8.0


def about_jobs(request: Request) -> bool:
    return f"/namespaces/{SPACE}" in request.path


def prepare(stage: Stage) -> None:
    """Apply ``manifests/validation.yaml``, and let answers about Jobs be slow."""
    stage.cluster.create_namespace(SPACE)
    meta = {"name": "konductor-like-validation"}
    stage.cluster.put("priorityclasses", {"metadata": meta, "value": -1000, "preemptionPolicy": "Never"})
    policy, binding = admission_objects()[VALIDATION_POLICY]
    stage.cluster.put("validatingadmissionpolicies", policy)
    stage.cluster.put("validatingadmissionpolicybindings", binding)
    stage.cluster.mishaps.add(Mishap(delay_seconds=SLOW_SECONDS), times=None, when=about_jobs)


def latencies(*, with_validations: bool) -> list[float]:
    """Return the seconds from the push of each fault until its taint."""
    chance = random.Random(SEED)
    settings = {"KONDUCTOR_VALIDATION_IMAGE": IMAGE} if with_validations else {}
    seconds = []
    with idle_cluster(**settings) as (stage, taints, controller):
        until(lambda: stage.loki.open_tails == 1, "the tail is open", controller)
        tested, failing = stage.gpu_nodes[:WISHED], stage.gpu_nodes[WISHED : WISHED + FAULTS]
        for node in tested:
            stage.kernel(node, XID_79)
        for node in tested:
            taints.wait_for(node)
        if with_validations:
            prepare(stage)
            read = Settings(log_endpoint=stage.loki.url)
            wish_validations(stage.cluster, read, tested, datetime.now(UTC))
            until(lambda: len(stage.cluster.objects("jobs")) == 2, "two run", controller, seconds=120)
        for node in failing:
            time.sleep(chance.uniform(0.05, 0.6))
            stage.kernel(node, XID_79)
            pushed = time.perf_counter()
            seconds.append(taints.wait_for(node) - pushed)
        assert len(stage.cluster.objects("jobs")) == (2 if with_validations else 0)
    return seconds


def test_validations_delay_no_taint() -> None:
    without = latencies(with_validations=False)
    beside = latencies(with_validations=True)

    print_percentiles("without validations", without, "p50 ≤ 0.35, p99 ≤ 0.7")
    print_percentiles("beside 50 validations", beside, "p50 ≤ 0.35, p99 ≤ 0.7")
    assert percentile(beside, 0.5) <= 0.35
    assert percentile(beside, 0.99) <= 0.7
