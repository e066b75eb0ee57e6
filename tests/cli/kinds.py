"""One node of each odd kind, as the API server has it, with the word that every format must show for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from konductor_like.cluster.node.record import encode
from konductor_like.model import (
    OPERATOR_RULE,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    FaultKind,
    Gpu,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    MetBy,
    NodeRecord,
    Quarantine,
    Release,
    ReleaseHow,
    Severity,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.model.life import NEVER_OUT
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.scenes import NOW, OTHER_BOOT, OUR_TAINT, ago, ago_ns, boot_of, faulty, held, incident

OUT = Life(ago(192))


class Kind(NamedTuple):
    """A node and its state in words."""

    node: dict[str, Any]
    state: str
    words: str = ""
    """A part of the words in parentheses behind the state."""


def recorded(
    name: str, *incidents: Incident, life: Life = NEVER_OUT, tainted: bool = False, **parts: Any
) -> dict[str, Any]:
    """Return the Node with a record of these parts; an incident without a boot is of the present one."""
    node = make_node(name)
    boot = boot_of(node)
    ours = tuple(
        each if each.last.boot_id else replace(each, last=replace(each.last, boot_id=boot))
        for each in incidents
    )
    machine = Machine(node["metadata"]["uid"], node["status"]["nodeInfo"]["systemUUID"], boot)
    record = NodeRecord(
        machine=machine, life=life, incidents=ours, read=KernelPosition(boot, None, 4_200_000_000)
    )
    node["metadata"]["annotations"][RECORD_ANNOTATION] = encode(replace(record, **parts))
    if tainted:
        node["spec"]["taints"] = [dict(OUR_TAINT)]
    return node


def _ignored(node: dict[str, Any]) -> dict[str, Any]:
    node["metadata"]["labels"][OPT_OUT_LABEL] = "true"
    return node


def _annotated(name: str, text: str) -> dict[str, Any]:
    node = make_node(name)
    node["metadata"]["annotations"][RECORD_ANNOTATION] = text
    return node


def _short(name: str, *incidents: Incident) -> dict[str, Any]:
    node = recorded(name, *incidents, life=OUT if incidents else NEVER_OUT, tainted=bool(incidents), gpus=8)
    node["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    return node


def _met(state: IncidentState = IncidentState.ACTIVE) -> Incident:
    before = replace(incident(state=state), last=KernelPosition(OTHER_BOOT, None, 1))
    return replace(before, met_ns=ago_ns(60), met_by=MetBy.REBOOT)


def _person() -> Incident:
    mine = replace(
        incident(), key=IncidentKey(OPERATOR_RULE, None), kind=FaultKind.CUSTOM, code=None, needs=""
    )
    return replace(mine, title="Tainted by kim", advice="Ask kim.", evidence="riser swap")


def _validated(name: str, validation: Validation) -> Kind:
    return Kind(recorded(name, _met(), life=OUT, tainted=True, validation=validation), "faulty")


ASKED = Validation(ValidationStage.ASKED, 3, ago(60), "kim@example.com")
RUNNING = replace(
    ASKED,
    stage=ValidationStage.RUNNING,
    tries=1,
    attempt="a1",
    boot_id="b",
    began_at=ago(30),
    expected_gpus=8,
)
PASSED = replace(
    RUNNING,
    stage=ValidationStage.ENDED,
    ended_at=ago(10),
    verdict=ValidationVerdict.PASS,
    driver="570.133.20",
    gpus=(
        Gpu("0000:4e:00", "GPU-10000000-0000-4000-8000-000000000001", "165"),
        Gpu("0000:5d:00", "GPU-20000000-0000-4000-8000-000000000002"),
    ),
)
FAILED = replace(PASSED, verdict=ValidationVerdict.FAIL, why="GPU 0000:4e:00: memory", gpus=())
UNKNOWN = replace(PASSED, verdict=ValidationVerdict.UNKNOWN, why="no result came in time", gpus=(), tries=2)
_RETURN = Release(ago(600), "konductor-like", "a reboot met all needs", ReleaseHow.REBOOT)
_PAST = Quarantine(ago(7200), ago(3600), "xid.79", ReleaseHow.REBOOT, relapse=True)
KINDS: Mapping[str, Callable[[str], Kind]] = {
    "healthy": lambda name: Kind(make_node(name), "healthy"),
    "faulty": lambda name: Kind(faulty(name), "faulty"),
    "held": lambda name: Kind(held(name), "held"),
    "suspect": lambda name: Kind(recorded(name, incident(severity=Severity.SUSPECT)), "suspect"),
    "other-boot": lambda name: Kind(
        recorded(
            name, replace(incident(state=IncidentState.PENDING), last=KernelPosition(OTHER_BOOT, None, 1))
        ),
        "suspect",
        "other boot",
    ),
    "on-probation": lambda name: Kind(
        recorded(name, life=Life(probation_until=NOW + timedelta(hours=1)), releases=(_RETURN,)),
        "probation",
        "until",
    ),
    "relapsed": lambda name: Kind(
        recorded(name, incident(), life=replace(OUT, quarantines=(_PAST,)), tainted=True), "faulty"
    ),
    "rebooted": lambda name: Kind(recorded(name, _met(), life=OUT, tainted=True), "faulty"),
    "failed-again": lambda name: Kind(
        recorded(name, _met(), replace(incident("xid.95"), needs="gpu-reset"), life=OUT, tainted=True),
        "faulty",
    ),
    "ignored": lambda name: Kind(_ignored(make_node(name)), "ignored"),
    "ignored-fault": lambda name: Kind(
        _ignored(recorded(name, incident(state=IncidentState.HELD))), "ignored"
    ),
    "ignored-taint": lambda name: Kind(_ignored(faulty(name)), "faulty", "ignored"),
    "cordoned": lambda name: Kind(make_node(name, unschedulable=True), "healthy", "cordoned"),
    "not-ready": lambda name: Kind(make_node(name, ready=False), "healthy", "not ready"),
    "person": lambda name: Kind(recorded(name, _person(), life=OUT, tainted=True), "faulty"),
    "unexplained": lambda name: Kind(make_node(name, taints=[OUR_TAINT]), "faulty"),
    "twin": lambda name: Kind(make_node(name, taints=[{**OUR_TAINT, "value": "rma-42"}]), "healthy"),
    "contested": lambda name: Kind(
        recorded(name, incident(), life=replace(OUT, removed_at=ago(70), contested_at=ago(60))),
        "faulty",
        "contested",
    ),
    "replace": lambda name: Kind(
        recorded(name, incident(), life=replace(OUT, replace_since=ago(60)), tainted=True),
        "faulty",
        "replace",
    ),
    "failed-often": lambda name: Kind(
        recorded(name, life=Life(quarantines=(_PAST,) * 3), releases=(_RETURN,)), "healthy", "failed 3 times"
    ),
    "short": lambda name: Kind(_short(name, incident()), "faulty", "7 of 8 GPUs"),
    "short-only": lambda name: Kind(_short(name), "healthy", "7 of 8 GPUs"),
    "unreadable": lambda name: Kind(_annotated(name, '{"v": 2, "incidents": [oops'), "unknown"),
    "newer": lambda name: Kind(_annotated(name, json.dumps({"v": 3, "faults": []})), "unknown"),
    "re-registered": lambda name: Kind(
        recorded(name, incident(), life=OUT, machine=Machine("another-uid", "another-system", OTHER_BOOT)),
        "faulty",
        "taint removed",
    ),
    "test-fault": lambda name: Kind(
        recorded(name, incident("xid.14", severity=Severity.TEST), life=OUT, tainted=True), "faulty", "test"
    ),
    "validation-waits": lambda name: _validated(name, replace(ASKED, waits="pods use its GPUs: ml/Pod/a")),
    "validation-runs": lambda name: _validated(name, RUNNING),
    "validation-passed": lambda name: _validated(name, PASSED),
    "validation-failed": lambda name: _validated(name, FAILED),
    "validation-unknown": lambda name: _validated(name, UNKNOWN),
    "no-gpus": lambda name: Kind(make_node(name, gpus=0), "healthy"),
    "gpu-11": lambda name: Kind(make_node(name), "unknown"),
    "gpu-12": lambda name: Kind(make_node(name), "not measured"),
}
"""By the name of the node. The Lease of the scenes misses the kernel logs of gpu-11 and gpu-12."""


def kinds() -> dict[str, Kind]:
    """Return a node of each kind, by name."""
    return {name: make(name) for name, make in KINDS.items()}
