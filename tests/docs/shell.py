"""Finds our commands in the documentation, as their arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from tools.generate_docs import DOCS

PAGES = sorted(
    [*DOCS.rglob("*.md"), *(page for page in DOCS.parent.glob("*.md") if page.name != "CHANGELOG.md")]
)
PROGRAM = "konductor-like"
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")


def named(page: Path) -> str:
    """Return the page's path below the repository."""
    return str(page.relative_to(DOCS.parent))


def prompted(page: Path) -> Iterator[str]:
    """Yield each line behind a prompt, with the lines that continue it."""
    for _, block in _BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().startswith("$ "):
                yield line.strip().removeprefix("$ ").strip()


def typed(page: Path) -> Iterator[str]:
    """Yield each line that a reader may type: behind a prompt, our commands in blocks, and inline code."""
    yield from prompted(page)
    text = page.read_text("utf-8")
    for language, block in _BLOCK.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if language != "yaml" else ()
        yield from (line.strip() for line in lines if line.strip().startswith(f"{PROGRAM} "))
    for code in _INLINE.findall(_BLOCK.sub("", text)):
        yield " ".join(code.replace(r"\|", "|").split())  # a table escapes the bar


def our_commands(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``konductor-like`` in the line: in a pipe, behind a variable, in a pod."""
    if PROGRAM not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a line of output with one quotation mark
        return
    for at, word in enumerate(words):
        before = words[at - 1] if at else "|"
        if word == PROGRAM and (_operator(before) or "=" in before or before in ("--", "kubectl")):
            yield list(takewhile(lambda each: not _operator(each), words[at + 1 :]))


def _operator(word: str) -> bool:
    return bool(re.fullmatch(r"[|;&()<>]+", word))
