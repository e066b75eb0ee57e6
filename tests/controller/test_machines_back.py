"""A machine whose Node was deleted while tainted comes back tainted, until a person releases it."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from konductor_like.cluster.lease.annotations import LeasePayload, annotated, encode_payload, view
from konductor_like.controller.loop.operator_controls import OperatorControls
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import (
    Change,
    Control,
    ControlAct,
    Controls,
    Coverage,
    EventReason,
    Incident,
    Machine,
    MetBy,
    Needs,
    NodeRecord,
    NodeState,
)
from konductor_like.policy.fleet.deleted_nodes import KEPT, MACHINES_MOST
from konductor_like.policy.node.release import purge, release
from konductor_like.policy.operator import operator_taint
from tests.controller.reconciling import Scene, monitor, xid
from tests.policy.scenes import at, fleet, node, ns

FOREVER = KEPT.total_seconds()
TEXTS = {
    64: "[   64.000000] NVRM: Xid (PCI:0000:4e:00): 64, Row Remapper: error recording row remap",
    57: "[   57.000000] NVRM: Xid (PCI:0000:4e:00): 57, pid=1, training failed",
    14: "[   14.000000] NVRM: Xid (PCI:0000:4e:00): 14, pid=1, L1 -> L0",
}
"""By code, lines other than an Xid 79."""


class Story:
    """A fleet, its Lease and one controller after another."""

    seconds = 0.0

    def __init__(self, size: int = 5) -> None:
        self.scene = Scene(nodes=fleet(size), fleet=monitor(Metrics(), self.now_ns))
        self.run(seconds=0)

    def now_ns(self) -> int:
        return ns(self.seconds)

    def run(self, *codes: int, name: str = "gpu-1", seconds: float) -> None:
        """Reconcile once, with these Xids of the node."""
        lines = (xid(name, seconds=seconds, stamp=seconds + code) for code in codes)
        others = (replace(e, text=TEXTS.get(c, e.text)) for c, e in zip(codes, lines, strict=True))
        self.seconds = seconds
        self.scene.run(*others, seconds=seconds)

    def restart(self) -> None:
        """Start another controller; it has the Lease as the last renewal left it."""
        payload = LeasePayload(tainted=self.scene.reconciler.tainted())
        found = view(annotated({}, encode_payload(payload)))
        assert found.problem is None
        watcher = monitor(Metrics(), self.now_ns, before=Coverage(at(self.seconds)))
        self.scene = Scene(nodes=self.scene.cluster.nodes, fleet=watcher, lease=found.controls)

    def wrote(self, change: Change | None) -> None:
        """Let a person write this."""
        assert change is not None
        self.scene.cluster.nodes[change.node] = self.scene.cluster._write(self.state, change).state or node()

    def purge(self) -> None:
        """Purge as ``konductor-like reset --purge`` does: the Lease names the node before it is written."""
        act = ControlAct(Control.PURGE, at(self.seconds), "ann", nodes=1, names=("gpu-1",))
        read = SimpleNamespace(update=lambda _now, **_: Controls((act,)), unread=False)
        self.scene.reconciler._observer._controls = cast("OperatorControls", read)
        self.wrote(purge(self.state))

    def reset(self) -> None:
        now = at(self.seconds)
        self.wrote(release(self.state, at=now, by="ann", reason="swapped", read_ns={}))

    def delete(self, name: str = "gpu-1") -> None:
        del self.scene.cluster.nodes[name]

    def register(
        self, seconds: float, *, name: str = "gpu-1", system: str | None = None, boot: str | None = "boot-b"
    ) -> None:
        machine = Machine(f"uid-{seconds}", system or f"system-{name}", boot)
        made = replace(node(name), machine=machine, created_ns=ns(seconds))
        self.scene.cluster.nodes[name] = replace(made, as_read=replace(made.as_read, uid=machine.node_uid))

    def change_boot(self, boot: str) -> None:
        """Let the kubelet report the boot."""
        changed = replace(self.state, machine=replace(self.state.machine, boot_id=boot))
        self.scene.cluster.nodes["gpu-1"] = changed

    @property
    def state(self) -> NodeState:
        return self.scene.cluster.nodes["gpu-1"]

    @property
    def incidents(self) -> dict[str, Incident]:
        return {each.key.rule: each for each in self.state.record.incidents}


def out(*codes: int) -> Story:
    """gpu-1 is out of service, by default for an Xid 79."""
    story = Story()
    story.run(*(codes or (79,)), seconds=10)
    assert story.state.tainted
    return story


def back(story: Story, *, restarts: bool, when: float = 60, **how: str) -> Story:
    """Delete the Node of gpu-1 and register it again, after a reboot."""
    story.delete()
    if restarts:
        story.restart()
    else:
        story.run(seconds=20)
    story.register(when, **how)
    story.run(seconds=when)
    story.run(seconds=when + 1)
    return story


def test_the_event_of_a_machine_that_rebooted_meanwhile_advises_no_further_reboot() -> None:
    story = back(out(), restarts=False)

    told = [each.message for each in story.scene.cluster.written if each.event is EventReason.TAINTED][-1]
    assert "Its need was met by the reboot seen at" in told
    assert "reboot the node" not in told
    assert told.endswith("Needs: none.")


@pytest.mark.parametrize("late", [False, True])
def test_a_machine_that_rebooted_without_a_node_keeps_its_faults_and_its_taint(*, late: bool) -> None:
    story = out(79, 64)
    story.wrote(operator_taint(story.state, at=at(11), by="ann", reason="RMA 4711"))
    story.run(seconds=12)

    if late:
        story.delete()
        story.register(30, boot=None)
        story.run(seconds=30)
        story.change_boot("boot-b")
        story.run(seconds=60)
    else:
        back(story, restarts=False)

    assert story.state.tainted
    assert story.incidents.keys() == {"xid.79", "xid.64", "operator"}
    assert (story.incidents["xid.79"].met_by, story.incidents["operator"].met_by) == (MetBy.REBOOT, None)
    assert story.incidents["operator"].evidence == "RMA 4711"
    assert story.state.record.life.tainted_at == at(60)


@pytest.mark.parametrize("boot", ["boot-b", "boot-a"], ids=["rebooted", "the same boot"])
def test_after_a_restart_of_the_controller_the_lease_tells_why_the_machine_was_out(boot: str) -> None:
    story = out()
    story.wrote(operator_taint(story.state, at=at(11), by="ann", reason="RMA 4711"))
    story.run(seconds=12)

    back(story, restarts=True, boot=boot)

    assert story.state.tainted
    incident = story.incidents["node.out_of_service"]
    assert incident.evidence == (
        "Out of service since 2026-03-04T12:00:10Z for xid 79 on GPU 0000:4e:00, "
        "a person's taint (RMA 4711), deleted at 2026-03-04T12:01:00Z"
    )
    assert (
        incident.advice
        == "Run diagnostics (`dcgmi diag -r 3`), then release the node: `konductor-like reset gpu-1`."
    )
    assert (incident.needs, story.state.as_read.needs) == (Needs.INSPECTION, Needs.INSPECTION)


def test_over_a_restart_a_need_is_kept_only_if_no_reboot_meets_it() -> None:
    assert back(out(79), restarts=True).state.as_read.needs == Needs.INSPECTION
    assert back(out(57), restarts=True).state.as_read.needs == Needs.REPLACEMENT


@pytest.mark.parametrize("restarts", [False, True])
def test_another_machine_under_the_name_is_clean(*, restarts: bool) -> None:
    story = back(out(), restarts=restarts, system="system-new")

    assert (story.state.tainted, story.state.record) == (False, NodeRecord())


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["reset", "purge"])
def test_a_reset_before_the_deletion_clears_the_machine(how: str, *, restarts: bool) -> None:
    story = out()
    if how == "reset":
        story.reset()
    else:
        story.purge()
    story.run(seconds=12)

    assert not back(story, restarts=restarts).state.tainted


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["reset", "purge"])
def test_a_reset_of_the_new_node_ends_it_for_good(how: str, *, restarts: bool) -> None:
    story = back(out(), restarts=restarts)
    assert story.state.tainted
    if how == "reset":
        story.reset()
    else:
        story.purge()
    story.run(seconds=70)
    story.restart()
    story.run(seconds=80)

    assert not story.state.tainted
    assert not back(story, restarts=restarts, when=90, boot="boot-c").state.tainted


def test_a_machine_that_was_out_for_a_test_only_is_clean_after_a_restart() -> None:
    assert not back(out(14), restarts=True).state.tainted


@pytest.mark.parametrize("restarts", [False, True])
def test_a_machine_is_remembered_for_a_month(*, restarts: bool) -> None:
    for when, is_tainted in ((FOREVER + 10, True), (FOREVER + 120, False)):
        story = out()
        story.delete()
        story.run(seconds=60)
        if restarts:
            story.restart()
        story.run(seconds=when - 1)
        story.register(when)
        story.run(seconds=when)

        assert story.state.tainted is is_tainted


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_machine_that_is_back_while_the_brake_has_no_place_is_held_and_tainted_later(
    *, restarts: bool, resets: bool
) -> None:
    story = out()
    story.delete()
    story.run(seconds=20)
    story.run(79, name="gpu-2", seconds=400)  # after the cool-down
    assert story.scene.cluster.tainted == {"gpu-2"}
    if restarts:
        story.restart()
    story.register(500)
    story.run(seconds=500)
    assert (story.state.tainted, story.state.as_read.health) == (False, "held")
    if resets:
        story.reset()
        story.run(seconds=510)
    story.restart()
    story.delete("gpu-2")
    story.run(seconds=600)

    story.run(seconds=1000)

    assert story.state.tainted is not resets


def test_beyond_the_bound_the_first_machine_is_forgotten_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "konductor_like")
    story = Story(400)
    for number in range(1, MACHINES_MOST + 2):
        story.run(79, name=f"gpu-{number}", seconds=number * 400)
        story.delete(f"gpu-{number}")
        story.run(seconds=number * 400 + 10)
    [told] = [each for each in caplog.messages if "forgets" in each]
    assert "forgets the first of them: gpu-1." in told
    story.restart()
    for number in (1, 2):
        story.register(90_000 + number, name=f"gpu-{number}")
        story.run(seconds=90_000 + number)

    assert story.scene.cluster.tainted == {"gpu-2"}


def test_the_log_says_once_that_the_lease_has_no_space_for_all_tainted_nodes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "konductor_like")
    story = Story(1500)
    story.scene.run(*(xid(f"gpu-{number}") for number in range(1, 300)), seconds=1)
    story.run(79, name="gpu-300", seconds=2)

    assert len(story.scene.cluster.tainted) == 300
    assert len([each for each in caplog.messages if "The Lease has no space for" in each]) == 1
