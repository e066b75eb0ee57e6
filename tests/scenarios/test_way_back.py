"""The way back into service: what a reboot changes, and what keeps a node from a return by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from konductor_like.model import IncidentState, MetBy
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import LOST, gpu, gpus

NODE = gpu(2)
HOUR = 3600.0
REBOOT: dict[str, Any] = {"return_by": "reboot", "brake_max_percent": 100.0, "return_quiet_seconds": 120.0}
REPLACE = "NVRM: Xid (PCI:0000:4e:00): 58, pid=4711, name=python3, Edge error"
"""Xid 58 needs a replacement."""
TODAYS_CALLS = {
    *(("GET", "nodes"), ("GET", "nodes/*"), ("PATCH", "nodes/*"), ("POST", "events"), ("GET", "pods")),
    *(("GET", "leases/*"), ("POST", "leases"), ("PUT", "leases/*"), ("PATCH", "leases/*")),
}


def opened(site_of: Opens, count: int = 5, **settings: Any) -> Site:
    """Open a site whose kernel logs are heard."""
    site = site_of(make_fleet(count), **{**REBOOT, **settings})
    site.hearts()
    site.run(130)
    return site


def fails(site: Site, nodes: Iterable[str], text: str = LOST) -> None:
    for name in nodes:
        site.kernel(name, text)
    site.run(20)
    assert site.tainted >= set(nodes)


def boots(site: Site, *nodes: str) -> None:
    for name in nodes:
        site.reboot(name, str(UUID(int=site.rng.getrandbits(128), version=4)))


def test_with_all_defaults_a_reboot_changes_words_only_and_asks_nothing_new_of_the_api_server(
    site_of: Opens,
) -> None:
    site = site_of(make_fleet(6), admitted=True, brake_max_percent=100.0)
    site.hearts()
    site.run(130)
    fails(site, gpus(2))
    boots(site, gpu(1))
    site.run(HOUR, step_seconds=60)
    site.writes.clear()

    site.run(5 * HOUR, step_seconds=300)

    assert site.tainted == set(gpus(2))
    assert site.calls <= TODAYS_CALLS
    assert set(site.writes) <= {"konductor-like"}, "nodes are written while nothing happens"
    assert site.told("GPUNodeReturned") == []


def test_a_node_that_a_person_reboots_stays_tainted_and_the_status_tells_that_its_need_is_met(
    site_of: Opens,
) -> None:
    site = opened(site_of, return_by="ask")
    fails(site, [NODE])

    boots(site, NODE)
    site.run(600)

    assert site.tainted == {NODE}
    [(_, incident)] = site.open
    assert (incident.state, incident.met_by) == (IncidentState.ACTIVE, MetBy.REBOOT)
    assert "reboot" in site.cli("status").out
    assert "met" in site.cli("explain", "node", NODE).out
    assert [event["involvedObject"]["name"] for event in site.told("GPUNodeRebooted")] == [NODE]


def test_a_node_that_needs_a_replacement_does_not_return_by_a_reboot(site_of: Opens) -> None:
    site = opened(site_of)
    fails(site, [NODE], REPLACE)

    boots(site, NODE)
    site.run(HOUR, step_seconds=60)

    assert site.tainted == {NODE}
    [(_, incident)] = site.open
    assert incident.met_by is None


@pytest.mark.parametrize("parts", [("allocatable",), ("allocatable", "capacity")], ids=" and ".join)
def test_a_machine_that_comes_back_with_seven_of_eight_gpus_does_not_return(
    site_of: Opens, parts: tuple[str, ...]
) -> None:
    site = opened(site_of)
    fails(site, [NODE])

    def seven(node: dict[str, Any]) -> None:
        for part in parts:
            node["status"][part]["nvidia.com/gpu"] = "7"

    site.kube.edit_node(NODE, seven)
    boots(site, NODE)
    site.run(HOUR, step_seconds=60)

    assert site.tainted == {NODE}
    assert "7 of 8 GPUs" in site.cli("explain", "node", NODE).out


CLAIMS = {
    "a person's cordon": {"unschedulable": True},
    "the drain of medik8s": {"taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]},
    "the autoscaler's deletion": {
        "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    },
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_node_that_somebody_else_works_on_returns_when_they_are_done(
    site_of: Opens, claim: dict[str, Any]
) -> None:
    site = opened(site_of)
    fails(site, [NODE])

    def claims(node: dict[str, Any]) -> None:
        taints = [*node["spec"].get("taints", []), *claim.get("taints", [])]
        node["spec"].update({**claim, "taints": taints})

    def ends(node: dict[str, Any]) -> None:
        theirs = claim.get("taints", [])
        node["spec"]["taints"] = [taint for taint in node["spec"]["taints"] if taint not in theirs]
        node["spec"].pop("unschedulable", None)

    site.kube.edit_node(NODE, claims)
    boots(site, NODE)
    site.run(HOUR, step_seconds=60)
    assert site.tainted == {NODE}
    spec = site.kube.node(NODE)["spec"]
    assert claim.get("unschedulable") == spec.get("unschedulable"), "the controller lifted the cordon"
    assert all(taint in spec["taints"] for taint in claim.get("taints", []))

    site.kube.edit_node(NODE, ends)
    site.run(60)
    assert site.tainted == set()


def test_a_node_with_a_hold_returns_when_the_hold_has_ended(site_of: Opens) -> None:
    site = opened(site_of)
    fails(site, [NODE])
    assert site.cli("reset", NODE, "--yes", "--reason", "looked at").code == 0
    site.run(60)
    fails(site, [NODE])
    hold_until = site.record(NODE).life.hold_until
    assert hold_until is not None

    boots(site, NODE)
    site.run(25 * 60, step_seconds=60)
    assert site.tainted == {NODE}

    site.run(10 * 60, step_seconds=20)
    assert site.tainted == set()
    assert site.record(NODE).releases[0].at >= hold_until


def test_a_node_marked_for_replacement_returns_only_by_a_person(site_of: Opens) -> None:
    site = opened(site_of, hold_base_seconds=0.0)
    for _ in range(2):
        fails(site, [NODE])
        assert site.cli("reset", NODE, "--yes", "--reason", "looked at").code == 0
        site.run(60)
    fails(site, [NODE])
    assert site.record(NODE).life.replace_since is not None

    boots(site, NODE)
    site.run(HOUR, step_seconds=60)
    assert site.tainted == {NODE}

    done = site.cli("reset", NODE, "--yes", "--reason", "a new board")
    assert done.code == 0
    assert "Unmet need: replacement" in done.out + done.err
    assert site.tainted == set()


def test_a_fault_of_the_new_boot_whose_line_comes_after_the_return_taints(site_of: Opens) -> None:
    site = opened(site_of)
    fails(site, [NODE])
    boots(site, NODE)
    site.kernel(NODE, LOST, at=30, late=400)
    site.run(300)
    assert site.tainted == set()

    site.run(180)

    assert site.tainted == {NODE}
    assert site.record(NODE).life.quarantines[0].relapse
