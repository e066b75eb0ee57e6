"""The Lease's annotation of records that did not fit on their Nodes (rule 21).

The holder writes it with each renewal, and a command that releases or taints such a node:

    {"v": 1, "nodes": [{"node": "gpu-7", "beside": "", "record": {"v": 2, "tainted": …, "incidents": […]}}]}

``record`` is a record in short, and ``beside`` the digest of the annotation that the Node had then. An entry
that somebody else has written since is never replaced by a writer that has not read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from konductor_like.cluster.lenient_json import Fields, dumps, read
from konductor_like.cluster.node.record import record_in
from konductor_like.cluster.node.short_record import short
from konductor_like.model import KeptRecord
from konductor_like.model.time import EPOCH

KEPT_ANNOTATION = "trainy.konduktor.ai/records"
KEPT_MOST = 20
"""Nodes whose records the Lease keeps, at most."""
KEPT_BYTES = 1024
"""Bytes of the entry of one node, at most."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of the annotation that a writer wants."""

    records: tuple[KeptRecord, ...] = ()
    superseded: frozenset[str] = frozenset()
    """Further entries that the writer has read and does not want any more, by :attr:`KeptRecord.act`."""


def decode_kept(text: str) -> tuple[tuple[KeptRecord, ...], str | None]:
    """Return the kept records and the problem with the text, if any. Never raises."""
    fields = read(text)
    return fields.decoded("nodes", _kept), fields.problem


def encode_kept(kept: Kept, before: object = None) -> str | None:
    """Return the annotation, None for none; ``before`` is its present text.

    An entry there that ``kept`` does not know stays, and takes the place of the writer's own of that Node.
    """
    found = decode_kept(before)[0] if isinstance(before, str) and before.strip() else ()
    known = kept.superseded | {each.act for each in kept.records}
    others = [each for each in found if each.act not in known]
    theirs = {each.uid for each in others}
    return _text([*others, *(each for each in kept.records if each.uid not in theirs)])


def that_fit(kept: Iterable[KeptRecord]) -> Sequence[KeptRecord]:
    """Return the entries that the annotation has room for: tainted nodes first, then released ones."""

    def order(each: KeptRecord) -> tuple[int, float]:
        record = each.record
        rank = 0 if each.ahead else 1 if record.life.claimed else 2 if record.releases else 3
        return rank, (record.act.at if record.act else EPOCH).timestamp()

    return sorted(kept, key=order)[:KEPT_MOST]


def _text(kept: Iterable[KeptRecord]) -> str | None:
    entries = [text for each in that_fit(kept) if (text := _entry(each)) is not None]
    return f'{{"v":{_VERSION},"nodes":[{",".join(entries)}]}}' if entries else None


def _entry(kept: KeptRecord) -> str | None:
    """Return the text of one entry, at most ``KEPT_BYTES`` bytes; None if nothing fits."""
    frame = {
        "node": kept.name,
        "beside": kept.beside,
        **({"ahead": True} if kept.ahead else {}),
    }
    head = dumps(frame)[:-1] + ',"record":'
    text = short(kept.record, KEPT_BYTES - len(head.encode("utf-8", "replace")) - 1)
    return None if text is None else f"{head}{text}}}"


def _kept(fields: Fields) -> KeptRecord | None:
    record = record_in(fields.inner("record"))
    if record.machine is None:
        fields.complain("record or its machine is missing")
        return None
    beside = fields.get("beside", str) or ""
    return KeptRecord(fields.get("node", str) or "", record, beside, bool(fields.get("ahead", bool)))
