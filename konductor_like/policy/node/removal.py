"""Our taint was removed by other means than our commands: what follows (rule 23).

The record claims the taint, and the Node does not have it. What follows depends on who changed the Node in
the step in which the taint went (:attr:`NodeState.removed_by`), and on what Node and record show now:

================================  ===============================================================
the step, or the Node             what follows
================================  ===============================================================
a known person's entry changed    a release, as ``reset`` makes one, without a reason
our key has another value         nothing: the claim stays, and that taint keeps the node out
anybody else's entry, or none     the removal is noted, and the taint is put back after
                                  :data:`WAITS_SECONDS`; the node stays faulty
the same for the fourth time      a contest: the taint stays off, and the claim stays
one writer on many nodes          a contest at once (:data:`NODES_OF_ONE_WRITER`)
a new fault that taints           the taint, at once, and its put-backs are counted anew
the taint is on the node again    the claim goes on
the annotation is gone, too       the same, by the controller's memory or the Lease
our command purged the node       nothing: the record is gone for good
================================  ===============================================================

``spec.taints`` is one field, and a manager that only removes leaves no entry in ``managedFields``. So a
removal without a known person's entry is taken for no person's intention.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from fnmatch import fnmatchcase

from konductor_like.model import (
    RECORD_ANNOTATION,
    TAINT_EFFECT,
    EventReason,
    Life,
    NodeRecord,
    NodeState,
    Stage,
)
from konductor_like.model.time import CLOCKS_AGREE_SECONDS, stamp
from konductor_like.policy.config import PERSONS
from konductor_like.policy.node.health import tainting

WAITS_SECONDS = (10.0, 60.0, 300.0)
"""Seconds after which the taint is put back for the first, the second and the third time for one fault."""
NODES_OF_ONE_WRITER = 10
"""Nodes on which the taint is put back within an hour against one writer; nobody is one writer."""
RIGHTED_SECONDS = 60.0
"""Seconds between our last write of a node and the one that puts the effect of its taint right."""
_HOUR = timedelta(hours=1)


class Removal(Enum):
    """What follows for a node whose taint is off although its record claims it."""

    NOTED = auto()
    WAITS = auto()
    PUT_BACK = auto()
    """The wait is over; pause, opt-out and brake decide as for a new taint."""
    CONTEST = auto()
    """The taint stays off from now on."""
    CONTESTED = auto()
    FAILED = auto()
    """The node has a new fault that taints."""
    KEPT_OUT = auto()
    """A taint with our key and another value stands in place of ours."""


def is_person(manager: str | None, persons: Iterable[str] = PERSONS) -> bool:
    """Whether a field manager is a tool with which people edit Nodes, by ``persons``: names, or patterns."""
    return manager is not None and any(fnmatchcase(manager.lower(), each.lower()) for each in persons)


def removal_of(
    state: NodeState, record: NodeRecord, now: datetime, *, overruled: bool = False
) -> Removal | None:
    """Return what follows for a node without our taint; None if its record does not claim the taint.

    ``record`` has the new evidence; a release by hand has ended its claim. ``overruled``: no
    taint is put back against its writer any more.
    """
    life = record.life
    if life.stage(tainted=state.tainted) is not Stage.REMOVED:
        return None
    if state.kept_out_by is not None:
        return Removal.KEPT_OUT
    known = {(each.key, each.last.boot_id) for each in tainting(state.record)}
    if any((each.key, each.last.boot_id) not in known for each in tainting(record)):
        return Removal.FAILED
    if life.contested_at is not None:
        return Removal.CONTESTED
    if life.put_backs >= len(WAITS_SECONDS):
        return Removal.CONTEST
    if life.removed_at is None:
        return Removal.CONTEST if overruled else Removal.NOTED
    # A time in the future was written before the controller's clock was set back.
    is_ahead = life.removed_at > now + timedelta(seconds=CLOCKS_AGREE_SECONDS)
    if not is_ahead and now < (put_back_at(life) or now):
        return Removal.WAITS
    return Removal.CONTEST if overruled else Removal.PUT_BACK


def writer_of(state: NodeState, life: Life) -> str:
    """Return who removed the taint, as far as it is known; empty if nobody knows."""
    return (state.removed_by or "") if life.removed_at is None else life.removed_by


def put_back_at(life: Life) -> datetime | None:
    """Return when the taint of a node is put back; None if it is not off, or stays off."""
    left = WAITS_SECONDS[max(0, life.put_backs) :]
    if life.removed_at is None or life.contested_at is not None or not left:
        return None
    return life.removed_at + timedelta(seconds=left[0])


def writers_answered(nodes: Mapping[str, NodeState], now: datetime) -> dict[str, set[str]]:
    """Return, by writer, the nodes on which its removal was answered within the last hour.

    The answer was a put-back, or a contest.
    """
    found: dict[str, set[str]] = {}
    for name, state in nodes.items():
        life = state.record.life
        times = (life.put_back_at, life.contested_at if life.claimed else None)
        if any(at is not None and abs(now - at) < _HOUR for at in times):
            found.setdefault(life.removed_by, set()).add(name)
    return found


def is_overruled(nodes: Collection[str]) -> bool:
    """Whether no taint is put back against a writer any more, which removed it from these nodes."""
    return len(nodes) > NODES_OF_ONE_WRITER


def may_put_right(state: NodeState, now: datetime) -> bool:
    """Whether the effect of our taint is put right now; not within a minute after our last write.

    A program that keeps changing the effect is answered once a minute.
    """
    if state.wrong_effect is None or not state.record.life.claimed:
        return False
    act = state.record.act
    return act is None or abs(now - act.at) >= timedelta(seconds=RIGHTED_SECONDS)


def who(writer: str) -> str:
    """Return who removed the taint, in words."""
    return writer or "somebody unknown (no manager of a field shows it)"


def removal_words(life: Life, name: str, *, opted_out: bool) -> str:
    """Return the text of the Event about a removal; on a node that is opted out no taint is put back."""
    at = None if opted_out else put_back_at(life)
    until = f" The controller puts the taint back at {stamp(at)}." if at is not None else ""
    return (
        f"{who(life.removed_by)} removed the taint without a release: the node is still faulty.{until} "
        f"`konductor-like reset {name}` releases the node."
    )


def put_back_words(life: Life, name: str) -> str:
    """Return the text of the Event about a taint that was put back."""
    return (
        f"The taint is put back ({life.put_backs} of {len(WAITS_SECONDS)} times for this fault): "
        f"{who(life.removed_by)} had removed it. `konductor-like reset {name}` releases the node."
    )


def damage_events(state: NodeState, now: datetime) -> list[tuple[EventReason, str]]:
    """Return the Events about our taint whose effect is put right, and our record that is written again."""
    taint, found = state.wrong_effect, []
    if taint is not None and may_put_right(state, now):
        words = f"Somebody changed the effect of the controller's taint to {taint.effect}. "
        words += f"The controller sets it to {TAINT_EFFECT} again."
        found.append((EventReason.PUT_BACK, words))
    if state.lost_record and state.tainted:
        words = f"Somebody removed the annotation {RECORD_ANNOTATION}. The controller writes it again."
        found.append((EventReason.PUT_BACK, words))
    return found


def _ends(name: str) -> str:
    return f"`konductor-like reset {name}` or `konductor-like taint {name} --reason '...'` ends this"


def contest_words(life: Life, name: str, *, returns: bool) -> str:
    """Return the text of the Event about a contest; ``returns``: whether nodes may return by reboot."""
    why = f"it was put back {life.put_backs} times"
    if life.put_backs < len(WAITS_SECONDS):
        why = f"the taints of more than {NODES_OF_ONE_WRITER} nodes were removed in this way within an hour"
    ends = _ends(name)
    if returns:
        ends += ", or a return of the node by itself"
    return (
        f"Contested: {who(life.removed_by)} removed the controller's taint, and {why}. The taint stays off: "
        f"jobs may run on the node, which is still faulty. Find out who removes the taint. {ends}."
    )


def overruled_words(writer: str) -> str:
    """Return the text of the Event about a writer against which no taint is put back any more."""
    return (
        f"{who(writer)} removed the controller's taint from more than {NODES_OF_ONE_WRITER} nodes within an "
        "hour. No taint is put back against it any more: these nodes are contested and in service. Find out "
        "what writes the Nodes' taints; `konductor-like status` names the nodes."
    )


def standing_words(state: NodeState) -> str:
    """Return how it stands with a taint of ours that is off although it is claimed; empty without one."""
    life, twin = state.record.life, state.kept_out_by
    if state.stage is not Stage.REMOVED:
        return ""
    if twin is not None:
        return f"kept out by {twin.key}={twin.value or ''}, which the controller leaves alone"
    by = f"{who(life.removed_by if life.removed_at else state.removed_by or '')} removed the taint"
    since = f" at {stamp(life.removed_at)}" if life.removed_at is not None else ""
    if life.contested_at is not None:
        return f"contested: {by}{since}, and it stays off; find out why; {_ends(state.name)}"
    at = put_back_at(life)
    until = (
        "" if at is None else f"; the controller puts it back at {stamp(at)}, unless something holds it back"
    )
    return f"{by}{since} without a release{until}"
