"""One mutant: a name of the program, and what replaces it while a schedule is played."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from unittest.mock import patch as patched

PRODUCT = "konductor_like"


class NoSuchNameError(Exception):
    """The program no longer has this name, so the mutant must be adapted."""


@dataclass(frozen=True)
class Mutant:
    """A function, method or constant of the program, and its replacement.

    ``name`` is a package and a name that one of its modules defines (``controller.Reconciler.run``). If two
    modules define it, ``name`` includes the module. ``instead`` makes the replacement from the original.
    """

    name: str
    instead: Callable[[Any], Any]
    seed: int | None = None
    """The seed of a schedule that notices the mutant."""
    example: str | None = None
    """The example that notices the mutant, if few schedules do."""
    guarded: str = ""
    """The other mechanism that keeps the promise, so that no schedule notices the mutant."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Break the program within the context. Raises NoSuchNameError."""
        with ExitStack() as stack:
            places = _places(self.name)
            holder, name = places[0]
            value = self.instead(inspect.getattr_static(holder, name))
            for holder, name in places:
                stack.enter_context(patched.object(holder, name, value))
            yield


def _places(path: str) -> list[tuple[Any, str]]:
    """Return every place of the name: its class, or all modules that import it."""
    package, first, rest = _split(path)
    mine = _modules(package)
    defining = [module for module in mine if first in vars(module) and _defines(module, first)]
    if len({id(vars(module)[first]) for module in defining}) != 1:
        raise NoSuchNameError(f"{len(defining)} modules of {package} define {first} (for {path})")
    thing: Any = vars(defining[0])[first]
    if rest:
        if rest[0] not in vars(thing):
            raise NoSuchNameError(f"{first} of {package} has no {rest[0]}")
        return [(thing, rest[0])]
    if not callable(thing):  # a constant
        return [(module, first) for module in mine if first in vars(module)]
    loaded = [each for name, each in sys.modules.items() if name.startswith((PRODUCT, "tests.chaos"))]
    return [(each, name) for each in loaded for name, value in list(vars(each).items()) if value is thing]


def _split(path: str) -> tuple[str, str, list[str]]:
    """Split a path into its package or module, the name defined there, and an attribute of a class."""
    parts = path.split(".")
    at = 1
    while len(parts) > at + 1 and parts[at].islower() and find_spec(".".join([PRODUCT, *parts[: at + 1]])):
        at += 1
    return ".".join([PRODUCT, *parts[:at]]), parts[at], parts[at + 1 :]


def _modules(package: str) -> list[ModuleType]:
    found = import_module(package)
    places = getattr(found, "__path__", None)
    names = pkgutil.walk_packages(places, f"{package}.") if places else ()
    return [found, *(import_module(each.name) for each in names)]


def _defines(module: ModuleType, name: str) -> bool:
    value = vars(module)[name]
    if isinstance(value, ModuleType):
        return False
    return getattr(value, "__module__", module.__name__) == module.__name__
