"""Without the package of the stand-ins, ``demo`` says how to get it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from konductor_like.cli.app import command, execute


@pytest.fixture
def _without_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "konductor_like_sandbox", None)
    command.cache_clear()
    yield
    command.cache_clear()


@pytest.mark.usefixtures("_without_sandbox")
@pytest.mark.parametrize("arguments", [[], ["--keep", "--nodes", "40"], ["xid", "gpu-01", "79"]])
def test_demo_without_its_package_is_one_clear_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["demo", *arguments], "konductor-like") == 1
    assert capsys.readouterr().err == (
        "error: the demo is a package of its own: run `make demo` in a checkout of the repository\n"
    )


@pytest.mark.usefixtures("_without_sandbox")
def test_the_other_commands_need_no_stand_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"], "konductor-like") == 0
    assert "  demo " in capsys.readouterr().out
