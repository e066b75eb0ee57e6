"""Over random lives of a node all surfaces agree: on what it needs, and on whether it may return.

No text shows a moment, a GPU or a fault that the JSON lacks.

``test_surfaces.py`` has chosen stories; here the stories are random (``tests/policy/lives.py``). The test
finds unmet faults in the record's JSON, not with the code under test. A failure names the seed and the events
of a short history. ``KONDUCTOR_TEST_LIVES=2000`` makes the test longer.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from konductor_like.cli.explain.node import document, explain_node, paragraphs
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Fleet, status_report
from konductor_like.cli.status.text import WIDE_HEADERS, View, status_lines
from konductor_like.cluster.events import events_of
from konductor_like.cluster.node.condition import wanted
from konductor_like.cluster.node.record import encode
from konductor_like.controller.reporting import node_metrics
from konductor_like.model import Change, Coverage, EventReason, Gap, GpuCount, Loss, Needs, Snapshot, Verb
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like.model.time import SECOND_NS, unix_ns
from konductor_like.notify.messages import Message, text_of
from konductor_like.notify.news import TOLD, news_of_node
from konductor_like.policy.decide import decide
from konductor_like.policy.recovery.guards import to_publish
from tests.cli.scenes import settings_of
from tests.policy.answers import NAME, policy_of
from tests.policy.lives import EVENTS, Life

LIVES = int(os.environ.get("KONDUCTOR_TEST_LIVES", "20"))
STEPS = 24
PARTS = 2
OFFERS = re.compile(
    r"[Rr]un diagnostics|(?<!no node )(?<!not )returns? by itself(?! any| after a reboot)"
    "|[Rr]eturned to service"
)
"""Words with which a surface offers or reports a return."""
FACT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z|\b[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\b|\bxid \d+")
"""A moment, a GPU or a fault, as the texts for people write it."""
PROMISE = re.compile("returns by itself when")
AFTER_REBOOT = re.compile("returns by itself after a reboot(?!.*not before)")
RANK = {needs.value: place for place, needs in enumerate(Needs)}


def unmet(record: str | None, boot: str | None) -> list[str]:
    """Return the names of the tainting faults of this boot whose need nothing has met, from the JSON."""
    parts = json.loads(record or "{}")
    own_boot = parts.get("machine", {}).get("boot")
    found = []
    for each in parts.get("incidents", ()):
        each = parts["rules"].get(each["rule"], {}) | each
        taints = each["severity"] == "fatal" or each.get("escalated_because")
        is_open = each["state"] in ("active", "held") and each.get("role") != "collateral"
        is_own = each["rule"] != "operator" and each.get("needs") != "none"
        is_present = each.get("at", {}).get("boot", own_boot) in (None, boot)
        if taints and is_open and is_own and is_present and "met_by" not in each:
            found.append(each["rule"])
    return found


class WatchedLife(Life):
    """A life in which the controller also knows facts that no record tells, such as lost lines."""

    events = EVENTS | {
        "ambiguous": 2,
        "silent": 2,
        "lines lost": 2,
        "gap given up": 3,
        "refused": 2,
        "sound reboot": 40,
    }

    def do_ambiguous(self) -> None:
        """Two machines report under the name, or no longer."""
        self.ask["ambiguous"] = not self.ask.get("ambiguous")

    def do_silent(self) -> None:
        self.ask["silent"] = not self.ask.get("silent")

    def do_lines_lost(self) -> None:
        self.ask["lost"] = self.boot_id

    def do_gap_given_up(self) -> None:
        """Lines of a minute are lost for good, some time after the boot or before it."""
        self.ask["given up"] = unix_ns(self.booted) + self.random.choice([-1000, 30, 100, 300]) * SECOND_NS

    def do_refused(self) -> None:
        """The API server begins to refuse the controller's writes of this node, or no longer does."""
        self.ask["refused"] = not self.ask.get("refused")

    def put_in_order(self) -> None:
        self.ask |= {"ambiguous": False, "silent": False, "refused": False, "given up": 0}
        super().put_in_order()

    def do_sound_reboot(self) -> None:
        self.ask["returns"] = True
        self.put_in_order()
        self.do_reboot()

    def apply(self, change: Change | None) -> bool:
        return not self.ask.get("refused") and super().apply(change)

    def snapshot(self) -> Snapshot:
        facts, ask = super().snapshot(), self.ask
        is_unheard = ask.get("ambiguous") or ask.get("silent")
        return replace(
            facts,
            ambiguous=frozenset({NAME} if ask.get("ambiguous") else ()),
            hearing={} if is_unheard else facts.hearing,
            failing={NAME: self.now} if ask.get("refused") else {},
            lost_boots={NAME: ask["lost"]} if "lost" in ask else {},
            gaps_given_up={NAME: ask["given up"]} if ask.get("given up") else {},
        )

    def coverage(self) -> Coverage:
        """Return what the controller publishes of these facts."""
        ask, now_ns, mine = self.ask, unix_ns(self.now), frozenset({NAME})
        gaps = [Gap(now_ns - 60 * SECOND_NS, None, mine)] if ask.get("gap") else []
        if ask.get("given up"):
            gaps.append(Gap(ask["given up"] - 60 * SECOND_NS, ask["given up"], mine))
        return Coverage(
            self.now,
            listed_are_measured=False,
            unknown=mine if ask.get("silent") else frozenset(),
            gaps=tuple(gaps),
            ambiguous=mine if ask.get("ambiguous") else frozenset(),
            lost={NAME: Loss(3, now_ns, ask["lost"])} if "lost" in ask else {},
        )

    def attempts(self) -> Attempts:
        """Return what the controller publishes of its writes, and of guards that only it knows."""
        kept = to_publish(decide(self.snapshot(), (), policy_of(self.ask), self.now).kept_out)
        if not self.ask.get("refused"):
            return Attempts("pod", kept_out=kept)
        failed, verb = (
            Attempt(since=self.now, error="denied"),
            Verb.UNTAINT if self.state.tainted else Verb.RECORD,
        )
        return Attempts("pod", {Doing.WRITE: failed}, (Unwritten(NAME, verb),), others=1, kept_out=kept)

    def keeps_promise(self, *, reboots: bool = False) -> bool:
        """Whether the node returns within half an hour if nothing else happens than a sound reboot."""
        later = copy(self)
        later.ask, later.told = {**self.ask}, []
        if reboots:
            later.state = replace(later.state, ready=True, gpus=GpuCount(8, 8))
            later.do_reboot()
        for _ in range(6):
            later.pass_time(300)
        return not later.state.tainted


