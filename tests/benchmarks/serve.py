"""A stand-in as a process of its own, which counts its requests.

It answers each line on standard input with a line of JSON: the number of requests since the last answer, by
kind. It ends with its input.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_node
from konductor_like_sandbox.loki import LokiServer
from tests.loki_values import DEPLOYED

POD_BYTES = 1_400_000


def main(arguments: list[str]) -> None:
    """``loki``, or ``kubernetes KUBECONFIG NODES REFRESH_SECONDS [PODS]``.

    ``PODS`` running pods of :data:`POD_BYTES` are put on the first node.
    """
    if arguments[0] == "loki":
        with LokiServer(limits=DEPLOYED) as loki:
            _converse(
                loki.url, lambda: (exchange.request.path for exchange in loki.journal), loki.clear_journal
            )
        return
    kubeconfig, nodes, refresh_seconds, pods = [*arguments[1:], "0"][:4]
    fleet = (make_node(f"gpu-{number:04}") for number in range(1, int(nodes) + 1))
    with KubernetesServer(nodes=fleet, history_limit=2 * int(nodes)) as cluster:
        cluster.kubeconfig(Path(kubeconfig))
        for number in range(int(pods)):
            cluster.put_pod(_large_pod(number))
        if float(refresh_seconds):
            cluster.kubelets.start(float(refresh_seconds))
        _converse(
            cluster.url,
            lambda: (f"{call.verb} {call.resource}" for call in cluster.calls()),
            cluster.clear_calls,
        )


def _large_pod(number: int) -> dict[str, object]:
    """A tenant's pod of the largest size that etcd accepts."""
    environment = [{"name": "WASTE", "value": "x" * POD_BYTES}]
    limits = {"nvidia.com/gpu": "1"}
    return {
        "metadata": {"namespace": "default", "name": f"large-{number}"},
        "spec": {
            "nodeName": "gpu-0001",
            "containers": [{"name": "main", "env": environment, "resources": {"limits": limits}}],
        },
        "status": {"phase": "Running"},
    }


def _converse(url: str, asked: Callable[[], Iterable[str]], forget: Callable[[], None]) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        found = Counter(asked())
        forget()
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
