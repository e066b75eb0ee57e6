"""What a command printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command came to."""

    code: int
    out: str
    err: str
    lines: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", self.out.splitlines())

    @property
    def rows(self) -> Sequence[str]:
        heads = [number for number, line in enumerate(self.lines) if line.startswith("NODE ")]
        return self.lines[heads[0] + 1 :] if heads else ()

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found
