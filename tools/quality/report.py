"""Computes ``docs/detection-quality.md`` from the results, so that every figure is measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from string import Template

from konductor_like.model import Source
from tools.quality.peers import PEERS
from tools.quality.score import (
    NOT_COMPARED,
    OURS,
    Mistakes,
    compared,
    decisions,
    exact,
    group,
    mistakes,
    results,
    share,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "detection-quality.md"
PUBLIC_LINES = 430
"""Number of lines of the second corpus, all correct; a test checks it if that corpus is present."""

_GROUPS = {
    "must act": "hardware fault: must taint",
    "suspect": "suspect: recorded only",
    "application": "the job's own fault: recorded only",
    "info": "for information",
    "pod": "fault in a pod's output: recorded only",
    "nothing": "no fault: quoted, cut, harmless, another vendor's",
}
_PARTS = {
    "kind": "kind",
    "code": "code",
    "pci": "GPU or switch",
    "sub_code": "sub-code",
    "port": "port",
    "mig": "MIG instance",
    "pid": "pid",
    "process": "process",
    "severity": "severity",
}


def detection_quality() -> str:
    """Return the page."""
    template = Template((Path(__file__).parent / "page.md").read_text(encoding="utf-8"))
    counted = decisions((result.case, result.taints) for result in results())
    values = {
        "public_lines": PUBLIC_LINES,
        "decision": _decision(),
        "false_taints": sum(counted[key, True] for key in _GROUPS if key != "must act"),
        "missed": counted["must act", False],
        "lines": len(results()),
        "quiet": sum(not result.case.is_ours for result in results()),
        "positives": sum(result.case.is_ours for result in results()),
        "exactness": _exactness(),
        "families": _families(),
        "traps": _traps(),
        "not_compared": ", ".join(sorted(NOT_COMPARED)),
    }
    return template.substitute(values | _peers())


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, tuple("---:" if number else "---" for number in range(len(head))), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in row) + " |\n" for row in lines)


def _decision() -> str:
    counted = decisions((result.case, result.taints) for result in results())
    rows = (
        (name, counted[key, True] + counted[key, False], counted[key, True], counted[key, False])
        for key, name in _GROUPS.items()
    )
    return _table(("what the line is", "lines", "tainted", "not tainted"), rows)


def _exactness() -> str:
    rows = []
    for label, name in _PARTS.items():
        right, whole = exact(results(), label)
        telling = sum(result.case.is_ours and result.case.expect[label] is not None for result in results())
        rows.append((name, telling, whole - right, share(right, whole)))
    return _table(("part", "lines that tell it", "wrong", "exact"), rows)


def _families() -> str:
    ours = [result for result in results() if result.case.is_ours]
    rows = []
    for kind in sorted({str(result.case.expect["kind"]) for result in ours}):
        chosen = [result for result in ours if result.case.expect["kind"] == kind]
        codes = {result.case.expect["code"] for result in chosen} - {None}
        must = sum(result.case.taints for result in chosen)
        parts = (share(*exact(chosen, label)) for label in ("kind", "code", "pci", "severity"))
        rows.append((f"`{kind}`", len(chosen), len(codes) or "-", must, *parts))
    return _table(("kind", "lines", "codes", "must taint", "kind", "code", "GPU", "severity"), rows)


def _traps() -> str:
    rows = []
    for source in Source:
        chosen = [result for result in results() if not result.case.is_ours and result.case.source is source]
        found = sum(result.finding is not None for result in chosen)
        rows.append((f"{source} stream", len(chosen), len({result.case.trap for result in chosen}), found))
    return _table(("lines without a fault", "lines", "kinds of trap", "something found"), rows)


def _peers() -> dict[str, object]:
    lines = compared()
    must = sum(case.taints for case in lines)
    found_by = {name: mistakes(peer) for name, peer in {"konductor-like": OURS, **PEERS}.items()}
    rows = (
        (
            name,
            must - found.missed,
            found.missed,
            *(found.overrated[key] for key in _GROUPS if key != "must act"),
        )
        for name, found in found_by.items()
    )
    konduktor, gpud, sentinel = (found_by[name] for name in ("Konduktor", "gpud", "NVSentinel"))
    return {
        "compared": len(lines),
        "compared_must": must,
        "compared_quiet": sum(group(case) == "nothing" for case in lines),
        "peers": _table(
            ("system", "must taint: found", "missed", "suspect", "application", "info", "pod", "no fault"),
            rows,
        ),
        "konduktor_faults": _faults(konduktor),
        "konduktor_quiet": konduktor.overrated["nothing"],
        "konduktor_lost": konduktor.unread["nvrm"],
        "gpud_unread": gpud.unread["xid"],
        "gpud_dropped": gpud.unread["sxid"],
        "gpud_underrated": gpud.underrated.total(),
        "gpud_154": gpud.recovery_actions,
        "gpud_faults": _faults(gpud),
        "sentinel_unread": sentinel.unread["sxid"],
        "sentinel_word": sentinel.underrated["sxid"],
        "sentinel_faults": _faults(sentinel),
    }


def _faults(found: Mistakes) -> int:
    """Return the number of faults wrongly called fatal, without quotations."""
    return found.overrated.total() - found.overrated["nothing"]


if __name__ == "__main__":
    PAGE.write_text(detection_quality(), encoding="utf-8")
