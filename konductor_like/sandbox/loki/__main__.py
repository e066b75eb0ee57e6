"""``python -m konductor_like.sandbox.loki``: the stand-in on its own, until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from konductor_like.sandbox.loki.limits import LokiLimits
from konductor_like.sandbox.loki.server import LokiServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    options = _parser().parse_args(arguments)
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before any thread starts, so that all inherit it
    limits = replace(
        LokiLimits(),
        max_entries_limit_per_query=options.max_entries,
        promoted_attributes=frozenset(options.promote),
    )
    server = LokiServer(options.port, limits, auth_enabled=options.auth, base_path=options.base_path)
    try:
        server.start()
    except OSError as error:
        sys.stderr.write(f"cannot listen on port {options.port}: {error}; choose another, or 0 for any\n")
        return 1
    try:
        if options.port_file:
            _write_whole(options.port_file, f"{server.port}\n")
        sys.stdout.write(f"Loki stand-in on {server.url}; push OTLP JSON to {server.url}/otlp/v1/logs\n")
        sys.stdout.flush()
        signal.sigwait(signals)
    finally:
        server.stop()
    return 0


def _write_whole(path: Path, text: str) -> None:
    """Write the file in one step, so that nobody reads half of it."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    draft.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m konductor_like.sandbox.loki", description=__doc__)
    parser.add_argument("--port", type=int, default=3100, help="3100 by default; 0 takes any free one")
    parser.add_argument("--port-file", type=Path, help="write the port to this file once it listens")
    parser.add_argument("--base-path", default="", help="serve under this path, as behind a gateway")
    parser.add_argument("--auth", action="store_true", help="ask for X-Scope-OrgID and keep tenants apart")
    parser.add_argument("--max-entries", type=int, default=5000, help="lines per query at most (5000)")
    parser.add_argument(
        "--promote",
        action="append",
        default=[],
        metavar="ATTRIBUTE",
        help="make this resource attribute an index label, such as k8s.node.name; may be repeated",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
