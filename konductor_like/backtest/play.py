"""Playing a history: every line through each set of rules, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from konductor_like.backtest.arriving import Delivered
from konductor_like.backtest.fleet import Fleet
from konductor_like.backtest.simulation import Assumed, Simulation
from konductor_like.backtest.values import Difference, Verdicts, difference
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import Fault, LogLine, Source
from konductor_like.policy.config import PolicyConfig


class Player:
    """One set of rules at work; beside it, from the first line of a rule in shadow mode on, the same rules
    with what is in shadow mode enforced."""

    def __init__(self, detector: Detector, rules: PolicyConfig, assumed: Assumed, fleet: Fleet) -> None:
        self.simulation = Simulation(rules, assumed, fleet)
        self._shadow: Simulation | None = None
        self._joiner = MultilineDetector(lambda: detector)
        self._anchors = {source: detector.anchors(source) for source in Source}
        self.without_boot = 0

    def step(self, now_ns: int, lines: Iterable[LogLine], *, all_asked_for: bool) -> None:
        """One tick. Lines that these rules do not ask Loki for are passed over unless all are theirs."""
        found: list[Fault] = []
        for line in lines:
            if all_asked_for or any(anchor in line.text for anchor in self._anchors[line.source]):
                fault = self._joiner.detect(line)
                if fault is not None:
                    found.append(fault)
        if not found:
            return
        self.without_boot += sum(
            fault.finding.position.boot_id is None and fault.source is Source.KERNEL for fault in found
        )
        plain = [fault for fault in found if not fault.finding.shadow]
        if self._shadow is None and len(plain) != len(found):
            self._shadow = self.simulation.twin()
        if plain:
            self.simulation.step(now_ns, plain)
        if self._shadow is not None:
            self._shadow.step(now_ns, [_enforced(fault) for fault in found])

    def finish(self, end_ns: int) -> Verdicts:
        """Let the time run out; what came of it."""
        self.simulation.finish(end_ns)
        if self._shadow is not None:
            self._shadow.finish(end_ns)
        return self.simulation.verdicts()

    def shadow(self) -> Difference | None:
        """What the rules in shadow mode would have added; None where they found nothing."""
        if self._shadow is None:
            return None
        return difference(self.simulation.verdicts().outages, self._shadow.verdicts().outages)


def play(
    deliveries: Iterable[Delivered], players: Sequence[Player], seen: Callable[[int], object] = lambda _: None
) -> None:
    """Give every tick to every player; ``seen`` is told its time."""
    for now_ns, lines in deliveries:
        if len(players) == 1:
            players[0].step(now_ns, lines, all_asked_for=True)
        else:
            kept = list(lines)
            for player in players:
                player.step(now_ns, kept, all_asked_for=False)
        seen(now_ns)


def _enforced(fault: Fault) -> Fault:
    if not fault.finding.shadow:
        return fault
    return replace(fault, finding=fault.finding._replace(shadow=False))
