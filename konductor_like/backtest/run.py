"""One backtest from the first line to the result; what ends it early is told, and what is known is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from konductor_like.backtest.history import HistoryReader, Page, polls, round_up
from konductor_like.backtest.nodes import SimulatedNodes
from konductor_like.backtest.result import History, Result, TimeSpan, difference
from konductor_like.backtest.simulation import Assumptions, Simulation
from konductor_like.catalog import Catalog, Mode
from konductor_like.detection import Detector
from konductor_like.loki.errors import LokiError
from konductor_like.model import NodeState, Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings

INTERRUPTED = "interrupted"
POLLS_MOST = 4320
"""Polls of one backtest. A month is polled every ten minutes, six hours as often as the controller polls."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules to try, and the policy's settings under them."""

    detector: Detector
    rules: PolicyConfig


def run(
    readers: Mapping[Source, HistoryReader],
    rule_sets: Sequence[RuleSet],
    states: Sequence[NodeState],
    span: TimeSpan,
    settings: Settings,
    *,
    release_after_seconds: float | None,
    nodes_from: str,
    progress: Callable[[int], object] = lambda _: None,
) -> Result:
    """Read ``span`` and play it with one set of rules, or with two to be compared.


    ``progress`` is told the time reached. Raises a LokiError where nothing could be read at all; later on it
    ends the run, as Ctrl-C does.
    """
    interval_ns = poll_intervals(settings, span)
    assumptions = Assumptions(
        None if release_after_seconds is None else span_ns(release_after_seconds), min(interval_ns.values())
    )

    def simulation(rule_set: RuleSet, *, enforce_shadow: bool = False) -> Simulation:
        nodes = SimulatedNodes(states, complete=nodes_from != "lines")
        return Simulation(
            rule_set.detector,
            rule_set.rules,
            assumptions,
            nodes,
            span.start_ns,
            enforce_shadow=enforce_shadow,
        )

    first, *others = (simulation(each) for each in rule_sets)
    shadows = _has_shadow_rules(rule_sets[0].detector.catalog)
    enforced = simulation(rule_sets[0], enforce_shadow=True) if shadows else None
    simulations = [first, *others, *([enforced] if enforced else [])]
    pages = {
        source: _telling(reader.pages(span), lambda: progress(min(r.upto_ns for r in readers.values())))
        for source, reader in readers.items()
    }
    ended_by = ""
    try:
        for now_ns, lines in polls(pages, interval_ns):
            kept = list(lines)
            for each in simulations:
                each.poll(now_ns, kept)
    except KeyboardInterrupt:
        ended_by = INTERRUPTED
    except LokiError as error:
        if all(reader.upto_ns <= span.start_ns for reader in readers.values()):
            raise
        ended_by = str(error)
    upto_ns = max(span.start_ns, min(reader.upto_ns for reader in readers.values()))
    for each in simulations:
        each.finish(round_up(upto_ns, assumptions.poll_ns))
    history = History(
        asked=span,
        read=TimeSpan(span.start_ns, upto_ns),
        lines={source: reader.lines for source, reader in readers.items()},
        oldest_ns=min((r.oldest_ns for r in readers.values() if r.oldest_ns), default=None),
        newest_ns=max((r.newest_ns for r in readers.values() if r.newest_ns), default=None),
        queries=sum(reader.queries for reader in readers.values()),
        bytes_processed=sum(reader.bytes_processed for reader in readers.values()),
        incomplete=sum(reader.incomplete for reader in readers.values()),
        kept_lines=sum(reader.kept_lines for reader in readers.values()),
        waited_seconds=sum(reader.waited_seconds for reader in readers.values()),
        without_boot=first.without_boot,
    )
    verdicts = first.verdicts()
    compared = others[0].verdicts() if others else None
    return Result(
        history,
        verdicts,
        release_after_seconds,
        nodes_from,
        poll_seconds=assumptions.poll_ns / SECOND_NS,
        shadow=difference(verdicts.outages, enforced.verdicts().outages)
        if enforced and enforced.found_shadow
        else None,
        compared=compared,
        difference=difference(verdicts.outages, compared.outages) if compared else None,
        ended_by=ended_by,
    )


def poll_intervals(settings: Settings, span: TimeSpan) -> Mapping[Source, int]:
    """The settings' intervals, or longer ones where there would be more than :data:`POLLS_MOST` polls."""
    shortest_ns = (span.end_ns - span.start_ns) // POLLS_MOST
    kernel_ns, pod_ns = span_ns(settings.poll_interval_seconds), span_ns(settings.pod_poll_interval_seconds)
    return {
        Source.KERNEL: max(kernel_ns, round_up(shortest_ns, kernel_ns)),
        Source.POD: max(pod_ns, round_up(shortest_ns, kernel_ns)),
    }


def _has_shadow_rules(catalog: Catalog) -> bool:
    coded = (*catalog.xids.values(), *catalog.sxids.values(), *catalog.cuda_errors.values())
    own = (rule.entry for rule in catalog.pattern_rules if rule.entry is not None)
    modes = {*(entry.mode for entry in (*coded, *own)), *(rule.mode for rule in catalog.pattern_rules)}
    return Mode.SHADOW in modes


def _telling(pages: Iterable[Page], tell: Callable[[], object]) -> Iterator[Page]:
    for page in pages:
        tell()
        yield page
