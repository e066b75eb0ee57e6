"""The messages between Loki's parts: their sizes, and what happens to a message that is too large.

A querier sends each piece of an answer to the frontend as one protobuf message. A message that is larger than
``grpc_server_max_recv_msg_size`` does not arrive, and the frontend waits until the query times out. The same
limit applies to each batch of lines from an ingester to the querier, and to each push to an ingester. If a
reply is ready later than ``http_server_write_timeout``, Loki closes the connection without the reply.

Sources: pkg/querier/worker/scheduler_processor.go, pkg/ingester/instance.go; sizes, texts and times were
observed on a real Loki with its defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice

from konductor_like_sandbox.fault_injection import Drop, Mishap, Mishaps
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.loki.engine import Hit
from konductor_like_sandbox.loki.labels import Labels
from konductor_like_sandbox.loki.limits import SECOND_NS, BigAnswer, LokiError, LokiLimits
from konductor_like_sandbox.loki.store import Entry

_BATCH_LINES = 128
"""Lines in one batch of an ingester (``queryBatchSize``)."""
_STATISTICS_BYTES = 200
_EXHAUSTED = "rpc error: code = ResourceExhausted desc = "
_TIMED_OUT = Reply.of_text(
    "request timed out, decrease the duration of the request or add more label matchers "
    "(prefer exact match over regex match) to reduce the amount of data processed",
    504,
)


def refusal(hits: Iterable[Hit], line_limit: int, limits: LokiLimits) -> Reply | None:
    """Return what the client gets if the answer is too large; None if it is not.

    ``hits`` are all matches in the order that was asked for; the answer has ``line_limit`` of them.
    """
    if limits.grpc_message_bytes:
        for piece in _pieces(hits, line_limit, limits.split_queries_by_interval_seconds * SECOND_NS):
            if message_bytes(piece) > limits.grpc_message_bytes:
                return _refused(piece, limits)
    return None


def message_bytes(hits: Iterable[Hit]) -> int:
    """Return the size of a message with these lines.

    Metadata counts twice: in the labels of each line, and beside the line. The flag ``categorize-labels`` of
    the answer over HTTP makes no difference.
    """
    labels: dict[Labels, int] = {}
    streams: dict[tuple[Labels, Labels], int] = {}
    for hit in hits:
        if hit.stream not in labels:
            labels[hit.stream] = _written_bytes(hit.stream)
        key = hit.stream, hit.metadata
        if key not in streams:
            streams[key] = _field(labels[hit.stream] + _written_bytes(hit.metadata))
        streams[key] += _entry_bytes(hit.timestamp_ns, hit.line, hit.metadata)
    return sum(map(_field, streams.values())) + _STATISTICS_BYTES


def check_push(pushed: Iterable[tuple[Labels, list[Entry]]], limits: LokiLimits) -> None:
    """Raise ``LokiError`` if these lines, by stream, are too large for one message to an ingester."""
    size = sum(
        _field(_field(_written_bytes(labels)) + sum(_entry_bytes(*entry) for entry in entries))
        for labels, entries in pushed
    )
    if 0 < limits.grpc_message_bytes < size:
        raise LokiError(500, _too_large(size, limits.grpc_message_bytes))


def ready_after(seconds: float, reply: Reply, limits: LokiLimits) -> Reply:
    """Return the reply to a query that took this time, after Loki's time-outs."""
    if seconds >= limits.query_timeout_seconds:
        seconds, reply = limits.query_timeout_seconds, _TIMED_OUT
    late = seconds > limits.http_server_write_timeout_seconds
    return replace(reply, after_seconds=seconds, hangs_up=late)


class TimedMishaps(Mishaps):
    """A mishap under these limits: a delay that is longer than a time-out ends in the time-out."""

    def __init__(self, limits: LokiLimits) -> None:
        super().__init__()
        self._limits = limits

    def take(self, request: Request) -> Mishap | None:
        """See the base class."""
        mishap = super().take(request)
        if mishap is None:
            return None
        is_query = request.path.endswith(("/query", "/query_range"))
        limits = self._limits if is_query else replace(self._limits, query_timeout_seconds=math.inf)
        reply = ready_after(mishap.delay_seconds, Reply(), limits)
        if reply.hangs_up:
            return Mishap(delay_seconds=reply.after_seconds, drop=Drop.SILENTLY, after=not is_query)
        if reply.status == _TIMED_OUT.status:
            body = _TIMED_OUT.body.decode()
            return Mishap(delay_seconds=reply.after_seconds, status=reply.status, body=body)
        return mishap


def _refused(piece: Sequence[Hit], limits: LokiLimits) -> Reply:
    most = limits.grpc_message_bytes
    size = message_bytes(piece)
    if limits.big_answer is BigAnswer.TOO_LARGE:
        return Reply.of_text(f"response larger than the max message size ({size} vs {most})", 413)
    if limits.big_answer is BigAnswer.EXHAUSTED:
        return Reply.of_text(_too_large(size, most), 500)
    for first in range(0, len(piece), _BATCH_LINES):
        size = message_bytes(piece[first : first + _BATCH_LINES])
        if size > most:
            words = f"{_EXHAUSTED}trying to send message larger than max ({size} vs. {most})"
            return ready_after(limits.query_retries_seconds, Reply.of_text(words, 500), limits)
    return ready_after(math.inf, _TIMED_OUT, limits)


def _too_large(size: int, most: int) -> str:
    return f"{_EXHAUSTED}grpc: received message larger than max ({size} vs. {most})"


def _pieces(hits: Iterable[Hit], line_limit: int, interval_ns: int) -> Iterator[list[Hit]]:
    """Return the hits of each piece of a split query, until there are ``line_limit`` hits."""
    wanted = line_limit
    for _, found in groupby(hits, key=lambda hit: hit.timestamp_ns // interval_ns):
        piece = list(islice(found, line_limit))
        yield piece
        wanted -= len(piece)
        if wanted <= 0:
            return


def _entry_bytes(timestamp_ns: int, line: str, metadata: Labels) -> int:
    seconds, rest = divmod(timestamp_ns, SECOND_NS)
    time = 1 + _varint(seconds) + (1 + _varint(rest) if rest else 0)
    line_bytes = len(line) if line.isascii() else len(line.encode())
    return _field(_field(time) + _field(line_bytes) + _pairs_bytes(metadata))


@lru_cache(maxsize=1024)  # many lines share their metadata
def _pairs_bytes(metadata: Labels) -> int:
    return sum(_field(_field(len(name.encode())) + _field(len(value.encode()))) for name, value in metadata)


@lru_cache(maxsize=1024)
def _written_bytes(labels: Labels) -> int:
    """Return the label set as LogQL writes it: ``{name="value", name="value"}``."""
    return sum(len(name.encode()) + len(value.encode()) + 5 for name, value in labels)


def _field(size: int) -> int:
    """Return the size of a field with this number of bytes, its tag and its length included."""
    return 1 + _varint(size) + size


def _varint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
