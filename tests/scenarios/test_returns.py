"""Nodes that return after a reboot: with the default settings never by themselves, else on probation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from konductor_like.cluster.lease.annotations import RETURNED_ANNOTATION
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.chaos.process import NAMESPACE
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import LOST, gpu

NODE = gpu(2)
QUIET = 780.0
"""Seconds in which a node is heard long enough, and its next heartbeat arrives."""
HOURS = 7200.0


def open_site(site_of: Opens, size: int = 5, **settings: Any) -> Site:
    site = site_of(make_fleet(size), brake_max_percent=100, **settings)
    site.hearts()
    site.run(130)
    return site


def fails(site: Site, *nodes: str) -> None:
    """Let the nodes print an Xid 79: all are tainted within the usual seconds."""
    for node in nodes:
        site.kernel(node, LOST)
    site.run(10)
    assert site.tainted >= set(nodes)


def reboots(site: Site, *nodes: str, boot: str = "b2", **how: Any) -> None:
    for node in nodes:
        site.reboot(node, f"{boot}000000-0000-4000-8000-{node[-4:]:0>12}", **how)
    site.run(QUIET)


def why(site: Site, node: str = NODE) -> str:
    [found] = site.cli("status", node, "-o", "json").document["nodes"]
    return str(found["whyNotReturned"])


def test_with_the_default_settings_nothing_is_written_after_a_reboot_but_the_lease(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    fails(site, NODE)
    reboots(site, NODE)
    before = site.kube.objects("nodes"), site.kube.objects("events", "default")

    site.run(HOURS, step_seconds=60)

    assert (site.kube.objects("nodes"), site.kube.objects("events", "default")) == before
    assert site.tainted == {NODE}
    [lease] = site.kube.objects("leases", NAMESPACE)
    assert RETURNED_ANNOTATION not in lease["metadata"]["annotations"]
    assert why(site) == "KONDUCTOR_RETURN is ask, so a person returns it"


def test_a_rebooted_node_returns_once_is_on_probation_and_then_like_any_other(
    site_of: Opens,
) -> None:
    site = open_site(site_of, return_by="reboot", probation_seconds=HOURS)
    fails(site, NODE)
    site.run(1200, step_seconds=60)
    assert site.tainted == {NODE}
    assert "has seen no reboot since xid 79" in why(site)

    site.reboot(NODE, "b2000000-0000-4000-8000-000000000002")
    site.run(300)
    assert site.tainted == {NODE}
    explained = site.cli("explain", "node", NODE).out
    assert "returns by itself when its kernel log was heard for 10m since the reboot" in explained
    site.run(QUIET - 300)
    assert site.tainted == set()
    assert site.labels == {"probation": 1}
    [booted] = site.told("GPUNodeRebooted")
    assert "The node returns by itself, on probation, if nothing speaks against it" in booted["message"]
    [told] = site.told("GPUNodeReturned")
    assert "met the needs of all faults (xid 79 on GPU 0000:4e:00)" in told["message"]
    assert site.cli("status").rows[0].split()[:2] == [NODE, "probation"]

    site.advance(HOURS)
    site.run(60)
    assert site.labels == {}
    record = site.record(NODE)
    assert (record.life.probation_until, record.life.quarantines[0].how) == (None, "reboot")
    assert len(site.told("GPUNodeReturned")) == 1


def gpus(site: Site, allocatable: int, node: str = NODE) -> None:
    site.kube.edit_node(
        node, lambda each: each["status"]["allocatable"].update({"nvidia.com/gpu": str(allocatable)})
    )


def is_ready(site: Site, status: str, node: str = NODE) -> None:
    def change(each: dict[str, Any]) -> None:
        [ready] = (one for one in each["status"]["conditions"] if one["type"] == "Ready")
        ready["status"] = status

    site.kube.edit_node(node, change)


def test_a_node_with_all_its_gpus_for_a_moment_stays_out_and_returns_once_it_kept_them(
    site_of: Opens,
) -> None:
    site = open_site(site_of, return_by="reboot")
    fails(site, NODE)
    site.reboot(NODE, "b2000000-0000-4000-8000-000000000002")
    for _ in range(15):
        gpus(site, 7)
        site.run(90, step_seconds=30)
        gpus(site, 8)
        site.run(10)
        assert site.tainted == {NODE}

    unsteady = "the controller must see it Ready, with all its GPUs, for 10m without a break"
    site.run(30)  # until the Lease is renewed
    assert why(site) == unsteady
    assert f"returns by itself later: {unsteady}" in site.cli("explain", "node", NODE).out
    site.run(550)
    assert site.tainted == {NODE}
    site.run(60)
    assert site.tainted == set()


def test_a_gpu_that_comes_and_goes_in_service_makes_the_node_suspect(site_of: Opens) -> None:
    site = open_site(site_of)
    for _ in range(20):
        gpus(site, 7)
        site.run(90, step_seconds=30)
        gpus(site, 8)
        site.run(10)

    assert site.labels == {"suspect": 1}
    assert len(site.told("GPUFaultRecorded")) == 1
    assert "7 of 8 GPUs are allocatable" in site.told("GPUFaultRecorded")[0]["message"]
    site.run(1900)
    assert site.labels == {}


def test_a_node_that_is_ready_for_a_moment_stays_out_and_a_new_controller_watches_it_anew(
    site_of: Opens,
) -> None:
    site = open_site(site_of, return_by="reboot")
    fails(site, NODE)
    site.reboot(NODE, "b2000000-0000-4000-8000-000000000002")
    for _ in range(60):
        is_ready(site, "False")
        is_ready(site, "True")
        site.run(20)
        assert site.tainted == {NODE}

    site.run(500)
    site.restart()
    site.run(500)
    assert site.tainted == {NODE}
    site.run(200)
    assert site.tainted == set()


def test_a_silent_or_cordoned_node_stays_tainted_and_the_cordon_is_never_lifted(site_of: Opens) -> None:
    site = open_site(site_of, return_by="reboot")
    fails(site, gpu(2), gpu(3))
    site.kube.edit_node(gpu(3), lambda node: node["spec"].update(unschedulable=True))
    site.reboot(gpu(2), "b2000000-0000-4000-8000-000000000002", silent=True)
    reboots(site, gpu(3))

    assert site.tainted == {gpu(2), gpu(3)}
    assert why(site, gpu(3)) == "the Node is cordoned"
    assert "its kernel-log heartbeat stopped" in str(
        site.cli("status", gpu(2), "-o", "json").document["nodes"]
    )

    site.kube.edit_node(gpu(3), lambda node: node["spec"].pop("unschedulable"))
    site.run(30)
    assert site.tainted == {gpu(2)}
    assert site.kube.node(gpu(3))["spec"].get("unschedulable") is None


def test_a_relapse_taints_at_once_doubles_the_hold_and_ends_the_nodes_own_returns(site_of: Opens) -> None:
    site = open_site(site_of, return_by="reboot")
    fails(site, NODE)
    reboots(site, NODE)
    assert site.tainted == set()

    fails(site, NODE)
    record = site.record(NODE)
    assert record.life.tainted_at is not None
    assert record.life.hold_until == record.life.tainted_at + timedelta(seconds=3600)
    assert len(site.told("GPUNodeRelapsed")) == 1
    site.restart()
    site.advance(3600)
    reboots(site, NODE, boot="b3")
    reboots(site, NODE, boot="b4")

    assert site.tainted == {NODE}
    assert "failed again on probation, after its return" in why(site)
    assert site.cli("reset", NODE, "--yes", "--reason", "new GPU").code == 0
    site.run(10)
    assert site.tainted == set()


def test_three_relapses_stop_the_fleet_over_restarts_and_deleted_nodes_until_a_person_resumes(
    site_of: Opens,
) -> None:
    site = open_site(site_of, size=6, return_by="reboot", returns_per_hour=3, brake_cooldown_seconds=0)
    bad = [gpu(1), gpu(2), gpu(3)]
    fails(site, *bad)
    reboots(site, *bad)
    assert site.tainted == set()
    fails(site, *bad)
    assert "konductor_like_returns_stopped 1.0" in site.metrics
    site.run(20)

    for node in bad:
        site.kube.delete_node(node)
    site.restart(40)
    site.names = [name for name in site.names if name not in bad]
    fails(site, gpu(5))
    site.advance(3600)
    reboots(site, gpu(5))
    assert site.tainted == {gpu(5)}
    assert "3 of the last 10 returned nodes failed again" in why(site, gpu(5))
    assert any(line.startswith("Returns:     stopped: ") for line in site.cli("status").lines)

    assert "automatic returns resumed" in site.cli("resume").out
    site.run(30)
    assert site.tainted == set()
    assert "konductor_like_returns_stopped 0.0" in site.metrics
