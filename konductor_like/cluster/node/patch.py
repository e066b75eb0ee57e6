"""Build a change of a Node as one JSON Patch, with its preconditions (rule 21).

The patch first tests that the Node's UID, taint list and record are as they were when the plan was decided.
Then it changes our own taints, label and annotation, and nothing else. The server answers a failed test with
422. The contract suite (``tests/contract``) checks two facts about the server:

- A ``test`` of null passes if the value is absent, but fails if the map around the value is absent too.
- The server compares strings in their written form. JSON can write ``<`` also as ``\\u003c``, so a ``test``
  of an annotation with such a character may fail although nothing changed.

In both cases the patch tests ``metadata.resourceVersion`` in place of the annotation.

A change has several forms (:data:`LADDER`): the taint does not wait for a record that has no room, nor for a
label that an admission policy refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from konductor_like.cluster.node import record as records
from konductor_like.cluster.node.short_record import SHORT_BYTES, short
from konductor_like.model import (
    HEALTH_LABEL,
    NEEDS_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    Change,
    NodeRecord,
    NodeState,
    Taint,
    Verb,
)

Operation = dict[str, Any]
Operations = list[Operation]
_ANNOTATIONS = "/metadata/annotations"
_LABELS = "/metadata/labels"
_ESCAPED = str.maketrans({"~": "~0", "/": "~1"})
"""The characters that a JSON pointer escapes in a key (RFC 6901)."""
_RECORD = f"{_ANNOTATIONS}/{RECORD_ANNOTATION.translate(_ESCAPED)}"
_HEALTH = f"{_LABELS}/{HEALTH_LABEL.translate(_ESCAPED)}"
_NEEDS = f"{_LABELS}/{NEEDS_LABEL.translate(_ESCAPED)}"
RawTaint = Mapping[str, str]
_OURS: RawTaint = {"key": TAINT_KEY, "value": TAINT_VALUE}
"""Our taint with whatever effect."""
OUR_TAINT: RawTaint = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
SUSPECT_TAINT: RawTaint = {
    "key": SUSPECT_TAINT_KEY,
    "value": TAINT_VALUE,
    "effect": SUSPECT_TAINT_EFFECT,
}


class RecordForm(IntEnum):
    """How much of the record a write has; a higher one has less."""

    FULL = 0
    SHORT = 1
    """One fault, or one release, in 300 bytes."""
    NONE = 2
    """The annotation stays as it is."""


@dataclass(frozen=True, slots=True)
class Form:
    """The parts of a change that a write carries beside the taint."""

    record: RecordForm = RecordForm.FULL
    needs: bool = True
    """Whether it writes the label for what the node needs; else that label stays as it is."""
    health: bool = True
    """The same for the label for health."""
    beside: bool = False
    """Whether our taint with another effect and the suspect taint stay as they are."""


WHOLE = Form()
TAINT_ALONE = Form(RecordForm.NONE, needs=False, health=False)
LADDER = (
    *(Form(form, needs) for form in RecordForm for needs in (True, False)),
    TAINT_ALONE,
)
"""The forms in which a change is tried, one after another, while the API server refuses a part of it."""


def build(state: NodeState, change: Change, form: Form = WHOLE) -> list[Operation]:
    """Return the operations that make ``change`` to ``state``; none if the node is already as wanted."""
    seen, change = state.as_read, in_form(state, change, form)
    text = wanted_text(state, change, form)
    operations = _on_taints(seen.taints, _wanted_taints(state, change, beside=form.beside))
    operations += _on_map(_RECORD, RECORD_ANNOTATION, seen.has_annotations, seen.record, text)
    labels = _on_map(_HEALTH, HEALTH_LABEL, seen.has_labels, seen.health, change.health)
    operations += labels
    operations += _on_map(_NEEDS, NEEDS_LABEL, seen.has_labels or bool(labels), seen.needs, change.needs)
    return [*_tests(state, change, operations), *operations] if operations else []


def in_form(state: NodeState, change: Change, form: Form) -> Change:
    """Return the change with the labels that this form of it writes."""
    health = change.health if form.health else state.as_read.health
    return replace(change, health=health, needs=change.needs if form.needs else state.as_read.needs)


def applied(state: NodeState, change: Change, form: Form = WHOLE, *, shorten: bool = True) -> NodeState:
    """Return the state that the patch leads to, without sending it; the resourceVersion stays the old one.

    With ``shorten=False`` the record is not cut to the size of an annotation, and its text is empty.
    """
    change = in_form(state, change, form)
    text = wanted_text(state, change, form) if shorten else None if change.record is None else ""
    seen = state.as_read
    raw = _wanted_taints(state, change, beside=form.beside)
    taints = state.taints
    if raw != seen.taints:
        taints = tuple(taint for taint in taints if not (taint.ours or taint.suspects))
        own = (each for each in raw or () if _is(each, _OURS) or _is(each, SUSPECT_TAINT))
        taints = (*taints, *(Taint(each["key"], each["value"], each["effect"]) for each in own))
    record = change.record or NodeRecord()
    if form.record is not RecordForm.FULL:
        record = NodeRecord() if text is None else records.decode(text)[0]
    elif text and records.is_shortened(text):
        record = records.decode(text)[0]
    as_read = replace(
        seen,
        taints=raw,
        record=text,
        health=change.health,
        needs=change.needs,
        has_annotations=seen.has_annotations or text is not None,
        has_labels=seen.has_labels or change.health is not None or change.needs is not None,
    )
    is_short = text is not None and records.is_in_short(text)
    return replace(
        state, taints=taints, record=record, record_problem=None, record_kept=is_short, as_read=as_read
    )


def wanted_text(state: NodeState, change: Change, form: Form = WHOLE) -> str | None:
    """Return the annotation's new text; the present text if it already contains the wanted record."""
    present = state.as_read.record
    if form.record is RecordForm.NONE:
        return present
    if change.record is None:
        return None
    if form.record is RecordForm.SHORT:
        return short(change.record, SHORT_BYTES) or present
    if change.record == state.record and state.record_problem is None and present is not None:
        return records.encode(change.record) if state.record_kept else present
    return records.encode(change.record)


