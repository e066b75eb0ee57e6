"""Many schedules, several at once: ``python -m tests.chaos.processes --schedules 300 --seed 1``."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.chaos.processes.play import Outcome, run
from tests.chaos.processes.schedule import schedule_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.processes", description=__doc__)
    parser.add_argument("--schedules", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--jobs", type=int, default=8, help="number of schedules at once; they mostly wait")
    parser.add_argument("--show", action="store_true", help="only print the schedules")
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.schedules)
    if chosen.show:
        for seed in seeds:
            sys.stdout.write(f"{schedule_of(seed)}\n")
        return 0
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, seed) for seed in seeds]):
            outcome = done.result()
            outcomes.append(outcome)
            for wrong in outcome.wrong:
                sys.stdout.write(f"seed {outcome.seed}: {wrong}\n")
            if outcome.output:
                sys.stdout.write(f"{outcome.output}\n")
            sys.stdout.flush()
    bad = sorted(outcome.seed for outcome in outcomes if outcome.wrong)
    each = sorted(outcome.seconds for outcome in outcomes)
    sys.stdout.write(
        f"{len(outcomes)} schedules, seeds {seeds[0]} to {seeds[-1]}, {time.monotonic() - begun:.0f} s "
        f"(each {each[len(each) // 2]:.1f} s, at most {each[-1]:.1f} s): "
        f"{sum(o.faults for o in outcomes)} fatal faults, {sum(o.starts for o in outcomes)} controllers, "
        f"{sum(o.node_writes for o in outcomes)} node writes, {sum(o.late_writes for o in outcomes)} of them "
        f"late and harmless; wrong: {len(bad)} {bad or ''}\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