class Surfaces:
    """What all surfaces say about the node now."""

    def __init__(self, life: WatchedLife) -> None:
        now, state, snapshot, coverage = life.now, life.state, life.snapshot(), life.coverage()
        controller = ControllerReport(
            "ns/lease",
            holder="pod",
            renewed=now - timedelta(seconds=4),
            duration_seconds=30,
            settings=settings_of(policy_of(life.ask)),
            coverage=coverage,
            controls=snapshot.controls,
            attempts=life.attempts(),
        )
        fleet = Fleet(now, snapshot.nodes, controller, [NAME])
        report = status_report(fleet)
        self.lines = [
            each for each in status_lines(report, View(wide=True)) if not each.startswith("Returns:")
        ]
        explained = explain_node(NAME, fleet, "")
        self.status, self.explained = status_document(report), document(explained)
        self.json: dict[str, Any] = next(each for each in self.status["nodes"] if each["name"] == NAME)
        self.text = {
            label: said if isinstance(said, str) else "\n".join(said) for label, said in paragraphs(explained)
        }
        self.condition = wanted("Gpu", state, silent=False, heard=True)
        metrics = node_metrics.NodeMetrics(CollectorRegistry())
        metrics.most = 100
        metrics.view = lambda: node_metrics.View({NAME: state}, coverage, unread=False)
        _, faults, waiting = metrics.collect()
        self.labels = [sample.labels["needs"] for sample in faults.samples]
        self.waiting = [sample.labels["needs"] for sample in waiting.samples]

    def needs(self) -> dict[str, str | None]:
        """Return what the node needs, by surface; surfaces that say nothing are left out."""
        found: dict[str, str | None] = {
            "json": self.json["needs"],
            "explain": self.text["Needs"].partition(" ")[0].rstrip(":") or None,
        }
        assert self.explained["node"] == self.json
        rows = [line for line in self.lines if line.startswith(f"{NAME} ")]
        for row in rows:
            cells = _cells(self.lines, WIDE_HEADERS, row)
            found["table"] = None if cells["NEEDS"] == "-" else cells["NEEDS"]
        if self.json["fault"]:
            name = self.json["fault"]["name"]
            for group in [each for each in self.lines if each.startswith(f"{name} ")]:
                found["faults"] = _cells(self.lines, ("FAULT", "FAULTY", "NEEDS", "WHAT"), group)["NEEDS"]
        if self.condition is not None and "; needs: " in self.condition.message:
            found["condition"] = self.condition.message.rpartition("; needs: ")[2]
        if self.labels:
            found["metric"] = max(self.labels, key=RANK.__getitem__)
        if self.waiting:
            [found["metric of the time"]] = self.waiting
        return found

    def told(self) -> dict[str, str]:
        """Return the texts for people, by surface."""
        told = {f"explain {label}": text for label, text in self.text.items()}
        return told | {"status": "\n".join(self.lines), "json advice": self.json["advice"] or ""}

    def facts(self) -> set[str]:
        """Return the moments, GPUs and faults in the texts."""
        return {fact for text in self.told().values() for fact in FACT.findall(text)}

    def offers(self) -> Iterator[str]:
        """Yield what offers a return of the node."""
        for surface, text in self.told().items():
            if offer := OFFERS.search(text):
                yield f"{surface}: {offer[0]}"
        if self.json["tainted"] and self.json["whyNotReturned"] is None:
            yield "json whyNotReturned: null"


