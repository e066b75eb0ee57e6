"""The facts of a checkup, and the requests for them. Every request only reads; none needs a whole log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from konductor_like.cli import session
from konductor_like.cli.check_config import Inspection
from konductor_like.cli.doctor.acting import Acting
from konductor_like.cli.doctor.foreign import Foreign
from konductor_like.cli.doctor.link import State, Unseen
from konductor_like.cluster.api.client import ReadOnlyKubeClient, namespace_path
from konductor_like.cluster.api.errors import KubeForbidden, KubeNotFound
from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.cluster.preflight import denied_permissions, people_permissions
from konductor_like.cluster.published import Published
from konductor_like.cluster.reader_pods import SCRIPT_HASH
from konductor_like.detection.heartbeat import parse_heartbeat
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.errors import LokiError, LokiRefused
from konductor_like.loki.query.logql import heartbeat_query, kernel_query, pod_matchers, selector
from konductor_like.loki.query.window_query import TimeWindow, WindowQuery
from konductor_like.loki.readers.read_state import FUTURE_SKEW_SECONDS
from konductor_like.model import NodeState
from konductor_like.model.time import SECOND_NS, moment_of, span_ns
from konductor_like.settings import Settings

HOUR_NS, DAY_NS = 3600 * SECOND_NS, 86_400 * SECOND_NS
_RECENT_NS = 100 * SECOND_NS
"""A healthy node beats each minute, and its heartbeat arrives within 20 s."""
_NAMES_MOST, _QUERIES, _LINES = 500, 40, 40_000
_NO_LINE = "konductor-like doctor looks for a line that nothing prints"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The API server, as the caller sees it."""

    server: str
    user: str
    ahead_seconds: float = 0.0
    """Seconds by which its clock is ahead of this machine's; 0 if they agree."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A DaemonSet or a Deployment."""

    namespace: str
    name: str
    desired: int
    ready: int
    arguments: tuple[str, ...]


class Reader(NamedTuple):
    """The kernel-log reader's pod on a node."""

    is_ready: bool
    script: str = ""
    """The hash of its script, by its annotation; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The heartbeats of the last minutes in Loki."""

    beats: Mapping[str, datetime]
    """By the name on the line, the time of the latest heartbeat by the node's own clock."""
    nameless: int = 0
    """Heartbeats without a node's name."""
    labels: frozenset[str] = frozenset()
    """The names of all labels and all structured metadata on them."""
    complete: bool = True
    """Whether all heartbeats of the span were read."""
    fresh: frozenset[str] = frozenset()
    """The names on the heartbeats of the last 100 seconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that queries of the controller's size meet."""

    entries: int
    """The lines that a query returns at most: the controller's setting, or less if Loki allows less."""
    refused_span: str = ""
    """Loki's words, if it refuses to read a span of one hour."""
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The sections of Loki's own configuration; empty if Loki does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one checkup."""

    now: datetime
    """The time in UTC, by the API server's clock if it is known."""
    settings: Settings
    """The settings of this command, with the controller's for queries of Loki where this shell sets none."""
    configuration: Inspection | Unseen
    """What `check-config` says about this shell."""
    configured: Mapping[str, str] | Unseen
    """The variables in the controller's ConfigMap."""
    rules_files: Mapping[str, str] | Unseen
    """The files in the ConfigMap of the controller's rules."""
    cluster: Cluster | Unseen
    rights: Mapping[str, str] | Unseen
    """By the commands that need them, the rights that the caller does not have."""
    controller: session.ControllerReport | Unseen
    deployments: tuple[Workload, ...] | Unseen
    daemonsets: tuple[Workload, ...] | Unseen
    acting: Acting | Unseen
    """The answers to dry runs in the name of the controller's account."""
    policies: Mapping[str, tuple[JsonObject, JsonObject]] | Unseen
    """By name, each policy that the controller needs and its binding; empty objects for missing ones."""
    nodes: Mapping[str, NodeState] | Unseen
    readers: Mapping[str, Reader] | Unseen
    """By Node, the reader's pod there."""
    labels: tuple[str, ...] | Unseen
    """The index labels of Loki's streams in the last minutes: the first question to Loki."""
    loki_ahead_seconds: float
    """Seconds by which Loki's clock is ahead of this machine's; 0 if they agree."""
    heard: Heard | Unseen
    first_line: datetime | Unseen | None
    """The first kernel line of the last hour."""
    oldest_beat: datetime | Unseen | None
    """The oldest heartbeat of the last day."""
    limits: Limits | Unseen
    streams: Collection[str] | Unseen
    """The watched namespaces that sent lines in the last day."""
    running: Mapping[str, bool] | Unseen
    """By silent namespace, whether a pod runs there; a namespace that could not be read is missing."""
    foreign: Foreign | Unseen
    """Kernel lines and pod lines that Loki has under other labels."""


