"""The texts that people read are plain: no private words, and no clause in the place of the subject.

Each entry of ``WORDS`` and ``OPENINGS`` names the plain word to use instead.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from konductor_like.catalog import load_catalog
from konductor_like.cli.app import build
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.settings import Settings

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "konductor_like"
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

WORDS = {
    r"heed(?:s|ed|ing)?": "apply, follow",
    r"(?:stands?|stood|standing) against": "a recorded fault, an open incident",
    r"lets? go": "release",
    r"settles?": "end, close",
    r"stints?": "term",
    r"(?:person|operator|people|somebody)(?:'s|s') words?": "command",
    r"(?:next|controller's) looks?": "reconcile, poll",
    r"act ids?": "audit id",
    r"accuse[sd]?": "taint, suspect",
    r"quiet moment": "when the node is idle",
    r"in vain": "without an answer",
    r"whoever|whomever": "anybody who, a person who",
    r"passes at": "is tainted at",
    r"(?-i:we|us|ours?)": "the controller, the catalogue",
    r"lied to": "chaos test",
    r"last act": "last write",
    r"resets? (?:the|a|this|each|every) nodes?|nodes? (?:is|are|was|were) reset": "release; a GPU is reset",
    r"test (?:the|its|such a) (?:node|machine|GPUs?)": "run diagnostics (`dcgmi diag -r 3`)",
    r"br(?:ings|ought) (?:it|the node|a node|this one|nodes) back": "release",
}
"""Banned words, as regular expressions, and the plain word for each."""
DEVELOPERS_MAY_SAY = "ours"
"""The banned word, by an example, that docstrings may have: the texts for developers."""

OPENINGS = {
    "What": "name the thing: 'Held nodes are ...', not 'What is held ...'",
    "Who": "name the person: 'A person who ...', 'Operators ...'",
    "Whoever": "name the person: 'Anybody who ...'",
    "Where": "if, on nodes that, in clusters with",
    "How": "name the quantity or the way: 'Number of ...', 'Seconds ...'",
    "Of": "put the subject first: 'The record of a node has ...'",
    "One that": "name the noun: 'A node that ...'",
    "That which": "name the thing",
    "None of": "put the subject first: 'No node ...'",
    "Whose": "name the owner",
    "So long": "while, until",
    "So many": "name the number",
}
"""Banned openings of a sentence that is no question, and what to write instead."""

_BANNED = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): plain for word, plain in WORDS.items()}
_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b(?! course)")
_SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')*_]*\s+(?=[A-Z\"'(*_`])")
_CODE = re.compile(r"`[^`]*`")


class Text(NamedTuple):
    """One text and its place."""

    where: str
    text: str


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, with ``code`` for each part in backticks."""
    yield from _SENTENCE_END.split(" ".join(_CODE.sub("code", text).split()))


def problems_of(text: Text) -> Iterator[str]:
    """Yield a message for each banned word and opening."""
    for sentence in sentences(text.text):
        for pattern, plain in _BANNED.items():
            if found := pattern.search(sentence):
                yield f"{text.where}: {sentence!r} has {found[0]!r}; write: {plain}"
        opening = _OPENING.match(sentence.lstrip("\"'(*_"))
        if opening and not sentence.rstrip("\"')*_").endswith("?"):
            yield f"{text.where}: {sentence!r} begins with {opening[0]!r}; write: {OPENINGS[opening[0]]}"


def commands(command: Any, path: str = "konductor-like") -> Iterator[Text]:
    """Yield the help of a command, its options and its subcommands."""
    for text in (command.help, command.epilog, command.short_help):
        if text:
            yield Text(path, text)
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            yield Text(f"{path} {max(parameter.opts, key=len)}", text)
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{path} {name}")


def settings() -> Iterator[Text]:
    for name, field in Settings.model_fields.items():
        yield Text(f"setting {name}", field.description or "")


def metrics() -> Iterator[Text]:
    for family in Metrics().registry.collect():
        yield Text(f"metric {family.name}", family.documentation)


def catalogue() -> Iterator[Text]:
    """Yield titles, advice and explanations."""
    catalog, data = load_catalog(), files("konductor_like.catalog") / "data"
    rules = [rule.entry for rule in (*catalog.kernel_rules, *catalog.pod_rules) if rule.entry]
    for entry in (*catalog.xids.values(), *catalog.sxids.values(), *catalog.named_entries.values(), *rules):
        yield Text(f"title of {entry.rule}", entry.title)
    for file in ("advice.toml", "explanations.toml"):
        document: dict[str, Any] = tomllib.loads((data / file).read_text("utf-8"))
        for entry in document.pop("explain", ()):
            yield Text(f"{file} {entry['rules'][0]}", entry["text"])
        for table, fields in document.items():
            yield from (Text(f"{file} [{table}] {name}", text) for name, text in fields.items())


