"""Deciding: what faults mean for nodes, as values only.

``decide`` is the one path: the controller, dry run, the demo and every later command render its ``Plan``.
"""

from konductor_like.policy.brake import brake_state
from konductor_like.policy.decide import decide
from konductor_like.policy.release import purge, release
from konductor_like.policy.rules import Rules

__all__ = ["Rules", "brake_state", "decide", "purge", "release"]
