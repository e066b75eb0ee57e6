"""The softer taint of suspects: new pods go elsewhere if they can, and nothing is out of service.

Off unless the settings ask for it. The brake does not count it.
"""

from __future__ import annotations

from konductor_like.model import NodeState
from konductor_like.policy.rules import Rules

SUSPECT = "suspect"


def bears_suspect_taint(state: NodeState, health: str | None, rules: Rules, *, news: bool) -> bool:
    """Whether the node is to bear the softer taint, given the ``health`` that is written with it.

    It comes with the suspicion, or with ``news`` of another one. One that a person took off by hand stays off
    until then.
    """
    if health != SUSPECT or not rules.suspect_taint or state.opted_out or not state.selected:
        return False
    return state.suspect_tainted or news or state.as_read.health != SUSPECT
