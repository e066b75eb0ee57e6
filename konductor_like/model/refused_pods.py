"""Pods that a kubelet refused because NVML failed there, and what decisions remember of them (rule 45)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.model.faults import IncidentKey
from konductor_like.model.nodes import REFUSES_PODS_RULE, NodeState

REFUSES_PODS = IncidentKey(REFUSES_PODS_RULE, None)


class RefusedPod(NamedTuple):
    """One pod with a GPU that a kubelet refused."""

    at_ns: int
    """When, in nanoseconds since the Unix epoch; by the kubelet's clock, unless that is wrong."""
    namespace: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PodsSeen:
    """What the last look at the pods of one node found."""

    refused: tuple[RefusedPod, ...] = ()
    """The pods that were refused lately, the oldest first."""
    message: str = ""
    """What the kubelet said of the latest of them."""
    admitted_ns: int | None = None
    """When the latest GPU pod started that was not refused; None without one."""


@dataclass(frozen=True, slots=True)
class SteadyNode:
    """A GPU node, and since when a decision has seen it in the same boot, readiness and number of GPUs."""

    state: NodeState
    since_ns: int


@dataclass(frozen=True, slots=True)
class RefusedPods:
    """What is seen of refused pods, and what the next decision has to know."""

    seen: Mapping[str, PodsSeen] = field(default_factory=dict)
    """By node, the last look at its pods; most nodes were never looked at."""
    steady: Mapping[str, SteadyNode] = field(default_factory=dict)
    """All GPU nodes by name."""
    shadowed: Mapping[str, int] = field(default_factory=dict)
    """By node, up to when a rule in shadow mode has counted its refused pods, like ``at_ns``."""
