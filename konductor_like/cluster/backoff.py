"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits with jitter, so that many who failed together do not come back together."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def seconds(self, failures: int, at_least_seconds: float | None = None) -> float:
        """The wait after so many failures in a row (1 or more); never less than what the server asked for."""
        longest = min(self.first_seconds * 2.0 ** min(failures - 1, 16), self.most_seconds)
        wait = longest * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter is no secret
        return max(wait, at_least_seconds or 0.0)
