"""The command line, for people: ``konductor-like`` and ``kubectl konductor-like``."""

import sys


def main() -> int:
    """Run the console script and return its exit status."""
    from konductor_like.cli.app import execute

    return execute(sys.argv[1:], sys.argv[0])