def _tests(state: NodeState, change: Change, operations: list[Operation]) -> list[Operation]:
    """Return the preconditions.

    A taint also tests the boot id: after a reboot the plan is decided again. A release by the controller
    tests the whole Node: somebody may have cordoned it a moment ago.
    """
    seen, boot_id = state.as_read, state.machine.boot_id
    tests: dict[str, object] = {
        "/metadata/uid": seen.uid,
        "/spec/taints": None if seen.taints is None else list(seen.taints),
    }
    text = seen.record or ""
    # Texts that every JSON encoder writes in the same way.
    is_written_alike = text.isascii() and text.isprintable() and not set("<>&") & set(text)
    if seen.has_annotations and is_written_alike:
        tests[_RECORD] = seen.record
    releases = change.record.releases[:1] if change.record and change.verb is Verb.UNTAINT else ()
    makes_maps = any(each["path"] in (_ANNOTATIONS, _LABELS) for each in operations)
    if makes_maps or _RECORD not in tests or any(each.how.by_controller for each in releases):
        tests["/metadata/resourceVersion"] = seen.resource_version
    if change.verb is Verb.TAINT and boot_id is not None:
        tests["/status/nodeInfo/bootID"] = boot_id
    return [{"op": "test", "path": path, "value": value} for path, value in tests.items()]


def removes_more(state: NodeState, change: Change) -> bool:
    """Whether the change removes our taint with another effect, or the suspect taint."""
    taints = (_wanted_taints(state, change, beside=each) for each in (False, True))
    return next(taints) != next(taints)


def _wanted_taints(state: NodeState, change: Change, *, beside: bool = False) -> tuple[RawTaint, ...] | None:
    """Return the taint list after the change. Taints of others keep their places; a new taint comes last.

    Our taint with another effect gives way to ours; beside ours it stays until a release. Every write takes
    the suspect taint of an earlier version off, but a write of the record alone only where the controller may
    taint (``KONDUCTOR_NODE_SELECTOR``).
    """
    seen = state.as_read
    raw = seen.taints or ()
    ours = change.verb is Verb.TAINT
    if change.verb is Verb.RECORD:
        is_claimed = change.record is not None and change.record.life.claimed
        ours = any(_is(taint, _OURS if is_claimed else OUR_TAINT) for taint in raw)
    is_put_right = ours and not any(_is(taint, OUR_TAINT) for taint in raw)
    if not beside and (is_put_right or change.verb in (Verb.UNTAINT, Verb.PURGE)):
        raw = tuple(taint for taint in raw if not _is(taint, _OURS) or (ours and _is(taint, OUR_TAINT)))
    if not beside and (state.selected or change.verb is not Verb.RECORD):
        raw = tuple(taint for taint in raw if not _is(taint, SUSPECT_TAINT))
    if not ours:
        raw = tuple(taint for taint in raw if not _is(taint, OUR_TAINT))
    elif not any(_is(taint, OUR_TAINT) for taint in raw):
        raw = (*raw, OUR_TAINT)
    return seen.taints if raw == (seen.taints or ()) else raw or None


def _on_taints(seen: tuple[RawTaint, ...] | None, wanted: tuple[RawTaint, ...] | None) -> list[Operation]:
    """Return the operations that remove the taints which are not wanted, and append the new ones."""
    if seen is None:
        return (
            [{"op": "add", "path": "/spec/taints", "value": [dict(each) for each in wanted]}]
            if wanted
            else []
        )
    gone = [place for place, taint in enumerate(seen) if taint not in (wanted or ())]
    new = [taint for taint in wanted or () if taint not in seen]
    return [
        # From the end of the list, so that the indexes of the taints before stay valid.
        *({"op": "remove", "path": f"/spec/taints/{place}"} for place in reversed(gone)),
        *({"op": "add", "path": "/spec/taints/-", "value": dict(taint)} for taint in new),
    ]


def _on_map(path: str, key: str, exists: bool, seen: str | None, wanted: str | None) -> list[Operation]:
    """Set or remove one label or annotation. If the map is absent, create the map with this entry."""
    if seen == wanted:
        return []
    if wanted is None:
        return [{"op": "remove", "path": path}]
    if not exists:
        return [{"op": "add", "path": path.rpartition("/")[0], "value": {key: wanted}}]
    return [{"op": "add", "path": path, "value": wanted}]


def _is(taint: object, mine: RawTaint) -> bool:
    """Whether a taint is ``mine``. Further fields, such as ``timeAdded``, do not matter."""
    return isinstance(taint, Mapping) and all(taint.get(name) == value for name, value in mine.items())
