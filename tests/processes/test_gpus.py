"""Missing GPUs in the real controller: the Node's status alone makes it suspect, and ends that (rule 38)."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like_sandbox.demo.stage import Stage
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes


def test_a_node_that_loses_a_gpu_is_suspect_until_the_gpu_is_back() -> None:
    def set_gpus(number: str) -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["allocatable"]["nvidia.com/gpu"] = number

        stage.cluster.edit_node("gpu-03", change)

    with Stage(gpu_nodes=4) as stage:
        controller = stage.start_controller(KONDUCTOR_GPU_COUNT_SECONDS="1")
        until(logged(controller, "Reading Loki"), "it leads", controller)
        set_gpus("7")
        until(lambda: stage.node("gpu-03").health == "suspect", "the missing GPU is recorded", controller)
        told = stage.run("explain", "node", "gpu-03").stdout
        assert "node gpus missing (suspect" in told
        assert "reason: 7 of 8 GPUs are allocatable (capacity 8)" in told

        set_gpus("8")
        until(lambda: not stage.node("gpu-03").health, "the GPU is back", controller)
        assert not stage.node("gpu-03").tainted
        assert not logged(controller, "Traceback")()
