"""The Lease as JSON: reading what it says, writing what we want it to say."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from konductor_like.cluster import times
from konductor_like.cluster.checkpoint import (
    COVERAGE_ANNOTATION,
    CURSOR_ANNOTATION,
    RELEASES_ANNOTATION,
    decode_checkpoint,
    decode_coverage,
    decode_releases,
    encode_checkpoint,
    encode_coverage,
    encode_releases,
)
from konductor_like.cluster.published import SETTINGS_ANNOTATION, Published, decode_settings
from konductor_like.cluster.steering import TAINTED_ANNOTATION, decode_steering, encode_tainted
from konductor_like.model import Checkpoint, Coverage, Steering, TaintedNode

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a Lease says. ``holder`` is empty when nobody holds it."""

    holder: str
    acquired: str
    """``acquireTime`` as it stands there: together with the holder it names one term of office."""
    renewed: datetime | None
    duration_seconds: int | None
    transitions: int
    checkpoint: Checkpoint | None
    coverage: Coverage | None
    problem: str | None
    """Why something that it carries could not be read, if it is there."""
    steering: Steering = field(default_factory=Steering)
    """What the brake must know beside the nodes' records."""
    settings: Published | None = None
    """What the controller decides by; None where it does not say."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What its holder writes on the Lease with each renewal; None leaves what is there."""

    checkpoint: Checkpoint | None = None
    coverage: Coverage | None = None
    tainted: tuple[TaintedNode, ...] | None = None


def view(lease: JsonObject) -> LeaseView:
    """Read a Lease, whatever is in it."""
    spec, annotations = _object(lease, "spec"), _object(_object(lease, "metadata"), "annotations")
    checkpoint, no_cursor = _decoded(annotations.get(CURSOR_ANNOTATION), decode_checkpoint)
    released, no_releases = _decoded(annotations.get(RELEASES_ANNOTATION), decode_releases)
    if checkpoint is not None and released:
        checkpoint = replace(checkpoint, released=released)
    coverage, no_coverage = _decoded(annotations.get(COVERAGE_ANNOTATION), decode_coverage)
    settings, no_settings = _decoded(annotations.get(SETTINGS_ANNOTATION), decode_settings)
    found = (
        (CURSOR_ANNOTATION, no_cursor),
        (RELEASES_ANNOTATION, no_releases),
        (COVERAGE_ANNOTATION, no_coverage),
        (SETTINGS_ANNOTATION, no_settings),
    )
    problems = [f"annotation {name}: {problem}" for name, problem in found if problem]
    steering, unread = decode_steering(annotations)
    return LeaseView(
        holder=_text(spec, "holderIdentity"),
        acquired=_text(spec, "acquireTime"),
        renewed=_moment(_text(spec, "renewTime")),
        duration_seconds=_positive(spec.get("leaseDurationSeconds")),
        transitions=_positive(spec.get("leaseTransitions")) or 0,
        checkpoint=checkpoint,
        coverage=coverage,
        problem="; ".join((*problems, *unread)) or None,
        steering=steering,
        settings=settings,
    )


def uid_of(lease: JsonObject) -> str:
    """The object's UID; empty before the server gave it one."""
    return _text(_object(lease, "metadata"), "uid")


def new(namespace: str, name: str) -> JsonObject:
    """A Lease that nobody holds yet."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"leaseTransitions": 0},
    }


def taken(lease: JsonObject, identity: str, duration_seconds: int, now: datetime) -> JsonObject:
    """The Lease with us as its new holder; cursor and everything else in it stay."""
    before = view(lease)
    changed_hands = before.holder not in ("", identity)
    return _with_spec(
        lease,
        holderIdentity=identity,
        leaseDurationSeconds=duration_seconds,
        acquireTime=times.micro_time(now),
        renewTime=times.micro_time(now),
        leaseTransitions=before.transitions + (1 if changed_hands else 0),
    )


def renewed(lease: JsonObject, now: datetime, carried: Carried) -> JsonObject:
    """The Lease renewed, with what it is to carry."""
    return _with_notes(_with_spec(lease, renewTime=times.micro_time(now)), carried)


def released(lease: JsonObject, now: datetime, carried: Carried) -> JsonObject:
    """The Lease that nobody holds any more, with what who held it leaves behind."""
    # A duration of one second is what client-go leaves behind, for readers that wait for it to pass.
    free = _with_spec(lease, holderIdentity="", leaseDurationSeconds=1, renewTime=times.micro_time(now))
    return _with_notes(free, carried)


def annotated(lease: JsonObject, key: str, value: str | None) -> JsonObject:
    """The Lease with this annotation, or with None without it."""
    metadata = _object(lease, "metadata")
    notes = {name: text for name, text in _object(metadata, "annotations").items() if name != key}
    if value is not None:
        notes[key] = value
    return {**lease, "metadata": {**metadata, "annotations": notes}}


def as_new(lease: JsonObject) -> JsonObject:
    """The same Lease to be created anew after somebody deleted it."""
    anew = copy.deepcopy(lease)
    for server_set in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        anew["metadata"].pop(server_set, None)
    return anew


def _with_spec(lease: JsonObject, **values: object) -> JsonObject:
    return {**lease, "spec": {**_object(lease, "spec"), **values}}


def _with_notes(lease: JsonObject, carried: Carried) -> JsonObject:
    notes = dict(_object(_object(lease, "metadata"), "annotations"))
    if carried.checkpoint is not None:
        notes[CURSOR_ANNOTATION] = encode_checkpoint(carried.checkpoint)
        notes.pop(RELEASES_ANNOTATION, None)
        if (releases := encode_releases(carried.checkpoint.released)) is not None:
            notes[RELEASES_ANNOTATION] = releases
    if carried.coverage is not None:
        notes[COVERAGE_ANNOTATION] = encode_coverage(carried.coverage)
    if carried.tainted is not None:
        notes[TAINTED_ANNOTATION] = encode_tainted(carried.tainted)
    return {**lease, "metadata": {**_object(lease, "metadata"), "annotations": notes}} if notes else lease


def _decoded(text: object, decode: Any) -> Any:
    return decode(text) if isinstance(text, str) else (None, None)


def _moment(text: str) -> datetime | None:
    try:
        return times.moment_of(text)
    except ValueError:
        return None


def _object(parent: JsonObject, name: str) -> JsonObject:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _text(parent: JsonObject, name: str) -> str:
    found = parent.get(name)
    return found if isinstance(found, str) else ""


def _positive(number: object) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None
