"""Words of other programs about nodes: they are true or lies, flap, stall, vanish, and are said anew.

A *word* is what one program says of one node under one name, such as a Node condition. Its name is the rule
that reads it: ``condition.GPUMissing``. The world keeps every version of a word that a reader could see, with
the times as the program wrote them: the invariants compare the records with these
(:mod:`tests.chaos.suspicions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from konductor_like.model.time import ns_of_text
from tests.chaos.clock import SECOND_NS, moment_of
from tests.chaos.machines import ALL_GPUS, seconds

if TYPE_CHECKING:
    from tests.chaos.world import World

CONDITION = "condition."
DEEDS = (
    *("became bad, true", "became bad, a lie", "became bad again while it was bad", "became healthy"),
    *("flapped", "stalled", "was told again", "vanished", "came back under another name"),
    *("was written by two programs", "changed in the future", "has no time of its change"),
    *("began again after a reboot", "is of before the Node was registered again"),
)
"""The names under which it is counted what happens to words."""
STALE_NS = seconds(900)
"""Nanoseconds after which a word that nobody repeats tells nothing (rule 42)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a program writes a word."""

    bad: str = "True"
    reason: str = ""
    message: str = ""
    of_machine: bool = True
    """Whether its program runs on the node, by the clock of the node, and starts again with the machine."""


KINDS = {
    f"{CONDITION}GPUMissing": Kind(),
    f"{CONDITION}GpuCount": Kind(),
    f"{CONDITION}GPUProblem": Kind(
        reason="GPUsAreDown",
        message="Unable to determine the device handle for GPU0000:4E:00.0: Unknown Error",
    ),
    f"{CONDITION}AcceleratedHardwareReady": Kind("False", "NvidiaXID79Error", "GPU has fallen off the bus"),
    f"{CONDITION}GpuXid": Kind(),
    f"{CONDITION}SysLogsGPUFallenOff": Kind(of_machine=False),
}
WITNESSES = tuple(f"{CONDITION}{kind}" for kind in ("GPUMissing", "GpuCount", "GPUProblem"))
"""The conditions that taint a node together with GPUs that are missing."""


@dataclass(eq=False, slots=True)
class Word:
    """The word of one program about one node under one name."""

    rule: str
    is_bad: bool
    since_ns: int | None
    """The time of its last change, as the program writes it; None if it writes none."""
    beat_ns: int
    stalls: bool = False


@dataclass(eq=False, slots=True)
class Told:
    """A word as a reader of the Node could see it, while nothing of it but its heartbeat changed."""

    uid: str
    boot_id: str
    rule: str
    is_bad: bool | None
    """None if two programs say it: nobody knows which one is right."""
    since_ns: int | None
    told_ns: int
    """The later one of its last change and its last heartbeat, as they are written."""
    from_ns: int
    """Since when a reader could see it, in true time."""
    until_ns: int | None = None
    """Until when; None if it is still there."""

    @property
    def what(self) -> tuple[object, ...]:
        return (self.uid, self.boot_id, self.rule, self.is_bad, self.since_ns)

    def was_told(self, since_ns: int, until_ns: int, slack_ns: int) -> bool:
        """Whether it told something at any time of that span."""
        if self.since_ns is None:
            return False
        first_ns = max(self.from_ns, self.since_ns - slack_ns, since_ns)
        last_ns = min(until_ns if self.until_ns is None else self.until_ns, until_ns)
        return first_ns <= min(last_ns, self.told_ns + STALE_NS) + slack_ns


class Words:
    """All words of other programs, and how they reach their readers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._said: defaultdict[str, list[Word]] = defaultdict(list)
        """By node, in the order in which they are written."""
        self.told: defaultdict[str, list[Told]] = defaultdict(list)
        """By node, everything that a reader could ever see."""

    # What programs do

    def say(self, name: str, rule: str, *, bad: bool, ago_seconds: float = 0.0, dated: bool = True) -> None:
        """Let the program change its word, that many seconds ago by its own clock."""
        word, now_ns = self._word(name, rule), self._clock_ns(name, rule)
        since_ns = _whole(now_ns - seconds(ago_seconds))
        if word is None:
            word = Word(rule, bad, since_ns, now_ns)
            self._said[name].append(word)
        elif bad and word.is_bad:
            self._count(rule, "became bad again while it was bad")
        word.is_bad, word.since_ns, word.beat_ns = bad, since_ns if dated else None, now_ns
        if bad:
            self._count(rule, "became bad, true" if self.is_true(name) else "became bad, a lie")
        else:
            self._count(rule, "became healthy")
        if not dated:
            self._count(rule, "has no time of its change")
        if ago_seconds < 0:
            self._count(rule, "changed in the future")
        self._publish(name)

    def flap(self, name: str, rule: str, *, times: int, every_seconds: float) -> None:
        """Let the word be bad and healthy in turn."""
        self._count(rule, "flapped")
        for number in range(times):

            def change(bad: bool = number % 2 == 0) -> None:
                self.say(name, rule, bad=bad)

            self._world.later(number * every_seconds, change)

    def stall(self, name: str, rule: str, *, on: bool = True) -> None:
        """Stop the program, whose word stays as it is; or let it go on."""
        word = self._word(name, rule)
        if word is not None and word.stalls is not on:
            word.stalls = on
            self._count(rule, "stalled" if on else "was told again")
            self.beat(name)

    def vanish(self, name: str, rule: str) -> Word | None:
        """Remove everything that is said under the name."""
        word = self._word(name, rule)
        if word is not None:
            self._said[name] = [each for each in self._said[name] if each.rule != rule]
            self._count(rule, "vanished")
            self._publish(name)
        return word

    def rename(self, name: str, rule: str, other: str) -> None:
        """Let the word vanish and come back under another name, as after an upgrade of the program."""
        word = self.vanish(name, rule)
        if word is not None and word.is_bad:
            self.say(name, other, bad=True)
            self._count(rule, "came back under another name")

    def double(self, name: str, rule: str, *, bad: bool) -> None:
        """Let a second program say the same name."""
        now_ns = self._clock_ns(name, rule)
        self._said[name].append(Word(rule, bad, _whole(now_ns), now_ns))
        self._count(rule, "was written by two programs")
        self._publish(name)

    def beat(self, *names: str) -> None:
        """Let all programs that run repeat their words: of these nodes, or of all."""
        for name in names or list(self._said):
            for word in self._said[name]:
                if not word.stalls:
                    word.beat_ns = self._clock_ns(name, word.rule)
            if self._said[name]:
                self._publish(name)

    def is_true(self, name: str) -> bool:
        """Whether a GPU of the machine is really broken."""
        machine = self._world.machines[name]
        faults = (o for o in self._world.ledger.of(name) if o.taints)
        return machine.gpus < ALL_GPUS or any(
            o.machine is machine and o.boot_id == machine.boot_id for o in faults
        )

    # What happens to Nodes

    def booted(self, name: str) -> None:
        """Start the programs of a machine again; they find what is really broken a minute later."""
        for word in self._said[name]:
            if KINDS[word.rule].of_machine and not word.stalls:
                self._count(word.rule, "began again after a reboot")
                was_bad = word.is_bad
                self.say(name, word.rule, bad=False)
                if was_bad and self.is_true(name):
                    self._world.later(60.0, partial(self._find_again, name, word.rule))

    def registered(self, name: str) -> None:
        """Forget the words of programs that do not run: a new Node has none of them."""
        said = [each for each in self._said.pop(name, []) if not each.stalls]
        if said:
            self._said[name] = said
        for word in said:
            self._count(word.rule, "is of before the Node was registered again")
        self.note(name)

    def note(self, name: str) -> None:
        """Note what a reader of the Node can see from now on."""
        now_ns, node = self._world.clock.true_ns, self._world.nodes.stored(name)
        if not (self._said.get(name) or self.told.get(name)):
            return
        seen = {each.what: each for each in _readings(node, now_ns)} if node is not None else {}
        for each in self.told[name]:
            if each.until_ns is None:
                if (same := seen.pop(each.what, None)) is None:
                    each.until_ns = now_ns
                else:
                    each.told_ns = max(each.told_ns, same.told_ns)
        self.told[name] += seen.values()

    # Helpers

    def _find_again(self, name: str, rule: str) -> None:
        word = self._word(name, rule)
        if word is not None and not (word.stalls or word.is_bad):
            self.say(name, rule, bad=True)

    def _word(self, name: str, rule: str) -> Word | None:
        return next((each for each in self._said[name] if each.rule == rule), None)

    def _clock_ns(self, name: str, rule: str) -> int:
        of_machine = KINDS[rule].of_machine
        return self._world.node_clock_ns(name) if of_machine else self._world.clock.true_ns

    def _publish(self, name: str) -> None:
        """Let readers see the words: conditions are in the Node's status."""
        said = [_written(each) for each in self._said[name] if each.rule.startswith(CONDITION)]

        def change(node: dict[str, Any]) -> None:
            others = (each for each in node["status"]["conditions"] if _rule_of(each) not in KINDS)
            node["status"]["conditions"] = [*others, *said]

        if self._world.nodes.stored(name) is not None:
            self._world.kube.edit_node(name, change)
            self.note(name)

    def _count(self, rule: str, deed: str) -> None:
        self._world.ledger.happened[f"{rule.partition('.')[0]} {deed}"] += 1


