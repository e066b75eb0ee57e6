"""The stand-in answers recorded requests as the real Loki did.

``KONDUCTOR_TEST_RESPONSES`` names the folder of ``loki.jsonl``: exchanges with a Loki of August 2026,
one a line, in the order in which they happened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konductor_like_sandbox.loki import LokiLimits, LokiServer
from tests.contract.loki_target import HOUR_NS, Answer, Target

VARIABLE = "KONDUCTOR_TEST_RESPONSES"
SKIPPED = {
    "bad LogQL": "refused, in words of the stand-in's own",
    "readiness while starting": "the stand-in has no start that takes time",
    "label filter on a name that is structured metadata here": "not a shape that we send",
    "Konduktor's way of asking (misses the early line without the daemonset label)": "not sent",
    "metric range query by node": "not a shape that we send",
    "instant metric query by node": "not a shape that we send",
    "more than 500 series in a metric query": "not a shape that we send",
    "index stats": "not asked for",
    "tail: a message after a push of two lines": "a websocket, held against the contract elsewhere",
}
CUT_IN_ONE_NANOSECOND = "limit 2 forward: cuts inside one nanosecond"
"""The request whose lines of one nanosecond come in random order."""
OWN_WORDS = ("push of invalid JSON",)
"""Requests refused with a message of a Go library; only its beginning is compared."""
COUNTS = (
    "totalBytesProcessed",
    "totalLinesProcessed",
    "totalEntriesReturned",
    "totalPostFilterLines",
    "totalStructuredMetadataBytesProcessed",
)

Exchange = dict[str, Any]


def recorded() -> list[Exchange]:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with recorded answers")
    with (Path(folder) / "loki.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def clock_of(exchanges: list[Exchange]) -> int:
    """Return the time of the recording: one line was pushed with a time an hour later."""
    ahead = next(one for one in exchanges if one["note"] == "an hour in the future")
    resource = ahead["request"]["body"]["resourceLogs"][0]
    return int(resource["scopeLogs"][0]["logRecords"][0]["timeUnixNano"]) - HOUR_NS


@pytest.fixture
def exchanges() -> list[Exchange]:
    return [one for one in recorded() if one["note"] not in SKIPPED]


@pytest.fixture
def single(exchanges: list[Exchange]) -> Iterator[Target]:
    now_ns = clock_of(exchanges)
    with LokiServer(now_ns=lambda: now_ns) as server:
        yield Target(server.url, server)


@pytest.fixture
def shared() -> Iterator[Target]:
    limits = LokiLimits(max_entries_limit_per_query=1000)
    with LokiServer(limits=limits, auth_enabled=True) as server:
        yield Target(server.url, server)


def test_recorded_requests_get_their_recorded_answers(
    exchanges: list[Exchange], single: Target, shared: Target
) -> None:
    differences = []
    for exchange in exchanges:
        note = exchange["note"]
        if note.startswith("600 matches"):
            _write_unrecorded_lines(single)
        answer = _send(shared if note.startswith("auth_enabled") else single, exchange["request"])
        expected = exchange["response"]
        for what, was, now in _compared(note, expected, answer):
            if was != now:
                differences.append(f"{note}: {what} was {was!r}, is {now!r}")

    assert differences == []


def _send(target: Target, request: Exchange) -> Answer:
    body = request["body"]
    if isinstance(body, str) and body.endswith("bytes>"):
        body = _line_of_300_kb()
    content = None if body is None else body if isinstance(body, str) else json.dumps(body)
    return target.send(request["method"], request["path"], content=content, headers=request["headers"])


def _line_of_300_kb() -> Exchange:
    """Recorded by its size only."""
    names = {"daemonset": "dmesg", "namespace": "dmesg-logging", "pod": "dmesg-n7", "container": "dmesg"}
    attributes = [{"key": f"k8s.{key}.name", "value": {"stringValue": name}} for key, name in names.items()]
    records = [{"timeUnixNano": "1795231445000000000", "body": {"stringValue": "x" * 300_000}}]
    return {
        "resourceLogs": [{"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": records}]}]
    }


def _write_unrecorded_lines(target: Target) -> None:
    """Six hundred nodes with one line each, all of one nanosecond; their pushes were not recorded."""
    labels = {"k8s_namespace_name": "dmesg-logging", "k8s_container_name": "dmesg"}
    value = ["1795231415513726020", "[1.0] NVRM: Xid (PCI:0000:4e:00): 79, x"]
    streams = [({**labels, "k8s_node_name": f"s{node}"}, [value]) for node in range(600)]
    assert target.push(*streams).status == 204


def _compared(note: str, expected: Exchange, answer: Answer) -> Iterator[tuple[str, object, object]]:
    yield "status", expected["status"], answer.status
    yield "content type", expected["headers"].get("Content-Type", ""), answer.content_type
    body = expected["body"]
    if isinstance(body, dict):
        yield from _compared_json(note, body, json.loads(answer.text))
    elif note in OWN_WORDS:
        yield "the beginning", "ReadObject: ", answer.text[2:14]
    elif "compare entries" in note:  # recorded in part only
        start = body[: body.index('"k8s_node_name":"s') + 18]
        yield "the beginning", start, answer.text[: len(start)]
        yield "lines", 100, len(answer.lines)
        yield "matches", 600, answer.summary["totalPostFilterLines"]
    else:
        yield "body", body, answer.text


def _compared_json(note: str, body: Exchange, now: Exchange) -> Iterator[tuple[str, object, object]]:
    if note == "build info":
        yield "names", sorted(body), sorted(now)
        return
    was_data, now_data = body.get("data"), now.get("data")
    if not isinstance(was_data, dict) or not isinstance(now_data, dict):
        yield "body", body, now
        return
    if note == CUT_IN_ONE_NANOSECOND:
        yield "times", _times(was_data), _times(now_data)
    else:
        yield "result", was_data["result"], now_data["result"]
    names = ("resultType", "encodingFlags")
    yield "kind", [was_data.get(one) for one in names], [now_data.get(one) for one in names]
    was_summary, now_summary = was_data["stats"]["summary"], now_data["stats"]["summary"]
    yield "summary", sorted(was_summary), sorted(now_summary)
    yield "counts", [was_summary[one] for one in COUNTS], [now_summary[one] for one in COUNTS]


def _times(data: Exchange) -> list[str]:
    return [value[0] for stream in data["result"] for value in stream["values"]]