def cluster(client: ReadOnlyKubeClient) -> Cluster:
    """Ask the API server for the caller's name."""
    try:
        user = client.user_name()
    except (KubeForbidden, KubeNotFound):  # it is older than 1.28, does not tell, or is no API server
        client.group_names()
        user = "you"
    return Cluster(client.server, user, client.clock_ahead_seconds)


def rights(client: ReadOnlyKubeClient, settings: Settings) -> Mapping[str, str]:
    """Ask for each right that a command of this program needs; return the missing ones."""
    needed = people_permissions(session.lease_namespace(client, settings), settings.lease_name)
    lacks = {commands: denied_permissions(client, each) for commands, each in needed.items()}
    return {commands: ", ".join(map(str, denied)) for commands, denied in lacks.items() if denied}


def nodes(client: ReadOnlyKubeClient, settings: Published | None) -> Mapping[str, NodeState]:
    """List the Nodes; without the controller's settings, GPU nodes are those with the usual labels."""
    return list_nodes(client, node_decoder(settings, listed_slices(client)), cached=True)


def workloads(client: ReadOnlyKubeClient, kind: str, namespace: str) -> tuple[Workload, ...]:
    """List the DaemonSets or the Deployments of a namespace."""
    path = namespace_path(namespace).replace("/api/v1/", "/apis/apps/v1/")
    return tuple(client.list_pages(f"{path}/{kind}", _workload).items)


def _workload(item: JsonObject) -> Workload:
    metadata, spec, status = (json_object(item, name) for name in ("metadata", "spec", "status"))
    pod = json_object(json_object(spec, "template"), "spec")
    containers = [each for each in pod.get("containers") or () if isinstance(each, dict)]
    words = (word for each in containers for key in ("command", "args") for word in each.get(key) or ())
    return Workload(
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
        desired=int(status.get("desiredNumberScheduled", spec.get("replicas")) or 0),
        ready=int(status.get("numberReady", status.get("readyReplicas")) or 0),
        arguments=tuple(map(str, words)),
    )


