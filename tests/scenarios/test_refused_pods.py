"""A node that refuses GPU pods, from the Events to the taint, with the real controller (rule 45)."""

from __future__ import annotations

from typing import Any

from konductor_like.model import IncidentState, MetBy
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.cluster.test_refused_pods import refusal_event, refused_pod, running_pod
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_endings import boot
from tests.scenarios.words import gpu

NODE = gpu(2)
MINUTE, HOUR = 60.0, 3600.0
TEAMS = ("team-a", "team-b", "team-c")


def refuse(site: Site, count: int, *nodes: str, every: float = 20.0) -> None:
    """Let the kubelets refuse pods, one after the other, and let the controller find them."""
    for number in range(count):
        for node in nodes or (NODE,):
            name = f"train-{site.clock.true_ns}-{node}"
            namespace = TEAMS[number % len(TEAMS)]
            site.kube.put("events", refusal_event(f"{name}.1", node))
            site.kube.put_pod(refused_pod(name, site.clock.moment(), node=node, namespace=namespace))
        site.run(every, step_seconds=10)
    site.run(2 * MINUTE, step_seconds=10)


def opened(site_of: Opens, **settings: Any) -> Site:
    site = site_of(make_fleet(5), refused_pods=True, **settings)
    site.hearts()
    site.run(16 * MINUTE, step_seconds=30)
    return site


def faults(site: Site) -> list[tuple[str, int, IncidentState]]:
    return [(each.key.rule, each.count, each.state) for each in site.record(NODE).incidents]


def test_refused_pods_make_a_suspect_once_and_with_missing_gpus_a_taint(site_of: Opens) -> None:
    site = opened(site_of)
    assert site.kube.calls("list", "pods") == []
    refuse(site, 4)
    assert site.labels == {"suspect": 1}
    refuse(site, 3)
    site.run(15 * MINUTE, step_seconds=30)
    assert faults(site) == [("node.refuses_pods", 7, IncidentState.ACTIVE)]
    [event] = site.told("GPUFaultRecorded")
    assert " GPU pods of 3 namespaces in " in event["message"]
    assert " failed to get nvlink state: GPU is lost." in event["message"]

    [row] = [each for each in site.cli("status").rows if each.startswith(NODE)]
    assert row.split()[1] == "suspect"
    assert row.split()[-1] == "7"
    assert "refused 7 in all" in site.cli("explain", "node", NODE).out
    [told] = [each for each in site.cli("status", "-o", "json").document["nodes"] if each["name"] == NODE]
    assert [(each["rule"], each["count"], each["source"]) for each in told["faults"]] == [
        ("node.refuses_pods", 7, None)
    ]

    site.restart(after_seconds=10)
    site.run(20 * MINUTE, step_seconds=30)
    assert faults(site) == [("node.refuses_pods", 7, IncidentState.ACTIVE)]

    def lose_a_gpu(stored: dict[str, Any]) -> None:
        stored["status"]["allocatable"]["nvidia.com/gpu"] = "7"

    site.kube.edit_node(NODE, lose_a_gpu)
    site.run(16 * MINUTE, step_seconds=30)
    refuse(site, 2)
    site.run(20 * MINUTE, step_seconds=30)
    assert site.tainted == {NODE}
    [taint] = site.told("GPUFaultTainted")
    assert "node.gpus_missing" in taint["message"]


def test_a_release_covers_the_pods_also_after_a_restart(site_of: Opens) -> None:
    site = opened(site_of)
    refuse(site, 4)
    assert site.cli("reset", NODE, "--reason", "restarted the plugin").code == 0
    for _ in range(2):
        site.restart(after_seconds=10)
        site.run(20 * MINUTE, step_seconds=30)
        assert site.labels == {}

    refuse(site, 4)
    assert site.labels == {"suspect": 1}
    assert len(site.told("GPUFaultRecorded")) == 2


def test_after_a_boot_and_in_a_driver_roll_out_refused_pods_say_nothing(site_of: Opens) -> None:
    site = opened(site_of)
    boot(site, NODE)
    site.run(MINUTE)
    refuse(site, 6)
    site.run(30 * MINUTE, step_seconds=60)
    assert site.labels == {}

    refuse(site, 4, NODE, gpu(3))
    site.run(20 * MINUTE, step_seconds=60)
    assert site.labels == {}


def test_a_node_that_gets_no_pods_stays_a_suspect_until_one_is_admitted(site_of: Opens) -> None:
    site = opened(site_of, suspect_days=2 / 24)
    refuse(site, 4)
    site.run(3 * HOUR, step_seconds=60)
    assert site.labels == {"suspect": 1}

    site.kube.put_pod(running_pod("train-9", site.clock.moment(), node=NODE))
    site.run(15 * MINUTE, step_seconds=60)
    assert site.labels == {}
    [incident] = site.record(NODE).incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.QUIET)
    [event] = site.told("GPUFaultEnded")
    assert event["message"].partition(" (")[0].endswith(" without it, and GPU pods were admitted.")
