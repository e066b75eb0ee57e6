"""One tenant's lines in memory: streams, each sorted by time."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konductor_like.sandbox.loki.labels import Labels, written
from konductor_like.sandbox.loki.limits import SECOND_NS

BYTES_PER_METADATA = 8
"""What Loki counts as processed for a metadata pair, whatever its length: two references of 4 bytes."""


@dataclass(slots=True)
class Bucket:
    """How much of a burst is used up; it drains at the rate (golang.org/x/time/rate)."""

    used_bytes: float = 0
    at_ns: int = 0

    def take(self, size_bytes: int, rate_bytes: int, burst_bytes: int, now_ns: int) -> bool:
        """Whether so much more may pass; if not, nothing is used up. A rate of 0 lets everything pass."""
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
        """What Loki counts as processed for it."""
        return len(self.line.encode()) + self.metadata_bytes

    @property
    def metadata_bytes(self) -> int:
        """The part of it that is metadata."""
        return BYTES_PER_METADATA * len(self.metadata)


@dataclass(slots=True)
class Stream:
    """All lines of one label set. ``times`` and ``entries`` run in parallel, in the order of time."""

    labels: Labels
    text: str
    """The label set as LogQL writes it."""
    times: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    """What its own rate limit has let through."""
    reordered: int = 0
    """How often a line was sorted in before others: places in the lists mean something else since."""
    matches: dict[Hashable, Any] = field(default_factory=dict)
    """What queries remember of this stream; theirs alone."""
    _known: set[Entry] = field(default_factory=set)
    _bytes: list[int] = field(default_factory=lambda: [0])
    _metadata_bytes: list[int] = field(default_factory=lambda: [0])
    """Running totals, one longer than the lines."""

    @property
    def newest_ns(self) -> int | None:
        """The time of its newest line."""
        return self.times[-1] if self.times else None

    def add(self, entry: Entry) -> bool:
        """Sort the line in, after others of its nanosecond. False if it is a duplicate, which is dropped."""
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

    def sizes(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """The bytes of the lines of [start, end), and how many of them are of metadata."""
        first, last = bisect_left(self.times, start_ns), bisect_left(self.times, end_ns)
        found = (totals[last] - totals[first] for totals in (self._bytes, self._metadata_bytes))
        return next(found), next(found)

    def between(self, start_ns: int, end_ns: int) -> list[Entry]:
        """The lines of [start, end)."""
        return self.entries[bisect_left(self.times, start_ns) : bisect_left(self.times, end_ns)]


Subscriber = Callable[[Labels, Entry], None]


class Store:
    """The streams of one tenant. Thread-safe."""

    def __init__(self) -> None:
        self._streams: dict[Labels, Stream] = {}
        self._subscribers: list[Subscriber] = []
        self.taken = Bucket()
        """What the tenant's rate limit has let through."""
        self.lock = threading.RLock()

    def stream(self, labels: Labels) -> Stream:
        """The stream of that label set, made if there is none."""
        with self.lock:
            if labels not in self._streams:
                self._streams[labels] = Stream(labels, written(labels))
            return self._streams[labels]

    def add(self, stream: Stream, entry: Entry) -> None:
        """Store a line and tell those who follow."""
        with self.lock:
            if stream.add(entry):
                for subscriber in self._subscribers:
                    subscriber(stream.labels, entry)

    def select(
        self, matches: Callable[[Labels], bool], start_ns: int, end_ns: int
    ) -> Iterator[tuple[Stream, list[Entry]]]:
        """The streams that match and have lines in [start, end), with those lines."""
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
        """Call ``subscriber`` with every line stored from now on; the answer ends that."""
        with self.lock:
            self._subscribers.append(subscriber)

        def leave() -> None:
            with self.lock:
                self._subscribers.remove(subscriber)

        return leave

    @property
    def line_count(self) -> int:
        """How many lines are stored."""
        with self.lock:
            return sum(len(stream.times) for stream in self._streams.values())
