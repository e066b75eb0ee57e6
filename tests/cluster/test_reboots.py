"""What a reboot that was watched says about the age of the new boot."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.cluster.node_store import witnessed
from konductor_like.model import NodeState
from tests.policy.scenes import node, ns

NOW = ns(100)


def booted(boot: str | None, *, reported: float | None = 0) -> NodeState:
    """A node in that boot, whose kubelet reported so many seconds after noon."""
    state = node()
    at_ns = None if reported is None else ns(reported)
    return replace(state, machine=replace(state.machine, boot_id=boot), reported_ns=at_ns)


def after_ns(before: NodeState | None, state: NodeState) -> int | None:
    return witnessed(before, state, NOW).booted_after_ns


def test_a_boot_began_after_the_last_report_of_the_one_before() -> None:
    assert after_ns(booted("boot-a", reported=30), booted("boot-b", reported=90)) == ns(30)


def test_a_report_from_the_future_was_made_before_now() -> None:
    assert after_ns(booted("boot-a", reported=3600), booted("boot-b")) == NOW


def test_what_is_known_of_a_boot_stays_known_while_it_lasts() -> None:
    first = witnessed(booted("boot-a", reported=30), booted("boot-b", reported=90), NOW)

    assert after_ns(first, booted("boot-b", reported=95)) == ns(30)


def test_the_next_boot_is_younger_still() -> None:
    first = witnessed(booted("boot-a", reported=30), booted("boot-b", reported=90), NOW)

    assert after_ns(first, booted("boot-c")) == ns(90)


def test_a_boot_that_was_there_when_we_came_may_be_of_any_age() -> None:
    assert after_ns(None, booted("boot-b")) is None
    assert after_ns(booted("boot-b"), booted("boot-b")) is None


def test_nothing_is_known_where_the_old_boot_never_reported_or_was_never_posted() -> None:
    assert after_ns(booted("boot-a", reported=None), booted("boot-b")) is None
    assert after_ns(booted(None), booted("boot-b")) is None


def test_another_machine_under_the_name_may_have_run_for_long() -> None:
    other = booted("boot-b")
    other = replace(other, machine=replace(other.machine, system_id="another"))

    assert after_ns(booted("boot-a"), other) is None
