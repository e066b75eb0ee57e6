"""Broken sites of which the nodes, the readers, the collector or Loki tell, each with one fault."""

from __future__ import annotations

from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes.errors import matching
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node
from konductor_like_sandbox.loki import HTML_ANSWER
from tests.cli.doctor_damages import (
    FIRST,
    SECOND,
    THIRD,
    both,
    broken,
    change,
    kube,
    limits,
    loki,
    rename,
    warned,
)
from tests.cli.doctor_site import GPU_NODES, pod

LOG_CASES = [
    broken(
        "no node counts as a GPU node",
        change(nodes=[make_cpu_node(name) for name in GPU_NODES]),
        "GPU nodes",
        "counts as a GPU node, and the reader runs on gpu-1",
    ),
    warned(
        "a node has a reader of an earlier build",
        lambda site: site.pods.__setitem__(1, pod("dmesg-logging", "dmesg-b", SECOND, script="800eea2c" * 8)),
        "readers",
        f"a reader of another build runs on 1 of 3 GPU nodes: {SECOND}",
    ),
    broken("no pod of the reader runs", change(pods=[]), "readers", "describe daemonset"),
    broken(
        "one node has no reader",
        both(lambda site: site.pods.pop(0), lambda site: site.names.pop(FIRST)),
        "readers",
        f"1 of 3 GPU nodes: {FIRST}",
    ),
    broken(
        "a reader crashes",
        lambda site: site.pods.__setitem__(1, pod("dmesg-logging", "dmesg-b", SECOND, ready=False)),
        "readers",
        f"not ready on 1 of 3 GPU nodes: {SECOND}",
    ),
    broken(
        "Loki is down",
        both(loki(lambda loki: loki.stop()), change(kernel_read_seconds=900.0)),
        "Loki",
        "cannot connect",
        "reading",
    ),
    warned(
        "Loki cannot be reached from here", loki(lambda loki: loki.stop()), "Loki", "no Loki answers here"
    ),
    warned(
        "the address is a login page",
        loki(lambda loki: loki.fail(HTML_ANSWER, None)),
        "Loki",
        "LOG_ENDPOINT may point at another server",
    ),
    broken("no tenant is set", change(tenants=True), "tenant and login", "KONDUCTOR_LOKI_TENANT"),
    broken(
        "the password is wrong",
        loki(lambda loki: loki.fail(Mishap(status=401, body="unauthorized"), None)),
        "tenant and login",
        "KONDUCTOR_LOKI_BEARER_TOKEN",
    ),
    warned("few lines", limits(max_entries_limit_per_query=500), "limits", "500 lines at most"),
    warned("short queries", limits(max_query_length_seconds=1800), "limits", "over one hour is refused"),
    warned("small messages", limits(grpc_message_bytes=1 << 20), "limits", "less than 4 MiB"),
    warned("patient Loki", limits(query_timeout_seconds=120.0), "limits", "query_timeout"),
    warned("short lookback", limits(max_query_lookback_seconds=7200), "limits", "older than 120m"),
    broken(
        "the kernel log does not arrive",
        change(beats=False, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "has no line in the last hour",
    ),
    broken(
        "the kernel log has another name",
        change(kernel={"namespace": "gpu-logs"}, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        'k8s_namespace_name="gpu-logs"',
    ),
    warned(
        "the reader is a plain dmesg",
        change(line="[12.5] usb 1-1: new device", unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "no heartbeat",
    ),
    broken(
        "the controller has another node label",
        change(settings={"node_label": "node"}, heard=0, unheard=frozenset(GPU_NODES)),
        "node label",
        "no heartbeat has node",
    ),
    broken(
        "pod lines lack the node label",
        change(pods_node=""),
        "node label",
        "let the collector set k8s_node_name on pod lines, too",
    ),
    broken("short names", rename(FIRST, "gpu-1"), "node names", f"the lines say gpu-1, the Node is {FIRST}"),
    broken("capitals", rename(FIRST, FIRST.upper()), "node names", "the lines say GPU-1"),
    broken("another domain", rename(FIRST, "gpu-1.other.net"), "node names", "gpu-1.other.net"),
    broken("a cluster prefix", rename(FIRST, f"prod-{FIRST}"), "node names", f"prod-{FIRST}"),
    warned(
        "another cluster's nodes",
        lambda site: site.names.update({"stray-9": ""}),
        "node names",
        "heartbeats of stray-9",
    ),
    broken("a silent node", lambda site: site.names.pop(THIRD), "heartbeats", f"1 of 3 GPU nodes: {THIRD}"),
    broken(
        "a namespace is not shipped", change(shipped_namespaces=()), "namespaces", "Loki has no line: team-a"
    ),
    warned(
        "a namespace may be idle",
        both(
            change(shipped_namespaces=()),
            kube(lambda kube: kube.access.deny("list", "pods", "", "", "team-a")),
        ),
        "namespaces",
        "normal if no pod runs there",
    ),
    warned("a node's clock is fast", change(ahead_seconds=300.0), "clocks", f"{FIRST} is 4m"),
    warned(
        "Loki deletes early", limits(retention_period_seconds=21_600), "retention", "deletes lines after 6h"
    ),
    warned(
        "Loki deletes early and shows no configuration",
        both(
            change(oldest_seconds=4000.0),
            loki(lambda loki: loki.fail(Mishap(status=404), None, matching(path="/config"))),
        ),
        "retention",
        "the controller started 3d ago",
    ),
]
