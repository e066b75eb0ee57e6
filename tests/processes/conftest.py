"""Every stage of this folder forks its controllers and commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.forked import forking


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    with forking():
        yield
