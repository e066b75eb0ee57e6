"""``python -m konductor_like_sandbox.loki``: the stand-in on its own, until it is interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from konductor_like_sandbox.loki.server import LokiServer
from konductor_like_sandbox.server import serve_until_interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m konductor_like_sandbox.loki", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes any free one")
    server = LokiServer(port := parser.parse_args(arguments).port)
    return serve_until_interrupted(server, port, lambda: f"serving an empty Loki on {server.url}")


if __name__ == "__main__":
    sys.exit(main())
