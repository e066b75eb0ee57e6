"""The invariants of alerts: what a record may say of them.

The answers that each leadership got (:mod:`tests.chaos.prometheus`) say what a controller could know. A
firing counts once. It counts again only after the same leadership saw it absent, in whole answers and with
its exporter up, for half an hour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from konductor_like.catalog import load_catalog
from konductor_like.model import AlertKey, Incident, IncidentState, MetBy, NodeState
from konductor_like.model.time import unix_ns
from tests.chaos.alerts import ALERT, GAP_NS, OVER_NS
from tests.chaos.clock import SECOND_NS
from tests.chaos.machines import seconds
from tests.chaos.prometheus import Given

if TYPE_CHECKING:
    from tests.chaos.world import World


class Firings:
    """Checks everything that records say of alerts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.was: set[AlertKey] = set()
        """The alerts that fired at some time."""
        self._counted_ns: dict[tuple[str, str, str | None], int] = {}
        """By UID of the Node and alert, the latest firing that was counted."""
        self._released_ns: defaultdict[str, int] = defaultdict(int)
        self._exporters = {name: rule.exporter for name, rule in load_catalog().alerts.items()}

    def released(self, state: NodeState) -> None:
        """Note that a person released the whole node, or purged its record."""
        uid = str(state.machine.node_uid)
        if state.as_read.record is None:
            self.forgotten(uid)
        elif state.record.last_by_person is not None:
            self._released_ns[uid] = unix_ns(state.record.last_by_person.at)

    def forgotten(self, uid: str) -> None:
        """Note that nobody may know any more what was counted on a Node."""
        self._released_ns.pop(uid, None)
        for key in [each for each in self._counted_ns if each[0] == uid]:
            del self._counted_ns[key]

    def growth(self, old: NodeState, state: NodeState, each: Incident, gained: int) -> Iterator[str]:
        """Describe what is wrong with firings that were counted."""
        uid, key = str(state.machine.node_uid), self._key(state, each)
        before_ns = self._counted_ns.get((uid, *each.key))
        answers = [given for given in chain.from_iterable(self._answers()) if given.at_ns == each.last_ns]
        if not any(key in given.firing for given in answers):
            yield f"counts a firing of {each.key.rule} that no answer told"
        if before_ns is not None and each.last_ns <= before_ns:
            yield f"counts a firing of {each.key.rule} again"
        elif before_ns is not None:
            is_open = any(
                i.key == each.key and i.state is not IncidentState.RELEASED for i in old.record.incidents
            )
            was_absent = any(self._absences(key, before_ns, each.last_ns))
            if not was_absent and (is_open or not self._began_absent(key, before_ns, each.last_ns)):
                yield f"counts a firing of {each.key.rule} anew, and it was not absent for half an hour"
            if gained > 1 + (each.last_ns - before_ns) // OVER_NS:
                yield f"counts {gained} firings of {each.key.rule}, and there cannot be so many"
        if each.last_ns <= self._released_ns[uid]:
            yield f"counts a firing of {each.key.rule} that a release covers"
        self._counted_ns[uid, *each.key] = max(before_ns or 0, each.last_ns)

    def end(self, state: NodeState, each: Incident) -> Iterator[str]:
        """Describe what is wrong with the end of a fault that nobody released."""
        key, rule = self._key(state, each), each.key.rule
        if each.met_by is MetBy.REBOOT:
            absent = any(self._absences(key, each.last_ns, self._now_ns()))
            if each.last.boot_id == state.machine.boot_id or not absent:
                yield f"ends {rule} by a reboot, and its firing is not over"
        elif each.met_by is MetBy.QUIET:
            quiet_ns = seconds(self._world.setup.suspect_days * 86_400) - seconds(2)
            lasting = (run for run in self._runs(key) if run[-1].at_ns - run[0].at_ns >= quiet_ns - GAP_NS)
            if not any(lasting):
                yield f"ends {rule} by quiet, and it was not absent for so long"
        else:
            yield f"ends {rule} by {each.met_by}"

    def unseen(self, state: NodeState) -> Iterator[str]:
        """Describe each alert that fires now, and that its record does not have."""
        marks = [unix_ns(mark.at) for mark in state.record.releases]
        known = {each.key for each in state.record.incidents}
        for key in self._world.prometheus.firing:
            began_ns = self._began_ns(key)
            if key.node != state.name or key.name not in self._exporters or began_ns is None:
                continue
            if (f"{ALERT}{key.name}", key.gpu) not in known and not any(began_ns <= ns for ns in marks):
                yield f"{key.name} fires for {state.name} and led to nothing"

    # Helpers

    def _key(self, state: NodeState, each: Incident) -> AlertKey:
        return AlertKey(each.key.rule.removeprefix(ALERT), state.name, each.key.gpu)

    def _answers(self) -> Iterator[list[Given]]:
        return iter(self._world.prometheus.given.values())

    def _now_ns(self) -> int:
        return self._world.clock.true_ns + self._world.ledger.clock_ahead_ns + SECOND_NS

    def _began_ns(self, key: AlertKey) -> int | None:
        """Return the first answer in which the alert fires."""
        return min((g.at_ns for given in self._answers() for g in given if key in g.firing), default=None)

    def _began_absent(self, key: AlertKey, from_ns: int, until_ns: int) -> bool:
        """Whether a leadership knew at once that the alert was absent, which had ended before."""
        pair = (self._exporters.get(key.name, ""), key.node)
        for given in self._answers():
            first = next((g for g in given if key in g.firing or (g.complete and pair in g.up)), None)
            if first is not None and key not in first.firing and from_ns <= first.at_ns <= until_ns:
                return True
        return False

    def _runs(self, key: AlertKey) -> Iterator[list[Given]]:
        """Yield each run of answers of one leadership in which the alert is known to be absent."""
        pair = (self._exporters.get(key.name, ""), key.node)
        for given in self._answers():
            run: list[Given] = []
            for each in given:
                is_absent = each.complete and key not in each.firing and pair in each.up
                if run and not (is_absent and 0 <= each.at_ns - run[-1].at_ns <= GAP_NS):
                    yield run
                    run = []
                if is_absent:
                    run.append(each)
            if run:
                yield run

    def _absences(self, key: AlertKey, from_ns: int, until_ns: int) -> Iterator[list[Given]]:
        """Yield the runs of half an hour within a span."""
        slack_ns = 2 * self._world.ledger.clock_ahead_ns + SECOND_NS
        for run in self._runs(key):
            inside = [each for each in run if from_ns - slack_ns <= each.at_ns <= until_ns + slack_ns]
            if inside and inside[-1].at_ns - inside[0].at_ns >= OVER_NS:
                yield inside
