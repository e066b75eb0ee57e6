"""Fixtures for the tests of the controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.controller.logs import LOGGER


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """Restore the log after a test that sets it up."""
    handlers, level, propagate = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    yield
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)
    LOGGER.propagate = propagate