def _whole(ns: int) -> int:
    """Return whole seconds, as a Node has them."""
    return ns // SECOND_NS * SECOND_NS


def _stamp(ns: int) -> str:
    return moment_of(ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rule_of(condition: dict[str, str]) -> str:
    return f"{CONDITION}{condition['type']}"


def _written(word: Word) -> dict[str, str]:
    kind = KINDS[word.rule]
    status = kind.bad if word.is_bad else "False" if kind.bad == "True" else "True"
    told = {"reason": kind.reason, "message": kind.message} if word.is_bad else {}
    since = {} if word.since_ns is None else {"lastTransitionTime": _stamp(word.since_ns)}
    place = {"type": word.rule.removeprefix(CONDITION), "status": status}
    return {**place, "lastHeartbeatTime": _stamp(word.beat_ns), **told, **since}


def _readings(node: dict[str, Any], now_ns: int) -> Iterator[Told]:
    """Yield what a reader of the Node can see."""
    found: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for each in node["status"]["conditions"]:
        if _rule_of(each) in KINDS:
            found[_rule_of(each)].append(each)
    place = (node["metadata"]["uid"], node["status"]["nodeInfo"]["bootID"])
    for rule, written in found.items():
        last = written[-1]
        since = last.get("lastTransitionTime")
        since_ns = None if since is None else ns_of_text(since)
        told_ns = max(since_ns or 0, ns_of_text(last["lastHeartbeatTime"]))
        is_bad = last["status"] == KINDS[rule].bad if len(written) == 1 else None
        yield Told(*place, rule, is_bad, since_ns, told_ns, now_ns)
