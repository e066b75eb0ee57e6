"""The commands of docs/start/laptop.md work as they are, over the stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from konductor_like_sandbox.loki import LokiServer
from tests.cli.conftest import Cluster
from tests.docs.shell import our_commands, prompted
from tools.generate_docs import DOCS

COMMANDS = [
    each
    for line in prompted(DOCS / "start" / "laptop.md")
    for each in our_commands(line)
    if each != ["run"]  # it ends with Ctrl-C only
]


def test_the_page_shows_the_first_commands_of_a_new_user() -> None:
    assert {command[0] for command in COMMANDS} >= {"scan", "explain", "run", "status", "check-config"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_laptop_page_works(command: list[str], cluster: Cluster) -> None:
    cluster("every state")
    with LokiServer() as loki:
        done = subprocess.run(
            [sys.executable, "-m", "konductor_like.cli", *command],
            env={**os.environ, "LOG_ENDPOINT": loki.url, "KONDUCTOR_LISTEN": "off"},
            input="NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert "error:" not in done.stderr
