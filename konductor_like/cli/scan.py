"""``konductor-like scan``: finds faults in files or standard input, without Loki and without a cluster."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from konductor_like.cli.columns import NONE, count, fault_name
from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.help import examples
from konductor_like.cli.options import Format, FormatOption, Verbose
from konductor_like.cli.output import Screen, colourful, say, say_table, tell, warn, yaml_lines
from konductor_like.exits import Exit
from konductor_like.model import Severity, Source
from konductor_like.model.text import clipped, printable

if TYPE_CHECKING:
    from konductor_like.cli.scan_summary import Summary
    from konductor_like.detection.scan import Hit

_STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_NEEDS_PROGRAM: Mapping[bytes, str] = {
    b"\xfd7zXZ": "xzcat FILE",
    b"\x28\xb5\x2f\xfd": "zstdcat FILE",
    b"BZh": "bzcat FILE",
    b"LPKSHHRH": "journalctl -k -o json --file FILE",
}
"""By a file's first bytes, the command that prints its lines, for files that do not contain them as text."""
_UNREADABLE = (OSError, EOFError, zlib.error, CommandError)
"""Errors of reading; a damaged gzip file raises the second and the third."""
_ERROR_CHARS = 300
_SAMPLE_BYTES = 64 * 1024
_ODD_SHARE = 0.1
"""An input with a greater share of bytes that no text has is binary; random bytes have a share of a half."""
_LINE_DIGITS = 8
_ADVICE_MOST = 500
_UNPARSED_SHOWN = 3
_GRAVEST_FIRST = tuple(Severity)
_COLOURS = {Severity.FATAL: "red", Severity.TEST: "magenta", Severity.SUSPECT: "yellow"}


@examples(
    "scan /var/log/kern.log /var/log/kern.log.1.gz",
    "scan --lines --min-severity suspect kern.log",
    "scan --exit-code --min-severity fatal kern.log",
)
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
    lines: Annotated[
        bool, typer.Option("--lines", help="Show each line with a fault as soon as it is read.")
    ] = False,
    min_severity: Annotated[
        Severity, typer.Option("--min-severity", help="Leave out faults that are less grave than this.")
    ] = Severity.INFO,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with 4 if a fault is shown, with 5 if the log is empty, no text or not understood.",
        ),
    ] = False,
    output: FormatOption = "table",
    _verbose: Verbose = False,
) -> None:
    """Find GPU faults in log files.

    Shows each fault with its GPU, its count, its first and last time and the advice, the gravest first. Lines
    are read as the controller reads them. With `-o json` each line with a fault is one object on one line;
    `-o json`, `-o yaml`, `-o name` and `--lines` keep the order of the file.
    """
    names = files or [_STDIN]
    scanned = _Scan(source, names, output, lines=lines, least=min_severity)
    try:
        for name in names:
            scanned.read(name)
    except KeyboardInterrupt:
        scanned.conclude()
        raise
    scanned.conclude()
    raise typer.Exit(scanned.exit_status() if exit_code else scanned.status_of_reading())


