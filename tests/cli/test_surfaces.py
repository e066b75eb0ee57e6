"""All places that tell of a node agree: label, ``status``, ``explain``, Event, chat and condition.

Each story is a history of one node, made with the real decision. The node's fault, need and advice must be
the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import yaml

from konductor_like.cli.explain.node import document, explain_node, paragraphs
from konductor_like.cli.output import yaml_lines
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import Fleet, status_report
from konductor_like.cli.status.text import View, status_lines
from konductor_like.cluster.node.condition import wanted
from konductor_like.model import (
    Change,
    Coverage,
    EventReason,
    Fault,
    GpuCount,
    GpuCounts,
    NodeState,
    Severity,
)
from konductor_like.model.attempts import Attempts
from konductor_like.notify.news import TOLD
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import REPEAT_ADVICE, unrepaired
from konductor_like.policy.operator import operator_taint
from tests.cli.scenes import settings_of
from tests.notify.scenes import news_of
from tests.policy.scenes import GPU, OURS, Cluster, at, fault, fleet, reset_node
from tests.policy.test_needs import replaced
from tests.policy.test_probation import on_probation, rebooted

OTHER_GPU = "0000:1b:00"
THIRD_GPU = "0000:9a:00"
TO_TEST = "Run diagnostics (`dcgmi diag -r 3`), then release the node: `konductor-like reset gpu-1`."
NEEDS = {14: "none", 48: "gpu-reset", 63: "gpu-reset", 79: "reboot", 95: "gpu-reset"}
SEVERITIES = {14: Severity.TEST, 63: Severity.SUSPECT}


class Story(NamedTuple):
    """A cluster after the history of gpu-1, and what every surface must tell."""

    cluster: Cluster
    name: str | None
    """The node's fault; None if none is open."""
    needs: str | None
    advice: str
    """A part of the advice; empty if there is nothing to do."""
    event: EventReason | None = None
    """The reason of the last Event, if that Event is about the fault."""


def xid(code: int, gpu: str = GPU, *, seconds: float = 0, boot: str = "boot-a") -> Fault:
    """An Xid with an advice of its own."""
    severity = SEVERITIES.get(code, Severity.FATAL)
    found = fault(
        rule=f"xid.{code}",
        gpu=gpu,
        boot=boot,
        needs=NEEDS[code],
        stamp=100 + seconds,
        seconds=seconds,
        severity=severity,
    )
    return replace(found, finding=found.finding._replace(advice=f"Do as Xid {code} asks."))


def after(*faults: Fault, rules: PolicyConfig | None = None) -> Cluster:
    """Ten nodes after these faults of gpu-1, each in a decision of its own."""
    cluster = Cluster(fleet(10), rules or PolicyConfig(brake_max_percent=100))
    for number, each in enumerate(faults):
        cluster.tick(each, seconds=number)
    return cluster


def failed_again(*later: Fault) -> Cluster:
    """A cluster whose gpu-1 has an Xid 79, reboots, and then has further faults."""
    cluster = after(xid(79))
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=60)
    for each in later:
        cluster.tick(each, seconds=120)
    return cluster


def changed(cluster: Cluster, **values: Any) -> Cluster:
    """The cluster with other values of gpu-1."""
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], **values)
    return cluster


FIRST_REBOOT = f"Before that the node needs: reboot (xid 79 on GPU {GPU})."


def person(cluster: Cluster) -> Cluster:
    """The cluster after a person has tainted gpu-1."""
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(200), by="kim", reason="riser swap"))
    return cluster


def short_of_gpus() -> Cluster:
    cluster = rebooted("gpu-1")
    record = replace(cluster.nodes["gpu-1"].record, gpus=8)
    cluster = changed(cluster, gpus=GpuCount(7, 8), record=record)
    cluster.snapshot = replace(cluster.snapshot, gpus=GpuCounts())
    cluster.tick()
    return cluster


def held_on_probation() -> Cluster:
    cluster = on_probation()
    cluster.rules = replace(cluster.rules, brake_max_nodes=0)
    cluster.tick(xid(79, seconds=60, boot="boot-b"), seconds=60)
    return cluster


def released() -> Cluster:
    cluster = after(xid(79))
    reset_node(cluster, "gpu-1", 60)
    return cluster


