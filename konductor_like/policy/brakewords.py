"""The brake in words: one clause that says why a node is held back, for its Event, the log and ``status``."""

from __future__ import annotations

from datetime import UTC, datetime

from konductor_like.model import BrakeState, ControlAct, Refusal, span_text


def why_held(why: Refusal, brake: BrakeState, pool: str | None = None) -> str:
    """Why a node of this pool is held back, given how the brake stands."""
    match why:
        case Refusal.PAUSED if brake.pause is not None:
            return f"tainting is {pause_words(brake.pause)}"
        case Refusal.COOLDOWN if brake.rearms_at is not None:
            how = "deleted" if brake.deleted else "released"
            return (
                f"{_made_room(brake)} lately, the brake arms itself again at {stamp(brake.rearms_at)} "
                f"unless more are {how}"
            )
        case Refusal.RATE if brake.pace is not None:
            within = span_text(round(brake.pace.window_seconds))
            return f"{brake.pace.taints} taints within {within}, the brake allows {brake.pace.most}"
    full = next((p for p in brake.pools if p.pool == pool and p.out >= p.bound), None)
    if full is not None:
        return (
            f"{full.out} of {full.gpu_nodes} GPU nodes of pool {pool} are out, the brake allows {full.bound}"
        )
    also = f" and {brake.unavailable} unavailable" if brake.unavailable else ""
    return f"{brake.out} of {brake.gpu_nodes} GPU nodes are out{also}, the brake allows {brake.bound}"


def _made_room(brake: BrakeState) -> str:
    """``2 released and 1 deleted while tainted``."""
    released = brake.cooling - brake.deleted
    parts = ([f"{released} released"] if released else []) + (
        [f"{brake.deleted} deleted while tainted"] if brake.deleted else []
    )
    return " and ".join(parts)


def pause_words(pause: ControlAct) -> str:
    """``paused by kim until 2026-05-06T14:00:00Z: driver roll-out``."""
    until = f" until {stamp(pause.until)}" if pause.until else ""
    return f"paused by {pause.by}{until}: {pause.reason}"


def settling_words(until_ns: int) -> str:
    """``it settles until 2026-05-06T14:00:05Z, to tell origin from collateral``; rounded up to a second."""
    until = datetime.fromtimestamp(-(-until_ns // 1_000_000_000), UTC)
    return f"it settles until {stamp(until)}, to tell origin from collateral"


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
