"""The documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.cli.app import build
from konductor_like.cli.rules import _rows
from konductor_like_sandbox.demo.stage import RunningController
from konductor_like_sandbox.demo.story import steps
from tools.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_pages_are_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page](), "run make docs"


def test_the_reference_lists_every_rule_and_the_version_that_the_controller_reports() -> None:
    page = PAGES["reference/rules.md"]()
    rules = re.findall(r"^\| `([\w.]+)`", page, re.MULTILINE)
    lists = re.findall(r"^- `\w+`, needs [\w-]+: (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    names = re.findall(r"[\w.]+", " ".join(lists))
    rules += [f"{'sxid' if int(name) > 9999 else 'xid'}.{name}" if name.isdigit() else name for name in names]

    assert sorted(rules) == sorted(row[0] for row in _rows(load_catalog()))
    assert "`konductor_like_build_info`" in PAGES["reference/metrics.md"]()


def test_the_readme_shows_the_demo_as_it_is() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    controller = RunningController.__new__(RunningController)

    for number, step in enumerate(steps(controller), start=1):
        assert f"{number}. {step.title}\n" in readme


def test_the_readme_names_every_command() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")

    for command in build().registered_commands:
        assert f"`konductor-like {command.name}" in readme


each_page = pytest.mark.parametrize(
    "page", [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")], ids=lambda page: page.name
)


@each_page
def test_no_line_outside_of_a_code_block_is_wider_than_125_columns(
    page: Path,
) -> None:
    assert [line for line in without_blocks(page).splitlines() if len(line) > 125] == []


@each_page
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", without_blocks(page)):
        target, _, anchor = link.partition("#")
        there = page.parent / target if target else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def test_an_anchor_is_what_github_makes_of_a_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# At 3 a.m.\n## `run`, once\n## One\n## One\n```\n# no heading\n```\n")

    assert anchors(page) == {"at-3-am", "run-once", "one", "one-1"}


def anchors(page: Path) -> set[str]:
    """Return what a link to a heading of the page may end in."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


def without_blocks(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
