"""Fixtures for the tests of reading from Loki."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import respx


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the caller's configuration and proxies from the tests."""
    for name in list(os.environ):
        ours = name.startswith("KONDUCTOR_") or name in ("LOG_ENDPOINT", "WATCHED_NAMESPACES")
        if ours or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def loki() -> Iterator[respx.MockRouter]:
    """Replace the client's network; every answer is mocked."""
    with respx.mock(assert_all_called=False) as router:
        yield router
