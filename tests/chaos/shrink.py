"""A schedule that breaks something, made as short as it still breaks it."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.schedule import Schedule, play


def shrunk(schedule: Schedule) -> Schedule:
    """The schedule without every step that can be left out, in ever smaller pieces."""
    steps = list(schedule.steps)
    size = max(1, len(steps) // 2)
    while True:
        at, left = 0, len(steps)
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if _breaks(replace(schedule, steps=tuple(fewer))):
                steps = fewer
            else:
                at += size
        if size == 1 and len(steps) == left:
            return replace(schedule, steps=tuple(steps))
        size = max(1, size // 2)


def _breaks(schedule: Schedule) -> bool:
    return bool(play(schedule).broken)
