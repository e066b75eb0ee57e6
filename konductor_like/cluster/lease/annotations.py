"""The Lease's annotations: cursor, releases, coverage, settings, build, attempts, tainted, returns, records,
controls.

The holder writes all of them but the controls, with each renewal. The command line writes the controls, for
operators, and records (``kept``). The controls are a JSON object with a list of acts:

    {"v": 1, "acts": [{"control": "pause", "at": …, "by": …, "reason": …, "until": …, "act": …}]}

If the controls cannot be read, they are treated as a pause without an end, because somebody may have paused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from konductor_like.build import Program
from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.api.errors import KubeConflict, KubeRejected
from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.cluster.lease.attempts import ATTEMPTS_ANNOTATION, decode_attempts, encode_attempts
from konductor_like.cluster.lease.checkpoint import (
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
from konductor_like.cluster.lease.kept import (
    KEPT_ANNOTATION,
    KEPT_MOST,
    Kept,
    decode_kept,
    encode_kept,
    that_fit,
)
from konductor_like.cluster.lenient_json import Fields, dumps, read
from konductor_like.cluster.node.record import MACHINE, Codec
from konductor_like.cluster.published import (
    BUILD_ANNOTATION,
    SETTINGS_ANNOTATION,
    Published,
    decode_program,
    decode_settings,
)
from konductor_like.model import Checkpoint, Coverage, KeptRecord, Machine
from konductor_like.model.attempts import Attempts
from konductor_like.model.controls import NAMES_MOST, Control, ControlAct, Controls, ReturnedNode, TaintedNode
from konductor_like.model.time import EPOCH

T = TypeVar("T")
CONTROLS_ANNOTATION = "trainy.konduktor.ai/controls"
TAINTED_ANNOTATION = "trainy.konduktor.ai/tainted"
RETURNED_ANNOTATION = "trainy.konduktor.ai/returned"
PURGED_MOST = 100_000
"""Nodes that an act may count, at most: more than any cluster has."""
TAINTED_BYTES = 32 * 1024
"""Bytes of the tainted Nodes, at most: about 100 nodes. All annotations together may take 256 KiB."""
_VERSION = 1
_ACT = Codec(ControlAct, "control", "at", "by", "reason", "until", "nodes", "act")
_TAINTED = Codec(
    TaintedNode, "name", "pool", "why", "needs", "rule", "gpu", tainted="tainted_at", deleted="deleted_at"
)
_RETURNED = Codec(ReturnedNode, "name", at="returned_at", relapsed="relapsed_at")
_SOMEBODYS_PAUSE = ControlAct(Control.PAUSE, EPOCH, "somebody", "no reason given")
_TRIES = 8
"""Tries to write an act. A try fails if the controller renews the Lease between our read and our write; it
renews every few seconds, so eight failures in a row are unlikely."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The content of a Lease. ``holder`` is empty if nobody holds the Lease."""

    holder: str
    acquired: str
    """``acquireTime`` as text. A holder that takes the Lease again writes another one."""
    acquired_at: datetime | None
    """The same as a time."""
    renewed: datetime | None
    duration_seconds: int | None
    transitions: int
    checkpoint: Checkpoint | None
    coverage: Coverage | None
    problem: str | None
    """Why some of the annotations could not be read; None if all could."""
    controls: Controls = field(default_factory=Controls)
    settings: Published | None = None
    """The controller's published settings; None if they are missing or unreadable."""
    program: Program | None = None
    """The holder's version and build, or the last holder's; None if it did not write them."""
    attempts: Attempts | None = None
    """How the holder's last attempts went; None if it has not written them, or not yet."""
    is_ours: bool = False
    """Whether this process has just taken the Lease; ``program`` is then the one of the holder before it."""


@dataclass(frozen=True, slots=True)
class LeaseControls:
    """The operators' controls on a Lease, and the tainted and the returned Nodes that it lists."""

    controls: Controls = field(default_factory=Controls)
    problem: str | None = None
    """Why some of them could not be read; None if all could."""