def literals(path: Path) -> Iterator[Text]:
    """Yield the texts of a module: strings of three words or more that are no docstring and no pattern."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped: set[ast.expr] = set(_docstrings(tree))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        match node:
            case ast.JoinedStr(values=values):
                skipped.update(values)
                text = "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in values)
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if len(text.split()) > 2 and not re.search(r"\(\?|\\[bdsSw]", text):
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", text)


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        for each in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.value


def docstring_problems(path: Path) -> Iterator[str]:
    """Yield a message for each banned word in a docstring, except the words that developers may use."""
    for each in _docstrings(ast.parse(path.read_text("utf-8"))):
        for sentence in sentences(str(ast.literal_eval(each))):
            for pattern, plain in _BANNED.items():
                found = None if pattern.search(DEVELOPERS_MAY_SAY) else pattern.search(sentence)
                if found:
                    yield f"{path.name}:{each.lineno}: {sentence!r} has {found[0]!r}; write: {plain}"


def comments(path: Path, marker: str) -> Iterator[Text]:
    """Yield each block of whole-line comments, and each comment after ``marker``."""
    block: list[str] = []
    for number, line in enumerate([*path.read_text("utf-8").split("\n"), ""], 1):
        whole, _, comment = line.partition(marker)
        if not whole.strip() and comment and not comment.startswith("  "):
            block.append(comment)
            continue
        if block:
            yield Text(f"{path.relative_to(ROOT)}:{number - 1}", " ".join(block))
            block = []
        if whole.strip() and comment:
            yield Text(f"{path.relative_to(ROOT)}:{number}", comment)


def prose(path: Path) -> Iterator[Text]:
    """Yield the prose of a Markdown page: paragraphs, list items, table cells and headings, but no code.

    A heading keeps its ``#``, so it may begin with any word: "What it means" is a good heading.
    """
    text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", path.read_text("utf-8"))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )", text):
        cells = re.split(r"(?<!\\)\|", block) if block.lstrip().startswith("|") else [block]
        for cell in cells:
            if words := re.sub(r"^\s*(?:[-*]|\d+\.) |\]\([^)]*\)", "", cell).strip():
                yield Text(path.name, words)


DEMO = ROOT / "sandbox" / "konductor_like_sandbox" / "demo"
MODULES = (*sorted(PACKAGE.rglob("*.py")), *sorted(DEMO.glob("*.py")))
COMMENTED = (*sorted((ROOT / "manifests").glob("*.yaml")), *sorted((PACKAGE / "catalog" / "data").iterdir()))


def _sources() -> dict[str, Callable[[], Iterator[Text]]]:
    kinds = {
        "commands": lambda: commands(typer.main.get_command(build())),
        "settings": settings,
        "metrics": metrics,
        "catalogue": catalogue,
        "Makefile": lambda: comments(ROOT / "Makefile", "## "),
    }
    modules = {str(path.relative_to(ROOT)): partial(literals, path) for path in MODULES}
    commented = {str(path.relative_to(ROOT)): partial(comments, path, "# ") for path in COMMENTED}
    return kinds | modules | commented | {str(path.relative_to(ROOT)): partial(prose, path) for path in PAGES}


SOURCES = _sources()
"""The texts of each place: a kind of text, a module, a page, or a file whose comments are read."""


@pytest.mark.parametrize("place", SOURCES)
def test_texts_are_plain(place: str) -> None:
    wrong = [problem for text in SOURCES[place]() for problem in problems_of(text)]

    assert not wrong, "\n".join(["not plain:", *wrong])


def test_docstrings_have_no_private_words() -> None:
    wrong = [problem for path in MODULES for problem in docstring_problems(path)]

    assert not wrong, "\n".join(["not plain:", *wrong])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The controller taints it. What settles is not held.", ["settles", "What"]),
        ("Nodes out by us", ["us"]),
        ("node `by us` is tainted", []),
        ("How many nodes may be out.", ["How"]),
        ("How many nodes may be out?", []),
        ("Of a node the whole story.", ["Of"]),
        ("So long as a pause holds, nothing is tainted.", ["So long"]),
        ("Of course the node is tainted.", []),
        ("A stintless day; somewhere else, however.", []),
    ],
)
def test_a_bad_sentence_is_named_with_its_place_and_the_plain_word(text: str, told: list[str]) -> None:
    problems = list(problems_of(Text("place", text)))

    assert all(each.startswith("place: ") and "; write: " in each for each in problems)
    named = re.compile(r"(?:has|begins with) '([^']*)'; write: \w")
    assert sorted(name for each in problems for name in named.findall(each)) == sorted(told)


@pytest.mark.parametrize(
    "sentence",
    [
        "How many nodes may be out by us.",
        "Nodes that were not tainted although something stood against them, by why; once while it lasts.",
        "Work may go on; reset the GPU at the next quiet moment so that the replacement takes effect.",
        "one line out of a pod accuses nobody: doubt must repeat or be confirmed to taint",
        "What only settles is not held by the brake, and trips nothing.",
        "nothing any more; it passes at the next look",
        "The need was met: test the node, then reset the node.",
        "`reset` brings the node back.",
        "Whose fleet: the cluster's, whom the lines name, or of a file: a name per line.",
    ],
)
def test_sentences_that_engineers_stumbled_over_are_banned(sentence: str) -> None:
    assert list(problems_of(Text("place", sentence)))


def test_every_kind_of_text_is_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What it means\n\nA [word](x).\n\n- one\n- two\n\n| a | b |\n\n```\ncode\n```\n")
    kinds = {"commands": 60, "settings": 50, "metrics": 50, "catalogue": 700, "Makefile": 10}

    assert [each.text for each in prose(page)] == ["# What it means", "A [word.", "one", "two", "a", "b"]
    assert [kind for kind, least in kinds.items() if len(list(SOURCES[kind]())) < least] == []
    assert any(
        "Node X tainted" in each.text for each in SOURCES["konductor_like/controller/reporting/report.py"]()
    )
    assert any("one pod" in each.text for each in SOURCES["manifests/controller_deployment.yaml"]())
