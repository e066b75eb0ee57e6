"""What people tell the running controller, as annotations of the Lease: a pause, a reset of the brake.

A pause that cannot be read is a pause without an end: whoever wrote it wanted one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from konductor_like.cluster import times
from konductor_like.cluster.tolerant import Fields, read
from konductor_like.model import Pause, Purge, Rearm, Resume, Steering

PAUSE_ANNOTATION = "trainy.konduktor.ai/pause"
REARM_ANNOTATION = "trainy.konduktor.ai/breaker-reset"
RESUME_ANNOTATION = "trainy.konduktor.ai/resume"
PURGE_ANNOTATION = "trainy.konduktor.ai/purge"
PURGED_MOST = 100_000
"""More nodes than any cluster has."""
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


def decode_steering(annotations: Mapping[str, object]) -> tuple[Steering, list[str]]:
    """What the Lease's annotations tell the controller, and what of them cannot be read. Never raises."""
    pause, no_pause = _pause(annotations.get(PAUSE_ANNOTATION))
    rearm, no_rearm = _rearm(annotations.get(REARM_ANNOTATION))
    resume, no_resume = _resume(annotations.get(RESUME_ANNOTATION))
    purge, no_purge = _purge(annotations.get(PURGE_ANNOTATION))
    found = (
        (PAUSE_ANNOTATION, no_pause),
        (REARM_ANNOTATION, no_rearm),
        (RESUME_ANNOTATION, no_resume),
        (PURGE_ANNOTATION, no_purge),
    )
    problems = [f"annotation {name}: {problem}" for name, problem in found if problem]
    return Steering(pause, rearm, resume, purge), problems


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


def _act(act: str) -> dict[str, str]:
    return {"act": act} if act else {}


def _who(fields: Fields) -> str:
    return fields.text("by") or "somebody"


def _dumps(parts: Mapping[str, object]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