@dataclass(frozen=True, slots=True)
class LeasePayload:
    """What the holder writes to the Lease with each renewal; None leaves an annotation as it is."""

    checkpoint: Checkpoint | None = None
    coverage: Coverage | None = None
    tainted: tuple[TaintedNode, ...] | None = None
    returned: tuple[ReturnedNode, ...] = ()
    """The last returns by reboot. If there are none, the annotation stays as it is."""
    attempts: Attempts | None = None
    kept: Kept | None = None


def view(lease: JsonObject) -> LeaseView:
    """Decode a Lease. Never raises: unreadable parts are named in ``problem``."""
    spec, annotations = Fields(json_object(lease, "spec"), "spec", []), annotations_of(lease)
    problems: list[str] = []
    checkpoint = _decoded(annotations, CURSOR_ANNOTATION, decode_checkpoint, problems)
    released = _decoded(annotations, RELEASES_ANNOTATION, decode_releases, problems)
    if checkpoint is not None and released:
        checkpoint = replace(checkpoint, released=released)
    coverage = _decoded(annotations, COVERAGE_ANNOTATION, decode_coverage, problems)
    settings = _decoded(annotations, SETTINGS_ANNOTATION, decode_settings, problems)
    by, program = _decoded(annotations, BUILD_ANNOTATION, decode_program, problems) or ("", None)
    holder = spec.get("holderIdentity", str) or ""
    attempts = _decoded(annotations, ATTEMPTS_ANNOTATION, decode_attempts, problems)
    found = controls_of(lease)
    return LeaseView(
        holder=holder,
        acquired=spec.get("acquireTime", str) or "",
        acquired_at=spec.get("acquireTime", datetime),
        renewed=spec.get("renewTime", datetime),
        duration_seconds=spec.get("leaseDurationSeconds", int) or None,
        transitions=spec.get("leaseTransitions", int) or 0,
        checkpoint=checkpoint,
        coverage=coverage,
        settings=settings,
        program=program if holder in ("", by) else None,
        attempts=attempts if attempts and attempts.by == holder else None,
        controls=found.controls,
        problem="; ".join(filter(None, [*problems, found.problem])) or None,
    )


def controls_of(lease: JsonObject) -> LeaseControls:
    """Decode the operators' controls of a Lease, and the tainted and the returned Nodes that it lists."""
    problems: list[str] = []
    annotations = annotations_of(lease)
    acts = _decoded(annotations, CONTROLS_ANNOTATION, decode_controls, problems)
    tainted = _decoded(annotations, TAINTED_ANNOTATION, decode_tainted, problems)
    returned = _decoded(annotations, RETURNED_ANNOTATION, decode_returned, problems)
    kept = _decoded(annotations, KEPT_ANNOTATION, decode_kept, problems)
    found = Controls(acts or (), tainted or (), returned or (), kept or ())
    return LeaseControls(found, "; ".join(problems) or None)


def _decoded(
    annotations: JsonObject,
    key: str,
    decode: Callable[[str], tuple[T | None, str | None]],
    problems: list[str],
) -> T | None:
    """Decode one annotation; None if it is missing, empty or unreadable. Add its problem to ``problems``."""
    text = annotations.get(key)
    if not isinstance(text, str) or not text.strip():
        return None
    found, problem = decode(text)
    if problem is not None:
        problems.append(f"annotation {key}: {problem}")
    return found


def annotations_of(lease: JsonObject) -> JsonObject:
    """Return the annotations of a Lease."""
    return json_object(json_object(lease, "metadata"), "annotations")


def annotated(lease: JsonObject, notes: Mapping[str, str | None]) -> JsonObject:
    """Return the Lease with these annotations set, or removed if None. Other annotations are unchanged."""
    if not notes:
        return lease
    kept = {key: text for key, text in {**annotations_of(lease), **notes}.items() if text is not None}
    return {**lease, "metadata": {**json_object(lease, "metadata"), "annotations": kept}}


