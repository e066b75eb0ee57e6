"""Histories in which two surfaces once disagreed; ``test_surfaces_in_lives.py`` found each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.controller.reporting.node_metrics import faults_of
from konductor_like.model import OPERATOR_RULE, FaultKind, IncidentKey, Life, NodeRecord
from konductor_like.model.time import SECOND_NS, unix_ns
from konductor_like.policy.node.needs import need_of
from tests.cli.scenes import incident
from tests.cli.test_surfaces_in_lives import WatchedLife, broken_by
from tests.policy.lives import GPUS
from tests.policy.scenes import NOON, OURS, node


def rebooted(**facts: object) -> WatchedLife:
    """A life in which an Xid 79 tainted the node, and the machine booted four minutes ago."""
    life = WatchedLife(0)
    life.ask = {"returns": True}
    life.pass_time(30)
    life.fails(79, GPUS[0])
    life.pass_time(300)
    life.do_reboot()
    life.ask |= facts
    life.pass_time(240)
    return life


def test_the_metric_names_the_need_of_a_suspicion_that_is_the_nodes_fault() -> None:
    life = rebooted()
    life.fails(63, GPUS[1])

    assert broken_by(life, life.told) == []


def test_the_table_of_faults_names_no_need_that_its_node_does_not_have() -> None:
    life = WatchedLife(0)
    life.pass_time(30)
    life.do_of_the_next_boot()
    life.do_silent()

    assert broken_by(life, life.told) == []


@pytest.mark.parametrize("ended_after_boot", [30, 200, 340], ids=lambda seconds: f"{seconds} s")
def test_no_return_is_promised_to_a_node_whose_log_has_a_gap_soon_after_the_reboot(
    ended_after_boot: int,
) -> None:
    life = rebooted()
    life.ask["given up"] = unix_ns(life.booted) + ended_after_boot * SECOND_NS
    life.pass_time(300)

    assert broken_by(life, life.told) == []


@pytest.mark.parametrize("fact", ["ambiguous", "silent"])
def test_no_return_is_promised_to_a_node_whose_log_proves_nothing(fact: str) -> None:
    life = rebooted(**{fact: True})
    life.pass_time(300)

    assert broken_by(life, life.told) == []


def test_no_return_is_promised_to_a_node_that_the_api_server_does_not_let_the_controller_write() -> None:
    life = rebooted()
    life.do_refused()
    life.pass_time(300)

    assert broken_by(life, life.told) == []


def test_no_return_is_promised_while_lines_of_the_present_boot_are_lost() -> None:
    life = rebooted()
    life.do_lines_lost()
    life.pass_time(300)

    assert broken_by(life, life.told) == []


def test_the_metric_names_the_need_of_a_marked_node_of_which_only_a_persons_taint_is_left() -> None:
    own = replace(incident(), key=IncidentKey(OPERATOR_RULE, None), needs="inspection", kind=FaultKind.NODE)
    record = NodeRecord(incidents=(own,), life=Life(tainted_at=NOON, replace_since=NOON))
    state = replace(node(), taints=(OURS,), record=record)

    assert [needs for _, needs in faults_of(state)] == [need_of(record, tainted=True)] == ["replacement"]
