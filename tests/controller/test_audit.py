"""The audit trail: one line for each write and each refusal, always with the same fields."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.controller import logs
from konductor_like.controller.reporting import audit
from konductor_like.controller.reporting.audit import Audit
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import Gpu, GpuSource, IncidentKey, SeenGpu, Severity, SkippedTaint, SkipReason
from konductor_like.policy import change as change_module
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import Cluster, at, fault, fleet, node, ns

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "audit-trail.md").read_text("utf-8")


class Trail:
    """An audit trail whose lines a test can read."""

    def __init__(self, style: str = "json", *, dry_run: bool = False) -> None:
        self._log = io.StringIO()
        logs.set_up("text" if style == "text" else "json", "info", stream=self._log)
        self.metrics = Metrics()
        self.audit = Audit(self.metrics, dry_run=dry_run)

    @property
    def text(self) -> str:
        return self._log.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def refused(name: str = "gpu-1", why: SkipReason = SkipReason.BRAKE) -> SkippedTaint:
    return SkippedTaint(name, IncidentKey("xid.79", None), why)


def test_the_line_of_a_taint_has_the_act_of_its_record() -> None:
    cluster, trail = Cluster(fleet(3), PolicyConfig(version="abc")), Trail()
    [change] = cluster.tick(fault()).changes

    trail.audit.written(change, "applied")

    [line] = trail.lines
    record = cluster.nodes["gpu-1"].record
    assert record.act is not None
    assert line["act"] == record.act.id == change.act_id
    told = {"node": "gpu-1", "verb": "taint", "outcome": "applied", "why": "GPUFaultTainted", "rules": "abc"}
    about = {"rule": "xid.79", "gpu": "0000:4e:00", "code": 79, "severity": "fatal", "count": 1}
    assert line.items() >= (told | about | {"evidence": record.incidents[0].evidence}).items()


def test_the_line_names_the_gpu_of_its_own_fault_after_a_swap() -> None:
    cluster, trail = Cluster(fleet(3)), Trail()
    for number, boot in enumerate(("boot-a", "boot-b")):
        uuid = f"GPU-{number * 11111111:08}-1111-2222-3333-444444444444"
        cluster.nodes["gpu-1"] = replace(
            cluster.nodes["gpu-1"],
            machine=replace(cluster.nodes["gpu-1"].machine, boot_id=boot),
            seen_gpus=(SeenGpu(Gpu("0000:4e:00", uuid), GpuSource.SLICE, ns(1000 * number)),),
        )
        suspect = fault(rule="xid.63", severity=Severity.SUSPECT, seconds=2000 * number, boot=boot)
        for change in cluster.tick(suspect, seconds=2000 * number).changes:
            trail.audit.written(change, "applied")

    assert [line["uuid"][:12] for line in trail.lines] == ["GPU-00000000", "GPU-11111111"]
    assert {line["serial"] for line in trail.lines} == {None}


def test_writes_and_refusals_have_the_same_fields_and_the_page_describes_each() -> None:
    cluster, trail = Cluster(fleet(3)), Trail()
    plan = cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))

    for change in plan.changes:
        trail.audit.written(change, "applied")
    trail.audit.refused(plan.refused, "", at(0))

    assert [line["outcome"] for line in trail.lines] == ["applied", "applied", "refused"]
    [fields] = {tuple(line) for line in trail.lines}
    for name in fields[3:]:  # behind the log's own: ts, level, msg
        assert f"- `{name}`: " in PAGE, name
    for why in SkipReason:
        assert f"- `{why.value}`: " in PAGE, why


def test_the_line_of_a_refusal_has_the_fault() -> None:
    cluster, trail = Cluster({"gpu-1": node(opted_out=True)}), Trail()
    plan = cluster.tick(fault())

    trail.audit.refused(plan.refused, "abc", at(0))

    [line] = trail.lines
    told = {"act": None, "verb": "taint", "outcome": "refused", "why": "opted out", "rules": "abc"}
    about = {"rule": "xid.79", "severity": "fatal", "evidence": fault().finding.text}
    assert line.items() >= (told | about).items()


def test_a_refusal_is_logged_and_counted_once_while_its_reason_stays_the_same() -> None:
    trail = Trail()

    for second in range(0, 3600, 60):
        trail.audit.refused([refused()], "", at(second))

    assert len(trail.lines) == 1
    value = trail.metrics.registry.get_sample_value("konductor_like_refusals_total", {"why": "brake"})
    assert value == 1

    trail.audit.refused([refused(why=SkipReason.PAUSED)], "", at(3605))
    trail.audit.refused([], "", at(4300))
    trail.audit.refused([refused(why=SkipReason.PAUSED)], "", at(4305))
    assert [line["why"] for line in trail.lines] == ["brake", "paused", "paused"]


def test_the_number_of_remembered_refusals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "REMEMBERED", 2)
    trail = Trail()

    trail.audit.refused([refused(name) for name in ("gpu-1", "gpu-2", "gpu-3")], "", at(0))
    trail.audit.refused([refused(name) for name in ("gpu-3", "gpu-1")], "", at(1))

    assert [line["node"] for line in trail.lines] == ["gpu-1", "gpu-2", "gpu-3", "gpu-1"]


def test_failed_writes_are_logged_and_conflicts_are_not() -> None:
    cluster, trail = Cluster(fleet(3)), Trail(dry_run=True)
    [change] = cluster.tick(fault()).changes

    trail.audit.written(change, "conflict")
    trail.audit.written(change, "failed", "Forbidden.")
    trail.audit.written(change, "applied")

    told = [(line["outcome"], line["why"]) for line in trail.lines]
    assert told == [("failed", "Forbidden."), ("dry-run", "GPUFaultTainted")]


def test_the_line_of_a_growing_count_has_its_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_module, "RECORD_INTERVAL_SECONDS", 0.0)
    suspect: dict[str, Any] = {"rule": "xid.63", "severity": Severity.SUSPECT}
    cluster, trail = Cluster(fleet(3)), Trail()
    cluster.tick(fault(**suspect))
    [change] = cluster.tick(fault(**suspect, seconds=1, stamp=101), seconds=1).changes

    trail.audit.written(change, "applied")

    assert (trail.lines[0]["rule"], trail.lines[0]["count"], trail.lines[0]["why"]) == ("xid.63", 2, "counts")


def test_as_text_an_audit_line_has_all_its_facts() -> None:
    cluster, trail = Cluster(fleet(3)), Trail("text")
    [change] = cluster.tick(fault()).changes

    trail.audit.written(change, "applied")

    [line] = trail.text.splitlines()
    assert f" act={change.act_id} node=gpu-1 verb=taint outcome=applied rule=xid.79 " in line
    assert 'evidence="NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."' in line
    assert " grounds=" not in line
