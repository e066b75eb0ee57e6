"""Printing: data on standard output, messages on standard error; control characters are made harmless."""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TextIO

from konductor_like.cli.columns import Layout, cells_of, folded, stamp, stamp_of_ns, widths_of
from konductor_like.model.text import printable

API_VERSION = "konductor-like/v1"
Paragraph = tuple[str, str | Sequence[str]]
"""A label and the text or the lines beside it; a paragraph without text is not shown."""
LABEL_CHARS = 14
_MESSAGE_CHARS = 4000
BOLD = "1"


def is_terminal(stream: TextIO) -> bool:
    """Whether colours and a width make sense on this stream."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def colourful(stream: TextIO) -> bool:
    """Whether this stream wants colours (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


@dataclass(frozen=True, slots=True)
class Screen:
    """The place of the output: a terminal of some width, or a pipe or file of any width."""

    width: int | None = None
    """The columns of the terminal; None for a pipe or file."""
    colours: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Return what this stream is."""
        width = shutil.get_terminal_size().columns if is_terminal(stream) else None
        return cls(width, colourful(stream))

    def painted(self, text: str, style: str) -> str:
        """Return the text in this style (the numbers of an ANSI sequence), if the screen shows colours."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours and text and style else text

    def folded(self, text: str, indent: int = 0) -> list[str]:
        """Return the text in lines that fit beside this indent, broken at blanks only."""
        return folded(text, None if self.width is None else self.width - indent)


PIPE = Screen()


def say(lines: Iterable[str]) -> None:
    """Print data."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def say_json(document: Mapping[str, Any]) -> None:
    """Print a document as JSON."""
    say([json.dumps(document, indent=2)])


def fields_of(thing: object, *names: str) -> dict[str, Any]:
    """Return attributes for a document, in camel case: ``gpu_nodes`` as ``gpuNodes``, ``at_ns`` as ``at``."""
    return {
        camel_case(name.removesuffix("_ns")): _plain(getattr(thing, name), is_ns=name.endswith("_ns"))
        for name in names
    }


def say_document(document: Mapping[str, Any], output: Literal["json", "yaml"]) -> None:
    """Print a document in this format."""
    say(yaml_lines(document) if output == "yaml" else [json.dumps(document, indent=2)])


def say_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; on a terminal no cell is broken, except the last, which is folded at words."""
    say(table_lines(headers, rows, Screen.of(sys.stdout)))


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: Screen,
    styles: Sequence[str] = (),
    widths: Sequence[int] | None = None,
) -> list[str]:
    """Return columns for this screen; with ``styles`` the second cell of each row has the row's style.

    ``widths`` are those of the columns; by default they follow from the cells.
    """
    table = cells_of(headers, rows)
    layout = Layout.of(widths or widths_of(table), screen.width) if table else Layout(())
    found = []
    for number, cells in enumerate(table):
        lines = layout.row(cells)
        if headers and number == 0:
            lines = [screen.painted(line, BOLD) for line in lines]
        elif styles:
            line, start = layout.second
            text, end = lines[line], start + len(cells[1])
            style = styles[number - bool(headers)]
            lines[line] = f"{text[:start]}{screen.painted(text[start:end], style)}{text[end:]}"
        found += lines
    return found


def say_paragraphs(paragraphs: Iterable[Paragraph]) -> None:
    """Print labelled paragraphs: in full width, or folded at words to the width of the terminal."""
    say(plain_paragraphs(paragraphs, Screen.of(sys.stdout)))


def tell(message: str) -> None:
    """Print a message on standard error, without its middle if somebody's input made it huge."""
    sys.stdout.flush()  # keeps the order where both streams share a terminal
    if len(message) > _MESSAGE_CHARS:
        message = f"{message[: _MESSAGE_CHARS // 2]} … {message[-_MESSAGE_CHARS // 2 :]}"
    sys.stderr.write(f"{printable(message)}\n")


def warn(message: str) -> None:
    """Print a warning on standard error."""
    tell(f"warning: {message}")


def can_answer() -> bool:
    """Whether a person at a terminal can answer a question; a "y" from a pipe does not count."""
    return sys.stdin is not None and sys.stdin.isatty()  # None: standard input was closed


def ask(question: str) -> bool:
    """Ask on standard error (standard output is for data); every answer except y and yes means no."""
    return ask_text(question).lower() in ("y", "yes")


def ask_text(question: str) -> str:
    """Ask on standard error, and return the line that the person types, without blanks around it."""
    sys.stdout.flush()
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def harden() -> None:
    """Make both streams escape characters that the locale cannot write, so that printing never fails.

    A stream that the caller closed (``>&-``) is written to nowhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # open to the end
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> None:
    """Flush both streams; ignore a reader that has closed the pipe (``| head``)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # The interpreter flushes again at its exit, and the rest of the buffer would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_abandoned(stream: TextIO) -> bool:
    """Whether nobody reads the stream any more: the reader of its pipe has ended (``| head``)."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # errors and the end of the reader are always reported
    except (OSError, ValueError):  # it has no file, or is closed
        return False
    return bool(poll.poll(0))


def yaml_lines(document: Mapping[str, Any]) -> list[str]:
    """Return a document as YAML, without folded lines. Its values are those of its JSON."""
    import yaml  # the only format that needs it

    plain = json.loads(json.dumps(document))  # YAML writes no enum, and JSON writes it as its text
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=4096)
    return text.rstrip("\n").split("\n")


def plain_paragraphs(paragraphs: Iterable[Paragraph], screen: Screen = PIPE) -> list[str]:
    """Return the lines of paragraphs: each label in the first column, its text beside it."""
    written = list(_written(paragraphs))
    indent = max([LABEL_CHARS, *(len(label) + 2 for label, _ in written)])
    found = []
    for label, lines in written:
        parts = [part for line in lines for part in screen.folded(printable(line), indent)]
        for number, part in enumerate(parts):
            head = f"{label}:" if label and not number else ""
            found.append(f"{screen.painted(head, BOLD)}{' ' * (indent - len(head))}{part}".rstrip())
    return found


def _written(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[str, Sequence[str]]]:
    for label, lines in paragraphs:
        if lines:
            yield label, [lines] if isinstance(lines, str) else lines


def camel_case(name: str) -> str:
    """Return ``gpu_nodes`` as ``gpuNodes``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _plain(value: Any, *, is_ns: bool) -> object:
    if is_ns:
        return stamp_of_ns(value)
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
