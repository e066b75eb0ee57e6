"""All annotations of the Lease together: a Lease that cannot be renewed leaves the fleet without a leader."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.build import Program
from konductor_like.cluster import published
from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.lease.annotations import (
    CONTROLS_ANNOTATION,
    PURGED_MOST,
    LeasePayload,
    encode_payload,
    with_act,
)
from konductor_like.cluster.lease.checkpoint import COVERAGE_ANNOTATION, COVERAGE_BYTES
from konductor_like.cluster.lease.kept import KEPT_ANNOTATION, KEPT_BYTES, KEPT_MOST, Kept
from konductor_like.cluster.published import BUILD_ANNOTATION, SETTINGS_ANNOTATION, encode_program
from konductor_like.model import (
    Control,
    ControlAct,
    Coverage,
    Gap,
    KeptRecord,
    Loss,
    Machine,
    Misnamed,
    ReturnedNode,
    TaintedNode,
    Unparsed,
    Verb,
)
from konductor_like.model.attempts import Attempt, Attempts, Doing, Unwritten
from konductor_like.model.controls import NAMES_MOST
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, Clock, candidate, cursor
from tests.cluster.scenes import NOON, NOON_NS, incident, record, release

NAMES = [f"{n:04}".ljust(253, "x") for n in range(2500)]
LONG = "x" * 500


def everything() -> LeasePayload:
    """What a holder writes when everything goes wrong on many nodes with names of 253 characters."""
    coverage = Coverage(
        NOON,
        unknown=frozenset(NAMES[:1000]),
        listed=frozenset(NAMES),
        gaps=tuple(Gap(NOON_NS + n, NOON_NS + n + 1, frozenset(NAMES[:100])) for n in range(50)),
        ambiguous=frozenset(NAMES),
        lost={name: Loss(1 << 40, NOON_NS + 1, "b" * 36) for name in NAMES},
        unparsed={name: Unparsed(1 << 40, NOON_NS + 1) for name in NAMES},
        misnamed={name: Misnamed(1 << 40, NOON_NS + 1) for name in NAMES},
        read_ns=cursor(1).read_ns,
        backfill_ns=NOON_NS,
    )
    marks = tuple(replace(release(n), reason=LONG, warning=LONG, by=LONG) for n in range(5))
    faults = tuple(replace(incident(n, seconds=n), advice=LONG) for n in range(60))
    full = [replace(record(*faults, releases=marks), machine=Machine(f"uid-{n}")) for n in range(80)]
    return LeasePayload(
        replace(cursor(1), released=tuple(full)),
        coverage,
        tuple(TaintedNode(name, Machine("u" * 36, "s" * 36), NOON, why="y" * 160) for name in NAMES),
        tuple(ReturnedNode(name, NOON, NOON) for name in NAMES[:10]),
        Attempts(
            "x" * 253,
            dict.fromkeys(Doing, Attempt(NOON, NOON, "e" * 256)),
            tuple(Unwritten(name, Verb.TAINT, "xid.79") for name in NAMES),
            kept_out=dict.fromkeys(NAMES, "gap"),
        ),
        Kept(tuple(KeptRecord(name, each, "d" * 16, True) for name, each in zip(NAMES, full, strict=False))),
    )


def acts_of_people() -> str:
    """A pause, a reset of the brake and a purge, and the end of a stop of returns."""
    relapses = tuple(ReturnedNode(name, NOON, NOON) for name in NAMES[:10])
    text: str | None = None
    for control in (Control.RESUME, Control.PAUSE, Control.BRAKE_RESET, Control.PURGE):
        act = ControlAct(control, NOON, LONG, LONG, NOON, act="a" * 12, relapses=relapses)
        if control is Control.PURGE:
            act = replace(act, nodes=PURGED_MOST, names=tuple(NAMES[:NAMES_MOST]), relapses=())
        text = with_act(text, act)
    assert text is not None
    return text


def size(notes: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(text.encode()) for key, text in notes.items())


def test_a_lease_with_every_annotation_at_its_bound_can_be_renewed(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.create_namespace(NAMESPACE)
    by_holder = {
        SETTINGS_ANNOTATION: "s" * published.BYTES_MOST,
        BUILD_ANNOTATION: encode_program(Program("0" * 60, "f" * 12), by="x" * 253),
    }
    lease = candidate(client, Clock(), notes=lambda: by_holder)
    assert lease.try_acquire().is_ours
    found = client.get(lease_path(NAMESPACE, NAME))
    found["metadata"]["annotations"] |= {CONTROLS_ANNOTATION: acts_of_people()}
    client.replace(lease_path(NAMESPACE, NAME), found)

    lease.renew(everything())

    notes = client.get(lease_path(NAMESPACE, NAME))["metadata"]["annotations"]
    assert size(notes) < 256 * 1024
    assert len(notes) == 10
    assert len(notes[COVERAGE_ANNOTATION].encode()) <= COVERAGE_BYTES + 512
    assert len(notes[KEPT_ANNOTATION].encode()) <= KEPT_MOST * KEPT_BYTES + 64


def test_the_bounds_are_reached_and_not_only_kept() -> None:
    notes = encode_payload(everything())

    assert size({key: text or "" for key, text in notes.items()}) > 190 * 1024
