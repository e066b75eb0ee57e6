"""Made-up clusters with nodes in every state that ``status`` knows, and functions to build them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from konductor_like.build import this_program
from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.lease.annotations import LeasePayload, annotated
from konductor_like.cluster.lease.election import LeaderLease
from konductor_like.cluster.node.record import encode
from konductor_like.cluster.published import (
    BUILD_ANNOTATION,
    SETTINGS_ANNOTATION,
    Published,
    encode_program,
    encode_settings,
)
from konductor_like.model import (
    HEALTH_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    Checkpoint,
    Coverage,
    Doubt,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    NodeRecord,
    Release,
    ReleaseHow,
    Role,
    Severity,
    Source,
)
from konductor_like.model.attempts import Attempt, Attempts, Doing
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node

NOW = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
GPU = "0000:9b:00"
UUID, SERIAL = "GPU-509665ad-b600-ac93-3616-d754b23d636d", "1650124014249"
HOLDER = "konductor-like-6d5f7-x2x4k"
RULES = "5f2c01d4"
"""Digest of the rules of the scenes' controller; this machine has the same rules."""
OTHER_BOOT = "77777777-0000-4000-8000-000000000001"
DEAD_GPU = "NVRM: Xid (PCI:0000:9b:00): 79, pid=40817, name=python3, GPU has fallen off the bus."
OUR_TAINT = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}


def ago(seconds: float) -> datetime:
    """Return the time this long before the command runs."""
    return NOW - timedelta(seconds=seconds)


def ago_ns(seconds: float) -> int:
    """Return the same time as a Loki timestamp."""
    return unix_ns(ago(seconds))


def boot_of(node: Mapping[str, Any]) -> str:
    """Return the boot that a Node object shows."""
    return str(node["status"]["nodeInfo"]["bootID"])


def incident(
    rule: str = "xid.79",
    gpu: str | None = GPU,
    *,
    severity: Severity = Severity.FATAL,
    state: IncidentState = IncidentState.ACTIVE,
    seconds_ago: float = 200,
    boot: str | None = None,
    count: int = 1,
    evidence: str = DEAD_GPU,
    before_install: bool = False,
    user_written: bool = False,
    doubt: Doubt | None = None,
) -> Incident:
    """Return an incident as the controller records it; kind and code follow from the rule."""
    kind, _, code = rule.partition(".")
    return Incident(
        key=IncidentKey(rule, gpu),
        kind=FaultKind(kind),
        severity=severity,
        state=state,
        count=count,
        first_ns=ago_ns(seconds_ago),
        last_ns=ago_ns(seconds_ago - min(seconds_ago, 5)),
        last=KernelPosition(boot, None, 4_200_000_000),
        code=int(code) if code.isdecimal() else None,
        evidence=evidence,
        title="The GPU is gone from the PCI bus",
        advice="Drain the node and reboot it.",
        needs="reboot",
        before_install=before_install,
        user_written=user_written,
        doubt=doubt,
        released_ns=ago_ns(0) if state is IncidentState.RELEASED else None,
    )


def with_record(
    node: dict[str, Any], *incidents: Incident, tainted: bool = False, release: Release | None = None
) -> dict[str, Any]:
    """Return the Node with these incidents in its record, and with our taint."""
    machine = Machine(node["metadata"]["uid"], node["status"]["nodeInfo"]["systemUUID"], boot_of(node))
    record = NodeRecord(
        machine=machine,
        life=Life(ago(192) if tainted else None),
        incidents=incidents,
        releases=(release,) if release else (),
        read=KernelPosition(boot_of(node), None, 4_200_000_000),
    )
    node["metadata"]["annotations"][RECORD_ANNOTATION] = encode(record)
    if tainted:
        node["metadata"]["labels"][HEALTH_LABEL] = "faulty"
        node["spec"].setdefault("taints", []).append(dict(OUR_TAINT))
    return node


