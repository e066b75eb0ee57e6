"""Three annotations of the Lease as text and back: the cursor, the releases, the coverage (rule 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from konductor_like.cluster.lenient_json import Fields, Ns, dumps, read
from konductor_like.cluster.node import record as node_record
from konductor_like.model import Checkpoint, Coverage, Gap, Loss, Misnamed, NodeRecord, Source, Unparsed
from konductor_like.model.time import text_of, text_of_ns

CURSOR_ANNOTATION = "trainy.konduktor.ai/cursor"
RELEASES_ANNOTATION = "trainy.konduktor.ai/releases"
COVERAGE_ANNOTATION = "trainy.konduktor.ai/coverage"
_NAMES = 2000
"""Names of nodes that the coverage keeps, at most."""
COVERAGE_BYTES = 96 * 1024
"""Bytes of the coverage, at most, but for a few fields. All annotations of one object together may have
256 KiB: a Lease with more than that could not be renewed."""
_GAP_NAMES_BYTES = 24 * 1024
_RELEASES_BYTES = 48 * 1024
_ODD_MOST = 200
"""Nodes that each of ambiguous, misnamed, lost and unparsed names, at most."""
_ODD_BYTES = 16 * 1024
"""Bytes of each of them, at most: 200 nodes, if their names have up to 20 characters."""
_COUNTED: Mapping[str, tuple[str, str, Callable[..., object]]] = {
    "misnamed": ("name", "faults", Misnamed),
    "lost": ("node", "records", Loss),
    "unparsed": ("node", "lines", Unparsed),
}
"""The coverage's counters by node: the JSON names of the node and of the number, and the class.

For example ``"lost": [{"node": "gpu-7", "records": 3, "at": …, "boot": …}]``; only a loss has a boot.
"""
_VERSION = 1


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    """Return the text of the cursor's annotation."""
    return dumps(
        {
            "v": _VERSION,
            "read": _read_texts(checkpoint.read_ns),
            "act_from": text_of_ns(checkpoint.act_from_ns),
        }
    )


def decode_checkpoint(text: str) -> tuple[Checkpoint | None, str | None]:
    """Return the cursor and the problem with its text, if any. Never raises.

    A source whose time cannot be read is left out. Without ``act_from`` no checkpoint is returned: only
    ``act_from`` keeps the controller from acting on faults that are older than its first start.
    """
    fields = read(text)
    read_ns = _read_ns(fields.inner("read"))
    act_from_ns = fields.need("act_from", Ns)
    return None if act_from_ns is None else Checkpoint(read_ns, act_from_ns), fields.problem


def encode_releases(released: Iterable[NodeRecord]) -> str | None:
    """Return the text of the releases' annotation; None if there are no records.

    ``released`` is newest first. The first record that does not fit and all older ones are left out.
    """
    texts: list[str] = []
    left = _RELEASES_BYTES
    for each in released:
        text = node_record.encode(each)
        left -= len(text.encode())
        if left < 0:
            break
        texts.append(text)
    return f'{{"v":{_VERSION},"nodes":[{",".join(texts)}]}}' if texts else None


def decode_releases(text: str) -> tuple[tuple[NodeRecord, ...], str | None]:
    """Return the records with releases, and the problem with the text, if any. Never raises."""
    fields = read(text)
    records = [node_record.record_in(item) for item in fields.items("nodes")]
    return tuple(each for each in records if each.machine and each.releases), fields.problem


def encode_coverage(coverage: Coverage) -> str:
    """Return the text of the coverage's annotation.

    If not all names fit, names of unknown nodes are kept first. A gap whose names do not fit is written as a
    gap of all nodes. The controller then reads the heartbeats of that span again, which closes the gap for
    the nodes that had none.
    """
    missing = _missing(coverage)
    left = COVERAGE_BYTES - len(dumps(missing).encode("utf-8", "replace"))
    kept = _bounded([*sorted(coverage.unknown), *sorted(coverage.listed - coverage.unknown)], left)
    return dumps(
        {
            "v": _VERSION,
            "at": text_of(coverage.at),
            "unknown": sorted(coverage.unknown & kept),
            "listed_are_measured": coverage.listed_are_measured,
            "listed": sorted(coverage.listed & kept),
            **({"read": _read_texts(coverage.read_ns)} if coverage.read_ns else {}),
            **({} if coverage.backfill_ns is None else {"backfill": text_of_ns(coverage.backfill_ns)}),
            **missing,
        }
    )


