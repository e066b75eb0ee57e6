"""The brake: which taints it must allow, and which it must hold back."""

from __future__ import annotations

import pytest

from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_fleet, make_node
from tests.scenarios.conftest import Opens
from tests.scenarios.words import JOB, LOST, crash, gpu, gpus


@pytest.mark.parametrize("labelled", [True, False], ids=["labels stay", "labels go with it"])
def test_in_a_three_node_cluster_the_one_whose_gpus_vanished_is_tainted(
    site_of: Opens, labelled: bool
) -> None:
    dead = make_node(gpu(2), gpus=0)
    if not labelled:
        labels = dead["metadata"]["labels"]
        dead["metadata"]["labels"] = {k: v for k, v in labels.items() if "nvidia" not in k}
        for kind in ("capacity", "allocatable"):
            dead["status"][kind].pop("nvidia.com/gpu")
    site = site_of([make_node(gpu(1)), dead, make_node(gpu(3)), make_cpu_node("cpu-0001")])
    site.run(10)

    site.kernel(gpu(2), LOST)
    site.run(10)

    assert site.tainted == {gpu(2)}
    status = site.cli("status")
    assert status.lines[1] == (
        "Brake:       1 out of service, at most 1 of 3 GPU nodes; the next would be held back"
    )
    assert status.rows[0].split()[:2] == [gpu(2), "faulty"]


@pytest.mark.parametrize("counting", [True, False], ids=["counting unavailable nodes", ""])
def test_a_fleet_that_grows_does_not_trip_the_brake(site_of: Opens, counting: bool) -> None:
    site = site_of(make_fleet(25), brake_count_unavailable=counting)
    site.run(10)
    for name in gpus(5):
        site.kernel(name, LOST)
    site.run(10)
    assert site.tainted == set(gpus(5))

    born = site.clock.moment().strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in gpus(100, first=26):
        node = make_node(name, ready=False)
        node["metadata"]["creationTimestamp"] = born
        site.kube.put_node(node)
    site.run(60)
    assert "5 out of service, at most 25 of 125 GPU nodes" in site.cli("status").lines[1]

    site.kernel(gpu(6), LOST)
    site.run(10)
    assert site.tainted == set(gpus(6))


def test_nodes_held_by_the_brake_are_shown_everywhere_and_one_reset_releases_all(site_of: Opens) -> None:
    site = site_of(make_fleet(50))
    site.run(10)
    for name in gpus(50):
        site.kernel(name, LOST)
    site.run(20)

    assert len(site.tainted) == 10
    assert site.labels == {"faulty": 10, "held": 40}
    status = site.cli("status")
    assert status.lines[:2] == ["50 GPU nodes: 10 faulty, 40 held", status.lines[1]]
    assert status.lines[1].startswith("Brake:       holding 40 nodes; 10 out of service, at most 10 of 50")
    assert site.cli("status", "-o", "json").document["brake"]["holding"] is True
    assert "konductor_like_brake_held 40.0" in site.metrics
    held = site.told("GPUFaultHeldByBrake")
    assert {
        event["involvedObject"]["name"] for event in held if event["involvedObject"]["kind"] == "Node"
    } == (set(gpus(50)) - site.tainted)

    site.restart()
    site.run(20)
    assert len(site.tainted) == 10

    done = site.cli("reset", "--all", "--yes", "--reason", "a bad driver, not the GPUs")
    assert done.code == 0
    site.run(600, step_seconds=20)
    assert site.tainted == set()
    assert site.labels == {}
    assert "konductor_like_brake_held 0.0" in site.metrics


def test_an_autoscaler_that_deletes_tainted_nodes_does_not_empty_the_fleet(site_of: Opens) -> None:
    site = site_of(make_fleet(20))
    site.run(10)
    for name in gpus(20):
        site.kernel(name, LOST)
    site.run(10)
    gone = set(site.tainted)
    assert len(gone) == 4

    for name in gone:
        site.kube.delete_node(name)
    site.run(60)
    assert site.tainted == set()
    assert "0 out of service and 4 deleted recently, at most 3 of 16" in site.cli("status").lines[1]
    assert "(4 deleted while tainted)" in site.cli("brake", "status").out
    assert site.cli("brake", "status", "-o", "json").document["deleted"] == 4
    site.restart()
    site.run(60)
    assert site.tainted == set()
    assert "konductor_like_brake_cooling 4.0" in site.metrics

    site.run(300)
    assert len(site.tainted) == 3


def test_after_one_deleted_node_the_next_one_can_be_tainted(site_of: Opens) -> None:
    site = site_of(make_fleet(20))
    site.run(10)
    site.kernel(gpu(1), LOST)
    site.run(10)
    site.kube.delete_node(gpu(1))
    site.run(20)

    assert (
        site.cli("status")
        .lines[1]
        .startswith(
            "Brake:       0 out of service and 1 deleted recently, at most 3 of 19 GPU nodes; "
            "cooling down until "
        )
    )
    site.kernel(gpu(2), LOST)
    site.run(10)
    assert site.tainted == {gpu(2)}


def test_a_held_root_cause_whose_node_is_released_is_not_tainted_later(site_of: Opens) -> None:
    site = site_of(make_fleet(20), brake_max_nodes=1)
    site.run(10)
    site.kernel(gpu(20), LOST)
    site.run(10)
    site.kernel(gpu(7), LOST)
    crash(site, gpus(16), at=0.5)
    site.run(30)

    assert site.cli("reset", gpu(7), "--yes", "--reason", "looked at").code == 0
    assert site.cli("reset", gpu(20), "--yes").code == 0
    site.run(900, step_seconds=20)

    assert site.tainted == set()
    assert site.labels == {}
    assert f"{JOB}, " in site.cli("status").out