def faulty(name: str) -> dict[str, Any]:
    """Return a node that we tainted for Xid 79."""
    node = make_node(name)
    return with_record(node, incident(boot=boot_of(node)), tainted=True)


def held(name: str) -> dict[str, Any]:
    """Return a node that the brake holds."""
    node = make_node(name)
    waiting = incident("xid.95", "0000:5d:00", state=IncidentState.HELD, boot=boot_of(node), seconds_ago=61)
    return with_record(node, waiting)


def every_state() -> list[dict[str, Any]]:
    """Return one node in each state, one for each special case, and a node without GPUs."""
    suspect, application, pending, released = map(make_node, ("gpu-3", "gpu-4", "gpu-5", "gpu-9"))
    with_record(
        suspect,
        incident(severity=Severity.SUSPECT, before_install=True, boot=boot_of(suspect), seconds_ago=7_300),
    )
    with_record(
        application,
        incident("xid.31", severity=Severity.APPLICATION, count=12, boot=boot_of(application)),
    )
    with_record(pending, incident(state=IncidentState.PENDING, boot=OTHER_BOOT))
    warned = Release(
        ago(3_600), "kim@laptop", "swapped the riser", ReleaseHow.RESET, KernelPosition(boot_of(released)),
        warning="The node has not rebooted since: xid 79 on GPU 0000:9b:00: Drain the node and reboot it.",
    )  # fmt: skip
    with_record(released, incident(state=IncidentState.RELEASED, boot=boot_of(released)), release=warned)

    konduktors, twin, mangled, out = map(make_node, ("gpu-6", "gpu-7", "gpu-8", "gpu-10"))
    konduktors["spec"]["taints"] = [dict(OUR_TAINT)]
    twin["spec"]["taints"] = [{**OUR_TAINT, "value": "rma-42", "effect": "NoExecute"}]
    mangled["metadata"]["annotations"][RECORD_ANNOTATION] = '{"v": 1, "incidents": [oops'
    out["metadata"]["labels"][OPT_OUT_LABEL] = "true"
    others = [suspect, application, pending, released, konduktors, twin, mangled, out]
    quiet = [make_node("gpu-11"), make_node("gpu-12"), make_cpu_node("cpu-1")]
    first = make_node("gpu-1")
    identified = replace(incident(boot=boot_of(first)), uuid=UUID, serial=SERIAL)
    return [with_record(first, identified, tainted=True), held("gpu-2"), *others, *quiet]


def failing_jobs() -> list[dict[str, Any]]:
    """Return the nodes of two failed jobs: a dead GPU ended the first, the second has no hardware fault."""
    nodes = []
    llama, probe = "ml/Job/llama@2026-05-06T11:57:00Z", "ml/PyTorchJob/probe@2026-05-06T11:40:00Z"
    for number in range(1, 9):
        node = make_node(f"gpu-{number}")
        role = Role.ROOT_CAUSE if number == 1 else Role.COLLATERAL
        dead = incident(boot=boot_of(node), seconds_ago=190)
        bug = incident(
            "xid.45", severity=Severity.APPLICATION, seconds_ago=185 - number, boot=boot_of(node),
            evidence="NVRM: Xid (PCI:0000:9b:00): 45, pid=7, Ch 00000008",
        )  # fmt: skip
        mine = replace(dead if number == 1 else bug, failure_group=llama, role=role, job="ml/Job/llama")
        nodes.append(with_record(node, mine, tainted=number == 1))
    for number in (9, 10):
        node = make_node(f"gpu-{number}")
        doubt = incident(
            "nccl.system_error", None, severity=Severity.SUSPECT, seconds_ago=1210 - number,
            evidence="NCCL WARN Call to ibv_poll_cq failed",
        )  # fmt: skip
        mine = replace(
            doubt, source=Source.POD, failure_group=probe, role=Role.UNCLEAR, job="ml/PyTorchJob/probe",
        )  # fmt: skip
        nodes.append(with_record(node, mine))
    return nodes


