"""The facts that the API server shows. Every function sends reads only, and may raise a KubeError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from konductor_like.cli import session
from konductor_like.cluster.client import ReadOnlyKubeClient, namespace_path
from konductor_like.cluster.errors import KubeForbidden, KubeNotFound
from konductor_like.cluster.events import NAMESPACE as EVENTS_NAMESPACE
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.cluster.preflight import Permission
from konductor_like.cluster.transport import JsonObject, json_object
from konductor_like.doctor.facts import Cluster, Controller, Node, Policies, Workload
from konductor_like.model import SUSPECT_TAINT_KEY, TAINT_KEY, Source
from konductor_like.model.time import moment_of
from konductor_like.policy.wording import pause_words
from konductor_like.settings import Settings

DAEMONSETS_PATH, DEPLOYMENTS_PATH = "/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_NO_SUCH_OBJECT = '"konductor-like" not found'
"""The end of a 404 for an object; without it the API server does not know this kind of object."""
_LEASES = "coordination.k8s.io"


def cluster(client: ReadOnlyKubeClient) -> Cluster:
    """Ask the API server for the caller's name."""
    try:
        user = client.user_name()
    except (
        KubeForbidden,
        KubeNotFound,
    ):  # it is older than Kubernetes 1.28, does not tell, or is no API server
        client.group_names()
        user = "you"
    return Cluster(client.server, user, client.clock_ahead_seconds)


def rights(client: ReadOnlyKubeClient, settings: Settings) -> Mapping[str, tuple[str, ...]]:
    """Ask for each right that a command of this program needs; return the missing ones."""
    namespace, lease = session.lease_namespace(client, settings), settings.lease_name
    needed = {
        "status, explain NODE": (
            Permission("list", "nodes"),
            Permission("get", "nodes"),
            Permission("get", "leases", _LEASES, namespace, lease),
        ),
        "reset, taint, ack": (
            Permission("patch", "nodes"),
            Permission("create", "events", namespace=EVENTS_NAMESPACE),
        ),
        "pause, resume, brake reset": (Permission("update", "leases", _LEASES, namespace, lease),),
    }
    missing = {
        commands: tuple(str(each) for each in permissions if not client.review_access(each.attributes))
        for commands, permissions in needed.items()
    }
    return {commands: lacks for commands, lacks in missing.items() if lacks}


def controller(report: session.ControllerReport, now: datetime) -> Controller:
    """Return the content of the Lease."""
    pause, settings = report.controls.pause, report.settings
    paused = pause is not None and (pause.until is None or pause.until > now)
    read = {source: moment_of(ns) for source, ns in report.reached_ns.items()}
    return Controller(
        report.lease,
        exists=report.exists,
        holder=report.holder,
        renewed=report.renewed,
        alive=report.alive(now),
        problem=report.problem,
        version=settings.version if settings else "",
        pause=pause_words(pause) if pause and paused else "",
        holds_all=bool(settings) and report.policy.brake_max_nodes == 0,
        kernel_read=read.get(Source.KERNEL),
        pods_read=read.get(Source.POD),
        stale_seconds=report.stale_seconds,
        coverage=report.coverage,
        started=moment_of(report.act_from_ns) if report.act_from_ns else None,
        namespaces=settings.namespaces if settings else None,
    )


def nodes(client: ReadOnlyKubeClient, report: session.ControllerReport | None) -> Mapping[str, Node]:
    """List the Nodes; without the controller's settings, GPU nodes are those with the usual labels."""
    decode = node_decoder(report.settings if report else None, listed_slices(client))
    return {
        name: Node(
            state.is_gpu_node,
            tuple(each.key for each in state.taints if each.key not in (TAINT_KEY, SUSPECT_TAINT_KEY)),
        )
        for name, state in list_nodes(client, decode).items()
    }


def workloads(client: ReadOnlyKubeClient, path: str) -> tuple[Workload, ...]:
    """List DaemonSets or Deployments."""
    return tuple(client.list_pages(path, _workload).items)


def _workload(item: JsonObject) -> Workload:
    metadata, spec, status = (json_object(item, name) for name in ("metadata", "spec", "status"))
    pod = json_object(json_object(spec, "template"), "spec")
    containers = [each for each in pod.get("containers") or () if isinstance(each, dict)]
    return Workload(
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
        desired=int(status.get("desiredNumberScheduled", spec.get("replicas")) or 0),
        ready=int(status.get("numberReady", status.get("readyReplicas")) or 0),
        images=tuple(str(each.get("image", "")) for each in containers),
        arguments=tuple(
            str(word)
            for each in containers
            for word in [*(each.get("command") or ()), *(each.get("args") or ())]
        ),
    )


def policies(client: ReadOnlyKubeClient) -> Policies:
    """Read the admission policy for the controller's account, and its binding."""
    try:
        policy = client.get(f"{_ADMISSION}/validatingadmissionpolicies/konductor-like")
    except KubeNotFound as error:
        return Policies(served=_NO_SUCH_OBJECT in str(error))
    spec = json_object(policy, "spec")
    try:
        binding = client.get(f"{_ADMISSION}/validatingadmissionpolicybindings/konductor-like")
    except KubeNotFound:
        return Policies(spec=spec)
    actions = json_object(binding, "spec").get("validationActions") or ()
    return Policies(spec=spec, actions=tuple(map(str, actions)))


def readers(client: ReadOnlyKubeClient, namespace: str) -> Mapping[str, bool]:
    """Return, by Node, whether a pod of the reader's namespace is ready there."""
    found: dict[str, bool] = {}
    for node, ready, status in client.table(f"{namespace_path(namespace)}/pods", "Node", "Ready", "Status"):
        up, _, of = ready.partition("/")
        found[node] = found.get(node, False) or (status == "Running" and up == of)
    return found


def running(client: ReadOnlyKubeClient, namespaces: Iterable[str]) -> Mapping[str, bool]:
    """Return, by namespace, whether a pod runs there, for the namespaces that the caller may read."""
    found: dict[str, bool] = {}
    for name in namespaces:
        some = {"limit": "1", "fieldSelector": "status.phase=Running"}
        try:
            found[name] = bool(client.list(f"{namespace_path(name)}/pods", some)["items"])
        except KubeForbidden:
            continue
    return found
