"""Suspicions and tests end by themselves, and a reboot is understood: with the real controller."""

from __future__ import annotations

from typing import Any

from konductor_like.model import Incident, IncidentState, MetBy
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site, _Kernel
from tests.scenarios.words import GPU, LOST, gpu

NODE = gpu(2)
HOUR = 3600.0
RESERVED = f"NVRM: Xid (PCI:{GPU}): 63, pid=4711, Row Remapper: New row marked for remapping"
FAKE = f"NVRM: Xid (PCI:{GPU}): 14, a test of the alarm chain"
NEW_BOOT = "b2000000-0000-4000-8000-000000000002"
QUIET_DAYS = 2 / 24
"""Two hours, so that the test is short."""


def of_node(site: Site) -> list[Incident]:
    return list(site.record(NODE).incidents)


def boot(site: Site, node: str) -> None:
    """Let the machine boot: the kubelet reports the new boot id, and the kernel log begins again."""

    def reported(stored: dict[str, Any]) -> None:
        stored["status"]["nodeInfo"]["bootID"] = NEW_BOOT

    site.kube.edit_node(node, reported)
    site._kernels[node] = _Kernel(NEW_BOOT, site.clock.true_ns)


def test_a_suspicion_ends_after_days_that_were_heard_also_across_a_short_restart(site_of: Opens) -> None:
    site = site_of(make_fleet(5), suspect_days=QUIET_DAYS)
    site.hearts()
    site.run(600, step_seconds=20)
    site.kernel(NODE, RESERVED)
    site.run(HOUR, step_seconds=60)
    assert site.labels == {"suspect": 1}

    site.restart(after_seconds=30)
    site.run(0.9 * HOUR, step_seconds=60)
    assert site.labels == {"suspect": 1}
    site.run(0.2 * HOUR, step_seconds=60)

    assert site.labels == {}
    [incident] = of_node(site)
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.QUIET)
    [event] = site.told("GPUFaultEnded")
    assert f"xid 63 on GPU {GPU} ended: the kernel log was heard" in event["message"]
    assert "xid 63" in site.cli("explain", "node", NODE).out
    [node] = [each for each in site.cli("status", "-o", "json").document["nodes"] if each["name"] == NODE]
    assert [fault["state"] for fault in node["faults"]] == ["released"]


def test_after_hours_without_a_controller_the_days_are_counted_again(site_of: Opens) -> None:
    site = site_of(make_fleet(5), suspect_days=QUIET_DAYS)
    site.hearts()
    site.run(600, step_seconds=20)
    site.kernel(NODE, RESERVED)
    site.run(HOUR, step_seconds=60)

    site.restart(after_seconds=HOUR)
    site.run(1.8 * HOUR, step_seconds=60)
    assert site.labels == {"suspect": 1}
    assert site.record(NODE).quiet_since is not None
    site.run(0.4 * HOUR, step_seconds=60)

    assert site.labels == {}


def test_without_heartbeats_a_suspicion_does_not_end(site_of: Opens) -> None:
    site = site_of(make_fleet(5), suspect_days=QUIET_DAYS)
    site.run(10)
    site.kernel(NODE, RESERVED)

    site.run(4 * HOUR, step_seconds=60)

    assert site.labels == {"suspect": 1}


def test_a_test_ends_an_hour_later_and_its_line_printed_again_changes_nothing(site_of: Opens) -> None:
    site = site_of(make_fleet(5))
    site.run(10)
    site.kernel(NODE, FAKE)
    site.run(0.9 * HOUR, step_seconds=60)
    assert site.tainted == {NODE}

    site.run(0.2 * HOUR, step_seconds=60)

    assert site.tainted == set()
    [mark] = site.record(NODE).releases
    assert (mark.by, mark.how) == ("konductor-like", "time")
    assert [len(site.told(reason)) for reason in ("GPUFaultEnded", "GPUNodeReturned")] == [1, 1]
    assert "the test has ended" in site.cli("explain", "node", NODE).out
    site.restart(after_seconds=10)
    site.run(60)
    assert site.tainted == set()

    site.kernel(NODE, LOST)
    site.run(10)
    assert site.tainted == {NODE}


def test_a_reboot_meets_the_need_of_a_tainted_node_and_a_boot_that_nobody_ordered_is_told(
    site_of: Opens,
) -> None:
    site = site_of(make_fleet(30))
    site.hearts()
    site.run(60)
    site.kernel(NODE, LOST)
    site.run(60)
    assert site.tainted == {NODE}

    boot(site, NODE)
    boot(site, gpu(3))
    site.run(60)

    assert site.tainted == {NODE}
    assert [each.met_by for each in of_node(site)] == [MetBy.REBOOT]
    told = {event["involvedObject"]["name"]: event["message"] for event in site.told("GPUNodeRebooted")}
    assert told.keys() == {NODE, gpu(3)}
    assert f"That meets the needs of xid 79 on GPU {GPU}." in told[NODE]
    assert "The node was in service and not cordoned." in told[gpu(3)]
