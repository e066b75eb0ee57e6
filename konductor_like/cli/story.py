"""All that is known of one node: what it is, what was decided, and what the controller would do now.

What is held back, and why, comes of the controller's own decision on the nodes' records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.cli.covering import state_of
from konductor_like.cli.happenings import EventReport, event_reports
from konductor_like.cli.observation import read_controller, rules_for
from konductor_like.cli.report import ControllerReport, NodeReport, node_report
from konductor_like.cli.ruling import digest_of
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.model import (
    OPT_OUT_LABEL,
    BrakeState,
    Coverage,
    NodeState,
    Refusal,
    Refused,
    Snapshot,
)
from konductor_like.policy import Rules, decide
from konductor_like.policy.brakewords import why_held
from konductor_like.policy.holds import may_return
from konductor_like.settings import Settings

_BY_SETTINGS = (Refusal.BRAKE, Refusal.RATE, Refusal.COOLDOWN, Refusal.NOT_SELECTED)
"""Why a node is held back, by the controller's settings."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Something that would taint the node but does not, and why."""

    refused: Refused
    why: str
    """In words; for the brake with its numbers."""


@dataclass(frozen=True, slots=True)
class Story:
    """One node at one moment."""

    now: datetime
    state: NodeState
    report: NodeReport
    held_back: tuple[HeldBack, ...]
    events: tuple[EventReport, ...]
    """Those that it is part of."""
    stays: str | None
    """Why it must not come back by itself, where its earlier times out are against that."""
    coverage: Coverage | None = None
    unread_since: datetime | None = None
    """Up to where kernel logs were read, where they have not been for so long that nodes are unknown."""
    controller: ControllerReport = field(default_factory=lambda: ControllerReport(""))
    own_rules: str = ""
    """Names the rules of this machine; empty where they were not loaded."""
    note: str = ""
    """What cannot be told, and why."""


def read_story(client: ReadOnlyKubeClient, settings: Settings, name: str, now: datetime) -> Story | None:
    """The story of the node of that name; None where there is none. Raises KubeError."""
    controller, coverage = read_controller(client, settings)
    nodes = list_nodes(client, node_decoder(controller.settings, listed_slices(client)))
    if name not in nodes:
        return None
    rules = rules_for(nodes, controller, now)
    found = story_of(name, nodes, rules, controller, coverage, now)
    return replace(found, own_rules=digest_of(settings.rules_file)) if controller.settings else found


def story_of(
    name: str,
    nodes: Mapping[str, NodeState],
    rules: Rules,
    controller: ControllerReport,
    coverage: Coverage | None,
    now: datetime,
) -> Story:
    """What ``nodes`` and the Lease say about one of them, by ``rules``.

    Where the controller's settings are not known, nothing is told that depends on them.
    """
    state = nodes[name]
    ambiguous = coverage.ambiguous if coverage else frozenset()
    plan = decide(Snapshot(nodes, controls=controller.steering, ambiguous=ambiguous), (), rules, now)
    unread_since = controller.unread_since(now)
    known = controller.settings is not None
    mine = (item for item in plan.refused if item.node == name and (known or item.why not in _BY_SETTINGS))
    held_back = tuple(HeldBack(item, _words(item, state, plan.brake)) for item in mine)
    return Story(
        now=now,
        state=state,
        report=node_report(
            state, state_of(name, coverage, unread=unread_since is not None), coverage, unread_since
        ),
        held_back=held_back,
        events=tuple(event for event in event_reports(nodes, now) if name in (*event.nodes, *event.gone)),
        stays=may_return(state.record, now, rules if known else None) if state.tainted else None,
        coverage=coverage,
        unread_since=unread_since,
        controller=controller,
        note="" if controller.readable else f"the Lease cannot be read: {controller.problem}",
    )


def _words(item: Refused, state: NodeState, brake: BrakeState) -> str:
    match item.why:
        case Refusal.BRAKE | Refusal.RATE | Refusal.COOLDOWN | Refusal.PAUSED:
            return why_held(item.why, brake, state.pool)
        case Refusal.OPTED_OUT:
            return f"the node bears the label {OPT_OUT_LABEL}"
        case Refusal.NOT_SELECTED:
            return "the controller's KONDUCTOR_NODE_SELECTOR leaves the node out"
        case Refusal.BLOCKED:
            return "another's taint has our key and effect"
        case Refusal.AMBIGUOUS:
            return "two machines report under the node's name"
        case Refusal.PENDING:
            return f"its line is of {item.detail}, the node runs boot {state.machine.boot_id}"
        case Refusal.COLLATERAL:
            origin = getattr(item.about, "origin", None)
            return f"it followed from a failure {f'on {origin}' if origin else 'elsewhere'} ({item.detail})"
        case Refusal.SETTLING:
            return item.detail
        case _:
            return item.why.value
