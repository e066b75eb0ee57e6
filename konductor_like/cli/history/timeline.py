"""The timeline of the fleet: the lines of the trail that tell something, in the order of time."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Literal

from konductor_like.cli.columns import fault_name, stamp
from konductor_like.cli.history.document import csv_line
from konductor_like.cli.output import API_VERSION, fields_of, say, say_document
from konductor_like.history.outages import how_words
from konductor_like.history.trail import DELETE, SILENT, WORDS, TrailLine
from konductor_like.model import IncidentKey
from konductor_like.model.text import printable
from konductor_like.policy.wording import on_device

FIELDS = (
    *("happened_at", "node", "verb", "outcome", "by", "rule", "gpu", "why", "reason", "how", "out_since"),
    *("uuid", "serial"),
)


class Timeline:
    """Prints each line at once, so that a long trail takes no memory; documents are printed at the end."""

    def __init__(
        self, nodes: Set[str], start: datetime, output: Literal["table", "csv", "json", "yaml"]
    ) -> None:
        """``nodes``: only lines of these nodes; empty for all lines."""
        self._nodes, self._start = nodes, start
        self._output = output
        self._told: set[tuple[str | None, str | None, datetime]] = set()
        self._entries: list[TrailLine] = []
        if output == "csv":
            say([csv_line(FIELDS)])

    def take(self, line: TrailLine) -> None:
        """Take the next line of the trail."""
        if (self._nodes and line.node not in self._nodes) or line.why in SILENT:
            return
        if line.happened_at < self._start:  # an act of before, told once more by a new controller
            return
        if line.at is not None:  # the next controller logs acts of people, and releases, again
            act = (line.node, line.by, line.at)
            if act in self._told:
                return
            self._told.add(act)
        match self._output:
            case "table":
                say([f"{stamp(line.happened_at)}   {line.node or '(fleet)'}   {sentence(line)}"])
            case "csv":
                say([csv_line(getattr(line, name) for name in FIELDS)])
            case _:
                self._entries.append(line)

    def finish(self) -> None:
        """Print what is printed at the end."""
        if self._output == "json" or self._output == "yaml":
            entries = [fields_of(each, *FIELDS) for each in self._entries]
            say_document({"apiVersion": API_VERSION, "kind": "Timeline", "entries": entries}, self._output)


def sentence(line: TrailLine) -> str:
    """Return what a line tells: ``tainted: xid 79 on GPU 0000:4e:00``."""
    fault = ""
    if line.rule is not None:
        fault = fault_name(line.rule) + on_device(IncidentKey(line.rule, line.gpu))
    by = f" by {line.by}" if line.by else ""
    because = f" ({line.reason})" if line.reason else ""
    if line.outcome == "refused":
        what, because = "not tainted", f" ({line.why})"
    elif not line.applied:
        what, because = f"{line.verb} {line.outcome}", f" ({line.why})" if line.why else ""
    elif line.node is None:
        what, because = line.verb, f" ({line.why})" if line.why else ""
    elif line.how is not None:
        what = how_words(line.how)
    elif line.verb == DELETE:
        what = "Node deleted"
    else:
        what = "tainted" if line.verb == "taint" else line.why or line.verb
        what = WORDS.get(line.why or "", what)
    return printable(f"{what}{by}{f': {fault}' if fault else ''}{because}")
