"""Steps of other programs, which say of nodes what they find: see :mod:`tests.chaos.words`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.steps import node_of

if TYPE_CHECKING:
    from tests.chaos.world import World


@dataclass(frozen=True, slots=True)
class Says:
    """A program writes a condition that is bad, or healthy; it changed ``ago`` seconds ago."""

    node: int
    rule: str
    bad: bool = True
    ago: float = 0.0
    dated: bool = True

    def take(self, world: World) -> None:
        world.words.say(
            node_of(world, self.node), self.rule, bad=self.bad, ago_seconds=self.ago, dated=self.dated
        )


@dataclass(frozen=True, slots=True)
class Flaps:
    """A condition becomes bad and healthy in turn, ``times`` times."""

    node: int
    rule: str
    times: int = 5
    every: float = 20.0

    def take(self, world: World) -> None:
        world.words.flap(node_of(world, self.node), self.rule, times=self.times, every_seconds=self.every)


@dataclass(frozen=True, slots=True)
class Stalls:
    """The program of a condition hangs, or goes on."""

    node: int
    rule: str
    on: bool = True

    def take(self, world: World) -> None:
        world.words.stall(node_of(world, self.node), self.rule, on=self.on)


@dataclass(frozen=True, slots=True)
class Vanishes:
    """Somebody removes a condition."""

    node: int
    rule: str

    def take(self, world: World) -> None:
        world.words.vanish(node_of(world, self.node), self.rule)


@dataclass(frozen=True, slots=True)
class Renames:
    """A condition vanishes and comes back under another type."""

    node: int
    rule: str
    other: str

    def take(self, world: World) -> None:
        world.words.rename(node_of(world, self.node), self.rule, self.other)


@dataclass(frozen=True, slots=True)
class Doubles:
    """A second program writes a condition of the same type."""

    node: int
    rule: str
    bad: bool = True

    def take(self, world: World) -> None:
        world.words.double(node_of(world, self.node), self.rule, bad=self.bad)
