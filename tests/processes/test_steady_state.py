"""A poll costs two Loki queries and no Node write, for any number of nodes and namespaces."""

from __future__ import annotations

from collections import defaultdict

import pytest

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.http import Request
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes


def queries(stage: Stage) -> list[Request]:
    return [each.request for each in stage.loki.journal if each.request.path.endswith("/query_range")]


def test_a_steady_poll_is_two_queries_and_no_node_write() -> None:
    with Stage(gpu_nodes=150) as stage:
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
            WATCHED_NAMESPACES="default,train,infer,eval,batch",
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)
        until(lambda: len(queries(stage)) >= 40, "the first catch-up is over", controller)
        stage.loki.clear_journal()
        stage.cluster.clear_calls()
        until(lambda: len(queries(stage)) >= 20, "fifteen polls of the kernel's lines", controller)

        seen = queries(stage)
        assert {request.headers.get("cache-control") for request in seen} == {"no-cache"}
        ends: dict[str, list[str]] = defaultdict(list)
        for request in seen:
            ends[request.param("query")].append(request.param("end"))
        assert len([query for query in ends if "heartbeat" not in query]) == 2, (
            "of the kernel, and of all pods"
        )
        assert len(ends) <= 3, "and of heartbeats, now and then"
        assert all(len(set(each)) == len(each) for each in ends.values()), "one a poll"
        calls = stage.cluster.calls()
        writes = {call.resource for call in calls if call.verb in ("patch", "update", "create", "delete")}
        assert writes <= {"leases"}
        assert sum(call.verb == "list" and call.resource == "nodes" for call in calls) == 0
