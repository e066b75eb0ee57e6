"""The first line of a message: the one that is read on a phone. This module is pure.

An example: ``gpu-04 out of service · Xid 79, GPU has fallen off the bus · needs reboot · 2 of 10 out``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from konductor_like.model import EventReason
from konductor_like.model.text import clipped, printable
from konductor_like.notify.news import Kind, News, Out

_HOST_CHARS = 24
"""Characters of a node's name above which its domain is left out."""
_FLEET_CHARS = 100
_JOB_CHARS = 60
_KINDS_SHOWN = 2
"""Different faults or reasons that the line names; the text below has the others."""

_BECAME: Mapping[Kind, str] = {
    Kind.TAINTED: "out of service",
    Kind.RELAPSED: "failed on probation, out of service",
    Kind.WORSENED: "worse",
    Kind.REPLACEMENT: "marked for replacement",
    Kind.HELD: "faulty, taint held back",
    Kind.FREED: "no longer held back",
    Kind.RETURNED: "back in service",
    Kind.VALIDATED: "passed its validation",
    Kind.NOT_VALIDATED: "not validated",
}
_OF_LOGS: Mapping[EventReason | None, str] = {
    EventReason.SILENT: "kernel log silent",
    EventReason.OVERRUN: "kernel log lost lines",
    EventReason.AMBIGUOUS: "two machines report under this name",
    EventReason.RESTORED: "kernel log arrives again",
}


def headline(kind: Kind, news: Sequence[News]) -> str:
    """Return the first line of a message of these news, which has one kind or is a summary."""
    latest, known = max(news, key=lambda each: each.at), out_of(news)
    out = "" if known is None or kind in (Kind.COVERAGE, Kind.RESTORED) else str(known)
    nodes = list({each.node: each for each in news if each.node}.values())
    if kind is Kind.TEST:
        parts = ["Test message of konductor-like", "no node is concerned"]
    elif kind is Kind.SUMMARY:
        parts = [f"{len(news)} notifications in one message", out]
    elif not nodes:  # the Event's first words: its names and its reasons follow
        parts = [clipped(re.split(r"[:.] ", printable(latest.text))[0].rstrip("."), _FLEET_CHARS), out]
    elif latest.reason in _OF_LOGS:
        parts = [f"{_who(nodes)}: {_OF_LOGS[latest.reason]}"]
    else:
        what = "taint contested" if latest.reason is EventReason.CONTESTED else _BECAME[kind]
        parts = [f"{_who(nodes)} {what}", *_about(kind, nodes), out]
    return " · ".join(filter(None, parts))


def out_of(news: Sequence[News]) -> Out | None:
    """Return how many nodes were out of service at the latest of these news; None if unknown."""
    return max(news, key=lambda each: (each.out is not None, each.at)).out


def _about(kind: Kind, nodes: Sequence[News]) -> list[str]:
    """Return the fault and the need, or why the nodes are in service again."""
    if kind in (Kind.RETURNED, Kind.FREED):
        return [_counted([each.why for each in nodes], "{count} {what}", "; ")]
    marked = sum(each.marked_for_replacement for each in nodes)
    of_all = "" if marked == len(nodes) else f"{marked} "
    mark = f"{of_all}marked for replacement" if marked and kind is not Kind.REPLACEMENT else ""
    needs = dict.fromkeys(
        each.needs for each in nodes if each.needs not in (None, "none") and not each.marked_for_replacement
    )
    now = "now " if kind is Kind.WORSENED else ""
    need = f"{now}needs {', '.join(map(str, needs))}" if needs else ""
    return [_faults(nodes), _jobs(nodes), need, mark]


def root_cause_of(news: Sequence[News]) -> str | None:
    """Return the node on which the one failure of all these news began; None if that is not known."""
    found = {each.root_cause for each in news if each.node}
    return found.pop() if len(found) == 1 else None


def _faults(nodes: Sequence[News]) -> str:
    """Return the fault of all nodes, that of the root cause, or the most frequent ones with their numbers."""
    name = root_cause_of(nodes)
    root = next((each for each in nodes if each.node == name), None)
    if root is not None and root.fault and len(nodes) > 1:
        return f"began on {short_name(root.node)}: {root.fault}"
    faults = [each.fault or "" for each in nodes]
    if len(set(faults)) > 1:
        faults = [each.partition(",")[0] for each in faults]
    began = f", began on {short_name(name)}" if name and root is None else ""
    return _counted(faults, "{what} on {count}", ", ") + began


def _jobs(nodes: Sequence[News]) -> str:
    """Return the job that failed, or the number of the jobs."""
    jobs = {each.job for each in nodes if each.job}
    if len(jobs) > 1:
        return f"{len(jobs)} jobs"
    return f"job {clipped(printable(jobs.pop()), _JOB_CHARS)}" if jobs else ""


def _counted(found: Sequence[str], form: str, joint: str) -> str:
    """Return the only value, or the most frequent ones, each with its number."""
    counts = Counter(filter(None, found)).most_common()
    if len(counts) == 1 and counts[0][1] == len(found):
        return counts[0][0]
    shown = [form.format(what=what, count=count) for what, count in counts[:_KINDS_SHOWN]]
    return joint.join([*shown, f"{len(counts) - _KINDS_SHOWN} more"] if len(counts) > _KINDS_SHOWN else shown)


def _who(nodes: Sequence[News]) -> str:
    return short_name(nodes[0].node) if len(nodes) == 1 else f"{len(nodes)} nodes"


def short_name(node: str) -> str:
    """Return a node's name, without its domain if it is long: ``ip-10-31-0-23``."""
    host = node.partition(".")[0]
    return node if len(node) <= _HOST_CHARS or host.isdigit() else host
