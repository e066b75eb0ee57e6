"""Weighing what happened lately on all nodes together: thresholds, and which node an event began on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from konductor_like.model import Fault, IncidentKey, NodeRecord, Snapshot, Window
from konductor_like.policy.rules import Rules


@dataclass(frozen=True, slots=True)
class Weighed:
    """What came of it."""

    window: Window
    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    """The records that it changed, by node."""
    settling: Mapping[str, frozenset[IncidentKey]] = field(default_factory=dict)
    """By node, incidents that wait a few seconds before they may taint."""


def weigh(
    records: Mapping[str, NodeRecord],  # noqa: ARG001  # nothing is weighed yet
    counted: Sequence[Fault],  # noqa: ARG001
    past: Sequence[Fault],  # noqa: ARG001
    snapshot: Snapshot,
    rules: Rules,  # noqa: ARG001
    now: datetime,  # noqa: ARG001
) -> Weighed:
    """Weigh new evidence (``counted``) and what is known of the time before (``past``, the window).

    ``records`` are the nodes' records as they were judged just now; of other nodes the snapshot's hold.
    """
    return Weighed(snapshot.window)