AGAIN = xid(79, seconds=120, boot="boot-b")
STORIES: dict[str, Callable[[], Story]] = {
    "failed again": lambda: Story(
        failed_again(AGAIN), f"xid 79 on GPU {GPU}", "inspection", REPEAT_ADVICE, EventReason.WORSENED
    ),
    "failed again on another GPU": lambda: Story(
        failed_again(xid(79, OTHER_GPU, seconds=120, boot="boot-b")),
        f"xid 79 on GPU {OTHER_GPU}",
        "reboot",
        "Xid 79 asks",
        EventReason.WORSENED,
    ),
    "failed again with another fault": lambda: Story(
        failed_again(xid(95, OTHER_GPU, seconds=120, boot="boot-b")),
        f"xid 95 on GPU {OTHER_GPU}",
        "gpu-reset",
        "Xid 95 asks",
        EventReason.WORSENED,
    ),
    "rebooted": lambda: Story(failed_again(), f"xid 79 on GPU {GPU}", "none", TO_TEST),
    "a suspicion after the reboot": lambda: Story(
        failed_again(xid(63, OTHER_GPU, seconds=120, boot="boot-b")),
        f"xid 63 on GPU {OTHER_GPU}",
        "gpu-reset",
        "Xid 63 asks",
        EventReason.RECORDED,
    ),
    "a test after the reboot": lambda: Story(
        failed_again(xid(14, OTHER_GPU, seconds=120, boot="boot-b")), f"xid 79 on GPU {GPU}", "none", TO_TEST
    ),
    "several faults in one poll": lambda: Story(
        _in_one_poll(), f"xid 79 on GPU {THIRD_GPU}", "reboot", "Xid 79 asks", EventReason.TAINTED
    ),
    "several faults, one after the other": lambda: Story(
        after(xid(48), xid(95, OTHER_GPU, seconds=1), xid(79, THIRD_GPU, seconds=2)),
        f"xid 79 on GPU {THIRD_GPU}",
        "reboot",
        "Xid 79 asks",
        EventReason.WORSENED,
    ),
    "a milder fault later": lambda: Story(
        after(xid(79), xid(48, OTHER_GPU, seconds=1)), f"xid 79 on GPU {GPU}", "reboot", "Xid 79 asks"
    ),
    "held": lambda: Story(
        after(xid(48), xid(79, OTHER_GPU, seconds=1), rules=PolicyConfig(brake_max_nodes=0)),
        f"xid 79 on GPU {OTHER_GPU}",
        "reboot",
        "Xid 79 asks",
        EventReason.HELD,
    ),
    "suspect": lambda: Story(
        after(xid(63)), f"xid 63 on GPU {GPU}", "gpu-reset", "Xid 63 asks", EventReason.RECORDED
    ),
    "on probation": lambda: Story(on_probation(), None, None, ""),
    "held on probation": lambda: Story(
        held_on_probation(), f"xid 79 on GPU {GPU}", "inspection", REPEAT_ADVICE, EventReason.HELD
    ),
    "ignored": lambda: Story(
        changed(after(xid(79)), opted_out=True), f"xid 79 on GPU {GPU}", "reboot", "Xid 79 asks"
    ),
    "short of GPUs": lambda: Story(short_of_gpus(), f"xid 79 on GPU {GPU}", "none", TO_TEST),
    "a person's taint": lambda: Story(
        person(Cluster(fleet(10))), "a person's taint", "inspection", "Ask kim."
    ),
    "a person's taint, then a fault": lambda: Story(
        _person_first(), "a person's taint", "inspection", FIRST_REBOOT
    ),
    "a fault, then a person's taint": lambda: Story(
        person(after(xid(79))), "a person's taint", "inspection", FIRST_REBOOT
    ),
    "failed again, then a person's taint": lambda: Story(
        person(failed_again(AGAIN)), f"xid 79 on GPU {GPU}", "inspection", REPEAT_ADVICE
    ),
    "marked for replacement": lambda: Story(
        replaced(), f"xid 79 on GPU {GPU}", "replacement", "hardware checked or replaced", EventReason.TAINTED
    ),
    "a taint that nobody explains": lambda: Story(
        changed(after(xid(63)), taints=(OURS,)), None, "inspection", "find out who tainted it"
    ),
    "released without a reboot": lambda: Story(released(), None, None, ""),
}


def _in_one_poll() -> Cluster:
    cluster = Cluster(fleet(10))
    cluster.tick(xid(48), xid(95, OTHER_GPU), xid(79, THIRD_GPU))
    return cluster


def _person_first() -> Cluster:
    cluster = person(Cluster(fleet(10)))
    cluster.tick(xid(79, seconds=300), seconds=300)
    return cluster


