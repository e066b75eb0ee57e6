"""What tests lean on in the stand-in Loki, and the contract cannot ask of a real one on request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.loki import BigAnswer, LokiError, LokiLimits, LokiServer, shipped
from konductor_like_sandbox.loki.engine import EmptyResults, Hit, Span, cut
from konductor_like_sandbox.loki.labels import label_set
from konductor_like_sandbox.loki.logql import parse
from konductor_like_sandbox.loki.messages import message_bytes
from tests.contract.loki_target import PLAIN, Answer, Target

NOW_NS = 1_795_000_000_000_000_000
KERNEL = '{k8s_container_name="dmesg"}'
TIMED_OUT = (
    "request timed out, decrease the duration of the request or add more label matchers "
    "(prefer exact match over regex match) to reduce the amount of data processed"
)


# Queries


@pytest.mark.parametrize(
    "query",
    [
        '{a="b"} |= "c" |= "d"',
        '{a="b"} |~ "c"',
        '{a="b"} | c="d"',
        '{a="b"} | json',
        '{a="b"} [5m]',
        'count_over_time({a="b"} [1000ms])',
        'sum by (c) (count_over_time({a="b"} [1000ms]))',
    ],
)
def test_a_shape_that_nobody_sends_is_refused_even_if_loki_knows_it(query: str) -> None:
    with pytest.raises(LokiError, match="the stand-in Loki does not know this shape of query") as refusal:
        parse(query)

    assert refusal.value.status == 400


@pytest.mark.parametrize("pattern", ["", "|gpu-1", "gpu-1|", "gpu-1||gpu-2"])
def test_an_empty_alternative_in_a_label_filter_is_refused(pattern: str) -> None:
    with pytest.raises(LokiError, match="empty alternative"):
        parse(f'{{app="x"}} | node!~"{pattern}"')


# Answers


@pytest.mark.parametrize("falls_short", [False, True])
@given(count=st.integers(0, 60), limit=st.integers(1, 40), forward=st.booleans())
def test_a_cut_answer_is_never_longer_than_its_limit(
    count: int, limit: int, forward: bool, falls_short: bool
) -> None:
    """A sharded query may fall short of its limit without a word (rule 7)."""
    hits = [Hit(at, str(at), (), ()) for at in range(count)]

    answer = cut(hits, limit, forward, falls_short)

    ordered = hits if forward else hits[::-1]
    if count <= limit or not falls_short:
        assert answer == ordered[:limit]
    else:
        assert len(answer) == limit - limit // 5
        assert set(answer) <= set(ordered[:limit])


def test_an_empty_span_is_not_looked_at_again_unless_it_ended_lately() -> None:
    lines: list[int] = []

    def found(start: int, end: int, newest: int = 1000) -> list[int]:
        def find(start_ns: int, end_ns: int) -> list[Hit]:
            return [Hit(at, "", (), ()) for at in lines if start_ns <= at < end_ns]

        return [hit.timestamp_ns for hit in results.find("fake", "{}", Span(start, end), newest, find)]

    results = EmptyResults(100)
    assert found(10, 50) == found(110, 250, newest=200) == []
    lines += [3, 20, 60, 230]

    assert found(10, 50) == found(15, 45) == []
    assert found(5, 80) == [60]
    assert found(0, 50) == [3]
    assert found(110, 250, newest=200) == [230]


def test_a_message_is_as_large_as_a_real_loki_says() -> None:
    """5,000 lines of which a real Loki said: received message larger than max (5507980 vs. 4194304)."""
    uid = "2b0a5f9b-3f1c-4a1c-8a3e-b30361117576"
    stream = {
        "k8s_cluster_name": "default",
        "k8s_container_name": "dmesg",
        "k8s_namespace_name": "exp-970e54",
        "k8s_pod_name": "dmesg-2x225",
        "service_name": "dmesg",
    }
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

    assert message_bytes(hits) == pytest.approx(5_507_980, rel=0.001)


def serving(**limits: object) -> LokiServer:
    """A server with 20 lines of a kernel log, and room for 10 of them in a message."""
    values: dict[str, object] = {"grpc_message_bytes": 10_000, "query_timeout_seconds": 0.2, **limits}
    server = LokiServer(limits=LokiLimits(**values), now_ns=lambda: NOW_NS)  # type: ignore[arg-type]  # named as they are
    server.push_otlp(shipped("gpu-1", ((NOW_NS + i, f"Xid {i:02} {'x' * 90}") for i in range(20))))
    return server


def ask(server: LokiServer, limit: int) -> Answer:
    return Target(server.url, server).query_range(KERNEL, NOW_NS, NOW_NS + 100, limit=limit)


@pytest.mark.parametrize(
    ("big_answer", "status", "start", "end"),
    [
        (BigAnswer.SILENCE, 504, TIMED_OUT, ""),
        (BigAnswer.TOO_LARGE, 413, "response larger than the max message size (1", " vs 10000)"),
        (
            BigAnswer.EXHAUSTED,
            500,
            "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (1",
            " vs. 10000)",
        ),
    ],
)
def test_a_large_answer_is_refused_or_never_comes(
    big_answer: BigAnswer, status: int, start: str, end: str
) -> None:
    with serving(big_answer=big_answer) as server:
        assert len(ask(server, 10).lines) == 10
        found, media_type, text = ask(server, 20).refusal

    assert (found, media_type) == (status, PLAIN)
    assert text.startswith(start)
    assert text.endswith(end)


def test_a_query_slower_than_the_query_timeout_is_a_504() -> None:
    with serving() as server:
        server.fail(Mishap(delay_seconds=3600))

        assert ask(server, 10).refusal == (504, PLAIN, TIMED_OUT)
        assert len(ask(server, 10).lines) == 10


def test_open_tails_end_on_demand_and_when_the_server_stops() -> None:
    with serving() as server:
        target = Target(server.url, server)
        with target.tail(KERNEL, NOW_NS) as tail:
            assert len(tail.lines(20)) == 20
            server.close_tails()
            assert list(tail.messages()) == []
        with target.tail(KERNEL, NOW_NS) as tail:
            assert len(tail.lines(20)) == 20
            server.stop()
            assert list(tail.messages()) == []
