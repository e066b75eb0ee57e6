"""What we rely on when we follow the log, which is only ever a nudge to look.

Held against the stand-in, and against a real Loki when ``KONDUCTOR_TEST_LOKI_URL`` names one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.contract.loki_target import MINUTE_NS, PLAIN, XID, Target, kernel_resource, of, open_target


@pytest.fixture(scope="module")
def loki() -> Iterator[Target]:
    with open_target() as target:
        yield target


def test_a_tail_gives_lines_in_the_order_of_their_arrival(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    loki.write(kernel_resource(namespace, "a"), (now_ns - MINUTE_NS, "there before"))

    with loki.tail(of(namespace, "|= `come` or `before`"), now_ns - 2 * MINUTE_NS) as tail:
        assert (tail.status, tail.accepted) == (101, True)
        assert tail.lines(1) == ["there before"]
        loki.write(kernel_resource(namespace, "a"), (now_ns, "first to come"), (now_ns, "of no interest"))
        assert tail.lines(1) == ["first to come"]
        loki.write(kernel_resource(namespace, "a"), (now_ns - 2 * MINUTE_NS, "older, but later to come"))
        assert tail.lines(1) == ["older, but later to come"]


def test_a_tails_message_has_streams_with_labels_and_values(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()

    with loki.tail(of(namespace), now_ns - MINUTE_NS) as tail:
        assert tail.status == 101
        loki.write(kernel_resource(namespace, "a"), (now_ns, XID))
        message = next(tail.messages())

    stream = message["streams"][0]
    assert stream["stream"]["k8s_namespace_name"] == namespace
    assert stream["values"] == [[str(now_ns), XID]]


def test_a_quiet_tail_answers_pings(loki: Target) -> None:
    with loki.tail(of(loki.namespace()), time.time_ns()) as tail:
        assert tail.status == 101
        assert tail.ping(b"are you there") == b"are you there"


def test_a_tail_without_a_websocket_is_refused(loki: Target) -> None:
    assert loki.get("/loki/api/v1/tail", query=of("any")).refusal == (400, PLAIN, "Bad Request\n")