class _Scan:
    """Scans one file after the other; prints an error for a file that it cannot read, and goes on."""

    def __init__(
        self, source: Source, names: Sequence[str], output: Format, *, lines: bool, least: Severity
    ) -> None:
        self._source = source
        self._output = output
        self._summarises = output == "table" and not lines
        self._least = least
        self._several = len(names) > 1
        self._colours = colourful(sys.stdout)
        # The widths are fixed, because a row is printed before the next one is known.
        where_width = max(map(len, names)) + 1 + _LINE_DIGITS if self._several else _LINE_DIGITS
        self._layout = f"{{:<11}}   {{:<22}}   {{:<12}}   {{:<25}}   {{:<{where_width}}}   {{}}"
        self._done = self._failed = self._bytes = self._left_out = self._unparsed = 0
        self._binary = self._read_in_part = False
        self._faults = 0
        self._all_rows = self._summarises
        self._found: Counter[Severity] = Counter()
        self._rules: set[str] = set()
        self._advice: dict[tuple[str, str], Severity] = {}

    def read(self, name: str) -> None:
        """Scan one file (``-``: standard input) and print its faults."""
        from konductor_like.cli.scan_summary import Summary

        summary, bytes_before = Summary(), self._bytes
        try:
            with _opened(name) as stream:
                self._take(name, stream, summary)
        except BrokenPipeError:
            raise  # the reader of the output has closed the pipe
        except _UNREADABLE as error:
            self._failed += 1
            is_begun = self._bytes > bytes_before
            self._read_in_part |= is_begun
            reason = _reason(error, is_begun=is_begun)
            tell(
                f"error: {clipped(reason if reason.startswith(name) else f'{name}: {reason}', _ERROR_CHARS)}"
            )
        else:
            self._done += 1
        finally:  # also after Ctrl-C, and for the readable part of a damaged file
            self._show(name, summary)

    def conclude(self) -> None:
        """Print the advice, and on standard error the number of faults found."""
        if self._advice:
            say([""])
            rows = sorted(self._advice, key=lambda row: _GRAVEST_FIRST.index(self._advice[row]))
            say_table(("FAULT", "TO DO"), rows)
        if (more := self._unparsed - _UNPARSED_SHOWN) > 0:
            lines = "1 more line names" if more == 1 else f"{more} more lines name"
            warn(f"{lines} an Xid in a form that is not understood")
        if not (self._done or self._bytes):
            return  # no file could be read, and the errors are printed already
        read = f"{_sized(self._bytes)} of {self._source.value} log"
        by_severity = ", ".join(
            f"{self._found[severity]} {severity.value}" for severity in Severity if self._found[severity]
        )
        if self._found:
            tell(f"Found {self._found_lines()} in {read}: {by_severity}.")
        elif not self._bytes:
            tell("There is nothing to scan: the input is empty.")
        elif not self._left_out and self._unparsed:
            tell(f"No faults in {read}.")
        elif not self._left_out and not self._binary:
            other = Source.POD if self._source is Source.KERNEL else Source.KERNEL
            tell(f"No faults in {read}. Were these {other.value} logs? Then add --source {other.value}.")
        if self._left_out:
            tell(f"Left out {count(self._left_out, 'fault')} below --min-severity {self._least.value}.")

    def exit_status(self) -> Exit:
        """Return the status that tells whether a fault was found."""
        if self._found:
            return Exit.FOUND
        if self._failed:
            return self.status_of_reading()
        return Exit.OK if self._bytes and not (self._binary or self._unparsed) else Exit.UNKNOWN

    def status_of_reading(self) -> Exit:
        """Return the status that tells whether the files could be read."""
        return Exit.of(done=self._done + self._read_in_part, failed=self._failed)

    def _found_lines(self) -> str:
        """Return ``7 fault lines of 6 faults``; without the second number where faults are not grouped."""
        lines = self._found.total()
        if lines in (1, self._faults):
            return count(lines, "fault")
        faults = f" of {count(self._faults, 'fault')}" if self._all_rows else ""
        return f"{lines} fault lines{faults}"

    def _take(self, name: str, stream: BinaryIO, summary: Summary) -> None:
        from konductor_like.detection.scan import scan as hits_of

        is_binary, found_before = _is_binary(stream), self._found.total() + self._left_out
        least = _GRAVEST_FIRST.index(self._least)
        for hit in hits_of(stream, self._source, self._count, partial(self._warn_of_unparsed, name)):
            if _GRAVEST_FIRST.index(hit.finding.severity) > least:
                self._left_out += 1
                continue
            first = not self._found
            self._found[hit.finding.severity] += 1
            if self._summarises:
                summary.add(hit)
            else:
                self._print(name, hit, first=first)
                if name == _STDIN:  # a person may watch `dmesg -w | konductor-like scan --lines`
                    sys.stdout.flush()
        if is_binary and self._found.total() + self._left_out == found_before:
            self._binary = True
            what = "standard input" if name == _STDIN else clipped(name, _ERROR_CHARS)
            warn(f"{what}: most likely no log, because it is not text")

    def _warn_of_unparsed(self, name: str, number: int) -> None:
        self._unparsed += 1
        if self._unparsed <= _UNPARSED_SHOWN:
            where = "line " if name == _STDIN else f"{clipped(name, _ERROR_CHARS)}:"
            warn(f"{where}{number}: names an Xid in a form that is not understood; it is not counted")

    def _print(self, name: str, hit: Hit, *, first: bool) -> None:
        """Print one line with a fault, and the header above the first one."""
        match self._output:
            case "json":
                say([json.dumps(_document(name, hit))])
            case "yaml":
                say(["---", *yaml_lines(_document(name, hit))])
            case "name":
                if hit.finding.rule not in self._rules:
                    self._rules.add(hit.finding.rule)
                    say([hit.finding.rule])
            case "table":
                if first:
                    where = "WHERE" if self._several else "LINE"
                    say([self._layout.format("SEVERITY", "FAULT", "GPU", "TIME", where, "TEXT")])
                say([self._row(name, hit)])

    def _show(self, name: str, summary: Summary) -> None:
        """Print the summary of one file."""
        from konductor_like.cli.scan_summary import lines_of

        rows = list(summary.rows())
        if not rows:
            return
        if self._several:
            say(["", f"{printable(name)}:"] if self._advice else [f"{printable(name)}:"])
        self._faults += len(rows)
        self._all_rows &= summary.is_whole()
        header, *lines = lines_of([cells for _, cells in rows], Screen.of(sys.stdout).width)
        say([header])
        row = -1
        for line in lines:
            row += not line.startswith(" ")  # a folded row goes on with blanks
            say([self._painted(line, rows[row][0])])
        for finding in summary.findings():
            if len(self._advice) < _ADVICE_MOST:
                self._advice.setdefault((fault_name(finding.rule), finding.advice), finding.severity)

    def _row(self, name: str, hit: Hit) -> str:
        from konductor_like.cli.scan_summary import time_of

        finding = hit.finding
        line = self._layout.format(
            finding.severity.value,
            fault_name(finding.rule),
            finding.gpu or NONE,
            time_of(hit.line, finding) or NONE,
            printable(f"{name}:{hit.line_number}") if self._several else hit.line_number,
            printable(finding.text) + (" (written by a user)" if finding.user_written else ""),
        )
        return self._painted(line, finding.severity)

    def _painted(self, line: str, severity: Severity) -> str:
        return typer.style(line, fg=_COLOURS.get(severity)) if self._colours else line

    def _count(self, more_bytes: int) -> None:
        self._bytes += more_bytes