def fleet_of(cluster: Cluster) -> Fleet:
    """What the commands read; the controller runs, and hears every node."""
    now = at(86_400)
    controller = ControllerReport(
        "ns/lease",
        holder="pod",
        renewed=now - timedelta(seconds=4),
        duration_seconds=30,
        settings=settings_of(cluster.rules),
        coverage=Coverage(now, listed_are_measured=False),
        attempts=Attempts("pod", kept_out={}),
    )
    return Fleet(now, cluster.nodes, controller, ["gpu-1"])


def told(cluster: Cluster) -> Change:
    """The last write of gpu-1 with an Event."""
    return [each for each in cluster.writes if each.node == "gpu-1" and each.event is not None][-1]


@pytest.mark.parametrize("story", STORIES)
def test_every_surface_tells_the_same_fault_need_and_advice(story: str) -> None:
    cluster, name, needs, advice, event = STORIES[story]()
    cluster.tick(seconds=400)  # a further decision, in which the label follows
    state, read = cluster.nodes["gpu-1"], fleet_of(cluster)
    report, one = status_report(read), explain_node("gpu-1", read, "")
    [node] = status_document(report)["nodes"]
    text = {label: said if isinstance(said, str) else "\n".join(said) for label, said in paragraphs(one)}
    assert document(one)["node"] == node

    if not state.opted_out and story != "a taint that nobody explains":  # the controller leaves these alone
        assert state.as_read.needs == needs
    assert (node["needs"], text["Needs"].partition(" ")[0].rstrip(":") or None) == (needs, needs)
    assert advice in (node["advice"] or "")
    assert bool(advice) is bool(node["advice"])
    assert text["To do"] == (node["advice"] or "")
    lines = status_lines(report, View(wide=True))
    groups = [line for line in lines if node["fault"] and line.startswith(f"{node['fault']['name']} ")]
    assert all(f" {needs} " in line for line in groups)
    if name is None:
        assert bool(groups) is (story == "a taint that nobody explains")
        return

    bus = node["fault"]["gpu"]
    assert name == ("a person's taint" if node["fault"]["rule"] == "operator" else _named(node["fault"]))
    assert node["fault"]["name"] == name.partition(" on GPU ")[0]
    if needs != "none" and needs != "replacement":
        assert text["Needs"].startswith(f"{needs} ({name})")
    [row] = [line for line in lines if line.startswith("gpu-1 ")]
    assert f"{node['fault']['name']} " in row
    assert bus is None or bus in row
    assert f" {needs} " in row
    assert len(groups) == 1
    assert any(node["advice"] in line for line in lines), "the line below To do"
    assert _is_silent_on_a_return(state, [*lines, text["To do"]])
    if state.tainted and not state.opted_out:
        condition = wanted("Gpu", state, silent=False, heard=True)
        assert condition is not None
        assert condition.message.startswith(f"konductor-like: {name.replace('xid', 'Xid')} since")
        assert condition.message.endswith(f"needs: {needs}")
    if event is not None:
        _check_event(told(cluster), state, name, needs or "", node["advice"], event)


def _check_event(
    last: Change, state: NodeState, name: str, needs: str, advice: str, event: EventReason
) -> None:
    assert last.event is event
    assert f"{name}: " in last.message
    assert advice in last.message
    marked = "The node needs: replacement (the node failed too often)."
    assert last.message.endswith(marked if needs == "replacement" else f"Needs: {needs}.")
    if event in TOLD:
        news = news_of(state, last)[0]
        assert (news.needs, f"xid {str(news.rule)[4:]} on GPU {news.gpu}") == (needs, name)


def _named(shown: dict[str, Any]) -> str:
    return f"{shown['name']} on GPU {shown['gpu']}"


def _is_silent_on_a_return(state: NodeState, texts: list[str]) -> bool:
    """Whether no text recommends a return while a fault of the present boot is open."""
    return not unrepaired(state) or not any(
        words in text for text in texts for words in ("then release the node", "returns by itself")
    )


@pytest.mark.parametrize("story", STORIES)
def test_yaml_has_the_same_values_as_json(story: str) -> None:
    read = fleet_of(STORIES[story]().cluster)

    for found in (status_document(status_report(read)), document(explain_node("gpu-1", read, ""))):
        assert yaml.safe_load("\n".join(yaml_lines(found))) == json.loads(json.dumps(found))
