"""Which entries were delivered already, for as long as they can be read again.

Eight bytes an entry, in sorted arrays per ten seconds: a storm of half a million lines costs four megabytes.
Two different lines of the same ten seconds share a digest once in some 10^19 pairs.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Collection
from heapq import merge

from konductor_like.loki.response import Entry, Naming
from konductor_like.loki.window_query import Window

BUCKET_NS = 10_000_000_000
MOST_DIGESTS = 500_000
"""Beyond this the oldest buckets keep their count alone; what is read of them again is delivered again."""
_POD_UID = "k8s_pod_uid"
_RESTART_COUNT = "k8s_container_restart_count"


def line_digest(entry: Entry, naming: Naming) -> int:
    """A digest that two entries share exactly when they are the same line of the same origin.

    The origin is the container's instance rather than all labels: a line that was shipped twice differs in
    what the collector adds, such as ``observed_timestamp``. Without a node's name only all labels together
    tell origins apart.
    """
    labels = entry.labels
    if labels.get(naming.node):
        names = (naming.node, naming.namespace, naming.pod, naming.container, _POD_UID, _RESTART_COUNT)
        origin = [labels.get(name, "") for name in names]
    else:
        origin = [part for pair in sorted(labels.items()) for part in pair]
    # Lengths keep neighbouring parts from running into one another.
    parts = [str(entry.timestamp_ns), *origin, entry.text]
    lengths = ",".join([str(len(part)) for part in parts])
    digest = hashlib.blake2b("".join([lengths, ";", *parts]).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


class _Bucket:
    """The digests of ten seconds: sorted runs, each at most half as long as the one before it."""

    __slots__ = ("dropped", "length", "runs", "surplus")

    def __init__(self) -> None:
        self.runs: list[array[int]] = []
        self.length = 0
        self.surplus = 0
        """How many entries Loki counts beyond the distinct ones."""
        self.dropped = False

    def has(self, digest: int) -> bool:
        for run in self.runs:
            at = bisect_left(run, digest)
            if at < len(run) and run[at] == digest:
                return True
        return False

    def add(self, digests: Collection[int]) -> None:
        self.length += len(digests)
        if self.dropped:
            return
        run = array("Q", sorted(digests))
        while self.runs and len(self.runs[-1]) < 2 * len(run):
            # Merged one by one: a list of a storm's digests would weigh five times as much as the array.
            run = array("Q", merge(self.runs.pop(), run))
        self.runs.append(run)

    def drop(self) -> int:
        """Keep the count alone; gives how many digests are gone."""
        dropped = sum(len(run) for run in self.runs)
        self.runs, self.dropped = [], True
        return dropped


class DeliveredLines:
    """Digests in buckets of time, so that forgetting the old ones costs nothing per digest."""

    def __init__(self, most: int = MOST_DIGESTS) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._most = most
        self._kept = 0

    def __len__(self) -> int:
        return self._kept

    def has(self, timestamp_ns: int, digest: int) -> bool:
        """Whether :meth:`add` was told about it and it was not forgotten since."""
        bucket = self._buckets.get(timestamp_ns // BUCKET_NS)
        return bucket is not None and bucket.has(digest)

    def add(self, entries: dict[int, int]) -> None:
        """Remember new entries, digest to timestamp."""
        by_bucket: dict[int, list[int]] = {}
        for digest, timestamp_ns in entries.items():
            by_bucket.setdefault(timestamp_ns // BUCKET_NS, []).append(digest)
        for number, digests in by_bucket.items():
            bucket = self._buckets.setdefault(number, _Bucket())
            bucket.add(digests)
            self._kept += 0 if bucket.dropped else len(digests)
        for number in sorted(self._buckets) if self._kept > self._most else ():
            self._kept -= self._buckets[number].drop()
            if self._kept <= self._most:
                break

    def count(self, start_ns: int, end_ns: int) -> int:
        """How many entries Loki should count in the buckets that lie in the span, bounds being theirs."""
        numbers = range(start_ns // BUCKET_NS, -(-end_ns // BUCKET_NS))
        return sum(
            bucket.length + bucket.surplus for number, bucket in self._buckets.items() if number in numbers
        )

    def expect(self, timestamp_ns: int, entries: int) -> None:
        """Loki counted so many entries in the bucket when all of it had been read."""
        bucket = self._buckets.get(timestamp_ns // BUCKET_NS)
        if bucket is not None:
            bucket.surplus = entries - bucket.length

    def forget_before(self, timestamp_ns: int, but: Collection[Window] = ()) -> None:
        """Forget what is older and not in these windows; up to one bucket more than needed stays."""
        old = [number for number in self._buckets if number < timestamp_ns // BUCKET_NS]
        for number in old:
            if any(window.start_ns // BUCKET_NS <= number <= window.end_ns // BUCKET_NS for window in but):
                continue
            bucket = self._buckets.pop(number)
            self._kept -= bucket.drop()
