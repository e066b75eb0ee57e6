"""Durations and sizes as Kubernetes, Loki and the collector write them."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def seconds(duration: str) -> float:
    """Seconds of a Go duration with one unit, such as ``336h``. Raises ValueError for anything else."""
    number, unit = _split(duration)
    return number * _SECONDS[unit]


def byte_count(size: str) -> int:
    """Bytes of ``1Gi`` or ``1GB``; Loki's KB, MB and GB are powers of 1024 too. Raises ValueError else."""
    number, unit = _split(size)
    return number * _BYTES[unit]


def _split(quantity: str) -> tuple[int, str]:
    match = re.fullmatch(r"(\d+)([a-zA-Z]+)", quantity)
    if match is None or match[2] not in _SECONDS | _BYTES:
        raise ValueError(f"{quantity!r} is no number with a unit that is known here")
    return int(match[1]), match[2]
