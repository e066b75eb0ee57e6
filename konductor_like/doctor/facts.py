"""The facts that a checkup gathers. A fact that could not be seen is an ``Unseen``, which says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from konductor_like.model import Coverage


class Cause(StrEnum):
    """The reasons for which a fact was not seen."""

    RIGHT = "right"
    """The caller may not read it."""
    TIME = "time"
    """No answer came before the deadline of the checkup."""
    LOGIN = "login"
    """The server answered, and does not accept the caller's tenant or credentials."""
    FAILED = "failed"
    """The request failed: the link itself is broken."""
    UNASKED = "unasked"
    """Another link, which had to be whole first, is not."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A fact that could not be seen."""

    cause: Cause
    why: str
    do: str = ""
    """What to do about it, or whom to ask for what."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The API server, as the caller sees it."""

    server: str
    user: str
    ahead_seconds: float = 0.0
    """Seconds by which its clock is ahead of this machine's; 0 if they agree."""


@dataclass(frozen=True, slots=True)
class Controller:
    """The content of the controller's Lease."""

    lease: str
    """Namespace and name."""
    exists: bool = True
    holder: str | None = None
    renewed: datetime | None = None
    alive: bool = False
    """Whether the holder renewed the Lease within the Lease's duration."""
    problem: str | None = None
    version: str = ""
    pause: str = ""
    """``paused by kim: driver roll-out``; empty without a pause."""
    holds_all: bool = False
    """Whether the brake's limit is 0, so that no node is ever tainted."""
    kernel_read: datetime | None = None
    pods_read: datetime | None = None
    stale_seconds: float = 300.0
    coverage: Coverage | None = None
    started: datetime | None = None
    """The first start of any controller on this Lease."""
    namespaces: tuple[str, ...] | None = None
    """The watched namespaces that the controller publishes; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A DaemonSet or a Deployment."""

    namespace: str
    name: str
    desired: int
    ready: int
    images: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policies:
    """The admission policy for the controller, as the API server has it."""

    served: bool = True
    """Whether the API server knows admission policies at all."""
    spec: Mapping[str, Any] | None = None
    """None if there is no such policy."""
    actions: tuple[str, ...] | None = None
    """The ``validationActions`` of its binding; None without a binding."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node of the cluster."""

    is_gpu_node: bool
    taints: tuple[str, ...] = ()
    """The keys of taints that other tools set."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The latest heartbeat under one name."""

    at: datetime
    """The time in Loki."""
    wall: datetime
    """The time by the node's own clock."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The heartbeats of the last minutes in Loki."""

    beats: Mapping[str, Beat]
    """By the name on the line."""
    nameless: int = 0
    """Heartbeats without a node's name."""
    labels: frozenset[str] = frozenset()
    """The names of all labels and all structured metadata on them."""
    complete: bool = True
    """Whether all heartbeats of the span were read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that queries of the controller's size meet."""

    entries: int | None = None
    """``max_entries_limit_per_query``, if it is below the controller's setting; None if it is not."""
    refused_span: str = ""
    """Loki's words, if it refuses to read a span of one hour."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Loki's own configuration; empty if Loki does not show it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The settings of this command that name what to look for."""

    endpoint: str
    endpoint_given: bool
    """Whether somebody set the address; otherwise it is the default, which only pods can reach."""
    kernel_selector: str
    node_label: str
    reader_namespace: str
    """The namespace in the kernel selector; empty if the selector has none."""
    entries: int
    """The lines that the controller asks for in one query."""
    timeout_seconds: float
    """The seconds for which the controller waits for Loki."""
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one checkup."""

    now: datetime
    """The time in UTC, by the API server's clock if it is known."""
    expected: Expected
    cluster: Cluster | Unseen
    rights: Mapping[str, tuple[str, ...]] | Unseen
    """By the commands that need them, the rights that the caller does not have."""
    controller: Controller | Unseen
    deployments: tuple[Workload, ...] | Unseen
    daemonsets: tuple[Workload, ...] | Unseen
    policies: Policies | Unseen
    nodes: Mapping[str, Node] | Unseen
    readers: Mapping[str, bool] | Unseen
    """By Node, whether the reader's pod there is ready."""
    groups: frozenset[str] | Unseen
    """The API groups that the cluster serves."""
    labels: tuple[str, ...] | Unseen
    """The index labels of Loki's streams in the last minutes: the first question to Loki."""
    loki_ahead_seconds: float = 0.0
    """Seconds by which Loki's clock is ahead of this machine's; 0 if they agree."""
    heard: Heard | Unseen
    kernel_lines: bool | Unseen
    """Whether the kernel's stream has any line of the last hour."""
    limits: Limits | Unseen
    oldest_beat: datetime | Unseen | None
    """The oldest heartbeat of the last day."""
    streams: frozenset[str] | Unseen
    """The namespaces that have a stream in Loki."""
    running: Mapping[str, bool] | Unseen
    """By watched namespace, whether a pod runs there; a namespace that could not be read is missing."""
