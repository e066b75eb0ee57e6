"""docs/cli.md speaks of every command, option, state, column and field, and of no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.command import Output
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Health, StatusReport, node_reports
from konductor_like.cli.status.shared_failures import shared_failures
from konductor_like.cli.status.text import WIDE_HEADERS
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.exits import Exit
from konductor_like.model import BrakeState, Held
from tests.cli.scenes import NOW, every_state, in_event, incident, settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
COMMANDS = (
    *("run", "status", "reset", "pause", "resume", "brake", "taint", "ack", "scan", "backtest", "explain"),
    *("rules", "check-config", "demo"),
)
EVERYWHERE = {"--help", "--verbose", "--context", "--kubeconfig"}


def test_every_command_is_described() -> None:
    assert tuple(re.findall(r"^## (\S+)$", PAGE, re.MULTILINE)) == COMMANDS


@pytest.mark.parametrize("command", [*COMMANDS, "rules list", "rules show", "rules test"])
def test_every_option_is_described(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "konductor_like.cli", *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    options = {
        match[2]: match[1] for match in re.finditer(r"^  (?:(-\w), )?(--[\w-]+)", done.stdout, re.MULTILINE)
    }
    section = PAGE.split(f"\n## {command.split()[0]}\n")[1].split("\n## ")[0]

    undocumented = {
        long
        for long, short in options.items()
        if long not in EVERYWHERE and long not in section and not (short and f"`{short}" in section)
    }
    assert options
    assert undocumented == set()


def test_every_state_column_format_and_exit_status_is_described() -> None:
    for word in (*Health, *WIDE_HEADERS[2:], *(str(status.value) for status in Exit)):
        assert f"`{word}`" in PAGE or f"| {word} |" in PAGE
    assert "|".join(get_args(Output)) in PAGE


def test_every_field_of_the_document_is_described() -> None:
    report = StatusReport(
        NOW,
        BrakeState(1, 1, 1, (Held("gpu-1", incident()),)),
        ControllerReport("ns/lease", settings=settings_of()),
        node_reports(map(decode_node, (*every_state(), *in_event())), None),
        failures=shared_failures({each["metadata"]["name"]: decode_node(each) for each in in_event()}, NOW),
    )
    assert report.failures

    for name in names(status_document(report)):
        assert re.search(rf"[`.]{name}[`.\[]", PAGE), name


def names(part: object) -> set[str]:
    """Every key, at any depth."""
    if isinstance(part, dict):
        return {str(key) for key in part} | {name for value in part.values() for name in names(value)}
    if isinstance(part, list):
        return {name for value in part for name in names(value)}
    return set()
