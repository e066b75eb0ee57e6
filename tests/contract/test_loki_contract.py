"""The behaviour that our reads from Loki rely on: windows, limits, statistics, the cache."""

from __future__ import annotations

import time

import pytest

from tests.contract.loki_target import (
    MINUTE_NS,
    NO_CACHE,
    SECOND_NS,
    XID,
    Target,
    around,
    kernel_resource,
    of,
)

# Windows


def test_a_window_has_its_start_and_not_its_end(loki: Target, namespace: str, at_ns: int) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns - 1, "before"), (at_ns, "start"), (at_ns + 9, "end"))

    assert loki.query_range(of(namespace), at_ns, at_ns).texts == []
    assert loki.query_range(of(namespace), at_ns, at_ns + 9).texts == ["start"]
    assert loki.query_range(of(namespace), at_ns, at_ns + 10).texts == ["start", "end"]


def test_a_window_may_end_after_now(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    loki.write(kernel_resource(namespace, "a"), (now_ns + 5 * SECOND_NS, "from a clock ahead of ours"))

    assert len(loki.query_range(of(namespace), now_ns, now_ns + MINUTE_NS).lines) == 1


# Limits


def test_the_limit_cuts_in_the_order_of_time_over_all_streams(
    loki: Target, namespace: str, at_ns: int
) -> None:
    for node, offset in (("a", 0), ("b", 1)):
        lines = [(at_ns + 2 * i + offset, f"{2 * i + offset}") for i in range(5)]
        loki.write(kernel_resource(namespace, node), *lines)

    assert loki.query_range(of(namespace), *around(at_ns), limit=3).texts == ["0", "1", "2"]
    backward = loki.query_range(of(namespace), *around(at_ns), limit=3, direction="backward")
    assert backward.texts == ["7", "8", "9"]


def test_a_cut_may_fall_between_lines_of_one_nanosecond(loki: Target, namespace: str, at_ns: int) -> None:
    loki.write(kernel_resource(namespace, "a"), *[(at_ns, f"{i}") for i in range(5)])

    assert len(loki.query_range(of(namespace), at_ns, at_ns + 1, limit=2).lines) == 2
    assert len(loki.query_range(of(namespace), at_ns, at_ns + 1, limit=5).lines) == 5


# Statistics


@pytest.mark.parametrize("limit", [10, 39, 40, 41])
def test_the_statistics_show_that_an_answer_was_cut(
    loki: Target, namespace: str, at_ns: int, limit: int
) -> None:
    """The guard of rule 7: complete only if fewer lines than the limit were found and returned."""
    for node in range(8):
        lines = [(at_ns + i, f"{XID} {node}-{i}") for i in range(5)]
        loki.write(kernel_resource(namespace, f"n{node}"), *lines, (at_ns, "unrelated"))

    answer = loki.query_range(of(namespace, "|= `Xid`"), *around(at_ns), limit=limit)

    taken_as_complete = len(answer.lines) < limit and answer.summary["totalPostFilterLines"] <= limit
    assert taken_as_complete == (limit > 40)
    assert len(answer.lines) == min(limit, 40)


def test_the_statistics_count_what_was_found_and_read(loki: Target, namespace: str, at_ns: int) -> None:
    loki.write(kernel_resource(namespace, "a"), (at_ns, XID), (at_ns + 1, "one"), (at_ns + 2, "two"))

    summary = loki.query_range(of(namespace, "|= `Xid`"), *around(at_ns)).summary

    assert summary["totalPostFilterLines"] == 1
    assert summary["totalEntriesReturned"] == 1
    assert summary["totalLinesProcessed"] == 3
    assert summary["totalBytesProcessed"] > len(XID)


# The cache of empty answers


def test_an_empty_answer_hides_a_late_line_unless_the_cache_is_bypassed(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    asked = (of(namespace, "|= `Xid`"), now_ns - 40 * MINUTE_NS, now_ns - 12 * MINUTE_NS)
    assert loki.query_range(*asked, headers={}).lines == []
    late = (now_ns - 30 * MINUTE_NS, XID)
    loki.write(kernel_resource(namespace, "a"), late)

    cached = loki.query_range(*asked, headers={})
    nearly = loki.query_range(*asked, headers={"Cache-Control": "no-cache, no-store"})
    fresh = loki.query_range(*asked, headers=NO_CACHE)

    assert fresh.lines == [late]
    if loki.is_real and cached.lines:
        pytest.skip("this Loki does not cache results")
    assert (cached.lines, nearly.lines) == ([], [])


def test_a_window_that_reaches_to_now_is_never_cached(loki: Target) -> None:
    namespace, now_ns = loki.namespace(), time.time_ns()
    asked = (of(namespace, "|= `Xid`"), now_ns - 3 * MINUTE_NS, now_ns + MINUTE_NS)
    assert loki.query_range(*asked, headers={}).lines == []
    loki.write(kernel_resource(namespace, "a"), (now_ns - MINUTE_NS, XID))

    assert loki.query_range(*asked, headers={}).texts == [XID]


# The rest of the API


def test_a_query_that_finds_nothing_is_no_error(loki: Target, at_ns: int) -> None:
    answer = loki.query_range(of("no-such-namespace", "|= `Xid`"), *around(at_ns))

    assert (answer.status, answer.content_type) == (200, "application/json; charset=UTF-8")
    assert answer.data["resultType"] == "streams"
    assert answer.data["result"] == []
    assert answer.summary["totalPostFilterLines"] == 0


def test_loki_reports_that_it_is_ready_and_its_version(loki: Target) -> None:
    assert loki.get("/ready").text == "ready\n"
    build = loki.get("/loki/api/v1/status/buildinfo")
    assert (build.status, build.content_type) == (200, "application/json")
    assert '"version"' in build.text


# The tail, which only makes us poll


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
