"""The records of the kernel in one entry of a log.

An entry may have several lines: a collector joined them, or a record has a newline in it. Where the first
line has a stamp, each line with a stamp is a record. Any other line goes on the record before it: a tenant
may choose a file's name with a newline and the words of the driver behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from konductor_like.detection.kernel_record import begin_of, is_crash, open_record
from konductor_like.detection.wrapper import Inner, open_wrapper, unwrap_output

LINES_MOST = 1000
"""Lines of one entry that are told apart; the rest goes on the last of them."""
_XID = re.compile(r"NVRM: Xid \([^()\n]{5,48}\): ?\d", re.ASCII)
"""An Xid of the driver. It is longer than the name of a process, so no name with a newline has one in it."""


def has_newline(text: str) -> bool:
    """Whether a text may have several lines: it has a newline, or one as JSON writes it."""
    return "\n" in text or "\\n" in text


def kernel_lines(text: str) -> Sequence[str]:
    """Return the records in the text of one entry of a kernel log, each as a text of its own.

    A record that is alone in its entry stays as it is, also if it has a newline in it.
    """
    if not has_newline(text):
        return (text,)
    inside = unwrap_output(text.lstrip("\n"))
    inner = open_wrapper(inside) if inside.startswith("{") else None
    if inner is None:
        found = _records(inside.rstrip().split("\n", LINES_MOST))
    else:
        found = [_as_entry(each, inner) for each in _of_one(inner.text.split("\n", LINES_MOST))]
    return found if len(found) > 1 else (text,)


def _records(lines: Sequence[str]) -> list[str]:
    first = begin_of(lines[0])
    # A crash may have a name that looks like a stamp, and its file any number of lines.
    if not first.of_record or ((opened := open_record(lines[0])) and is_crash(opened[0])):
        return _of_one(lines)
    records: list[list[str]] = []
    for line in lines:
        begin = begin_of(line) if line else None  # an entry may be full of newlines
        if not records or (begin and begin.of_record and begin.blanks <= first.blanks):
            records.append([])
        records[-1].append(line)
    return [text for record in records for text in _of_one(record)]


def _of_one(lines: Sequence[str]) -> list[str]:
    """Return one record as one text, and each further Xid of the driver in it with the record's prefix."""
    opened = open_record(lines[0])
    if opened is None or not _XID.match(opened[0]):
        return ["\n".join(lines)]
    texts, head = [lines[0]], lines[0].partition("NVRM: ")[0]
    for line in lines[1:]:
        begins = open_record(line)
        if begins is not None and _XID.match(begins[0]):
            texts.append(head + begins[0])
        else:
            texts[-1] += "\n" + line
    return texts


def _as_entry(message: str, inner: Inner) -> str:
    """Return an entry of the journal with one of the messages in it."""
    fields = {"_TRANSPORT": "kernel", "MESSAGE": message}
    if inner.facility is not None:
        fields["SYSLOG_FACILITY"] = str(inner.facility)
    if inner.position is not None and inner.position.boot_id is not None:
        fields["_BOOT_ID"] = inner.position.boot_id.replace("-", "")
    if inner.position is not None and inner.position.stamp_us is not None:
        fields["_SOURCE_MONOTONIC_TIMESTAMP"] = str(inner.position.stamp_us)
    return json.dumps(fields)
