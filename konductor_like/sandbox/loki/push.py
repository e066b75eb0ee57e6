"""The body of ``POST /loki/api/v1/push`` in Loki's own JSON."""

from __future__ import annotations

import gzip
import json
import zlib

from konductor_like.sandbox.loki.ingest import Pushed
from konductor_like.sandbox.loki.labels import LABEL_NAME, label_set, with_service_name
from konductor_like.sandbox.loki.limits import LokiError
from konductor_like.sandbox.loki.store import Entry
from konductor_like.sandbox.wire import Request


def body_text(request: Request) -> str:
    """The body, unpacked. Bytes that are no UTF-8 become U+FFFD, as in Loki. Raises ``LokiError``."""
    encoding = request.headers.get("content-encoding", "")
    if encoding not in ("", "gzip"):
        raise LokiError(400, f'Content-Encoding "{encoding}" not supported')
    try:
        raw = gzip.decompress(request.body) if encoding else request.body
    except (OSError, EOFError, zlib.error):
        raise LokiError(400, "unexpected EOF") from None
    return raw.decode("utf-8", "replace")


def parse_push(request: Request) -> list[Pushed]:
    """The streams of one push. Raises ``LokiError`` if there is anything that Loki would not read."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise LokiError(400, "snappy: corrupt input")  # anything else is taken for compressed protobuf
    text = body_text(request)
    if not text:
        raise LokiError(400, "EOF")
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise LokiError(400, f"loghttp.PushRequest.readFieldHash: {error}") from None
    if not isinstance(body, dict):
        raise LokiError(400, "readObjectStart: expect { or n, but found something else")
    try:
        return [_stream(stream) for stream in body.get("streams", [])]
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise LokiError(400, f"loghttp.PushRequest.Streams: []loghttp.LogProtoStream: {error}") from None


def _stream(stream: dict[str, object]) -> Pushed:
    labels, values = stream["stream"], stream["values"]
    if not isinstance(labels, dict) or not isinstance(values, list):
        raise TypeError("a stream has an object of labels and a list of values")
    for name in labels:
        if not LABEL_NAME.fullmatch(name):
            raise LokiError(400, f"couldn't parse labels: unexpected character in label name {name!r}")
    entries = [_entry(*value) for value in values]
    return Pushed(with_service_name({name: str(value) for name, value in labels.items()}), entries)


def _entry(timestamp: object, line: object, metadata: object = None) -> Entry:
    if not isinstance(timestamp, str) or not isinstance(line, str):
        raise TypeError("timestamp and line are strings")
    line.encode()  # a lone surrogate is refused here, as in Loki
    pairs = metadata or {}
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise TypeError("Value is string, but can't find closing '\"' symbol")
    return Entry(int(timestamp), line, label_set(pairs))
