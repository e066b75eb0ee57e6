"""What the stand-in Loki makes of answers that are too large, and of queries that take too long."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.loki import BigAnswer, LokiLimits, LokiServer, shipped
from konductor_like.sandbox.loki.engine import Hit
from konductor_like.sandbox.loki.labels import label_set
from konductor_like.sandbox.loki.messages import message_bytes
from tests.contract.loki_target import PLAIN, Answer, Target

NOW_NS = 1_795_000_000_000_000_000
KERNEL = '{k8s_container_name="dmesg"}'
TIMED_OUT = (
    "request timed out, decrease the duration of the request or add more label matchers "
    "(prefer exact match over regex match) to reduce the amount of data processed"
)


def serving(**limits: object) -> LokiServer:
    """A server with 20 lines of a kernel log, and room for 10 of them in a message."""
    values: dict[str, object] = {"grpc_message_bytes": 10_000, "query_timeout_seconds": 0.2, **limits}
    server = LokiServer(limits=LokiLimits(**values), now_ns=lambda: NOW_NS)  # type: ignore[arg-type]  # named as they are
    server.push_otlp(shipped("gpu-1", ((NOW_NS + i, f"Xid {i:02} {'x' * 90}") for i in range(20))))
    return server


def ask(server: LokiServer, limit: int = 20, timeout_seconds: float = 20) -> Answer:
    target = Target(server.url, server, timeout_seconds=timeout_seconds)
    return target.query_range(KERNEL, NOW_NS, NOW_NS + 100, limit=limit)


def refused(server: LokiServer) -> tuple[int, str, str]:
    with server:
        assert len(ask(server, 10).lines) == 10
        return ask(server).refusal


# Sizes


def test_a_message_is_as_large_as_a_real_loki_says() -> None:
    """5,000 lines of which a real Loki said: received message larger than max (5507980 vs. 4194304)."""
    stream = {
        "k8s_cluster_name": "default",
        "k8s_container_name": "dmesg",
        "k8s_namespace_name": "exp-970e54",
        "k8s_pod_name": "dmesg-2x225",
        "service_name": "dmesg",
    }
    uid = "2b0a5f9b-3f1c-4a1c-8a3e-b30361117576"
    metadata = {
        "detected_level": "unknown",
        "k8s_container_restart_count": "0",
        "k8s_node_name": "gpu-1",
        "k8s_pod_uid": uid,
        "log_file_path": f"/var/log/pods/dmesg-logging_dmesg-2x225_{uid}/dmesg/0.log",
        "log_iostream": "stdout",
        "logtag": "F",
    }
    at_ns = 1_795_319_818_142_879_735
    hits = [
        Hit(
            at_ns + number,
            "x" * (294 if number % 9 else 299),
            label_set(stream),
            label_set({**metadata, "observed_timestamp": str(at_ns + number)}),
        )
        for number in range(5000)
    ]

    assert sum(len(hit.line) for hit in hits) == 1_472_780
    assert message_bytes(hits) == pytest.approx(5_507_980, rel=0.001)


# What becomes of a large answer


def test_a_large_answer_is_silence_until_the_query_times_out() -> None:
    assert refused(serving()) == (504, PLAIN, TIMED_OUT)


def test_the_connection_is_closed_where_writing_timed_out_before() -> None:
    with serving(http_server_write_timeout_seconds=0.1) as server:
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            ask(server)
        assert server.journal[-1].status == 0
        assert len(ask(server, 10).lines) == 10


@pytest.mark.parametrize(
    ("big_answer", "status", "start", "end"),
    [
        (BigAnswer.TOO_LARGE, 413, "response larger than the max message size (1", " vs 10000)"),
        (
            BigAnswer.EXHAUSTED,
            500,
            "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (1",
            " vs. 10000)",
        ),
    ],
)
def test_a_large_answer_may_be_refused_at_once(
    big_answer: BigAnswer, status: int, start: str, end: str
) -> None:
    found, media_type, text = refused(serving(big_answer=big_answer, query_timeout_seconds=60))

    assert (found, media_type) == (status, PLAIN)
    assert text.startswith(start)
    assert text.endswith(end)


def test_without_a_limit_every_answer_passes() -> None:
    with serving(grpc_message_bytes=0) as server:
        assert len(ask(server).lines) == 20


def test_a_client_that_goes_away_leaves_no_thread_behind() -> None:
    with serving(query_timeout_seconds=3600) as server:
        before = threading.active_count()
        with pytest.raises(httpx.ReadTimeout):
            ask(server, timeout_seconds=0.2)
        deadline = time.monotonic() + 10
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_server_that_stops_waits_for_no_silence() -> None:
    server = serving(query_timeout_seconds=3600).start()
    stopping = threading.Timer(0.2, server.stop)
    stopping.start()

    with pytest.raises(httpx.TransportError):
        ask(server, timeout_seconds=60)

    stopping.join(10)
    assert not stopping.is_alive()


# Slow queries


def test_a_query_slower_than_the_query_timeout_is_a_504() -> None:
    with serving() as server:
        server.fail(Mishap(delay_seconds=3600))

        assert ask(server, 10).refusal == (504, PLAIN, TIMED_OUT)
        assert len(ask(server, 10).lines) == 10


def test_a_query_slower_than_the_write_timeout_has_no_answer() -> None:
    with serving(http_server_write_timeout_seconds=0.05) as server:
        server.fail(Mishap(delay_seconds=0.1))

        with pytest.raises(httpx.RemoteProtocolError):
            ask(server, 10)


def test_a_push_slower_than_the_write_timeout_is_stored_and_nobody_is_told() -> None:
    with serving(http_server_write_timeout_seconds=0.05) as server:
        server.fail(Mishap(delay_seconds=0.3))
        body = shipped("gpu-2", [(NOW_NS, "Xid late")])

        with pytest.raises(httpx.RemoteProtocolError):
            Target(server.url, server).post_json("/otlp/v1/logs", body)

        assert server.line_count == 21
