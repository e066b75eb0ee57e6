"""Gathers all facts of a checkup at the same time, within one deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from konductor_like.cli import session
from konductor_like.cli.doctor import cluster_facts, log_facts
from konductor_like.cli.doctor.tasks import Deadline, Task
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.doctor.cluster_links import CLUSTER
from konductor_like.doctor.facts import Cause, Expected, Facts, Heard, Unseen
from konductor_like.doctor.log_links import plain_names
from konductor_like.loki.client import LokiClient
from konductor_like.settings import Settings, parse_matchers

T = TypeVar("T")
_AFTER_CLUSTER = Unseen(Cause.UNASKED, f"the link `{CLUSTER.name}` must be whole first")
_NO_NAMESPACE = Unseen(Cause.UNASKED, "KONDUCTOR_KERNEL_SELECTOR names no namespace of reader pods")


def gather(
    connect: Callable[[], ReadOnlyKubeClient],
    connect_loki: Callable[[], LokiClient],
    settings: Settings,
    now: Callable[[], datetime],
    deadline: Deadline,
) -> Facts:
    """Return the facts at the deadline at the latest. A login command may take all of the time."""
    expected = expect(settings)
    client, loki = deadline.start(connect), deadline.start(connect_loki)

    def kube(ask: Callable[[ReadOnlyKubeClient], T | Unseen]) -> Task[T]:
        def work() -> T | Unseen:
            api = client.get()
            return api if isinstance(api, Unseen) else ask(api)

        return deadline.start(work)

    def logs(ask: Callable[[LokiClient], T | Unseen], after: Task[object] = loki) -> Task[T]:
        def work() -> T | Unseen:
            api, before = loki.get(), after.get()
            if isinstance(api, Unseen):
                return api
            return before if isinstance(before, Unseen) else ask(api)

        return deadline.start(work)

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

    labels = logs(log_facts.labels)
    heard = logs(heartbeats, labels)
    limits = logs(lambda api: log_facts.limits(api, settings), labels)
    oldest = logs(lambda api: log_facts.oldest_beat(api, settings), labels)
    streams = logs(lambda api: log_facts.streams(api, settings), labels)
    lines = logs(lambda api: log_facts.kernel_lines(api, settings), labels)

    def silent_namespaces(api: ReadOnlyKubeClient) -> Mapping[str, bool] | Unseen:
        found, lease = streams.get(), _or_none(report.get())
        if isinstance(found, Unseen):
            return found
        wanted = lease.settings.namespaces if lease and lease.settings else settings.watched_namespaces
        return cluster_facts.running(api, [name for name in plain_names(wanted) if name not in found])

    running = kube(silent_namespaces)
    caller = cluster.get()

    def seen(task: Task[T]) -> T | Unseen:
        return _AFTER_CLUSTER if isinstance(caller, Unseen) else task.get()

    api, asked = _or_none(client.get()), _or_none(loki.get())
    at = session.cluster_now(api) if api else now()
    lease = seen(report)
    facts = Facts(
        now=at,
        expected=expected,
        cluster=caller,
        rights=seen(rights),
        controller=lease if isinstance(lease, Unseen) else cluster_facts.controller(lease, at),
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
        loki_ahead_seconds=asked.clock_ahead_seconds if asked else 0.0,
    )
    for each in (api, asked):
        if each is not None:
            each.close()
    return facts


def _or_none(fact: T | Unseen) -> T | None:
    return None if isinstance(fact, Unseen) else fact


def expect(settings: Settings) -> Expected:
    """Return what the settings of this command name; no credentials of the address are in it."""
    matchers = parse_matchers(settings.kernel_selector)
    namespaces = [each.value for each in matchers if each.op == "=" and each.name == settings.namespace_label]
    host = settings.log_endpoint.partition("://")
    return Expected(
        endpoint=f"{host[0]}://{host[2].rpartition('@')[2]}",
        endpoint_given="log_endpoint" in settings.model_fields_set,
        kernel_selector=settings.kernel_selector,
        node_label=settings.node_label,
        reader_namespace=namespaces[0] if namespaces else "",
        entries=settings.loki_limit,
        timeout_seconds=settings.loki_timeout_seconds,
        namespaces=settings.watched_namespaces,
    )
