"""The history as JSON, YAML and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import stamp
from konductor_like.cli.output import API_VERSION, fields_of
from konductor_like.history.numbers import BY, Numbers, numbers, shares
from konductor_like.history.outages import Outage
from konductor_like.history.read import History
from konductor_like.model.text import printable
from konductor_like.model.time import moment_of

MOST = 20
"""Entries of each list of the nodes, GPUs, faults, racks and drivers that cost most."""
_FIRST, _LAST = (
    ("node", "gpu", "rule", "kind"),
    (
        *("end", "how", "by", "reason", "begun_by", "relapse", "model", "driver", "rack", "gpus"),
        *("failure_group", "evidence", "in_trail", "in_record", "uuid", "serial"),
    ),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula."""


def outage_fields(outage: Outage, now: datetime) -> dict[str, Any]:
    """Return one outage for a document."""
    times = {"from": stamp(outage.since), "to": stamp(outage.until)}
    return fields_of(outage, *_FIRST) | times | {"hours": _hours(outage, now)} | fields_of(outage, *_LAST)


def _hours(outage: Outage, now: datetime) -> float:
    """Return the hours out of service, up to now if it goes on; at least so many if the end is not known."""
    until = outage.until or now
    return round(outage.seconds(outage.since, max(until, outage.since)) / 3600, 3)


def numbers_of(history: History) -> Numbers:
    """Return the numbers of a history."""
    fleet = {name: moment_of(state.created_ns) for name, state in history.fleet.items()}
    return numbers(history.outages, history.start, history.end, fleet)


def document(history: History) -> dict[str, Any]:
    """Return the whole history."""
    trail, found = history.trail, numbers_of(history)
    names = tuple(name for name in Numbers.__dataclass_fields__ if name not in ("start", "end"))
    return {
        "apiVersion": API_VERSION,
        "kind": "History",
        "from": stamp(history.start),
        "to": stamp(history.end),
        "numbers": fields_of(found, *names),
        "most": {
            name: [
                fields_of(each, "name", "outages", "nodes", "hours", "gpu_hours")
                for each in shares(history.outages, by, history.start, history.end)[:MOST]
            ]
            for name, by in BY.items()
        },
        "trail": fields_of(trail, "lines", "first_at", "read_until", "problem", "incomplete"),
        "nodesProblem": history.problem,
        "onlyInRecords": len(history.only_in_records),
        "missingInRecords": len(history.missing_in_records),
        "differing": len(history.differing),
        "outages": [outage_fields(each, history.end) for each in history.outages],
    }


def csv_lines(outages: Iterable[Outage], now: datetime) -> list[str]:
    """Return a header, and one line an outage."""

    def row(each: Outage) -> list[object]:
        first, last = ([getattr(each, name) for name in names] for names in (_FIRST, _LAST))
        return [*first, each.since, each.until, _hours(each, now), *last]

    return [csv_line((*_FIRST, "from", "to", "hours", *_LAST)), *(csv_line(row(each)) for each in outages)]


def csv_line(values: Iterable[object]) -> str:
    """Return one line of CSV (RFC 4180) that is safe to open in a spreadsheet."""
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow("" if value is None else _cell(value) for value in values)
    return file.getvalue()


def _cell(value: object) -> str:
    """Return a value as text; one that a spreadsheet would calculate gets an apostrophe before it."""
    text = stamp(value) or "" if isinstance(value, datetime) else printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
