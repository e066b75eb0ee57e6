"""The controller's last attempts as an annotation of the Lease, for ``status`` and ``doctor``.

The holder writes it with each renewal:

    {"v": 1, "by": …, "kernel": {"ok": …}, "write": {"since": …, "error": …}, "heard": 10, "taints": 1,
     "unwritten": [{"node": "gpu-5", "verb": "taint", "rule": "xid.79"}],
     "kept": [{"guard": "gap", "nodes": ["gpu-7"]}]}
"""

from __future__ import annotations

from collections.abc import Mapping

from konductor_like.cluster.lenient_json import Fields, dumps, read
from konductor_like.cluster.node_record import Codec
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
    named: list[dict[str, object]] = []
    kept = _by_guard(attempts.kept_out)
    found = {
        "v": _VERSION,
        "by": attempts.by,
        **{doing.value: _ATTEMPT.parts(each) for doing, each in attempts.latest.items()},
        "heard": attempts.heard,
        "taints": attempts.taints,
        "others": attempts.others,
        "unwritten": named,
        "kept": [{"guard": guard, "nodes": nodes} for guard, nodes in kept.items()],
        "kept_more": len(attempts.kept_out) - sum(map(len, kept.values())),
    }
    left = BYTES_MOST - len(dumps(found).encode("utf-8", "replace"))
    for each in attempts.unwritten:
        node = _UNWRITTEN.parts(each)
        left -= len(dumps(node).encode("utf-8", "replace")) + 1
        if left < 0:
            break
        named.append(node)
    return dumps(found)


def decode_attempts(text: str) -> tuple[Attempts | None, str | None]:
    """Return the attempts and the problem with their text, if any. Never raises."""
    fields = read(text)
    by = fields.need("by", str)
    if by is None:
        return None, fields.problem
    latest = {doing: Attempt(**_ATTEMPT.values(fields.inner(doing))) for doing in Doing if doing in fields}
    found = Attempts(
        by,
        latest,
        fields.decoded("unwritten", _unwritten),
        **{name: fields.get(name, int) or 0 for name in ("taints", "others", "heard", "kept_more")},
        kept_out={
            node: each.get("guard", str) or ""
            for each in fields.items("kept")
            for node in each.texts("nodes")
        },
    )
    return found, fields.problem


def _by_guard(kept_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the first of these nodes by their guard, as many as ``KEPT_BYTES_MOST`` allow."""
    found: dict[str, list[str]] = {}
    left = KEPT_BYTES_MOST
    for node, guard in kept_out.items():
        left -= len(dumps(node)) + 1 + (0 if guard in found else len(dumps({"guard": guard, "nodes": []})))
        if left < 0:
            break
        found.setdefault(guard, []).append(node)
    return found


def _unwritten(fields: Fields) -> Unwritten | None:
    values = _UNWRITTEN.values(fields)
    if not (values["node"] and values["verb"]):
        fields.complain("node or verb is missing")
        return None
    return Unwritten(**values)
