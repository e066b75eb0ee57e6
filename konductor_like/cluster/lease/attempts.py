"""The controller's last attempts as an annotation of the Lease, for ``status`` and ``doctor``.

The holder writes it with each renewal:

    {"v": 1, "by": …, "kernel": {"ok": …}, "write": {"since": …, "error": …}, "heard": 10, "taints": 1,
     "unwritten": [{"node": "gpu-5", "verb": "taint", "rule": "xid.79"}],
     "kept": [{"node": "gpu-7", "guard": "gap"}]}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from konductor_like.cluster.lenient_json import Fields, dumps, read
from konductor_like.cluster.node.record import Codec
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten

ATTEMPTS_ANNOTATION = "trainy.konduktor.ai/attempts"
BYTES_MOST = 2048
"""Bytes of the annotation up to which Nodes are named; further Nodes are only counted."""
KEPT_BYTES_MOST = 1024
"""Bytes of the names of nodes that are kept out; further Nodes are only counted."""
_VERSION = 1
_ATTEMPT = Codec(Attempt, "ok", "since", "error")
_UNWRITTEN = Codec(Unwritten, "node", "verb", "rule")


def encode_attempts(attempts: Attempts) -> str:
    """Return the annotation; what it has no space for is counted."""
    found: dict[str, Any] = {
        "v": _VERSION,
        "by": attempts.by,
        **{doing.value: _ATTEMPT.parts(each) for doing, each in attempts.latest.items()},
        "heard": attempts.heard,
        "taints": attempts.taints,
        "others": attempts.others,
    }
    unwritten = _fitting(map(_UNWRITTEN.parts, attempts.unwritten), BYTES_MOST - _bytes(found))
    found["unwritten"] = unwritten
    if attempts.kept_out is not None:
        items = [{"node": node, "guard": guard} for node, guard in attempts.kept_out.items()]
        found["kept"] = _fitting(items, KEPT_BYTES_MOST)
        found["kept_more"] = len(items) - len(found["kept"])
    return dumps(found)


def _fitting(items: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the first items, as many as ``most`` bytes of JSON can have."""
    named = []
    for item in items:
        most -= _bytes(item) + 1
        if most < 0:
            break
        named.append(item)
    return named


def _bytes(value: object) -> int:
    return len(dumps(value).encode("utf-8", "replace"))


def decode_attempts(text: str) -> tuple[Attempts | None, str | None]:
    """Return the attempts and the problem with their text, if any. Never raises."""
    fields = read(text)
    by = fields.need("by", str)
    if by is None:
        return None, fields.problem
    latest = {doing: Attempt(**_ATTEMPT.values(fields.inner(doing))) for doing in Doing if doing in fields}
    listed, kept_out = fields.get("kept", list), dict(fields.decoded("kept", _kept))
    is_whole = listed is not None and len(listed) == len(kept_out)
    found = Attempts(
        by,
        latest,
        fields.decoded("unwritten", _unwritten),
        **{name: fields.get(name, int) or 0 for name in ("taints", "others", "heard", "kept_more")},
        kept_out=kept_out if is_whole else None,
    )
    return found, fields.problem


def _unwritten(fields: Fields) -> Unwritten | None:
    values = _UNWRITTEN.values(fields)
    if not (values["node"] and values["verb"]):
        fields.complain("node or verb is missing")
        return None
    return Unwritten(**values)


def _kept(fields: Fields) -> tuple[str, str] | None:
    node = fields.need("node", str)
    return (node, fields.get("guard", str) or "") if node else None