def encode_payload(
    payload: LeasePayload, before: Mapping[str, object] | None = None
) -> dict[str, str | None]:
    """Return the annotations that the holder writes; None for an annotation to remove.

    ``before`` are the Lease's annotations: a command may have written some of them since the last renewal.
    """
    notes: dict[str, str | None] = {}
    if payload.checkpoint is not None:
        notes[CURSOR_ANNOTATION] = encode_checkpoint(payload.checkpoint)
        notes[RELEASES_ANNOTATION] = encode_releases(payload.checkpoint.released)
    if payload.coverage is not None:
        notes[COVERAGE_ANNOTATION] = encode_coverage(payload.coverage)
    if payload.tainted is not None:
        notes[TAINTED_ANNOTATION] = encode_tainted(payload.tainted) if payload.tainted else None
    if payload.returned:
        notes[RETURNED_ANNOTATION] = encode_returned(payload.returned)
    if payload.attempts is not None:
        notes[ATTEMPTS_ANNOTATION] = encode_attempts(payload.attempts)
    if payload.kept is not None:
        notes[KEPT_ANNOTATION] = encode_kept(payload.kept, (before or {}).get(KEPT_ANNOTATION))
    return notes


def add_control_act(
    client: KubeClient, namespace: str, name: str, act_for: Callable[[LeaseView], ControlAct]
) -> tuple[ControlAct, Controls]:
    """Write the act that ``act_for`` returns for the present Lease; return it, and the controls before it.

    The Lease's resourceVersion guards the write. Raises KubeNotFound if the Lease does not exist, or another
    KubeError.
    """

    def notes(lease: JsonObject) -> tuple[dict[str, str | None], tuple[ControlAct, Controls]]:
        before = view(lease)
        act = act_for(before)
        text = with_act(annotations_of(lease).get(CONTROLS_ANNOTATION), act)
        return {CONTROLS_ANNOTATION: text}, (act, before.controls)

    return _written(client, namespace, name, notes)


def keep_record(client: KubeClient, namespace: str, name: str, kept: KeptRecord) -> tuple[KeptRecord, ...]:
    """Write what is kept of one Node; return the entries of that Node before it.

    Raises KubeRejected if other Nodes have taken all places. For the rest see :func:`add_control_act`.
    """

    def notes(lease: JsonObject) -> tuple[dict[str, str | None], tuple[KeptRecord, ...]]:
        found = controls_of(lease).controls.kept
        before = tuple(each for each in found if each.uid == kept.uid)
        wanted = [kept, *(each for each in found if each.uid != kept.uid)]
        if kept not in that_fit(wanted):
            raise KubeRejected(
                f"the Lease has no place for the record of node {kept.name}",
                hint=f"make room in the annotations of one of its {KEPT_MOST} nodes: kubectl annotate node",
            )
        return _of_kept(wanted), before

    return _written(client, namespace, name, notes)


def forget_records(
    client: KubeClient, namespace: str, name: str, uids: Collection[str], again: Iterable[KeptRecord] = ()
) -> None:
    """Remove what is kept of these Nodes, and keep ``again``. See :func:`add_control_act`."""

    def notes(lease: JsonObject) -> tuple[dict[str, str | None], None]:
        found = controls_of(lease).controls.kept
        return _of_kept([*again, *(each for each in found if each.uid not in uids)]), None

    _written(client, namespace, name, notes)


def _of_kept(kept: Iterable[KeptRecord]) -> dict[str, str | None]:
    return {KEPT_ANNOTATION: encode_kept(Kept(tuple(kept)))}


def _written(
    client: KubeClient,
    namespace: str,
    name: str,
    notes: Callable[[JsonObject], tuple[dict[str, str | None], T]],
) -> T:
    """Write annotations of the Lease, and return what ``notes`` returns with them.

    The Lease's resourceVersion guards the write. Raises KubeNotFound if the Lease does not exist, or another
    KubeError.
    """
    path = lease_path(namespace, name)
    left = _TRIES
    while True:
        lease = client.get(path)
        wanted, found = notes(lease)
        left -= 1
        try:
            client.replace(path, annotated(lease, wanted))
        except KubeConflict:
            if not left:
                raise
        else:
            return found


def with_act(text: object, act: ControlAct) -> str:
    """Return the controls' annotation with one more act. Acts and fields that we do not know are kept."""
    found, acts = _raw(text)
    kept = [
        each for each in acts if not (isinstance(each, dict) and each.get("control") in act.control.replaces)
    ]
    return dumps({**found, "v": _VERSION, "acts": [*kept, _act_json(act)]})