def _cells(lines: Sequence[str], headers: Sequence[str], row: str) -> dict[str, str]:
    """Return the cells of a row by header; the columns begin where their headers begin."""
    [head] = [line for line in lines if line.split()[:1] == [headers[0]] and {*headers} <= {*line.split()}]
    starts = [*(re.search(rf"(?<!\S){each}(?!\S)", head).start() for each in headers), None]  # type: ignore[union-attr]  # each header is there
    return {each: row[slice(*starts[n : n + 2])].strip() for n, each in enumerate(headers)}


def broken_by(life: WatchedLife, told: Sequence[Change], seen: Counter[str] | None = None) -> list[str]:
    """Return what is wrong with the surfaces now, and with the Events of the last writes."""
    surfaces, state, seen = Surfaces(life), life.state, Counter() if seen is None else seen
    wrong = [wrong for change in told for wrong in _wrong_events(life, change)]
    needs = surfaces.needs()
    # A Node without a record gets no label, and a refused write changes none.
    if (state.as_read.record is not None or not state.tainted) and not life.ask.get("refused"):
        needs["label"] = state.as_read.needs
    if len({*needs.values()}) > 1:
        wrong.append(f"needs: {needs}")
    documents = json.dumps([surfaces.status, surfaces.explained]).replace("xid.", "xid ")
    facts = surfaces.facts()
    wrong += [f"a text shows {fact}, and no JSON has it" for fact in facts if fact not in documents]
    offers = [*surfaces.offers()]
    if failed := unmet(state.as_read.record, state.machine.boot_id):
        wrong += [f"{each}, and {failed} is unmet" for each in offers]
    is_promised = any(map(PROMISE.search, surfaces.told().values()))
    # While a gap is open, the promise says by itself that it does not hold yet.
    if is_promised and not life.ask.get("gap"):
        seen["promise"] += 1
        if not life.keeps_promise():
            wrong.append(f"a return is promised, and the controller keeps the node: {life.ask}")
    after_reboot = surfaces.text.get("Return", "")
    if AFTER_REBOOT.match(after_reboot) and not life.ask.get("gap"):
        seen["promise after a reboot"] += 1
        if not life.keeps_promise(reboots=True):
            wrong.append(f"{after_reboot}, and the controller keeps the node: {life.ask}")
    seen.update(
        {"unmet": bool(failed), "offer": bool(offers), "need": needs["json"] is not None, "fact": bool(facts)}
    )
    return wrong


def _wrong_events(life: WatchedLife, change: Change) -> Iterator[str]:
    """Yield what is wrong with the Events and notifications of one write."""
    record = None if change.record is None else encode(change.record)
    boot = json.loads(record or "{}").get("machine", {}).get("boot")
    failed = unmet(record, boot)
    is_controllers = (
        change.event in (EventReason.RETURNED, EventReason.REBOOTED) or change.verb is not Verb.UNTAINT
    )
    named = re.search(r"[Nn]eeds: ([a-z-]+)(?: \([^()]+\))?\.$", change.message)
    if named and named[1] != change.needs:
        yield f"Event {change.event} names {named[1]}, the label {change.needs}"
    how = [each["how"] for each in json.loads(record or "{}").get("releases", ())][:1]
    if failed and change.verb is Verb.UNTAINT and how in (["reboot"], ["time"]):
        yield f"the controller returns the node, and {failed} is unmet"
    for reason, message, subject in events_of(change):
        if failed and is_controllers and OFFERS.search(message):
            yield f"Event {reason}: {message}, and {failed} is unmet"
        if reason in TOLD:
            news = news_of_node(life.state, change, reason, message, subject, life.now)
            if news.needs != change.needs:
                yield f"notification {reason} names {news.needs}, the label {change.needs}"
            text = text_of(Message((news,)))
            if failed and is_controllers and OFFERS.search(text):
                yield f"notification {reason}: {text}, and {failed} is unmet"


def lived(
    seed: int, numbers: Sequence[int], seen: Counter[str] | None = None
) -> tuple[WatchedLife, list[str]]:
    """Return the life of these events up to the first violation, and the violation; ``seen`` counts."""
    life = WatchedLife(seed)
    for number in numbers:
        written = len(life.told)
        life.step(number)
        if wrong := broken_by(life, life.told[written:], seen):
            return life, wrong
    return life, []


def shortest(seed: int, numbers: Sequence[int]) -> tuple[WatchedLife, list[str]]:
    """Return a life with as few of these events as show a violation."""
    kept, place = [*numbers], 0
    while place < len(kept):
        fewer = kept[:place] + kept[place + 1 :]
        if lived(seed, fewer)[1]:
            kept = fewer
        else:
            place += 1
    return lived(seed, kept)


@pytest.mark.parametrize("part", range(PARTS))
def test_all_surfaces_agree_on_needs_and_returns(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, LIVES, PARTS):
        _, wrong = lived(seed, range(STEPS), seen)
        if wrong:
            short, wrong = shortest(seed, range(STEPS))
            pytest.fail("\n".join([f"seed {seed}", *short.history, *wrong]))
    told = ("unmet", "offer", "promise", "promise after a reboot", "need", "fact")
    assert min(seen[each] for each in told) > 0, seen
