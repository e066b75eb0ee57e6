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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from konductor_like.cli.columns import count, fault_name
from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.help import examples
from konductor_like.cli.options import Format, FormatOption, Verbose
from konductor_like.cli.output import Screen, say, table_lines, tell, warn, yaml_lines
from konductor_like.exits import Exit
from konductor_like.model import Severity, Source
from konductor_like.model.text import clipped

if TYPE_CHECKING:
    from konductor_like.detection.scan import Hit
    from konductor_like.model import Finding

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
_HEAD_BYTES = 2048
"""Bytes of a line that are kept, to find its time."""
HEADERS = ("SEVERITY", "FAULT", "GPU", "COUNT", "WHAT, WHEN, TO DO")
ROWS_MOST = 1000
"""Rows of one severity. The lines of further faults and GPUs are only counted."""
_UNPARSED_SHOWN = 3
_GRAVEST_FIRST = tuple(Severity)
_COLOURS = {Severity.FATAL: "31", Severity.TEST: "35", Severity.SUSPECT: "33"}


@examples(
    "scan /var/log/kern.log /var/log/kern.log.1.gz",
    "scan -o json --min-severity suspect kern.log",
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
    are read as the controller reads them. With `-o json` each line with a fault is one object on one line, as
    soon as it is read; `-o json`, `-o yaml` and `-o name` keep the order of the file.
    """
    names = files or [_STDIN]
    scanned = _Scan(source, names, output, least=min_severity)
    try:
        for name in names:
            scanned.read(name)
    except KeyboardInterrupt:
        scanned.conclude()
        raise
    scanned.conclude()
    raise typer.Exit(scanned.exit_status() if exit_code else scanned.status_of_reading())


@dataclass(slots=True)
class _Group:
    """The lines of one fault on one GPU in one file."""

    file: str
    finding: Finding
    first: str
    """The time of the first line, as :func:`time_text` writes it."""
    count: int = 0
    last: Hit | None = None

    def add(self, hit: Hit) -> None:
        """Count one more line."""
        self.count += 1
        self.last = hit._replace(line=hit.line[:_HEAD_BYTES])

    def words(self) -> str:
        """Return the fault in words, and when it was."""
        user = " (written by a user)" if self.finding.user_written else ""
        times = dict.fromkeys(filter(None, (self.first, self.last and _time_of(self.last))))
        return f"{self.file}{self.finding.title}{user}" + (f", {' to '.join(times)}" if times else "")


class _Scan:
    """Scans one file after the other; prints an error for a file that it cannot read, and goes on."""

    def __init__(self, source: Source, names: Sequence[str], output: Format, *, least: Severity) -> None:
        self._source, self._output, self._least = source, output, least
        self._several = len(names) > 1
        self._done = self._failed = self._bytes = self._left_out = self._unparsed = 0
        self._binary = self._read_in_part = False
        self._found: Counter[Severity] = Counter()
        self._rules: set[str] = set()
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._rows: Counter[Severity] = Counter()
        self._others: Counter[Severity] = Counter()

    def read(self, name: str) -> None:
        """Scan one file (``-``: standard input)."""
        bytes_before = self._bytes
        try:
            with _opened(name) as stream:
                self._take(name, stream)
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

    def conclude(self) -> None:
        """Print the table, and on standard error the number of faults found."""
        if rows := list(self._table()):
            screen = Screen.of(sys.stdout)
            say(
                table_lines(
                    HEADERS, [row for _, row in rows], screen, [_COLOURS.get(each, "") for each, _ in rows]
                )
            )
        if (more := self._unparsed - _UNPARSED_SHOWN) > 0:
            lines = "1 more line names" if more == 1 else f"{more} more lines name"
            warn(f"{lines} an Xid in a form that is not understood")
        if not (self._done or self._bytes):
            return  # no file could be read, and the errors are printed already
        read = f"{_sized(self._bytes)} of {self._source.value} log"
        by_severity = ", ".join(f"{self._found[each]} {each.value}" for each in Severity if self._found[each])
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

    def _table(self) -> Iterator[tuple[Severity, tuple[str, ...]]]:
        """Yield the rows with their severity, the gravest first; the first of a fault has the advice."""
        advised: set[tuple[str, str]] = set()
        for severity in Severity:
            for each in (group for group in self._groups.values() if group.finding.severity is severity):
                finding, words = each.finding, each.words()
                if (advice := (finding.rule, finding.advice)) not in advised:
                    advised.add(advice)
                    words += f". {finding.advice}"
                fault = fault_name(finding.rule)
                yield severity, (severity.value, fault, finding.gpu or "", str(each.count), words)
            if more := self._others[severity]:
                words = f"on more than {ROWS_MOST} faults and GPUs; -o json shows each line"
                yield severity, (severity.value, "others", "", str(more), words)

    def _found_lines(self) -> str:
        """Return ``7 fault lines of 6 faults``; without the second number where faults are not grouped."""
        lines, faults = self._found.total(), len(self._groups)
        if lines in (1, faults):
            return count(lines, "fault")
        return f"{lines} fault lines" + (
            f" of {count(faults, 'fault')}" if faults and not self._others else ""
        )

    def _take(self, name: str, stream: BinaryIO) -> None:
        from konductor_like.detection.scan import scan as hits_of

        is_binary, found_before = _is_binary(stream), self._found.total() + self._left_out
        for hit in hits_of(stream, self._source, self._count, partial(self._warn_of_unparsed, name)):
            severity = hit.finding.severity
            if _GRAVEST_FIRST.index(severity) > _GRAVEST_FIRST.index(self._least):
                self._left_out += 1
                continue
            self._found[severity] += 1
            if self._output == "table":
                self._group(name, hit)
            else:
                self._print(name, hit)
        if is_binary and self._found.total() + self._left_out == found_before:
            self._binary = True
            what = "standard input" if name == _STDIN else clipped(name, _ERROR_CHARS)
            warn(f"{what}: most likely no log, because it is not text")

    def _warn_of_unparsed(self, name: str, number: int) -> None:
        self._unparsed += 1
        if self._unparsed <= _UNPARSED_SHOWN:
            where = "line " if name == _STDIN else f"{clipped(name, _ERROR_CHARS)}:"
            warn(f"{where}{number}: names an Xid in a form that is not understood; it is not counted")

    def _group(self, name: str, hit: Hit) -> None:
        """Count a line in its row, or, if there are too many rows, among the others."""
        finding = hit.finding
        key = (name, finding.severity, finding.rule, finding.gpu, finding.title, finding.user_written)
        if (group := self._groups.get(key)) is None:
            if self._rows[finding.severity] == ROWS_MOST:
                self._others[finding.severity] += 1
                return
            self._rows[finding.severity] += 1
            file = f"{name}: " if self._several else ""
            group = self._groups[key] = _Group(file, finding, _time_of(hit))
        group.add(hit)

    def _print(self, name: str, hit: Hit) -> None:
        """Print one line with a fault."""
        match self._output:
            case "json":
                say([json.dumps(_document(name, hit))])
            case "yaml":
                say(["---", *yaml_lines(_document(name, hit))])
            case _ if hit.finding.rule not in self._rules:
                self._rules.add(hit.finding.rule)
                say([hit.finding.rule])
        if name == _STDIN:  # a person may watch `dmesg -w | konductor-like scan -o json`
            sys.stdout.flush()

    def _count(self, more_bytes: int) -> None:
        self._bytes += more_bytes


def _time_of(hit: Hit) -> str:
    from konductor_like.detection.line_time import time_text

    return time_text(hit.line[:_HEAD_BYTES].decode("utf-8", "replace"), hit.finding.position)


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
