"""The steps of one schedule, which all follow from its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes.errors import refusal
from konductor_like_sandbox.loki.server import EMPTY_ANSWER, HTML_ANSWER
from tests.chaos.processes.machines import FATAL, GPUS, HARMLESS, KMSG, PLAIN
from tests.processes.forked import CONSTANTS

SECONDS = 3.5
"""Seconds within which the steps are taken."""
LEASE_SECONDS, RENEW_SECONDS = 3, 0.4
NODES = tuple(f"gpu-{number:02d}" for number in range(1, 6))
SHORT_OVERLAP_SECONDS = 0.2
"""Seconds of overlap in schedules where no poll reads a line again.

The overlap is shorter than the time between two polls, so a cursor that is too far ahead loses lines.
"""

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
PATCH_MISHAPS = {**KUBE_MISHAPS, "403": refusal(403)}
"""A 403 also ends every further try of a write; for a Lease it would rightly end the process."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, ``at`` seconds after the start."""

    at: float
    what: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.at:5.2f} s  {self.what} {arguments}".rstrip()


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule. ``slots`` has a name for each controller, ``forms`` how each node's log is shipped."""

    seed: int
    slots: tuple[str, ...]
    pods: bool
    """Whether controllers are named after pods, so that a killed controller cannot be seen to be dead."""
    brake_nodes: int | None
    lateness_seconds: float
    """Seconds after which a line that arrives need not be found."""
    settings: dict[str, str]
    forms: dict[str, str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: controllers {self.slots}, pods {self.pods}, brake {self.brake_nodes}"
        return "\n".join([f"{head}, {self.forms}, {self.settings}", *map(str, self.steps)])


def schedule_of(seed: int) -> Schedule:
    dice = random.Random(seed)
    thin = dice.random() < 0.5
    brake_nodes = dice.choice([None, None, 2, 3])
    settings = {
        "KONDUCTOR_POLL_INTERVAL_SECONDS": "0.4" if thin else dice.choice(["0.1", "0.3"]),
        "KONDUCTOR_TAIL": dice.choice(["true", "true", "false"]),
        "KONDUCTOR_LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
        "KONDUCTOR_LOKI_TIMEOUT_SECONDS": "3",
        "KONDUCTOR_LOKI_LIMIT": dice.choice(["5000", "40"]),
        "KONDUCTOR_BRAKE_MAX_PERCENT": "100",
        # The cool-down of five minutes is tested in simulated time.
        "KONDUCTOR_BRAKE_COOLDOWN_SECONDS": "0",
        "KONDUCTOR_LISTEN": "off",
        "KONDUCTOR_LOG_FORMAT": "text",
    }
    constants = [
        f"controller.wiring:RENEWALS={LEASE_SECONDS / RENEW_SECONDS}",
        *(f"{module}:KUBE_TIMEOUT_SECONDS=1.5" for module in ("controller.wiring", "cli.session")),
    ]
    if thin:
        constants.append(f"loki.readers.read_state:KERNEL_OVERLAP_SECONDS={SHORT_OVERLAP_SECONDS}")
        constants.append("loki.readers.read_state:SWEEP_LEAST_SECONDS=1")  # a restart reads one more again
        settings["KONDUCTOR_LATENESS_SECONDS"] = str(SHORT_OVERLAP_SECONDS)
        settings["KONDUCTOR_TAIL"] = "false"  # a tail would read the last ten seconds again
        # Otherwise a count in memory is lost with its process, and its lines are not read again.
        constants.append("policy.change:RECORD_INTERVAL_SECONDS=0")
    settings[CONSTANTS] = ",".join(constants)
    if brake_nodes is not None:
        settings["KONDUCTOR_BRAKE_MAX_NODES"] = str(brake_nodes)
    slots = dice.choice([("a",), ("a", "b"), ("a", "b")])
    steps = _Steps(dice, slots, thin=thin).made()
    return Schedule(
        seed,
        slots,
        pods=dice.random() < 0.3,
        brake_nodes=brake_nodes,
        lateness_seconds=SHORT_OVERLAP_SECONDS / 2 if thin else 60.0,
        settings=settings,
        forms={name: dice.choice([KMSG, PLAIN]) for name in NODES},
        steps=tuple(sorted(steps, key=lambda step: step.at)),
    )


class _Steps:
    """Makes the steps of one schedule."""

    def __init__(self, dice: random.Random, slots: tuple[str, ...], *, thin: bool) -> None:
        self._dice = dice
        self._slots = slots
        self._thin = thin
        self._frozen_long = False
        self._faults = 0

    def made(self) -> list[Step]:
        weights = [weight for weight, _ in _KINDS.values()]
        kinds = self._dice.choices(list(_KINDS.values()), weights=weights, k=20)
        steps = [*self._fault(0.1), *self._fault(0.6)]
        for _, make in kinds:
            steps += make(self, self._dice.uniform(0, SECONDS))
        return steps

    def _fault(self, at: float) -> list[Step]:
        return self._line(at, self._dice.choice(NODES), self._dice.choice(FATAL))

    def _harmless(self, at: float) -> list[Step]:
        return self._line(at, self._dice.choice(NODES), self._dice.choice(HARMLESS))

    def _everywhere(self, at: float) -> list[Step]:
        """Draw a fault on every node at once."""
        return [step for node in NODES for step in self._line(at, node, self._dice.choice(FATAL))]

    def _line(self, at: float, node: str, code: int) -> list[Step]:
        """Draw a kernel line and its shipping, perhaps late and out of order."""
        self._faults += 1
        late = self._dice.choice(
            [0.0, 0.0, 0.0, self._dice.uniform(0.1, SHORT_OVERLAP_SECONDS * 0.4 if self._thin else 2)]
        )
        fault = {"node": node, "code": code, "gpu": self._dice.choice(GPUS)}
        return [
            Step(at, "print", {"number": self._faults, **fault}),
            Step(at + late, "ship", {"number": self._faults}),
        ]

    def _unwritten(self, at: float) -> list[Step]:
        """Draw faults while no Node can be written, and perhaps a kill of the controller before that ends."""
        lasts = self._dice.uniform(0.4, 1.6)
        kind = self._dice.choice([*PATCH_MISHAPS, "403", "409", "down"])
        steps = [
            Step(at, "kube", {"kind": kind, "only": "PATCH /api/v1/nodes/"}),
            Step(at + lasts, "kube well"),
            *self._fault(at + self._dice.uniform(0.05, 0.3)),
            *self._fault(at + self._dice.uniform(0.05, 0.3)),
        ]
        return steps + (self._kill(at + self._dice.uniform(0.3, lasts)) if self._dice.random() < 0.6 else [])

    def _kill(self, at: float) -> list[Step]:
        slot = self._dice.choice(self._slots)
        until = at + self._dice.choice([self._dice.uniform(0, 0.6), self._dice.uniform(1, 2)])
        return [Step(at, "kill", {"slot": slot}), Step(until, "start", {"slot": slot})]

    def _freeze(self, at: float) -> list[Step]:
        """Draw a stop that is shorter than the Lease, or once longer."""
        longer = not self._frozen_long and self._dice.random() < 0.5
        self._frozen_long = self._frozen_long or longer
        lasts = LEASE_SECONDS + self._dice.uniform(0.2, 1.5) if longer else self._dice.uniform(0.05, 1.5)
        slot = self._dice.choice(self._slots)
        return [Step(at, "freeze", {"slot": slot}), Step(at + lasts, "thaw", {"slot": slot})]

    def _loki(self, at: float) -> list[Step]:
        # Lines that an empty answer hides are found by the overlap, for which a short one leaves no time.
        kinds = [kind for kind in (*LOKI_MISHAPS, "down") if not (self._thin and kind == "empty but 200")]
        until = at + self._dice.uniform(0.2, 1.5)
        return [Step(at, "loki", {"kind": self._dice.choice(kinds)}), Step(until, "loki well")]

    def _kube(self, at: float) -> list[Step]:
        kind = self._dice.choice([*KUBE_MISHAPS, "down"])
        only = self._dice.choice(["PATCH ", "nodes", "leases/", ""])
        until = at + self._dice.uniform(0.2, 1.5)
        return [Step(at, "kube", {"kind": kind, "only": only}), Step(until, "kube well")]


def _on_node(what: str, /, *, on_tainted: bool = False, **choices: tuple[Any, ...]) -> Any:
    """Make a step on one node; ``on_tainted`` prefers a node that is tainted by then."""

    def made(steps: _Steps, at: float) -> list[Step]:
        dice = steps._dice
        chosen = {name: dice.choice(values) for name, values in choices.items()}
        if on_tainted:
            chosen["prefer"] = dice.randrange(len(NODES))
        return [Step(at, what, {"node": dice.choice(NODES), **chosen})]

    return made


_KINDS: dict[str, tuple[int, Callable[[_Steps, float], list[Step]]]] = {
    "fault": (6, _Steps._fault),
    "harmless": (3, _Steps._harmless),
    "everywhere": (1, _Steps._everywhere),
    "unwritten": (4, _Steps._unwritten),
    "replay": (4, _on_node("replay", form=(KMSG, PLAIN))),
    "duplicate": (3, _on_node("duplicate", collector=("dmesg", "second"))),
    "kill": (3, _Steps._kill),
    "freeze": (2, _Steps._freeze),
    "loki": (3, _Steps._loki),
    "kube": (3, _Steps._kube),
    "delete lease": (1, lambda _, at: [Step(at, "delete lease")]),
    "reset": (3, _on_node("reset", on_tainted=True, purge=(False, False, False, False, False, True))),
    "taint by hand": (1, _on_node("taint by hand")),
    "untaint by hand": (3, _on_node("untaint by hand", on_tainted=True)),
    "others": (2, _on_node("others write", what=("taint", "untaint", "annotate"))),
    "reboot": (2, _on_node("reboot", prints_first=(False, True))),
    "recreate": (1, _on_node("recreate", new_machine=(False, True))),
}
"""The kinds of steps, each with its weight and the function that draws it."""