def decode_controls(text: str) -> tuple[tuple[ControlAct, ...], str | None]:
    """Return the operators' acts and the problem with the text, if any. Never raises."""
    fields = read(text)
    items = fields.items("acts")
    if fields.problem and not items:
        return (_SOMEBODYS_PAUSE,), f"{fields.problem} (treated as a pause without an end)"
    acts = tuple(act for each in items if (act := _act(each)) is not None)
    return acts, fields.problem


def encode_tainted(tainted: Iterable[TaintedNode]) -> str:
    """Return the annotation of the Nodes with our taint.

    If not all fit, deleted Nodes are kept first, the latest deletion first of all.
    """
    return dumps({"v": _VERSION, "nodes": _that_fit(tainted)})


def unlisted(tainted: Sequence[TaintedNode]) -> int:
    """Return how many of these Nodes the annotation has no space for."""
    return len(tainted) - len(_that_fit(tainted))


def _that_fit(tainted: Iterable[TaintedNode]) -> list[JsonObject]:
    latest_first = sorted(tainted, key=lambda each: each.deleted_at or EPOCH, reverse=True)
    kept: list[JsonObject] = []
    left = TAINTED_BYTES
    for each in latest_first:
        node = _TAINTED.parts(each) | MACHINE.parts(each.machine)
        left -= len(dumps(node).encode("utf-8", "replace")) + 1
        if left < 0:
            break
        kept.append(node)
    return kept


def decode_tainted(text: str) -> tuple[tuple[TaintedNode, ...], str | None]:
    """Return the Nodes with our taint and the problem with the text, if any. Never raises."""
    fields = read(text)
    return fields.decoded("nodes", _tainted_node), fields.problem


def encode_returned(returned: Iterable[ReturnedNode]) -> str:
    """Return the annotation of the last returns by reboot; there are at most ten."""
    return dumps({"v": _VERSION, "returned": [_RETURNED.parts(each) for each in returned]})


def decode_returned(text: str) -> tuple[tuple[ReturnedNode, ...], str | None]:
    """Return the last returns by reboot and the problem with the text, if any. Never raises."""
    fields = read(text)
    return fields.decoded("returned", _RETURNED.made), fields.problem


def _raw(text: object) -> tuple[JsonObject, list[object]]:
    """Return the controls as JSON and the list of their acts; if unreadable, the list is one pause."""
    if not isinstance(text, str) or not text.strip():
        return {}, []
    try:
        found = json.loads(text)
        acts = found.get("acts", [])
    except (ValueError, RecursionError, AttributeError):
        found, acts = {}, None
    return (found, acts) if isinstance(acts, list) else (found, [_ACT.parts(_SOMEBODYS_PAUSE)])


def _act_json(act: ControlAct) -> JsonObject:
    relapses = [_RETURNED.parts(each) for each in act.relapses]
    names = {"names": list(act.names)} if act.names else {}
    return _ACT.parts(act) | names | ({"relapses": relapses} if relapses else {})


def _act(fields: Fields) -> ControlAct | None:
    values = _ACT.values(fields)
    control = values["control"]
    if not control:
        if "control" not in fields:
            fields.complain("control is missing")
        return None
    is_pause = control is Control.PAUSE
    if not values["at"] and not is_pause:
        fields.complain("at is missing")
        return None
    values |= {
        "at": values["at"] or EPOCH,
        "by": values["by"] or "somebody",
        "reason": values["reason"] or ("no reason given" if is_pause else ""),
        "nodes": min(values["nodes"], PURGED_MOST),
    }
    relapses = fields.decoded("relapses", _RETURNED.made)
    return ControlAct(relapses=relapses, names=fields.texts("names")[:NAMES_MOST], **values)


def _tainted_node(fields: Fields) -> TaintedNode | None:
    values, machine = _TAINTED.values(fields), MACHINE.values(fields)
    if not (values["name"] and machine["node_uid"] and values["tainted_at"]):
        fields.complain("name, uid or tainted is missing")
        return None
    return TaintedNode(machine=Machine(**machine), **values)
