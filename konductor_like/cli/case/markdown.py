"""A case as Markdown that a support engineer reads in two minutes.

Each text that comes from outside (labels, reasons, lines) goes through :func:`inline` or :func:`fenced`, so
that no text can end a fence, begin a heading or a list, or make a link or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from konductor_like.build import this_program
from konductor_like.cli.columns import age, count, fault_name, stamp
from konductor_like.cli.history.text import fault_of
from konductor_like.history.case import Case, fault_lines, first_ns, last_ns
from konductor_like.history.outages import Kind
from konductor_like.model.text import clipped, printable
from konductor_like.model.time import moment_of, text_of_ns
from konductor_like.policy.wording import device_of

NOT_HERE = "`nvidia-bug-report.sh` (run it as root before the reboot), and what docs/use/case.md lists"
LINES_SHOWN = 20
"""Lines of the fault in the document; the kernel log has all."""
_TEXT_CHARS = 500
_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~&$!]")
"""Characters that may begin something in Markdown, its tables or its HTML, wherever they stand."""
_UNKNOWN = "not known"


def inline(text: str) -> str:
    """Return a text from outside as one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\g<0>", clipped(printable(text.strip()), _TEXT_CHARS))


def fenced(lines: Iterable[str]) -> list[str]:
    """Return lines as a block of code, behind a fence that is longer than any in the lines."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *shown, fence]


def log_line(at_ns: int, text: str) -> str:
    """Return a line of the kernel log with its time in Loki; control characters are spelt out."""
    return f"{text_of_ns(at_ns)} {printable(text)}"


def document(case: Case) -> str:
    """Return the whole document."""
    parts = (_head, _machine, _gpu, _fault, _others, _files)
    return "\n".join(line for part in parts for line in (*part(case), "")).rstrip("\n") + "\n"


def _head(case: Case) -> Iterator[str]:
    outage = case.outage
    fault = "taken out of service by a person" if outage.kind is Kind.PERSON else fault_name(outage.rule)
    device = f", {device_of(outage.rule)} {outage.gpu}" if outage.gpu else ""
    title = f": {case.title}" if case.title else ""
    yield f"# {inline(case.node.name)}: {inline(f'{fault}{device}{title}')}"
    yield ""
    until = f" to {stamp(outage.until)}" if outage.until else ""
    yield f"Out of service from {stamp(outage.since)}{until}: {inline(outage.how_ended)}. All times are UTC."


def _rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from ("| | |", "| --- | --- |")
    for name, value in rows:
        yield f"| {name} | {inline(value) if value else _UNKNOWN} |"


def _machine(case: Case) -> Iterator[str]:
    node, outage = case.node, case.outage
    yield from ("## Machine", "")
    gpus = f"{outage.gpus} x {outage.model or 'unknown model'}" if outage.gpus else outage.model
    yield from _rows(
        [
            ("Node", node.name),
            ("Provider id", node.provider_id),
            ("System UUID", node.system_uuid),
            ("Rack", outage.rack),
            ("GPUs", gpus),
            ("NVIDIA driver", outage.driver),
            ("Kernel, OS", ", ".join(filter(None, (node.kernel, node.os)))),
        ]
    )


def _gpu(case: Case) -> Iterator[str]:
    outage = case.outage
    device = device_of(outage.rule)
    yield from (f"## {device[:1].upper()}{device[1:]} that failed" if outage.gpu else "## GPUs", "")
    if not case.identities:
        yield from _rows([("PCI bus id", outage.gpu or ""), ("Serial number", ""), ("UUID", "")])
        return
    yield from ("| PCI bus id | Serial number | UUID | Read from |", "| --- | --- | --- | --- |")
    for each in case.identities:
        told_by = f"{each.told_by}; the GPU may have been swapped before" if each.doubtful else each.told_by
        cells = (each.gpu.bus, each.gpu.serial, each.gpu.uuid, told_by)
        yield f"| {' | '.join(inline(cell) if cell else _UNKNOWN for cell in cells)} |"


def _fault(case: Case) -> Iterator[str]:
    yield from ("## Fault", "")
    fault, lines, places = case.fault, case.kernel.lines, fault_lines(case)
    if fault is not None:
        first, last = (stamp(moment_of(ns)) for ns in (fault.first_ns, fault.last_ns))
        times = f"{count(fault.count, 'time')}, first {first}, last {last}"
        yield f"Seen {times}."
        yield ""
    if places:
        shown = places[:LINES_SHOWN]
        more = f"the first {len(shown)} of {len(places)} lines" if len(places) > len(shown) else "its lines"
        yield f"In the kernel log ({more}):"
        yield ""
        yield from fenced(log_line(lines[place].at_ns, lines[place].text) for place in shown)
    elif fault is not None and fault.evidence:
        yield "Its line, as the record on the Node has it:"
        yield ""
        yield from fenced([fault.evidence])
    else:
        yield "No line of the fault is at hand."


def _others(case: Case) -> Iterator[str]:
    yield from ("## Other outages of this node", "")
    if not case.others:
        yield "None is known."
        return
    yield from ("| From | Out | Fault | Device | UUID | End |", "| --- | --- | --- | --- | --- | --- |")
    for each in case.others:
        out = "" if each.until is None else age(max(0.0, (each.until - each.since).total_seconds()))
        cells = (stamp(each.since) or "", out, fault_of(each), each.gpu or "", each.uuid, each.how_ended)
        yield f"| {' | '.join(inline(cell) for cell in cells)} |"


def _files(case: Case) -> Iterator[str]:
    start, end = (stamp(moment_of(ns)) for ns in (first_ns(case.kernel), last_ns(case.kernel)))
    yield from ("## Files", "")
    lines = count(len(case.kernel.lines), "line") + ("" if case.kernel.is_whole else ", not all,")
    yield (
        f"- `kernel.log`: {lines} of the node's kernel log from {start} to {end}. In front of each line is "
        "the time at which it was collected. `kmsg/1 boot=… seq=… facility=… priority=…` is what `dmesg` "
        "leaves out; the number in brackets is the kernel's own time stamp, in seconds since boot. Lines of "
        "one stamp and text were collected twice."
    )
    yield "- `case.json`: the same as this page, for programs."
    yield f"- Not in this archive: {NOT_HERE}."
    yield ""
    yield f"Made by konductor-like {this_program()} at {stamp(case.made_at)}."
