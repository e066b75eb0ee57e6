"""The build: it changes with every file of the package, and with nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import konductor_like
from konductor_like.build import SUFFIXES, Program, build_of, this_program
from konductor_like.controller.loop.leader import _log_other_build

PACKAGE = Path(konductor_like.__file__).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package, as an installation has it."""
    for name, text in {"__init__.py": "", "data/xid.csv": "79,fatal", "__pycache__/a.pyc": "x"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        (lambda package: (package / "data/xid.csv").write_text("79,suspect"), True),
        (lambda package: (package / "data/sxid.csv").write_text(""), True),
        (lambda package: (package / "data/xid.csv").rename(package / "xid.csv"), True),
        (lambda package: (package / "__pycache__/a.pyc").write_text("y"), False),
        (lambda package: (package / "__init__.py").touch(), False),
        (lambda package: (package / ".#__init__.py").symlink_to("kim@host.4711:1"), False),
        (lambda package: (package / "rules.yaml").mkdir(), False),
    ],
    ids=["content", "another file", "another name", "bytecode", "another time", "editor's lock", "folder"],
)
def test_another_build_is_another_content(
    package: Path, change: Callable[[Path], object], is_another: bool
) -> None:
    before = build_of(package)

    change(package)

    assert (build_of(package) != before) is is_another


def test_every_file_of_the_package_counts() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]

    assert {path.suffix for path in files} - SUFFIXES == {".typed"}  # an empty marker
    assert len(this_program().build) == 12


@pytest.mark.parametrize(
    ("before", "warnings"),
    [
        (replace(this_program(), build="3f2a91c0d4e5"), 1),
        (this_program(), 0),
        (Program("0.0.9", "3f2a91c0d4e5"), 0),
        (None, 0),
    ],
    ids=["same version, other build", "same build", "upgrade", "first start"],
)
def test_a_new_leader_warns_of_another_build_under_the_same_version(
    before: Program | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        _log_other_build(before)

    assert len(caplog.messages) == warnings
    assert all(text.startswith("Same version, other build: the last leader") for text in caplog.messages)
