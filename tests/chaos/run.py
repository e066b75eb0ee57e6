"""Plays many schedules over all cores, and prints the seeds of those that break an invariant."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from konductor_like.model import ValidationVerdict
from konductor_like.policy.recovery.guards import Guard
from tests.chaos import alerts, harm, suspicions, words
from tests.chaos.examples_of_guards import OF_THE_COMMAND_LINE
from tests.chaos.lines import NAMELESS
from tests.chaos.schedule import Schedule, play, schedule_of, shrunk
from tests.chaos.steps import FLAPS

BATCH = 50


@dataclass
class Tally:
    """Totals over some schedules."""

    schedules: int = 0
    steps: int = 0
    requests: int = 0
    taints: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    """See :attr:`Outcome.happened`; guards that kept no node out are counted, too."""
    broken: list[tuple[int, str]] = field(default_factory=list)
    """Seeds with the first invariant that each broke."""

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.requests += other.requests
        self.taints += other.taints
        self.happened += other.happened
        self.broken += other.broken


def play_seeds(seeds: Iterable[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        schedule = schedule_of(seed)
        outcome = play(schedule)
        tally.schedules += 1
        tally.steps += len(schedule.steps)
        tally.requests += outcome.requests
        tally.taints += outcome.taints
        tally.happened += outcome.happened
        tally.broken += [(seed, sentence) for sentence in outcome.broken[:1]]
    return tally


def campaign(first: int, schedules: int, most_seconds: float) -> Tally:
    """Play schedules from the seed ``first`` on, in one process per core, for ``most_seconds`` at most."""
    end = time.monotonic() + most_seconds
    total = Tally()

    def batches() -> Iterator[range]:
        for start in range(first, first + schedules, BATCH):
            yield range(start, min(start + BATCH, first + schedules))

    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = [pool.submit(play_seeds, batch) for batch in batches()]
        for future in waiting:
            if time.monotonic() > end:
                pool.shutdown(wait=True, cancel_futures=True)
                break
            total.add(future.result())
    return total


def explain(seed: int) -> str:
    """Shorten a seed's schedule as far as it still breaks, and return its trace and its steps."""
    schedule = schedule_of(seed)
    outcome = play(schedule, traced=True)
    if not outcome.broken:
        return f"{schedule}\n\nnothing broken\n"
    short = shrunk(schedule)
    again = play(short, traced=True)
    return "\n".join([*again.trace, "", str(short), "", *again.broken, ""])


def played(schedule: Schedule) -> str:
    outcome = play(schedule, traced=True)
    return "\n".join([*outcome.trace, "", str(schedule), "", *(outcome.broken or ["nothing broken"]), ""])


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--seed" in options:
        sys.stdout.write(explain(int(options["--seed"])))
        return 0
    if "--trace" in options:
        sys.stdout.write(played(schedule_of(int(options["--trace"]))))
        return 0
    first, schedules = int(options.get("--from", "1")), int(options.get("--schedules", "20000"))
    begun = time.monotonic()
    total = campaign(first, schedules, float(options.get("--seconds", "3600")))
    seconds = time.monotonic() - begun
    for seed, sentence in total.broken:
        sys.stdout.write(f"seed {seed}: {sentence}\n")
    sys.stdout.write(
        f"seeds {first} to {first + total.schedules - 1}: "
        f"{total.schedules:,} schedules, {total.steps:,} steps, "
        f"{total.requests:,} requests, {total.taints:,} taints in {seconds:.0f} s "
        f"({total.schedules / seconds:.0f} a second); broken: {len(total.broken)}\n"
    )
    guards = {f"guard {guard}": 0 for guard in Guard if guard not in OF_THE_COMMAND_LINE}
    verdicts = {f"validation: {verdict}": 0 for verdict in ValidationVerdict}
    deeds = [f"condition {deed}" for deed in words.DEEDS] + [f"alert {deed}" for deed in alerts.DEEDS]
    suspected = [f"suspicion by {what} {deed}" for what in suspicions.WHATS for deed in suspicions.DEEDS]
    others = dict.fromkeys((*deeds, *suspected, suspicions.TAINT, *FLAPS, *harm.CROWDED, *NAMELESS), 0)
    for event, times in sorted((guards | verdicts | others | total.happened).items()):
        sys.stdout.write(f"{times:7,} x {event}\n")
    if total.broken:
        sys.stdout.write("python -m tests.chaos --seed N shortens and prints one\n")
    return 1 if total.broken or total.schedules < schedules else 0
