"""The stand-in Loki as tests and the demo use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.loki import (
    EMPTY_ANSWER,
    HTML_ANSWER,
    LokiError,
    LokiLimits,
    LokiServer,
    otlp_body,
    otlp_record,
)
from konductor_like.sandbox.loki.limits import SECOND_NS
from tests.contract.loki_target import HOUR_NS, MINUTE_NS, Target, kernel_resource

NOW_NS = 1_795_240_000 * SECOND_NS
KERNEL = {"k8s_namespace_name": "dmesg-logging", "k8s_container_name": "dmesg"}
QUERY = '{k8s_namespace_name="dmesg-logging"} |= `Xid`'


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[LokiServer]:
    with LokiServer(now_ns=clock) as running:
        yield running


def ask(server: LokiServer, query: str = QUERY, **params: Any) -> Any:
    asked = {"start": NOW_NS - HOUR_NS, "end": NOW_NS + HOUR_NS, **params}
    return Target(server.url, server).query_range(query, asked.pop("start"), asked.pop("end"), **asked)


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Lines without HTTP


def test_lines_may_be_pushed_without_http(server: LokiServer) -> None:
    server.push(KERNEL, [(NOW_NS, "Xid 1"), (NOW_NS + 1, "Xid 2")], {"k8s_node_name": "gpu-a"})
    server.push_otlp(otlp_body(kernel_resource("dmesg-logging", "gpu-b"), [otlp_record("Xid 3", NOW_NS + 2)]))

    answer = ask(server)

    assert answer.texts == ["Xid 1", "Xid 2", "Xid 3"]
    assert {labels["k8s_node_name"] for labels in answer.streams} == {"gpu-a", "gpu-b"}
    assert server.line_count == 3


# Time


def test_its_clock_may_be_moved(server: LokiServer, clock: Clock) -> None:
    with pytest.raises(LokiError):
        server.push(KERNEL, [(NOW_NS + HOUR_NS, "Xid")])
    clock.now_ns += HOUR_NS
    server.push(KERNEL, [(NOW_NS + HOUR_NS, "Xid")])

    assert ask(server, start="", end=clock.now_ns + 1).texts == ["Xid"]


def test_a_query_without_a_window_is_about_the_last_hour(server: LokiServer) -> None:
    server.push(KERNEL, [(NOW_NS - 65 * MINUTE_NS, "Xid long ago"), (NOW_NS - 55 * MINUTE_NS, "Xid of late")])

    assert ask(server, start="", end="").texts == ["Xid of late"]


# Limits


def test_a_sharded_query_may_fall_short_of_its_limit_without_a_word() -> None:
    """The fault that rule 7 is about; the statistics still tell."""
    with LokiServer(limits=LokiLimits(sharded_results_fall_short=True), now_ns=lambda: NOW_NS) as server:
        server.push(KERNEL, [(NOW_NS + i, f"Xid {i}") for i in range(417)])
        short, enough = ask(server, limit=400), ask(server, limit=417)

    assert len(short.lines) < 400
    assert short.summary["totalPostFilterLines"] == 417
    assert len(enough.lines) == 417


def test_the_cache_may_be_off() -> None:
    limits = LokiLimits(caches_empty_results=False)
    with LokiServer(limits=limits, now_ns=lambda: NOW_NS + HOUR_NS) as server:
        assert ask(server, headers={}, end=NOW_NS + 1).lines == []
        server.push(KERNEL, [(NOW_NS, "Xid")])
        assert ask(server, headers={}, end=NOW_NS + 1).texts == ["Xid"]


# Mishaps


def test_the_next_answers_may_go_wrong(server: LokiServer) -> None:
    server.push(KERNEL, [(NOW_NS, "Xid")])
    server.fail(HTML_ANSWER)
    server.fail(EMPTY_ANSWER)
    server.fail(Mishap(status=429, body="too many outstanding requests", headers={"Retry-After": "1"}))
    server.fail(Mishap(status=500, body="x"), when=lambda request: request.path == "/ready")

    page, empty, busy, good = (ask(server) for _ in range(4))

    assert page.content_type.startswith("text/html")
    assert empty.lines == []
    assert empty.summary["totalPostFilterLines"] == 0
    assert (busy.status, busy.text) == (429, "too many outstanding requests")
    assert good.texts == ["Xid"]
    assert server.mishaps.pending == 1


def test_it_comes_back_with_its_lines(server: LokiServer) -> None:
    server.push(KERNEL, [(NOW_NS, "Xid")])
    url = server.url

    server.stop()
    with pytest.raises(httpx.ConnectError):
        ask(server)
    server.start()

    assert server.url == url
    assert ask(server).texts == ["Xid"]


def test_it_may_live_under_a_path() -> None:
    with LokiServer(base_path="/gateway/loki-a/") as server:
        target = Target(server.url, server)
        assert server.url.endswith("/gateway/loki-a")
        assert target.get("/ready").text == "ready\n"
        assert target.get("/loki/api/v1/labels").text == '{"status":"success"}'
        elsewhere = Target(server.url.removesuffix("/gateway/loki-a"), server)
        assert elsewhere.get("/ready").status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/loki/api/v1/push"), ("POST", "/ready")])
def test_the_wrong_method_is_refused(server: LokiServer, method: str, path: str) -> None:
    assert Target(server.url, server).send(method, path).status == 405


# Following


def test_open_tails_are_ended_by_stopping_and_on_demand(server: LokiServer, clock: Clock) -> None:
    target = Target(server.url, server)
    with target.tail('{k8s_container_name="dmesg"}', clock.now_ns) as first:
        eventually(lambda: server.open_tails == 1)
        server.close_tails()
        assert list(first.messages()) == []
    eventually(lambda: server.open_tails == 0)
    with target.tail('{k8s_container_name="dmesg"}', clock.now_ns) as second:
        eventually(lambda: server.open_tails == 1)
        server.stop()
        assert list(second.messages()) == []
    assert server.open_tails == 0


def test_a_long_message_comes_whole(server: LokiServer, clock: Clock) -> None:
    with Target(server.url, server).tail('{k8s_container_name="dmesg"}', clock.now_ns) as tail:
        server.push(KERNEL, [(NOW_NS, "x" * 200), (NOW_NS + 1, "y" * 100_000)])
        assert [len(text) for text in tail.lines(2)] == [200, 100_000]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"query": "{"}, "parse error : the stand-in Loki does not know this shape of query"),
        ({"query": 'sum(count_over_time({a="b"} [1ms]))'}, "only log selector is supported"),
        ({"query": '{a="b"}', "limit": "0"}, "limit must be a positive value"),
    ],
)
def test_a_bad_tail_is_refused(server: LokiServer, params: dict[str, str], error: str) -> None:
    answer = Target(server.url, server).send("GET", "/loki/api/v1/tail", params)

    assert answer.status == 400
    assert answer.text.startswith(error)
