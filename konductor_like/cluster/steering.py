"""What people tell the running controller, as annotations of the Lease: a pause, a reset of the brake.

A pause that cannot be read is a pause without an end: whoever wrote it wanted one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from konductor_like.cluster import times
from konductor_like.cluster.tolerant import Fields, read
from konductor_like.model import Pause, Rearm, Steering

PAUSE_ANNOTATION = "trainy.konduktor.ai/pause"
REARM_ANNOTATION = "trainy.konduktor.ai/breaker-reset"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode_pause(pause: Pause) -> str:
    """The pause's annotation."""
    until = {"until": times.text_of(pause.until)} if pause.until else {}
    return _dumps({"at": times.text_of(pause.at), "by": pause.by, "reason": pause.reason, **until})


def encode_rearm(rearm: Rearm) -> str:
    """The annotation of a reset of the brake."""
    return _dumps({"at": times.text_of(rearm.at), "by": rearm.by, "reason": rearm.reason})


def decode_steering(annotations: Mapping[str, object]) -> tuple[Steering, list[str]]:
    """What the Lease's annotations tell the controller, and what of them cannot be read. Never raises."""
    pause, no_pause = _pause(annotations.get(PAUSE_ANNOTATION))
    rearm, no_rearm = _rearm(annotations.get(REARM_ANNOTATION))
    problems = [
        f"annotation {name}: {problem}"
        for name, problem in ((PAUSE_ANNOTATION, no_pause), (REARM_ANNOTATION, no_rearm))
        if problem
    ]
    return Steering(pause, rearm), problems


def _pause(text: object) -> tuple[Pause | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at, until = fields.moment("at"), fields.moment("until")
    pause = Pause(at or _EPOCH, _who(fields), fields.text("reason") or "", until)
    return pause, f"{fields.problem} (taken for a pause all the same)" if fields.problem else None


def _rearm(text: object) -> tuple[Rearm | None, str | None]:
    if not isinstance(text, str) or not text.strip():
        return None, None
    fields = read(text)
    at = fields.moment("at")
    if at is None:
        return None, fields.problem or "at is missing"
    return Rearm(at, _who(fields), fields.text("reason") or ""), fields.problem


def _who(fields: Fields) -> str:
    return fields.text("by") or "somebody"


def _dumps(parts: Mapping[str, object]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
