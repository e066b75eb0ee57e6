"""The documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konductor_like.cli.app import build
from konductor_like.demo.stage import RunningController
from konductor_like.demo.story import steps
from tests.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_pages_are_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page](), "run make docs"


def test_the_readme_shows_the_demo_as_it_is() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    controller = RunningController.__new__(RunningController)

    for number, step in enumerate(steps(controller), start=1):
        assert f"{number}. {step.title}\n" in readme


def test_the_readme_names_every_command() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")

    for command in build().registered_commands:
        assert f"`konductor-like {command.name}" in readme


@pytest.mark.parametrize("page", [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")], ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
