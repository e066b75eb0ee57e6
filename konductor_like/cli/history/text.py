"""The history as text: totals, what fails most, and one row an outage."""

from __future__ import annotations

from collections.abc import Iterator

from konductor_like.cli.columns import age, count, fault_name, stamp
from konductor_like.cli.history.document import numbers_of
from konductor_like.cli.output import say, say_paragraphs, say_table
from konductor_like.history.numbers import BY, shares
from konductor_like.history.outages import End, Kind, Outage
from konductor_like.history.read import History
from konductor_like.model.text import listed

HEADERS = ("NODE", "FROM", "OUT", "FAULT", "GPU", "END")
WIDE = (
    *("NODE", "FROM", "TO", "OUT", "FAULT", "GPU", "UUID", "SERIAL", "END"),
    *("REASON", "MODEL", "DRIVER", "RACK", "TOLD-BY"),
)
_MOST = 3
_HOURS_SHOWN = 48


def show(history: History, *, wide: bool) -> None:
    """Print totals and table."""
    say_paragraphs(summary(history).items())
    if history.outages:
        say([""])
        rows = [_row(each, history, wide=wide) for each in history.outages]
        say_table(WIDE if wide else HEADERS, rows)


def summary(history: History) -> dict[str, list[str]]:
    """Return the totals as sentences, by their label."""
    found = numbers_of(history)
    on = f" on {count(found.nodes, 'node')}" if found.outages else ""
    of = f" of {count(len(history.fleet), 'GPU node')}" if history.fleet else ""
    out = f"{found.out_now}{of} out of service {'now' if history.is_up_to_now else 'at the end'}"
    if history.problem:
        out = "it is not known whether nodes are out of service now"
    told = [f"{count(found.outages, 'failure')}{on}; {out}"]
    others = [
        *([count(found.tests, "test")] if found.tests else []),
        *([f"{count(found.by_persons, 'node')} tainted by a person"] if found.by_persons else []),
    ]
    told += [f"also {' and '.join(others)}"] if others else []
    lost = f"{found.hours:.1f} node hours"
    if found.gpu_hours:
        lost += f", {found.gpu_hours:.1f} GPU hours"
    if found.availability is not None:
        lost += f"; today's nodes were in service for {found.availability:.2%} of the time"
    times = []
    if found.median_hours is not None:
        times.append(f"half of the failures were over after {hours(found.median_hours)}")
    if found.between_hours is not None:
        times.append(f"a node runs {hours(found.between_hours)} between two failures, on average")
    if found.relapses:
        times.append(f"{count(found.relapses, 'node')} failed again on probation")
    return {
        "History": [f"{stamp(history.start)} to {stamp(history.end)}"],
        "Outages": told,
        "Lost": [lost] if found.hours else [],
        "Times": times,
        "Most": list(_most(history)),
    }


def _most(history: History) -> Iterator[str]:
    """Yield what fails more than once: nodes, GPUs, racks, drivers."""
    for name in ("node", "gpu", "rack", "driver"):
        found = shares(history.outages, BY[name], history.start, history.end)
        if name in ("rack", "driver") and len(found) < 2:
            continue  # what all have in common says nothing
        often = [each for each in found if each.outages > 1]
        often.sort(key=lambda each: (-each.outages, -each.hours))
        if often:
            yield f"{name}: {listed([f'{each.name} ({each.outages})' for each in often], _MOST)}"


def hours(number: float) -> str:
    """Return hours as people say them: ``40 min``, ``3.2 h``, ``12 d``."""
    if number < 1:
        return f"{number * 60:.0f} min"
    return f"{number:.1f} h" if number < _HOURS_SHOWN else f"{number / 24:.1f} d"


def gaps(history: History) -> Iterator[str]:
    """Yield what the history does not know, in sentences."""
    trail = history.trail
    if history.problem:
        yield f"the Nodes cannot be read, so outages that go on are not known: {history.problem}"
    if trail.problem:
        upto = f" after {stamp(trail.read_until)}" if trail.read_until else ""
        yield f"the audit trail cannot be read{upto}: {trail.problem}"
    elif not trail.lines:
        yield (
            "Loki has no line of the audit trail of this time: nothing happened, or the controller's log "
            "does not go to Loki as JSON. Other outages are from the nodes' records: ten of each node, and "
            "none of a deleted Node"
        )
    elif trail.begins_late and trail.first_at is not None:
        yield (
            f"the first line of the audit trail in this time is of {stamp(trail.first_at)}; if Loki kept no "
            "earlier ones, only the nodes' records are known before it"
        )
    if trail.incomplete:
        yield f"Loki did not return all lines of {count(trail.incomplete, 'moment')}"
    if trail.lines and (alone := history.only_in_records):
        yield f"{count(len(alone), 'outage')} known from the nodes' records alone: {_names(alone)}"
    if missing := history.missing_in_records:
        yield f"{count(len(missing), 'outage')} in the trail and not in the node's record: {_names(missing)}"
    if differing := history.differing:
        number = count(len(differing), "outage")
        yield f"trail and record tell different ends of {number}: {_names(differing)}"
    if unknown := [each for each in history.outages if each.end is End.UNKNOWN]:
        yield f"the end of {count(len(unknown), 'outage')} is not known: {_names(unknown)}"
    if history.unexplained:
        number = count(len(history.unexplained), "node")
        yield f"nothing tells since when {number} had the taint: {listed(history.unexplained, _MOST)}"
    if history.older_lines:
        yield f"{count(history.older_lines, 'line')} of a controller of an earlier build were left out"


def _names(outages: tuple[Outage, ...] | list[Outage]) -> str:
    return listed(list(dict.fromkeys(each.node for each in outages)), _MOST)


def fault_of(outage: Outage) -> str:
    """Return the fault as a table shows it."""
    if outage.kind is Kind.PERSON:
        by = (outage.begun_by or "").partition(" (claimed")[0]
        return fault_name("operator") + (f" ({by})" if by else "")
    if not outage.rule:
        return "unknown"
    return fault_name(outage.rule) + (" (a test)" if outage.kind is Kind.TEST else "")


def time_out(outage: Outage, history: History) -> str:
    """Return for how long the node was out: ``3h12m``, ``3h12m so far``, ``at least 3h12m``."""
    if outage.until is not None:
        return age(max(0.0, (outage.until - outage.since).total_seconds()))
    seconds = outage.seconds(outage.since, history.end)
    return f"{age(seconds)} so far" if outage.end is End.OUT else f"at least {age(seconds)}"


def _row(outage: Outage, history: History, *, wide: bool) -> list[str]:
    relapse = "; failed again" if outage.relapse else ""
    since, gpu = stamp(outage.since) or "", outage.gpu or ""
    out, fault, end = time_out(outage, history), fault_of(outage), f"{outage.how_ended}{relapse}"
    if not wide:
        return [outage.node, since, out, fault, gpu, end]
    told = " and ".join(
        name for name, yes in (("trail", outage.in_trail), ("record", outage.in_record)) if yes
    )
    until = stamp(outage.until) or ""
    labels = (outage.reason, outage.model, outage.driver, outage.rack)
    return [outage.node, since, until, out, fault, gpu, outage.uuid, outage.serial, end, *labels, told]
