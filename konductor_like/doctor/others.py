"""Other tools that drain, reboot or delete nodes, and how each meets the controller's taint. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from konductor_like.doctor.facts import Workload


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that acts on nodes, and the traces by which it is found; tools.toml describes the fields."""

    name: str
    does: str
    words: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    harmless: str = ""


@cache
def known_tools() -> tuple[Tool, ...]:
    """Return the packaged tools."""
    text = (files(__package__) / "tools.toml").read_text("utf-8")
    found = []
    for each in tomllib.loads(text)["tool"]:
        parts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in each.items()}
        found.append(Tool(**parts))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Found:
    """A tool of this cluster."""

    tool: Tool
    trace: str
    """By what it was found: ``Deployment kube-system/cluster-autoscaler``."""
    harmless: bool = False


def tools_in(
    workloads: Iterable[Workload], groups: Collection[str], taints: Collection[tuple[str, str]]
) -> list[Found]:
    """Return the known tools; ``taints`` are pairs of a key and the node that has it."""
    known = list(workloads)
    found = [_found(tool, known, groups, taints) for tool in known_tools()]
    return [each for each in found if each is not None]


def _found(
    tool: Tool, workloads: list[Workload], groups: Collection[str], taints: Collection[tuple[str, str]]
) -> Found | None:
    for each in workloads:
        if any(word in text for word in tool.words for text in (each.name, *each.images)):
            harmless = tool.harmless == "*" or (bool(tool.harmless) and tool.harmless in each.arguments)
            return Found(tool, f"{each.namespace}/{each.name}", harmless)
    for group in tool.groups:
        if group in groups:
            return Found(tool, f"API group {group}", tool.harmless == "*")
    for key, node in taints:
        if key.startswith(tool.taints):
            return Found(tool, f"taint {key} on {node}", tool.harmless == "*")
    return None
