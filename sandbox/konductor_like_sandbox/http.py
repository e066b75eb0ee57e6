"""Requests and replies of the sandbox's servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

Takeover = Callable[[BinaryIO, BinaryIO], None]
"""Speaks another protocol on the connection's reader and writer; the connection is closed when it returns."""


class BadBodyError(Exception):
    """The request's body does not match its headers."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read in full. Header names are in lower case; the path is decoded, without the query."""

    method: str
    path: str
    params: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def param(self, name: str, default: str = "") -> str:
        """Return the first value of a query parameter."""
        return self.params.get(name, [default])[0]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: a body, or chunks that are sent as they come (a watch), or a takeover (a websocket)."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Iterator[bytes] | None = None
    """Sent with chunked encoding as they come; an empty one sends nothing."""
    takeover: Takeover | None = None
    after_seconds: float = 0.0
    """Seconds that the server waits before the answer; it stops waiting if the client goes away."""
    hangs_up: bool = False
    """Whether the connection is closed in place of an answer."""

    @classmethod
    def of_json(cls, value: object, status: int = 200, content_type: str = JSON) -> Reply:
        """Return a reply with a JSON body, written without spaces, as Go does."""
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        return cls(status, body, content_type)

    @classmethod
    def of_text(cls, text: str, status: int = 200, content_type: str = TEXT) -> Reply:
        """Return a reply with a plain text body."""
        return cls(status, text.encode(), content_type)


def read_body(stream: BinaryIO, headers: Mapping[str, str]) -> bytes:
    """Read the body, sent with a length or in chunks. Raises ``BadBodyError`` if it ends too early."""
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(_chunks(stream))
        return _exactly(stream, int(headers.get("content-length", "0")))
    except ValueError as error:
        raise BadBodyError(f"not a length: {error}") from error


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while size := int(stream.readline().split(b";")[0], 16):
        yield _exactly(stream, size)
        stream.readline()
    while stream.readline().strip():
        pass  # trailers


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise BadBodyError(f"the body ended after {len(data)} of {size} bytes")
    return data
