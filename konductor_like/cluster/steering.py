"""What the brake must know beside the nodes' records, as annotations of the Lease.

People write a pause or a reset of the brake there, the controller which Nodes bear our taint and which were
deleted with it. A pause that cannot be read is a pause without an end: whoever wrote it wanted one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from konductor_like.cluster import times
from konductor_like.cluster.tolerant import Fields, read
from konductor_like.model import Machine, Pause, Purge, Rearm, Resume, Steering, TaintedNode

PAUSE_ANNOTATION = "trainy.konduktor.ai/pause"
REARM_ANNOTATION = "trainy.konduktor.ai/breaker-reset"
RESUME_ANNOTATION = "trainy.konduktor.ai/resume"
PURGE_ANNOTATION = "trainy.konduktor.ai/purge"
TAINTED_ANNOTATION = "trainy.konduktor.ai/tainted"
PURGED_MOST = 100_000
"""More nodes than any cluster has."""
TAINTED_BYTES = 32 * 1024
"""Some 150 nodes; all annotations of the Lease together may take 256 KiB."""
_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode_pause(pause: Pause) -> str:
    """The pause's annotation."""
    until = {"until": times.text_of(pause.until)} if pause.until else {}
    said = {"at": times.text_of(pause.at), "by": pause.by, "reason": pause.reason, **until}
    return _dumps(said | _act(pause.act))


def encode_rearm(rearm: Rearm) -> str:
    """The annotation of a reset of the brake."""
    said = {"at": times.text_of(rearm.at), "by": rearm.by, "reason": rearm.reason}
    return _dumps(said | _act(rearm.act))


def encode_resume(resume: Resume) -> str:
    """The annotation of a pause's end."""
    return _dumps({"at": times.text_of(resume.at), "by": resume.by} | _act(resume.act))


def encode_purge(purge: Purge) -> str:
    """The annotation that remembers nodes which remember nothing."""
    return _dumps({"at": times.text_of(purge.at), "by": purge.by, "nodes": purge.nodes})


def encode_tainted(tainted: Iterable[TaintedNode]) -> str:
    """The annotation of the Nodes with our taint. Of too many, the latest deletions are kept first."""
    latest_first = sorted(tainted, key=lambda each: each.deleted_at or _EPOCH, reverse=True)
    kept, left = [], TAINTED_BYTES
    for each in latest_first:
        said = {
            "name": each.name,
            "uid": each.machine.node_uid,
            "system": each.machine.system_id,
            "boot": each.machine.boot_id,
            "pool": each.pool,
            "tainted": times.text_of(each.tainted_at),
            "deleted": times.text_of(each.deleted_at) if each.deleted_at else None,
        }
        present = {name: value for name, value in said.items() if value is not None}
        left -= len(_dumps(present).encode("utf-8", "replace")) + 1
        if left < 0:
            break
        kept.append(present)
    return _dumps({"v": _VERSION, "nodes": kept})


def decode_steering(annotations: Mapping[str, object]) -> tuple[Steering, list[str]]:
    """What the Lease's annotations tell the controller, and what of them cannot be read. Never raises."""
    pause, no_pause = _pause(annotations.get(PAUSE_ANNOTATION))
    rearm, no_rearm = _rearm(annotations.get(REARM_ANNOTATION))
    resume, no_resume = _resume(annotations.get(RESUME_ANNOTATION))
    purge, no_purge = _purge(annotations.get(PURGE_ANNOTATION))
    tainted, no_tainted = _tainted(annotations.get(TAINTED_ANNOTATION))
    found = (
        (PAUSE_ANNOTATION, no_pause),
        (REARM_ANNOTATION, no_rearm),
        (RESUME_ANNOTATION, no_resume),
        (PURGE_ANNOTATION, no_purge),
        (TAINTED_ANNOTATION, no_tainted),
    )
    problems = [f"annotation {name}: {problem}" for name, problem in found if problem]
    return Steering(pause, rearm, resume, purge, tainted), problems


def _pause(text: object) -> tuple[Pause | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at, until = fields.moment("at"), fields.moment("until")
    reason, act = fields.text("reason") or "no reason given", fields.text("act") or ""
    pause = Pause(at or _EPOCH, _who(fields), reason, until, act)
    return pause, f"{fields.problem} (taken for a pause all the same)" if fields.problem else None


def _rearm(text: object) -> tuple[Rearm | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at = fields.moment("at")
    if at is None:
        return None, fields.problem or "at is missing"
    reason, act = fields.text("reason") or "", fields.text("act") or ""
    return Rearm(at, _who(fields), reason, act), fields.problem


def _resume(text: object) -> tuple[Resume | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at = fields.moment("at")
    if at is None:
        return None, fields.problem or "at is missing"
    return Resume(at, _who(fields), fields.text("act") or ""), fields.problem


def _purge(text: object) -> tuple[Purge | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at, nodes = fields.moment("at"), fields.number("nodes")
    if at is None or nodes is None:
        return None, fields.problem or "at or nodes is missing"
    return Purge(at, _who(fields), min(nodes, PURGED_MOST)), fields.problem


def _tainted(text: object) -> tuple[tuple[TaintedNode, ...], str | None]:
    if not isinstance(text, str) or not text.strip():
        return (), None
    fields = read(text)
    found = [node for each in fields.items("nodes") if (node := _tainted_node(each)) is not None]
    return tuple(found), fields.problem


def _tainted_node(fields: Fields) -> TaintedNode | None:
    name, uid, tainted_at = fields.text("name"), fields.text("uid"), fields.moment("tainted")
    if not (name and uid and tainted_at):
        fields.complain("name, uid or tainted is missing")
        return None
    machine = Machine(uid, fields.text("system"), fields.text("boot"))
    return TaintedNode(name, machine, tainted_at, fields.text("pool"), fields.moment("deleted"))


def _act(act: str) -> dict[str, str]:
    return {"act": act} if act else {}


def _who(fields: Fields) -> str:
    return fields.text("by") or "somebody"


def _dumps(parts: Mapping[str, object]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
