"""docs/reference/json.md describes every field of a document; the pages describe every state and column."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli.explain import fault, node
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Fleet, status_report
from konductor_like.cli.status.text import WIDE_HEADERS
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.detection import packaged
from konductor_like.model import Act, Coverage, Gap, Loss, Misnamed
from konductor_like.policy.node.health import Health
from tests.cli.conftest import Run
from tests.cli.kinds import PASSED
from tests.cli.scenes import NOW, every_state, failing_jobs, settings_of
from tools.generate_docs import DOCS

PAGE = (DOCS / "reference" / "json.md").read_text("utf-8")


def test_every_state_and_column_is_described() -> None:
    everything = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))

    for word in (*Health, *WIDE_HEADERS[2:]):
        assert f"`{word}`" in everything


def documents() -> dict[str, dict[str, Any]]:
    """Return a document with every field, by the heading of its section."""
    nodes = {state.name: state for state in map(decode_node, every_state())}
    jobs = {f"job-{state.name}": state for state in map(decode_node, failing_jobs())}
    acted = replace(nodes["gpu-2"].record, act=Act("id", NOW, "rules"))
    tested = replace(nodes["gpu-1"].record, validation=PASSED)
    nodes |= {"gpu-2": replace(nodes["gpu-2"], record=acted), "gpu-1": replace(nodes["gpu-1"], record=tested)}
    coverage = Coverage(NOW, gaps=(Gap(0, 1, None),), lost={"a": Loss(1, 1)}, misnamed={"b": Misnamed(1, 1)})
    controller = ControllerReport("ns/lease", settings=settings_of(), coverage=coverage)
    status = status_document(status_report(Fleet(NOW, nodes | jobs, controller, nodes)))
    held = node.explain_node("gpu-2", Fleet(NOW, nodes, controller, nodes), "")
    assert status["brake"]["held"]
    assert status["failureGroups"]
    assert held.held_back
    link_down = "NVRM: Xid (PCI:0000:2a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x0 0x0 0x0)"
    return {
        "Status": status,
        "Explanation": fault.document(fault.explain_text(link_down, None, packaged())),
        "NodeExplanation": node.document(held),
    }


def described(heading: str) -> set[str]:
    """Return the fields in the section of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {name for path in re.findall(r"`([\w.\[\]]+)`", section) for name in re.findall(r"\w+", path)}


@pytest.mark.parametrize("kind", documents())
def test_every_field_of_a_document_is_described(kind: str) -> None:
    document = documents()[kind]
    inner = {"Status": {"brake": None}, "NodeExplanation": {"node": None}}.get(kind, {})

    assert document["kind"] == kind
    assert names(document | inner) - described(kind) <= {"apiVersion", "kind"}


def test_every_field_of_the_brake_is_described() -> None:
    brake = {**documents()["Status"]["brake"], "held": [{"node": "", "why": "", "fault": None}]}

    assert names(brake) - described("Brake") == set()


@pytest.mark.parametrize("command", ["scan", "rules list", "check-config"])
def test_every_field_of_a_short_document_is_described(command: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n")

    done = run(*command.split(), "-o", "json", *([str(log)] if command == "scan" else []))

    assert done.code == 0
    assert names(done.document) - described(command) == set()


def test_every_node_and_every_fault_of_the_document_has_the_same_fields() -> None:
    nodes = documents()["Status"]["nodes"]

    assert len({tuple(each) for each in nodes}) == 1
    assert len({tuple(fault) for each in nodes for fault in each["faults"]}) == 1


def names(part: object) -> set[str]:
    """Yield every key, at any depth."""
    if isinstance(part, dict):
        return {str(key) for key in part} | {name for value in part.values() for name in names(value)}
    if isinstance(part, list):
        return {name for value in part for name in names(value)}
    return set()
