"""Alerts of Prometheus that fire for a node, and what decisions remember of them (rule 44)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.model.faults import Finding
from konductor_like.model.gpus import Gpu


class AlertKey(NamedTuple):
    """Alert, node and GPU: what fires with the same key is one firing, whatever its other labels are."""

    name: str
    node: str
    gpu: str | None = None
    """PCI bus id ``dddd:bb:dd``; None if the alert names none."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """What an alert of one name means by the rules in force."""

    exporter: str
    """The exporter whose metrics the alert needs: the label ``exporter`` of ``konductor_exporter_up``."""
    finding: Finding | None = None
    """The fault, without its text; None if the rule is off."""


class ToldAlert(NamedTuple):
    """One alert that fires, by its labels."""

    text: str
    """The alert in words, for people."""
    gpu: Gpu | None = None
    """The GPU, if its labels name bus id and UUID; no decision depends on it (rule 43)."""


@dataclass(frozen=True, slots=True)
class AlertsAnswer:
    """One answer of Prometheus."""

    at_ns: int
    """When Prometheus was asked, in nanoseconds since the Unix epoch by our clock."""
    firing: Mapping[AlertKey, ToldAlert]
    """The alerts that fire."""
    up: frozenset[tuple[str, str]] = frozenset()
    """Exporter and node, if the exporter's metrics of the node are read; only of nodes asked for."""
    complete: bool = True
    """Whether an alert that is missing does not fire: an answer with warnings may lack some."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert on one GPU or node, which fires or has fired."""

    since_ns: int
    """When it was first seen, by our clock. This time identifies the firing."""
    told: ToldAlert
    is_firing: bool = True
    absent_ns: int | None = None
    """Since when it does not fire while its exporter is up; None if it fires, or if nobody knows."""
    is_over: bool = False
    """Whether it was absent for so long that the alert, if it fires again, is another firing."""
    is_past: bool = False
    """Whether its fault had ended, or was released, when a controller found it in the record."""
    is_told: bool = False
    """Whether it was reported by a rule in shadow mode, which records nothing."""


@dataclass(frozen=True, slots=True)
class AlertsSeen:
    """What the next decision has to know of the alerts."""

    act_from_ns: int
    """The time from which on faults lead to something (rule 5)."""
    answer: AlertsAnswer | None = None
    """The last answer that was used."""
    firings: Mapping[AlertKey, Firing] = field(default_factory=dict)
    began_ns: int | None = None
    """The time of this process' first answer; what fires in it may have fired for days."""
