"""``python -m konductor_like_sandbox.kubernetes``: the stand-in on its own, until it is interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from konductor_like_sandbox.kubernetes.fleet import make_fleet
from konductor_like_sandbox.kubernetes.server import KubernetesServer
from konductor_like_sandbox.server import serve_until_interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    options = _parser().parse_args(arguments)
    server = KubernetesServer(options.port, make_fleet(options.nodes, options.cpu_nodes))

    def begun() -> str:
        if options.refresh_seconds:
            server.kubelets.start(options.refresh_seconds)
        greeting = f"serving {options.nodes} GPU nodes on {server.url}"
        if options.kubeconfig:
            server.kubeconfig(options.kubeconfig)
            greeting += f"\ntry: kubectl --kubeconfig {options.kubeconfig} get nodes"
        return greeting

    return serve_until_interrupted(server, options.port, begun)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m konductor_like_sandbox.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes any free one")
    parser.add_argument("--nodes", type=int, default=20, help="how many GPU nodes (20)")
    parser.add_argument("--cpu-nodes", type=int, default=0, help="how many nodes without GPUs (0)")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for kubectl to this file")
    parser.add_argument(
        "--refresh-seconds",
        type=float,
        default=0.0,
        help="refresh the status of each node this often, as kubelets do (0: never)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