def decode_coverage(text: str) -> tuple[Coverage | None, str | None]:
    """Return the coverage and the problem with its text, if any. Never raises."""
    fields = read(text)
    at = fields.need("at", datetime)
    if at is None:
        return None, fields.problem
    coverage = Coverage(
        at=at,
        unknown=frozenset(fields.texts("unknown")),
        listed=frozenset(fields.texts("listed")),
        listed_are_measured=bool(fields.get("listed_are_measured", bool)),
        gaps=fields.decoded("gaps", _gap),
        ambiguous=frozenset(fields.texts("ambiguous")),
        lost=_counted(fields, "lost"),
        unparsed=_counted(fields, "unparsed"),
        read_ns=_read_ns(fields.inner("read")),
        misnamed=_counted(fields, "misnamed"),
        backfill_ns=fields.get("backfill", Ns),
    )
    return coverage, fields.problem


def _read_texts(read_ns: Mapping[Source, int]) -> dict[str, object]:
    return {source.value: text_of_ns(ns) for source, ns in read_ns.items()}


def _read_ns(fields: Fields) -> dict[Source, int]:
    return {source: ns for source in Source if (ns := fields.get(source.value, Ns)) is not None}


def _missing(coverage: Coverage) -> dict[str, object]:
    """Return the gaps, the ambiguous nodes and the counters; an empty object while the logs are complete."""
    found: dict[str, object] = {}
    left = _GAP_NAMES_BYTES
    gaps = []
    for gap in coverage.gaps:
        left -= _bytes_of(gap.nodes or ())
        nodes = None if gap.nodes is None or left < 0 else sorted(gap.nodes)
        end = None if gap.end_ns is None else text_of_ns(gap.end_ns)
        gaps.append({"from": text_of_ns(gap.start_ns), "to": end, "nodes": nodes})
    if gaps:
        found["gaps"] = gaps
    if coverage.ambiguous:
        found["ambiguous"] = _first(sorted(coverage.ambiguous))
    for name, (key, count, _) in _COUNTED.items():
        seen: Mapping[str, Any] = getattr(coverage, name)
        if seen:
            latest = sorted(seen.items(), key=lambda item: (-item[1].at_ns, item[0]))
            found[name] = _first(
                {key: node, count: getattr(each, count), "at": text_of_ns(each.at_ns), **_boot(each)}
                for node, each in latest
            )
    return found


def _first(items: Iterable[object]) -> list[object]:
    """Return as many of the first items as there is room for."""
    kept: list[object] = []
    left = _ODD_BYTES
    for item in islice(items, _ODD_MOST):
        left -= len(dumps(item).encode("utf-8", "replace")) + 1
        if left < 0:
            break
        kept.append(item)
    return kept


def _gap(fields: Fields) -> Gap | None:
    start_ns = fields.need("from", Ns)
    if start_ns is None:
        return None
    return Gap(start_ns, fields.get("to", Ns), frozenset(fields.texts("nodes")) or None)


def _counted(fields: Fields, name: str) -> dict[str, Any]:
    """Return one counter of the coverage, by node."""
    key, count, of = _COUNTED[name]
    found = {}
    for item in fields.items(name):
        node, number, at_ns = item.get(key, str), item.get(count, int), item.get("at", Ns)
        if node is None or number is None or at_ns is None:
            item.complain(f"{key}, {count} or at is missing")
        else:
            boot = (item.get("boot", str) or "",) if of is Loss else ()
            found[node] = of(number, at_ns, *boot)
    return found


def _boot(counted: object) -> dict[str, str]:
    """Return the boot of a loss as JSON; nothing for any other counter."""
    return {"boot": counted.boot_id} if isinstance(counted, Loss) and counted.boot_id else {}


def _bytes_of(names: Iterable[str]) -> int:
    return sum(len(name.encode("utf-8", "replace")) + 3 for name in names)


def _bounded(names: list[str], most_bytes: int) -> frozenset[str]:
    kept: list[str] = []
    size = 0
    for name in names[:_NAMES]:
        size += 2 * (
            len(name.encode("utf-8", "replace")) + 3
        )  # a name may be in both lists, unknown and listed
        if size > most_bytes:
            break
        kept.append(name)
    return frozenset(kept)
