"""``konductor-like scan``: finds faults in files or standard input, without Loki and without a cluster.

The command prints each finding at once and counts the findings.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from konductor_like.cli.columns import NONE, count, fault_name
from konductor_like.cli.errors import describe
from konductor_like.cli.options import TableOrJson, Verbose
from konductor_like.cli.output import colourful, say, tell
from konductor_like.exits import Exit
from konductor_like.model import Severity, Source
from konductor_like.model.text import printable

if TYPE_CHECKING:
    from konductor_like.detection.scan import Hit

_STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_UNREADABLE = (OSError, EOFError, zlib.error)
"""Errors of reading; a damaged gzip file raises the last two."""
_LINE_DIGITS = 8
_COLOURS = {Severity.FATAL: "red", Severity.TEST: "magenta", Severity.SUSPECT: "yellow"}


def scan(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files, gzip too; - or none for standard input."),
    ] = None,
    *,
    source: Annotated[
        Source,
        typer.Option("--source", help="Kernel logs (dmesg, journal, syslog) or the logs of pods."),
    ] = Source.KERNEL,
    output: TableOrJson = "table",
    _verbose: Verbose = False,
) -> None:
    """Find GPU faults in log files.

    Lines are read as the controller reads them. The command succeeds if there are no faults, too. With
    `-o json` each finding is one object on one line.
    """
    names = files or [_STDIN]
    scanned = _Scan(source, names, as_json=output == "json")
    for name in names:
        scanned.read(name)
    scanned.summarise()
    raise typer.Exit(Exit.of(done=scanned.done, failed=scanned.failed))


class _Scan:
    """Scans one file after the other; prints an error for a file that it cannot read, and goes on."""

    def __init__(self, source: Source, names: Sequence[str], *, as_json: bool) -> None:
        self.done = 0
        self.failed = 0
        self._source = source
        self._as_json = as_json
        self._colours = colourful(sys.stdout)
        # The widths are fixed, because a row is printed before the next one is known.
        where_width = max(len("WHERE"), max(map(len, names)) + 1 + _LINE_DIGITS)
        self._layout = f"{{:<11}}   {{:<22}}   {{:<12}}   {{:<{where_width}}}   {{}}"
        self._bytes = 0
        self._found: Counter[Severity] = Counter()

    def read(self, name: str) -> None:
        """Scan one file (``-``: standard input) and print its findings."""
        try:
            with _opened(name) as stream:
                self._print(name, stream)
        except BrokenPipeError:
            raise  # the reader of the output has closed the pipe
        except _UNREADABLE as error:
            self.failed += 1
            reason = describe(error)
            tell(f"error: {reason if reason.startswith(name) else f'{name}: {reason}'}")
        else:
            self.done += 1

    def summarise(self) -> None:
        """Print on standard error the number of faults found."""
        if not (self.done or self._bytes):
            return  # no file could be read, and the errors are printed already
        read = f"{_sized(self._bytes)} of {self._source.value} log"
        if not self._found:
            other = Source.POD if self._source is Source.KERNEL else Source.KERNEL
            tell(f"No faults in {read}. Were these {other.value} logs? Then add --source {other.value}.")
            return
        by_severity = ", ".join(
            f"{self._found[severity]} {severity.value}" for severity in Severity if self._found[severity]
        )
        tell(f"Found {count(self._found.total(), 'fault')} in {read}: {by_severity}.")

    def _print(self, name: str, stream: BinaryIO) -> None:
        from konductor_like.detection.scan import scan as hits_of

        for hit in hits_of(stream, self._source, self._count):
            if self._as_json:
                say([_json_line(name, hit)])
            else:
                if not self._found:
                    say([self._layout.format("SEVERITY", "FAULT", "GPU", "WHERE", "TEXT")])
                say([self._row(name, hit)])
            self._found[hit.finding.severity] += 1
            if name == _STDIN:  # a person may watch `dmesg -w | konductor-like scan`
                sys.stdout.flush()

    def _row(self, name: str, hit: Hit) -> str:
        finding = hit.finding
        line = self._layout.format(
            finding.severity.value,
            fault_name(finding.rule),
            finding.gpu or NONE,
            printable(f"{name}:{hit.line_number}"),
            printable(finding.text) + (" (written by a user)" if finding.user_written else ""),
        )
        return typer.style(line, fg=_COLOURS.get(finding.severity)) if self._colours else line

    def _count(self, more_bytes: int) -> None:
        self._bytes += more_bytes


_OF_FINDING = (
    *("kind", "code", "sub_code", "gpu", "mig", "port", "pid", "process"),
    *("severity", "rule", "advice", "needs", "user_written"),
)
"""The fields of a finding in its JSON object, in this order."""


def _json_line(name: str, hit: Hit) -> str:
    """Return a finding as one JSON object."""
    finding = hit.finding
    return json.dumps(
        {
            "file": name,
            "line_number": hit.line_number,
            **{name: getattr(finding, name) for name in _OF_FINDING},
            "line": hit.line.decode("utf-8", "replace"),
        }
    )


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a file or standard input as bytes; unpack gzip."""
    if name == _STDIN:
        if sys.stdin.isatty():
            tell("Reading standard input; end it with Ctrl-D.")
        yield _unpacked(sys.stdin.buffer)
        return
    with Path(name).open("rb") as raw:
        yield _unpacked(raw)


def _unpacked(raw: BinaryIO) -> BinaryIO:
    if isinstance(raw, io.BufferedReader) and raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # typeshed does not call it a BinaryIO
    return raw


def _sized(number: float) -> str:
    """Return ``1.2 MiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
