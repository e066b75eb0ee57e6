"""What happens in one schedule: everything follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from konductor_like.sandbox.kubernetes.faults import refusal
from konductor_like.sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER
from konductor_like.sandbox.mishaps import Drop, Mishap
from tests.chaos.processes.machines import FATAL, GPUS, HARMLESS, KMSG, PLAIN

SECONDS = 3.5
"""How long things happen."""
LEASE_SECONDS, DEADLINE_SECONDS, RENEW_SECONDS = 3, 2.0, 0.4
NODES = tuple(f"gpu-{number:02d}" for number in range(1, 7))

LOKI_MISHAPS = {
    "slow": Mishap(delay_seconds=0.7),
    "429": Mishap(status=429, body="too many outstanding requests"),
    "500": Mishap(status=500, body="empty ring"),
    "truncated": Mishap(cut_body_to=60),
    "HTML": HTML_ANSWER,
    "empty but 200": EMPTY_ANSWER,
    "reset": Mishap(drop=Drop.RESET),
    "cut off": Mishap(drop=Drop.MIDWAY),
}
KUBE_MISHAPS = {
    "409": refusal(409),
    "422": refusal(422),
    "429": refusal(429, retry_after_seconds=1),
    "500": refusal(500),
    "500 after it took effect": refusal(500, after=True),
    "reset": Mishap(drop=Drop.RESET),
    "reset after it took effect": Mishap(drop=Drop.RESET, after=True),
    "slow": Mishap(delay_seconds=0.6),
    "slow answer cut off": Mishap(delay_seconds=0.3, drop=Drop.MIDWAY),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens ``at`` so many seconds from the start."""

    at: float
    what: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.at:5.2f} s  {self.what} {said}".rstrip()


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule. ``slots`` are the controllers' places, ``forms`` how each node's log is shipped."""

    seed: int
    slots: tuple[str, ...]
    pods: bool
    """Controllers are named after pods, so that nobody can see that a killed one is dead."""
    brake_nodes: int | None
    settings: dict[str, str]
    forms: dict[str, str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: controllers {self.slots}, pods {self.pods}, brake {self.brake_nodes}"
        return "\n".join([f"{head}, {self.forms}, {self.settings}", *map(str, self.steps)])


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed."""
    dice = random.Random(seed)
    brake_nodes = dice.choice([None, None, 2, 3])
    settings = {
        "KONDUCTOR_POLL_INTERVAL_SECONDS": dice.choice(["0.1", "0.3"]),
        "KONDUCTOR_LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
        "KONDUCTOR_LEASE_RENEW_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
        "KONDUCTOR_LEASE_RENEW_INTERVAL_SECONDS": str(RENEW_SECONDS),
        "KONDUCTOR_KUBE_TIMEOUT_SECONDS": "1.5",
        "KONDUCTOR_LOKI_TIMEOUT_SECONDS": "3",
        "KONDUCTOR_LOKI_LIMIT": dice.choice(["5000", "40"]),
        "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
        "KONDUCTOR_LISTEN": "off",
        "KONDUCTOR_LOG_FORMAT": "text",
    }
    if brake_nodes is not None:
        settings["KONDUCTOR_BRAKE_MAX_NODES"] = str(brake_nodes)
    slots = dice.choice([("a",), ("a", "b"), ("a", "b")])
    steps = list(_steps(dice, slots))
    return Schedule(
        seed,
        slots,
        pods=dice.random() < 0.3,
        brake_nodes=brake_nodes,
        settings=settings,
        forms={name: dice.choice([KMSG, PLAIN]) for name in NODES},
        steps=tuple(sorted(steps, key=lambda step: step.at)),
    )


def _steps(dice: random.Random, slots: tuple[str, ...]) -> list[Step]:
    steps: list[Step] = []
    frozen_long = False
    kinds = dice.choices(list(_KINDS), weights=[weight for weight, _ in _KINDS.values()], k=24)
    for kind in ["fault", "fault", *kinds]:
        at = dice.uniform(0, SECONDS)
        if kind == "freeze":
            longer = not frozen_long and dice.random() < 0.5
            frozen_long = frozen_long or longer
            lasts = LEASE_SECONDS + dice.uniform(0.2, 1.5) if longer else dice.uniform(0.05, 1.5)
            slot = dice.choice(slots)
            steps += [Step(at, "freeze", {"slot": slot}), Step(at + lasts, "thaw", {"slot": slot})]
        elif kind == "kill":
            slot = dice.choice(slots)
            steps += [
                Step(at, "kill", {"slot": slot}),
                Step(at + dice.uniform(0, 0.6), "start", {"slot": slot}),
            ]
        else:
            steps += _KINDS[kind][1](dice, at)
    return steps


def _fault(dice: random.Random, at: float) -> list[Step]:
    fault = {"node": dice.choice(NODES), "code": dice.choice(FATAL), "gpu": dice.choice(GPUS)}
    return [Step(at, "say", {**fault, "late": dice.choice([0.0, 0.0, 0.0, dice.uniform(0.2, 2)])})]


def _harmless(dice: random.Random, at: float) -> list[Step]:
    fault = {"node": dice.choice(NODES), "code": dice.choice(HARMLESS), "gpu": dice.choice(GPUS)}
    return [Step(at, "say", {**fault, "late": dice.choice([0.0, dice.uniform(0.2, 2)])})]


def _burst(dice: random.Random, at: float) -> list[Step]:
    return [step for _ in range(4) for step in _fault(dice, at)]


def _loki(dice: random.Random, at: float) -> list[Step]:
    kind = dice.choice([*LOKI_MISHAPS, "down"])
    until = at + dice.uniform(0.2, 1.5)
    return [Step(at, "loki", {"kind": kind}), Step(until, "loki well")]


def _kube(dice: random.Random, at: float) -> list[Step]:
    kind = dice.choice([*KUBE_MISHAPS, "down"])
    only = dice.choice(["nodes/", "nodes/", "leases/", ""])
    until = at + dice.uniform(0.2, 1.5)
    return [Step(at, "kube", {"kind": kind, "only": only}), Step(until, "kube well")]


def _on_node(what: str, /, **choices: tuple[Any, ...]) -> Any:
    def made(dice: random.Random, at: float) -> list[Step]:
        chosen = {name: dice.choice(values) for name, values in choices.items()}
        return [Step(at, what, {"node": dice.choice(NODES), **chosen})]

    return made


_KINDS: dict[str, tuple[int, Any]] = {
    "fault": (7, _fault),
    "harmless": (3, _harmless),
    "burst": (1, _burst),
    "replay": (4, _on_node("replay", form=(KMSG, PLAIN))),
    "duplicate": (3, _on_node("duplicate", collector=("dmesg", "second"))),
    "kill": (3, None),
    "freeze": (3, None),
    "loki": (3, _loki),
    "kube": (4, _kube),
    "delete Lease": (1, lambda _dice, at: [Step(at, "delete Lease")]),
    "reset": (3, _on_node("reset", purge=(False, False, False, False, False, True))),
    "taint by hand": (1, _on_node("taint by hand")),
    "untaint by hand": (2, _on_node("untaint by hand")),
    "others": (2, _on_node("others write", what=("taint", "untaint", "annotate"))),
    "reboot": (2, _on_node("reboot", says_first=(False, True))),
    "recreate": (1, _on_node("recreate", new_machine=(False, True))),
}
"""What may happen, how often in comparison, and the steps it takes."""
