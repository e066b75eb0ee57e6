"""One tenant's lines in memory: streams, each sorted by time."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konductor_like_sandbox.loki.labels import Labels, written
from konductor_like_sandbox.loki.limits import SECOND_NS

BYTES_PER_METADATA = 8
"""Bytes that Loki counts as processed for a metadata pair of any length: two references of 4 bytes."""


@dataclass(slots=True)
class Bucket:
    """A rate limit with a burst (golang.org/x/time/rate): the used part of the burst drains at the rate."""

    used_bytes: float = 0
    at_ns: int = 0

    def take(self, size_bytes: int, rate_bytes: int, burst_bytes: int, now_ns: int) -> bool:
        """Whether this amount may pass; if not, the burst is not used. A rate of 0 means no limit."""
        drained = max(0, now_ns - self.at_ns) * rate_bytes / SECOND_NS
        self.used_bytes, self.at_ns = max(0.0, self.used_bytes - drained), now_ns
        if rate_bytes and self.used_bytes + size_bytes > burst_bytes:
            return False
        self.used_bytes += size_bytes
        return True


class Entry(NamedTuple):
    """One stored line."""

    timestamp_ns: int
    line: str
    metadata: Labels

    @property
    def size_bytes(self) -> int:
        """The bytes that Loki counts as processed for the line."""
        return len(self.line.encode()) + self.metadata_bytes

    @property
    def metadata_bytes(self) -> int:
        """The metadata's part of those bytes."""
        return BYTES_PER_METADATA * len(self.metadata)


@dataclass(slots=True)
class Stream:
    """All lines of one label set, by time; ``entries[i]`` has the time ``times[i]``."""

    labels: Labels
    text: str
    """The label set as LogQL writes it."""
    times: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    """The stream's own rate limit."""
    reordered: int = 0
    """Times that a line was inserted before others; each time, indexes in the lists change their meaning."""
    matches: dict[Hashable, Any] = field(default_factory=dict)
    """Matches that ``engine`` keeps for queries; only ``engine`` uses them."""
    _known: set[Entry] = field(default_factory=set)
    _bytes: list[int] = field(default_factory=lambda: [0])
    _metadata_bytes: list[int] = field(default_factory=lambda: [0])
    """Running totals of bytes; one item longer than ``entries``."""

    @property
    def newest_ns(self) -> int | None:
        """The time of the newest line."""
        return self.times[-1] if self.times else None

    def add(self, entry: Entry) -> bool:
        """Insert a line by its time, after others of its nanosecond. Drop a duplicate, and return False."""
        if entry in self._known:
            return False
        self._known.add(entry)
        at = bisect_right(self.times, entry.timestamp_ns)
        self.reordered += at < len(self.times)
        self.times.insert(at, entry.timestamp_ns)
        self.entries.insert(at, entry)
        del self._bytes[at + 1 :], self._metadata_bytes[at + 1 :]
        for one in self.entries[at:]:
            self._bytes.append(self._bytes[-1] + one.size_bytes)
            self._metadata_bytes.append(self._metadata_bytes[-1] + one.metadata_bytes)
        return True

    def forget(self, before_ns: int) -> None:
        """Drop the lines before this time."""
        if at := bisect_left(self.times, before_ns):
            self._known.difference_update(self.entries[:at])
            self.reordered += 1
            for each in (self.times, self.entries, self._bytes, self._metadata_bytes):
                del each[:at]  # totals need no zero: only differences are read

    def sizes(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return the bytes of the lines in [start, end), and the metadata's part of them."""
        first, last = bisect_left(self.times, start_ns), bisect_left(self.times, end_ns)
        found = (totals[last] - totals[first] for totals in (self._bytes, self._metadata_bytes))
        return next(found), next(found)

    def between(self, start_ns: int, end_ns: int) -> list[Entry]:
        """Return the lines in [start, end)."""
        return self.entries[bisect_left(self.times, start_ns) : bisect_left(self.times, end_ns)]


Subscriber = Callable[[Labels, Entry], None]


class Store:
    """The streams of one tenant. Thread-safe."""

    def __init__(self) -> None:
        self._streams: dict[Labels, Stream] = {}
        self._subscribers: list[Subscriber] = []
        self.taken = Bucket()
        """The tenant's rate limit."""
        self.lock = threading.RLock()

    def stream(self, labels: Labels) -> Stream:
        """Return the stream of this label set; create it if there is none."""
        with self.lock:
            if labels not in self._streams:
                self._streams[labels] = Stream(labels, written(labels))
            return self._streams[labels]

    def add(self, stream: Stream, entry: Entry) -> None:
        """Store a line and call the subscribers."""
        with self.lock:
            if stream.add(entry):
                for subscriber in self._subscribers:
                    subscriber(stream.labels, entry)

    def forget(self, before_ns: int) -> None:
        """Drop the lines before this time, as the compactor does after the retention period."""
        with self.lock:
            for stream in self._streams.values():
                stream.forget(before_ns)

    def select(
        self, matches: Callable[[Labels], bool], start_ns: int, end_ns: int
    ) -> Iterator[tuple[Stream, list[Entry]]]:
        """Return the matching streams that have lines in [start, end), with these lines."""
        with self.lock:
            candidates = [
                stream
                for stream in self._streams.values()
                if stream.times and stream.times[-1] >= start_ns and stream.times[0] < end_ns
            ]
            found = [
                (stream, entries)
                for stream in candidates
                if matches(stream.labels) and (entries := stream.between(start_ns, end_ns))
            ]
        return iter(sorted(found, key=lambda pair: pair[0].text))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with every line from now on; return a function that ends the subscription."""
        with self.lock:
            self._subscribers.append(subscriber)

        def leave() -> None:
            with self.lock:
                self._subscribers.remove(subscriber)

        return leave

    @property
    def line_count(self) -> int:
        """The number of stored lines."""
        with self.lock:
            return sum(len(stream.times) for stream in self._streams.values())
