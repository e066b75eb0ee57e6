"""docs/architecture.md is the design: its rules, layers and words are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools.generate_docs import DOCS
from tools.measures.lines import Size, code_lines, too_large
from tools.release.check import OWNERS

ROOT = DOCS.parent
PAGE = (DOCS / "architecture.md").read_text("utf-8")
RULES = {
    int(number): text
    for number, text in re.findall(r"^(\d+)\. \*\*(.*?)(?=^\d+\. \*\*|^##)", PAGE, re.MULTILINE | re.DOTALL)
}
SOURCES = [
    path
    for part in ("konductor_like/**/*.py", "sandbox/**/*.py", "tools/**/*.py", "tests/**/*.py", "manifests/*")
    for path in ROOT.glob(part)
]


def test_rules_are_numbered_without_a_hole() -> None:
    assert list(RULES) == list(range(1, len(RULES) + 1))


@pytest.mark.parametrize("number", RULES)
def test_a_rule_has_its_reason_and_tests_that_exist(number: int) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", RULES[number])

    assert "*Why:*" in RULES[number]
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_rule_that_the_code_cites_is_on_the_page() -> None:
    cited = {
        (path.name, int(number))
        for path in SOURCES
        for group in re.findall(r"\(?(?:design )?\brules? ((?:\d+(?:, | and )?)+)\)", path.read_text("utf-8"))
        for number in re.findall(r"\d+", group)
    }

    assert cited
    assert {one for one in cited if one[1] not in RULES} == set()


def test_the_layers_are_those_that_the_import_linter_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["name"] == "Imports point one way")
    held = [name for layer in layers for name in re.findall(r"konductor_like\.(\w+)", layer)]
    table = PAGE.split("\n## Layers\n")[1].split("\n## ")[0]
    shown = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))

    assert shown == [name for name in held if name in shown]
    packages = {path.parent.name for path in (ROOT / "konductor_like").glob("*/__init__.py")}
    assert packages <= set(shown)


def test_the_folders_are_those_that_the_import_linter_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    held = [
        {f"{container.removeprefix('konductor_like.')}/{name.strip()}" for name in layer.split("|")}
        for one in contracts
        for container in one.get("containers", ())
        for layer in one["layers"]
    ]
    table = PAGE.split("\n### Folders\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)

    assert [set(re.findall(r"`(\w+/\w+)(?:/|\.py)`", row)) for row in rows] == held


def test_the_places_that_decide_are_in_the_modules_that_the_page_names() -> None:
    table = PAGE.split("\n## The decision to taint\n")[1].split("\n## ")[0]
    places = re.findall(r"^\| `(\w+)`[^|]*\(`([\w/]+\.py)`\)", table, re.MULTILINE)

    assert len(places) == table.count("\n| `")
    for name, module in places:
        text = (ROOT / "konductor_like" / module).read_text("utf-8")
        assert re.search(rf"^\s*(?:def )?{name}\b[:(]", text, re.MULTILINE), name


def test_the_glossary_is_short_and_in_order() -> None:
    terms = re.findall(r"^\| ([^|]+) \|", PAGE.split("\n## Glossary\n")[1], re.MULTILINE)[2:]

    assert len(terms) <= 25
    assert terms == sorted(terms, key=str.lower)


def test_a_code_line_is_no_blank_no_comment_and_no_docstring() -> None:
    text = (
        '"""What it is."""\n\n# Why.\nx = (\n    1,\n)\n"""Of x."""\n\n\ndef f() -> None:\n    """Why."""\n'
    )

    assert code_lines(text) == {4, 5, 6, 10}


def test_a_package_above_its_ceiling_of_code_lines_is_named() -> None:
    sizes = {"loki": Size(code=100), "model": Size(code=101), "new": Size(code=1)}

    assert [*too_large(sizes, {"loki": 100, "model": 100})] == [
        "model has 101 code lines, at most 100 (pyproject.toml)",
        "new has no ceiling of code lines in pyproject.toml, [tool.konductor-like.ceilings]",
    ]


def test_security_reports_go_where_the_owner_says() -> None:
    assert all(name in (ROOT / "pyproject.toml").read_text("utf-8") for name in OWNERS)
    assert "security-contact" in Path(ROOT / "SECURITY.md").read_text("utf-8")
