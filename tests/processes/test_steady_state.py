"""What a poll costs: two Loki queries and no Node write, whatever the number of nodes and namespaces."""

from __future__ import annotations

import pytest

from konductor_like.demo.stage import Stage
from tests.processes.waiting import says, until

pytestmark = pytest.mark.processes


def queries(stage: Stage) -> list[str]:
    return [
        exchange.request.param("query")
        for exchange in stage.loki.journal
        if exchange.request.path.endswith("/query_range")
    ]


def test_a_steady_poll_is_two_queries_and_no_node_write() -> None:
    with Stage(gpu_nodes=150) as stage:
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="0.2",
            KONDUCTOR_POD_POLL_INTERVAL_SECONDS="0.2",
            WATCHED_NAMESPACES="default,train,infer,eval,batch",
        )
        until(says(controller, "Reading Loki"), "it leads", controller)
        until(lambda: len(queries(stage)) >= 40, "the first catch-up is over", controller)
        stage.loki.clear_journal()
        stage.cluster.clear_calls()
        until(lambda: len(queries(stage)) >= 20, "ten polls of each source", controller)

        headers = {exchange.request.headers.get("cache-control") for exchange in stage.loki.journal}
        assert headers == {"no-cache"}, "Loki caches that there was nothing"
        seen = queries(stage)
        kernel = [query for query in seen if "dmesg-logging" in query and "heartbeat" not in query]
        heartbeat = [query for query in seen if "heartbeat" in query]
        pods = [query for query in seen if "dmesg-logging" not in query]
        assert abs(len(kernel) - len(pods)) <= 1
        assert len(heartbeat) <= 1
        assert len(set(kernel)) == len(set(pods)) == 1
        calls = stage.cluster.calls()
        writes = {call.resource for call in calls if call.verb in ("patch", "update", "create", "delete")}
        assert writes <= {"leases"}
        assert sum(call.verb == "list" and call.resource == "nodes" for call in calls) == 0