def configured(client: ReadOnlyKubeClient, namespace: str, name: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap of manifests and chart; none without it."""
    try:
        return json_object(client.get(f"{namespace_path(namespace)}/configmaps/{name}"), "data")
    except KubeNotFound:
        return {}


def policies(client: ReadOnlyKubeClient, names: Iterable[str]) -> Mapping[str, tuple[JsonObject, JsonObject]]:
    """Return these admission policies, each with its binding; an empty object for one that is missing."""
    kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    return {name: (_admission(client, kinds[0], name), _admission(client, kinds[1], name)) for name in names}


def _admission(client: ReadOnlyKubeClient, kind: str, name: str) -> JsonObject:
    try:
        return client.get(f"/apis/admissionregistration.k8s.io/v1/{kind}/{name}")
    except KubeNotFound as error:
        if f'"{name}" not found' in str(error):
            return {}
        why = "this API server has no admission policies: only roles limit the controller"
        raise Unseen(why, "upgrade to Kubernetes 1.30 or newer", State.WARN) from error


def readers(client: ReadOnlyKubeClient, namespace: str) -> Mapping[str, Reader]:
    """Return, by Node, the pod of the reader's namespace there; a ready one if there are several."""
    path, columns = f"{namespace_path(namespace)}/pods", ("Node", "Ready", "Status")
    found: dict[str, Reader] = {}
    for node, ready, status, script in client.table(path, *columns, annotation=SCRIPT_HASH):
        up, _, of = ready.partition("/")
        pod = Reader(status == "Running" and up == of, script)
        found[node] = max(found.get(node, pod), pod, key=lambda each: each.is_ready)
    return found


def silent(settings: Settings, streams: Collection[str]) -> list[str]:
    """Return the watched names and patterns of which Loki has no line."""
    return [each for each in settings.namespaces()[0] if not any(fnmatchcase(name, each) for name in streams)]


def running(client: ReadOnlyKubeClient, settings: Settings, streams: Collection[str]) -> Mapping[str, bool]:
    """Return, by silent namespace, whether a pod runs there, for those that the caller may read."""
    found: dict[str, bool] = {}
    some = {"limit": "1", "fieldSelector": "status.phase=Running"}
    for name in silent(settings, streams):
        with suppress(KubeForbidden):
            if not set("*?") & set(name):
                found[name] = bool(client.list(f"{namespace_path(name)}/pods", some)["items"])
    return found


def labels(loki: LokiClient) -> tuple[str, ...]:
    """Return the index labels of the last ten minutes: the cheapest question that needs the tenant."""
    now_ns = loki.now_ns()
    return loki.label_names(now_ns - HOUR_NS // 6, now_ns)


def heard(loki: LokiClient, settings: Settings, nodes_now: Callable[[], Collection[str]]) -> Heard:
    """Return the latest heartbeat of each node; older ones are read for silent nodes only.

    ``nodes_now`` waits for the names of the GPU nodes.
    """
    now_ns = loki.now_ns()
    recent = TimeWindow(now_ns - _RECENT_NS, now_ns + span_ns(FUTURE_SKEW_SECONDS))
    found = _read(loki, settings, recent)
    gpu_nodes = nodes_now()
    found = replace(found, fresh=frozenset(found.beats))
    unheard = set(gpu_nodes) - found.fresh
    earlier = TimeWindow(now_ns - span_ns(settings.heartbeat_stale_seconds), recent.start_ns)
    if (not unheard and gpu_nodes) or earlier.width_ns <= 0:
        return found
    older = _read(loki, settings, earlier, unheard if found.beats and len(unheard) <= _NAMES_MOST else ())
    return Heard(
        {**older.beats, **found.beats},
        found.nameless if found.beats or found.nameless else older.nameless,
        found.labels | older.labels,
        found.complete and older.complete,
        found.fresh,
    )


def _read(loki: LokiClient, settings: Settings, span: TimeWindow, only: Collection[str] = ()) -> Heard:
    query = WindowQuery(loki, heartbeat_query(settings), settings, HOUR_NS)
    pieces = query.read(span, span.width_ns, only=only, queries=_QUERIES, lines=_LINES)
    entries = [entry for piece in pieces for entry in piece.entries]
    parsed = [(entry.labels, beat) for entry in entries if (beat := parse_heartbeat(entry.text))]
    walls = {each.get(settings.node_label, ""): beat.wall for each, beat in parsed}
    return Heard(
        {name: wall for name, wall in walls.items() if name},
        sum(not each.get(settings.node_label) for each, _ in parsed),
        frozenset(name for each, _ in parsed for name in each),
        pieces[-1].window.end_ns >= span.end_ns and all(piece.complete for piece in pieces),
    )


def first(loki: LokiClient, query: str, span_ns: int) -> datetime | None:
    """Return the time of the first line that Loki has of the last ``span_ns`` nanoseconds."""
    now_ns = loki.now_ns()
    found = loki.query_range(query, now_ns - span_ns, now_ns, 1).entries
    return moment_of(found[0].timestamp_ns) if found else None


def limits(loki: LokiClient, settings: Settings) -> Limits:
    """Send queries of the controller's size that find nothing; read Loki's configuration if it is shown."""
    import yaml  # slow, and needed by no other command that asks Loki

    query, now_ns = kernel_query(settings, (_NO_LINE,)), loki.now_ns()
    entries, refused = settings.loki_limit, ""
    for width_ns in (SECOND_NS, HOUR_NS):
        try:
            loki.query_range(query, now_ns - width_ns, now_ns, entries)
        except LokiRefused as error:
            if error.allowed_limit is None and not error.asks_for_less:
                raise
            entries = error.allowed_limit or entries
            refused = str(error) if error.asks_for_less else refused
    try:
        config = yaml.safe_load(loki.configuration())
    except (LokiError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
        config = {}  # a gateway does not serve this page
    sections = config.items() if isinstance(config, dict) else ()
    return Limits(entries, refused, {name: each for name, each in sections if isinstance(each, dict)})


def streams(loki: LokiClient, settings: Settings) -> Collection[str]:
    """Return the watched namespaces that sent lines in the last day."""
    matchers, now_ns = pod_matchers(settings), loki.now_ns()
    if matchers is None:
        return ()
    return loki.label_values(settings.namespace_label, selector(matchers), now_ns - DAY_NS, now_ns)
