"""Gathers all facts of a checkup at the same time, within one deadline."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from konductor_like.cli import session
from konductor_like.cli.doctor import cluster_facts, log_facts
from konductor_like.cli.doctor.tasks import Deadline, Task, unseen
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeError
from konductor_like.doctor.cluster_links import CLUSTER
from konductor_like.doctor.facts import Cause, Controller, Expected, Facts, Heard, Unseen
from konductor_like.doctor.log_links import LOKI
from konductor_like.loki.client import LokiClient
from konductor_like.loki.errors import LokiError
from konductor_like.settings import Settings, parse_matchers

T = TypeVar("T")
_NO_NAMESPACE = Unseen(Cause.UNASKED, "KONDUCTOR_KERNEL_SELECTOR names no namespace of reader pods")


def gather(
    client: ReadOnlyKubeClient | KubeError,
    loki: LokiClient | LokiError,
    settings: Settings,
    now: Callable[[], datetime],
    seconds: float,
) -> Facts:
    """Return the facts after ``seconds`` at the latest; an error in place of a client is its only fact."""
    deadline = Deadline(seconds)
    expected = expect(settings)

    def kube(ask: Callable[[ReadOnlyKubeClient], T | Unseen]) -> Task[T]:
        return deadline.start(lambda: unseen(client) if isinstance(client, KubeError) else ask(client))

    def logs(ask: Callable[[LokiClient], T | Unseen]) -> Task[T]:
        def work() -> T | Unseen:
            away = isinstance(labels.get(), Unseen) or isinstance(loki, LokiError)
            return _AFTER_LOKI if away or isinstance(loki, LokiError) else ask(loki)

        return deadline.start(work)

    labels = deadline.start(lambda: unseen(loki) if isinstance(loki, LokiError) else log_facts.labels(loki))
    cluster = kube(cluster_facts.cluster)
    rights = kube(lambda api: cluster_facts.rights(api, settings))
    report = kube(lambda api: session.known_controller(api, settings))
    deployments = kube(lambda api: cluster_facts.workloads(api, cluster_facts.DEPLOYMENTS_PATH))
    daemonsets = kube(lambda api: cluster_facts.workloads(api, cluster_facts.DAEMONSETS_PATH))
    policies = kube(cluster_facts.policies)
    groups = kube(lambda api: frozenset(api.group_names()))
    namespace = expected.reader_namespace
    readers = kube(lambda api: cluster_facts.readers(api, namespace) if namespace else _NO_NAMESPACE)
    nodes = kube(lambda api: cluster_facts.nodes(api, _or_none(report.get())))

    def heartbeats(api: LokiClient) -> Heard:
        found = _or_none(nodes.get()) or {}
        return log_facts.heard(api, settings, [name for name, node in found.items() if node.is_gpu_node])

    heard = logs(heartbeats)
    limits = logs(lambda api: log_facts.limits(api, settings))
    oldest = logs(lambda api: log_facts.oldest_beat(api, settings))
    streams = logs(lambda api: log_facts.streams(api, settings))
    lines = logs(lambda api: log_facts.kernel_lines(api, settings))

    def silent_namespaces(api: ReadOnlyKubeClient) -> dict[str, bool] | Unseen:
        found, lease = streams.get(), _or_none(report.get())
        if isinstance(found, Unseen):
            return found
        published = lease.settings.namespaces if lease and lease.settings else settings.watched_namespaces
        return dict(cluster_facts.running(api, [name for name in published if name not in found]))

    running = kube(silent_namespaces)
    caller = cluster.get()
    gone = isinstance(caller, Unseen)

    def seen(task: Task[T]) -> T | Unseen:
        return _AFTER_CLUSTER if gone else task.get()

    at = now() if isinstance(client, KubeError) else session.cluster_now(client)
    lease = seen(report)
    found: Controller | Unseen = lease if isinstance(lease, Unseen) else cluster_facts.controller(lease, at)
    return Facts(
        now=at,
        expected=expected,
        cluster=caller,
        rights=seen(rights),
        controller=found,
        deployments=seen(deployments),
        daemonsets=seen(daemonsets),
        policies=seen(policies),
        nodes=seen(nodes),
        readers=seen(readers),
        groups=seen(groups),
        labels=labels.get(),
        heard=heard.get(),
        kernel_lines=lines.get(),
        limits=limits.get(),
        oldest_beat=oldest.get(),
        streams=streams.get(),
        running=seen(running),
        loki_ahead_seconds=0.0 if isinstance(loki, LokiError) else loki.clock_ahead_seconds,
    )


_AFTER_CLUSTER = Unseen(Cause.UNASKED, f"the link `{CLUSTER.name}` must be whole first")
_AFTER_LOKI = Unseen(Cause.UNASKED, f"the link `{LOKI.name}` must be whole first")


def _or_none(fact: T | Unseen) -> T | None:
    return None if isinstance(fact, Unseen) else fact


def expect(settings: Settings) -> Expected:
    """Return what the settings of this command name; no credentials of the address are in it."""
    given = settings.model_fields_set
    matchers = parse_matchers(settings.kernel_selector)
    namespaces = [each.value for each in matchers if each.op == "=" and each.name == settings.namespace_label]
    host = settings.log_endpoint.partition("://")
    return Expected(
        endpoint=f"{host[0]}://{host[2].rpartition('@')[2]}",
        endpoint_given="log_endpoint" in given,
        kernel_selector=settings.kernel_selector,
        node_label=settings.node_label,
        reader_namespace=namespaces[0] if namespaces else "",
        entries=settings.loki_limit,
        timeout_seconds=settings.loki_timeout_seconds,
        namespaces=settings.watched_namespaces,
        namespaces_given="watched_namespaces" in given,
    )