_OF_FINDING = (
    *("kind", "code", "sub_code", "gpu", "mig", "port", "pid", "process"),
    *("severity", "rule", "advice", "needs", "user_written"),
)
"""The fields of a finding in its document, in this order."""


def _document(name: str, hit: Hit) -> dict[str, Any]:
    """Return a line with a fault as a document."""
    finding = hit.finding
    fields = {field: getattr(finding, field) for field in _OF_FINDING}
    return {
        "file": name,
        "line_number": hit.line_number,
        **fields | {"kind": finding.kind.value, "severity": finding.severity.value},
        "line": hit.line.decode("utf-8", "replace"),
    }


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a file or standard input as bytes; unpack gzip. Raises CommandError where it has no lines."""
    if name == _STDIN:
        if sys.stdin.isatty():
            tell("Reading standard input; end it with Ctrl-D.")
        yield _unpacked(sys.stdin.buffer)
        return
    with Path(name).open("rb") as raw:
        yield _unpacked(raw)


def _unpacked(raw: BinaryIO) -> BinaryIO:
    if not isinstance(raw, io.BufferedReader):
        return raw
    start = raw.peek(8)
    for magic, program in _NEEDS_PROGRAM.items():
        if start.startswith(magic):
            raise CommandError(f"this is not text; try: {program} | konductor-like scan")
    if start.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # typeshed does not call it a BinaryIO
    return raw


def _is_binary(stream: BinaryIO) -> bool:
    """Whether the start of the input is no text: it has many NUL and control characters or is not UTF-8."""
    if not isinstance(stream, io.BufferedReader | gzip.GzipFile):
        return False
    start = stream.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES].decode("utf-8", "surrogateescape")
    odd = sum(not each.isprintable() and not each.isspace() for each in start)
    return odd > len(start) * _ODD_SHARE


def _reason(error: Exception, *, is_begun: bool) -> str:
    """Return why a file could not be read to its end, and what to do."""
    match error:
        case EOFError():
            return "the gzip file is cut off" + "; the faults up to there are shown" * is_begun
        case IsADirectoryError():
            return f"{describe(error)}; name the files, such as {error.filename}/*.log"
        case _:
            return describe(error)


def _sized(number: float) -> str:
    """Return ``1.2 MiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
