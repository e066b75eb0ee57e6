"""docs/cli.md describes every command, option, state, column and field, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from konductor_like.cli.explain import fault, node
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.command import Output
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Fleet, Health, status_report
from konductor_like.cli.status.text import WIDE_HEADERS
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.detection import packaged
from konductor_like.exits import Exit
from konductor_like.model import Act, Coverage, Gap, Loss, Misnamed
from tests.cli.scenes import NOW, every_state, failing_jobs, settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
COMMANDS = (
    *("run", "status", "reset", "pause", "resume", "brake", "taint", "ack", "scan", "backtest", "explain"),
    *("rules", "check-config", "demo"),
)
EVERYWHERE = {"--help", "--verbose", "--context", "--kubeconfig"}


def test_every_command_is_described() -> None:
    assert tuple(re.findall(r"^## (\S+)$", PAGE, re.MULTILINE)) == COMMANDS


@pytest.mark.parametrize("command", [*COMMANDS, "rules list", "rules show", "rules test", "demo xid"])
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


def documents() -> dict[str, dict[str, Any]]:
    """Return a document with every field, by the heading of its section."""
    nodes = {state.name: state for state in map(decode_node, every_state())}
    jobs = {f"job-{state.name}": state for state in map(decode_node, failing_jobs())}
    acted = replace(nodes["gpu-2"].record, act=Act("id", NOW, "rules"))
    nodes |= {"gpu-2": replace(nodes["gpu-2"], record=acted)}
    coverage = Coverage(NOW, gaps=(Gap(0, 1, None),), lost={"a": Loss(1, 1)}, misnamed={"b": Misnamed(1, 1)})
    controller = ControllerReport("ns/lease", settings=settings_of(), coverage=coverage)
    status = status_document(status_report(Fleet(NOW, nodes | jobs, controller, nodes)))
    held = node.explain_node("gpu-2", Fleet(NOW, nodes, controller, nodes), "")
    assert status["brake"]["held"]
    assert status["failureGroups"]
    assert held.held_back
    link_down = "NVRM: Xid (PCI:0000:2a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x0 0x0 0x0)"
    return {
        "\n## status\n": status,
        "\n## explain\n": fault.document(fault.explain_text(link_down, None, packaged())),
        "\n### explain NODE\n": node.document(held),
    }


@pytest.mark.parametrize("heading", documents())
def test_every_field_of_a_document_is_described(heading: str) -> None:
    document = documents()[heading]
    own = document if heading.strip() != "### explain NODE" else document | {"node": None}
    section = PAGE.split(heading)[1].split("\n## ")[0]

    assert {name for name in names(own) if not re.search(rf"[`.]{name}[`.\[]", section)} == set()


def test_every_node_and_every_fault_of_the_document_has_the_same_fields() -> None:
    nodes = documents()["\n## status\n"]["nodes"]

    assert len({tuple(each) for each in nodes}) == 1
    assert len({tuple(fault) for each in nodes for fault in each["faults"]}) == 1


def names(part: object) -> set[str]:
    """Yield every key, at any depth."""
    if isinstance(part, dict):
        return {str(key) for key in part} | {name for value in part.values() for name in names(value)}
    if isinstance(part, list):
        return {name for value in part for name in names(value)}
    return set()
