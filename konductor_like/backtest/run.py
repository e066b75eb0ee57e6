"""One backtest from the first line to the result; after an early end the result covers what was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from konductor_like.backtest.history import HistoryReader, polls, round_up
from konductor_like.backtest.result import History, Result, difference
from konductor_like.backtest.simulation import SimulatedNodes, Simulation
from konductor_like.catalog import Catalog, Mode
from konductor_like.detection import Detector
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.model import NodeState, Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings

INTERRUPTED = "interrupted"
POLLS_MOST = 2160
"""Number of polls of one backtest at most: a month is polled every 20 minutes, three hours every 5 s."""


def run(
    readers: Mapping[Source, HistoryReader],
    detector: Detector,
    policy: PolicyConfig,
    states: Sequence[NodeState],
    history: History,
    settings: Settings,
    *,
    release_after_seconds: float | None,
    nodes_from: str,
    progress: Callable[[int], object],
) -> Result:
    """Read the history, and play it with these rules and the policy's settings under them.

    ``progress`` is called with the time reached. Raises a LokiError if nothing could be read; a later
    LokiError ends the run early, as Ctrl-C does.
    """
    span = history.asked
    interval_ns = poll_intervals(settings, span)
    poll_ns = min(interval_ns.values())

    def simulation(*, enforce_shadow: bool) -> Simulation:
        return Simulation(
            detector,
            policy,
            SimulatedNodes(states, complete=nodes_from != "lines"),
            poll_ns=poll_ns,
            release_after_ns=None if release_after_seconds is None else span_ns(release_after_seconds),
            start_ns=span.start_ns,
            enforce_shadow=enforce_shadow,
        )

    simulations = [simulation(enforce_shadow=False)]
    if _has_shadow_rules(detector.catalog):
        simulations.append(simulation(enforce_shadow=True))
    ended_by = ""
    try:
        for now_ns, lines in polls(
            {source: reader.pages() for source, reader in readers.items()}, interval_ns
        ):
            progress(now_ns)
            for each in simulations if lines else ():
                each.poll(now_ns, lines)
    except KeyboardInterrupt:
        ended_by = INTERRUPTED
    except LokiError as error:
        if all(reader.upto_ns <= span.start_ns for reader in readers.values()):
            raise
        ended_by = str(error)
    history.read_upto_ns = max(span.start_ns, min(reader.upto_ns for reader in readers.values()))
    for each in simulations:
        each.finish(round_up(history.read_upto_ns, poll_ns))
    first, *enforced = simulations
    history.without_boot = first.without_boot
    verdicts = first.verdicts()
    shadow = next((each.verdicts() for each in enforced if each.found_shadow), None)
    return Result(
        history,
        verdicts,
        release_after_seconds,
        nodes_from,
        poll_seconds=poll_ns / SECOND_NS,
        shadow=difference(verdicts.outages, shadow.outages) if shadow else None,
        ended_by=ended_by,
    )


def poll_intervals(settings: Settings, span: TimeWindow) -> Mapping[Source, int]:
    """Return the settings' intervals; longer ones if there would be more than :data:`POLLS_MOST` polls."""
    shortest_ns = span.width_ns // POLLS_MOST
    kernel_ns, pod_ns = span_ns(settings.poll_interval_seconds), span_ns(settings.pod_poll_interval_seconds)
    return {
        Source.KERNEL: max(kernel_ns, round_up(shortest_ns, kernel_ns)),
        Source.POD: max(pod_ns, round_up(shortest_ns, kernel_ns)),
    }


def _has_shadow_rules(catalog: Catalog) -> bool:
    coded = (*catalog.xids.values(), *catalog.sxids.values(), *catalog.named_entries.values())
    modes = {*(entry.mode for entry in coded), *(rule.mode for rule in catalog.pattern_rules)}
    return Mode.SHADOW in modes