def fleet_of_300() -> list[dict[str, Any]]:
    """Return 300 nodes with long names, of which 11 are not healthy."""
    names = [f"ip-10-31-{number // 100}-{number % 100}.eu-north-1.compute.internal" for number in range(300)]
    broken = [*map(faulty, names[:5]), *map(held, names[5:7])]
    for name in names[7:10]:
        node = make_node(name)
        remap = incident(
            "xid.63", "0000:1b:00", severity=Severity.SUSPECT, boot=boot_of(node), seconds_ago=4000
        )
        advice = "Work may go on; reset the GPU when the node is idle, so that the new row takes effect."
        title = "Memory row (or page) recorded for replacement"
        broken.append(with_record(node, replace(remap, title=title, advice=advice, needs="gpu-reset")))
    waiting = make_node(names[10])
    broken.append(with_record(waiting, incident(state=IncidentState.PENDING, boot=OTHER_BOOT)))
    return [*broken, *map(make_node, names[11:])]


def settings_of(policy: PolicyConfig = PolicyConfig(), **settings: Any) -> Published:  # noqa: B008  # a frozen value
    """Return the settings that the scenes' controller publishes; the defaults unless given."""
    given = {"stale_seconds": 300.0, "domain_label": "nvidia.com/gpu.clique", "namespaces": ("default",)}
    return Published(
        **{**given, "by": HOLDER, "version": "1", "rules_digest": RULES, **settings}, policy=policy
    )


def seed_lease(
    server: KubernetesServer,
    client: KubeClient,
    settings: Published | None = settings_of(),  # noqa: B008  # a frozen value
) -> None:
    """Return the Lease of a controller that renewed four seconds ago and hears all nodes except two."""
    server.create_namespace("konductor-like")
    notes = settings and {
        SETTINGS_ANNOTATION: encode_settings(settings),
        BUILD_ANNOTATION: encode_program(this_program(), by=HOLDER),
    }
    lease = LeaderLease(
        client,
        "konductor-like",
        "konductor-like",
        HOLDER,
        duration_seconds=30,
        renew_deadline_seconds=20,
        renew_interval_seconds=10,
        now=lambda: ago(4),
        notes=lambda: notes or {},
    )
    assert lease.try_acquire().is_ours
    read = Checkpoint({Source.KERNEL: ago_ns(9), Source.POD: ago_ns(11)}, act_from_ns=ago_ns(86_400))
    coverage = Coverage(ago(20), frozenset({"gpu-11"}), frozenset({"gpu-12"}), listed_are_measured=False)
    well = dict.fromkeys(Doing, Attempt(ago(5))) | {Doing.WRITE: Attempt()}
    lease.renew(LeasePayload(read, coverage, attempts=Attempts(HOLDER, well, heard=10)))


def note_on_the_lease(folder: Path, key: str, value: str | None) -> None:
    """Set an annotation of the Lease, or remove it; ``folder`` holds the kubeconfig."""
    with closing(KubeClient.connect(str(folder / "kubeconfig"), None, 10)) as client:
        path = lease_path("konductor-like", "konductor-like")
        client.replace(path, annotated(client.get(path), {key: value}))


SCENES: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "every state": every_state,
    "healthy": lambda: [make_node("gpu-1"), make_node("gpu-2")],
    "no GPUs": lambda: [make_cpu_node("cpu-1")],
    "one faulty": lambda: [faulty("gpu-1"), make_node("gpu-2")],
    "failing jobs": failing_jobs,
    "10 nodes": lambda: [*fleet_of_300()[4:9], *fleet_of_300()[-5:]],
    "300 nodes": fleet_of_300,
    "brake full": lambda: [faulty("gpu-1"), *(held(f"gpu-{number}") for number in range(2, 9))],
}
"""The fleets that transcripts name."""
