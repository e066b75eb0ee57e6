"""Who wrote a Node: its ``managedFields`` in short, and whose entry changed in a step (rule 23)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from konductor_like.cluster.api.transport import FIELD_MANAGER
from konductor_like.model import NodeState, Writer
from konductor_like.model.time import ns_of_text, span_ns

_CLOCKS_APART_NS = span_ns(5)
"""Nanoseconds by which the clocks of two API servers may differ."""


def writers_of(managed_fields: object) -> tuple[Writer, ...]:
    """Return the entries of ``managedFields`` without those of subresources, such as the status."""
    found = []
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        if isinstance(entry, dict) and not entry.get("subresource"):
            manager, operation, time = (entry.get(name) for name in ("manager", "operation", "time"))
            if isinstance(manager, str) and manager:
                found.append(Writer(manager, str(operation), _ns(time)))
    return tuple(found)


def changed_by(before: Iterable[Writer], after: Iterable[Writer]) -> str | None:
    """Return the manager whose entry changed between two successive versions of a Node; None if none did.

    An entry changed if its time did. The time of an old copy that somebody wrote back is older than the
    newest entry of the version before, and counts for nothing. Our own entries do not count. An apply is
    named as such: it is never a person's edit of one field.
    """
    known = {(each.manager, each.operation): each.written_ns for each in before}
    newest_ns = max(known.values(), default=0) - _CLOCKS_APART_NS
    changed = {
        each.manager if each.operation == "Update" else f"{each.manager} ({each.operation.lower()})"
        for each in after
        if each.manager != FIELD_MANAGER
        and each.written_ns > known.get((each.manager, each.operation), -1)
        and each.written_ns >= newest_ns
    }
    return ", ".join(sorted(changed)) or None


def with_removal(state: NodeState, before: NodeState | None, *, is_step: bool) -> NodeState:
    """Return a Node's state with who removed our taint, given the state that was known before.

    ``is_step``: no version of the Node lies between the two. After a list nobody knows who removed the taint.
    A state without a taint of our key keeps no entries: only the next step from a taint needs them.
    """
    if state.has_key:
        return state
    by = None
    if before is not None and before.as_read.uid == state.as_read.uid:
        by = before.removed_by
        if before.has_key:
            by = changed_by(before.writers, state.writers) if is_step else None
    return replace(state, writers=(), removed_by=by) if by or state.writers else state


def _ns(time: object) -> int:
    try:
        return ns_of_text(time) if isinstance(time, str) else -1
    except ValueError:
        return -1
