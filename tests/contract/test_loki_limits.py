"""The limits of a Loki with default settings: large answers and long queries.

The tests run against the stand-in, or against a real Loki if ``KONDUCTOR_TEST_LOKI_URL`` names one. The
stand-in has shorter time-outs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

import httpx
import pytest

from konductor_like_sandbox.loki import LokiLimits
from tests.contract.loki_target import (
    HOUR_NS,
    NO_CACHE,
    PLAIN,
    SECOND_NS,
    Answer,
    Target,
    a_minute_ago_ns,
    around,
    of,
    open_target,
)

pytestmark = pytest.mark.timeout(180)

DEFAULTS = LokiLimits()
IMPATIENT = replace(
    DEFAULTS, query_timeout_seconds=0.6, http_server_write_timeout_seconds=0.3, query_retries_seconds=0.1
)
"""The stand-in's time-outs: in the same order as the real ones, and a hundredth as long."""
MIB = 1 << 20
CATEGORIZE = {**NO_CACHE, "X-Loki-Response-Encoding-Flags": "categorize-labels"}
XID_31 = (
    "kmsg/1 boot=0d5c9a1e-7c44-4f0a-9a5e-3c1f6f0a2b77 seq={0} facility=0 priority=3 [ 1000.000000] NVRM: Xid "
    "(PCI:0000:3d:00): 31, pid={0}, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_0 faulted @ 0x7f{0:010x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)


@pytest.fixture(scope="module")
def loki() -> Iterator[Target]:
    with open_target(IMPATIENT) as target:
        target.timeout_seconds = 90.0
        yield target


@pytest.fixture
def at_ns() -> int:
    """Return a time about a minute ago, with no full hour in the next second: Loki splits queries there."""
    found = a_minute_ago_ns()
    return found - 2 * SECOND_NS if (found + SECOND_NS) % HOUR_NS < 2 * SECOND_NS else found


def limits_of(loki: Target) -> LokiLimits:
    """Return the expected limits; a real Loki has its defaults."""
    return DEFAULTS if loki.is_real else IMPATIENT


def ask(loki: Target, namespace: str, at_ns: int, limit: int, headers: dict[str, str] = NO_CACHE) -> Answer:
    return loki.query_range(of(namespace, "|= `Xid`"), at_ns, at_ns + SECOND_NS, headers, limit=limit)


# Answers


def test_an_answer_above_4_mib_never_comes_and_the_connection_is_closed(
    loki: Target, namespace: str, at_ns: int
) -> None:
    """4,000 lines of the kernel log: 4.4 MB between Loki's parts, although only 3.3 MB over HTTP."""
    loki.ship("a", ((at_ns + i, XID_31.format(i)) for i in range(4000)), namespace=namespace)

    asked = time.monotonic()
    with pytest.raises(httpx.RemoteProtocolError, match="disconnected without sending a response"):
        ask(loki, namespace, at_ns, limit=5000)
    waited = time.monotonic() - asked

    assert 0 <= waited - limits_of(loki).query_timeout_seconds < 5
    fewer = ask(loki, namespace, at_ns, limit=3600)
    assert len(fewer.lines) == 3600
    assert len(fewer.text) / 3600 * 4000 < 3.4e6
    with pytest.raises(httpx.RemoteProtocolError):  # the answer is as large with metadata apart from labels
        ask(loki, namespace, at_ns, limit=5000, headers=CATEGORIZE)
    halves = [
        loki.query_range(of(namespace), at_ns + first, at_ns + first + 2000, limit=5000)
        for first in (0, 2000)
    ]
    assert [len(half.lines) for half in halves] == [2000, 2000]


def test_lines_that_the_filter_leaves_out_do_not_count(loki: Target, namespace: str, at_ns: int) -> None:
    lines = ((at_ns + i, f"{'Xid' if i % 4 else 'NVRM'} {i} {'x' * 250}") for i in range(4800))
    loki.ship("a", lines, namespace=namespace)

    assert len(loki.query_range(of(namespace, "|= `NVRM`"), *around(at_ns), limit=5000).lines) == 1200


def test_long_lines_above_4_mib_in_one_batch_are_an_error_of_the_server(
    loki: Target, namespace: str, at_ns: int
) -> None:
    """An ingester sends 128 lines at once. With more than 32 KiB a line the batch is too large."""
    for first in range(0, 50, 10):
        lines = ((at_ns + i, f"Xid {i} {'x' * 100_000}") for i in range(first, first + 10))
        loki.ship("a", lines, namespace=namespace)

    answer = ask(loki, namespace, at_ns, limit=5000)

    assert answer.status == 500
    assert answer.content_type == PLAIN
    assert answer.text.startswith(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (50"
    )
    assert answer.text.endswith(" vs. 4194304)")
    assert len(ask(loki, namespace, at_ns, limit=40).lines) == 40


# Queries


def test_the_default_limit_is_5000_entries(loki: Target, at_ns: int) -> None:
    answer = loki.query_range(of("any"), *around(at_ns), limit=5001)
    adopted = loki.query_range(of("any"), *around(at_ns), limit=5000)

    words = "max entries limit per query exceeded, limit > max_entries_limit_per_query (5001 > 5000)"
    assert answer.refusal == (400, PLAIN, words)
    assert adopted.lines == []


def test_a_range_of_more_than_721_hours_is_refused(loki: Target, at_ns: int) -> None:
    hours = [loki.query_range(of("any"), at_ns - n * HOUR_NS, at_ns) for n in (721, 722)]

    assert hours[0].status == 200
    words = "the query time range exceeds the limit (query length: 722h0m0s, limit: 30d1h)"
    assert hours[1].refusal == (400, PLAIN, words)


@pytest.mark.parametrize(("size", "status"), [(131_000, 200), (131_072, 400)])
def test_a_query_has_less_than_128_kib_of_text(loki: Target, at_ns: int, size: int, status: int) -> None:
    query = of("any", "|= ``")
    query = query[:-1] + "x" * (size - len(query)) + "`"
    form = urlencode({"query": query, "start": at_ns, "end": at_ns + 1})

    answer = loki.send(
        "POST",
        "/loki/api/v1/query_range",
        content=form,
        headers={"Content-Type": "application/x-www-form-urlencoded", **NO_CACHE},
    )

    assert answer.status == status
    if status == 400:
        assert answer.text == "parse error : input size too long (131072 > 131072)"


# Pushes
