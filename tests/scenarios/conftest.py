"""The fixture that opens a site for a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.site import Site

Opens = Callable[..., Site]
"""Opens a site on these nodes, under these settings, with a controller that leads."""


@pytest.fixture
def site_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Opens]:
    with ExitStack() as exits:

        def opened(nodes: Iterable[Mapping[str, Any]], **settings: Any) -> Site:
            return exits.enter_context(Site(nodes, tmp_path, monkeypatch, capsys, **settings))

        yield opened
