"""Printing: data on standard output, messages on standard error; control characters are made harmless."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TextIO

from konductor_like.cli.columns import NONE, columns, stamp, stamp_of_ns
from konductor_like.model.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

API_VERSION = "konductor-like/v1"
Paragraph = tuple[str, str | Sequence[str]]
"""A label and the text or the lines beside it; a paragraph without text is not shown."""
LABEL_CHARS = 14
_MESSAGE_CHARS = 4000


def is_terminal(stream: TextIO) -> bool:
    """Whether colours and a width make sense on this stream."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def colourful(stream: TextIO) -> bool:
    """Whether this stream wants colours (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


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
        _camel_case(name.removesuffix("_ns")): _plain(getattr(thing, name), is_ns=name.endswith("_ns"))
        for name in names
    }


def say_document(document: Mapping[str, Any], output: Literal["json", "yaml"]) -> None:
    """Print a document in this format."""
    say(yaml_lines(document) if output == "yaml" else [json.dumps(document, indent=2)])


def say_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; fold them on a terminal that is too narrow."""
    if is_terminal(sys.stdout):
        console().print(table_view(headers, rows))
    else:
        say(columns(headers, rows))


def say_paragraphs(paragraphs: Iterable[Paragraph]) -> None:
    """Print labelled paragraphs: in full width, or folded to the width of the terminal."""
    if is_terminal(sys.stdout):
        console().print(paragraphs_view(paragraphs))
    else:
        say(plain_paragraphs(paragraphs))


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
    sys.stdout.flush()
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def harden() -> None:
    """Make both streams escape characters that the locale cannot write, so that printing never fails."""
    for stream in (sys.stdout, sys.stderr):
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


def console(stream: TextIO | None = None) -> Console:
    """Return a console that prints text unchanged, without markup; with ``NO_COLOR`` not even bold."""
    from rich.console import Console  # a pipe never needs it

    file = stream or sys.stdout
    colours: Literal["auto"] | None = "auto" if colourful(file) else None
    return Console(
        file=file, color_system=colours, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def yaml_lines(document: Mapping[str, Any]) -> list[str]:
    """Return a document as YAML, without folded lines."""
    import yaml  # the only format that needs it

    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=4096)
    return text.rstrip("\n").split("\n")


def plain_paragraphs(paragraphs: Iterable[Paragraph]) -> list[str]:
    """Return paragraphs as plain text of full width."""
    return [
        f"{label + ':' if label and not number else '':<{LABEL_CHARS}}{printable(line)}".rstrip()
        for label, lines in _written(paragraphs)
        for number, line in enumerate(lines)
    ]


def paragraphs_view(
    paragraphs: Iterable[Paragraph], alarming: re.Pattern[str] | None = None
) -> RenderableType:
    """Return paragraphs for a terminal: bold labels, folded lines, colour for ``alarming`` paragraphs."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, lines in _written(paragraphs):
        text = "\n".join(map(printable, lines))
        alarm = alarming is not None and alarming.match(f"{label}: {text}")
        grid.add_row(Text(label and f"{label}:", "bold"), Text(text, "bold yellow" if alarm else ""))
    return grid


def _written(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[str, Sequence[str]]]:
    for label, lines in paragraphs:
        if lines:
            yield label, [lines] if isinstance(lines, str) else lines


def table_view(
    headers: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> RenderableType:
    """Return columns for a terminal, folded to its width; ``styles`` colour the second cell of each row."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.show_header = bool(headers)
    for number, row in enumerate(rows):
        cells = [Text(printable(cell) or NONE) for cell in row]
        if styles:
            cells[1].stylize(styles[number])
        table.add_row(*cells)
    for column in table.columns:
        column.overflow = "fold"
    return table


def _camel_case(name: str) -> str:
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
