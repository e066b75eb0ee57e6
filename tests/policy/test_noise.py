"""What pods print, whoever runs them, hides no hardware fault."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import EventReason, Role
from konductor_like.policy.evidence import TRACES_MOST, TRACES_OF_NODE_MOST
from tests.policy.scenes import Cluster, fleet
from tests.policy.shared import RULES, crash, gpu_fleet, nccl, rack, roles, xid

HOUR = 3600.0


def test_a_job_over_two_racks_does_not_explain_the_link_that_failed_in_the_other_one() -> None:
    nodes = {
        **rack(10),
        **{f"gpu-{n}": replace(fleet(20)[f"gpu-{n}"], domain="rack-8") for n in range(11, 21)},
    }
    cluster = Cluster(nodes, RULES)
    job = [nccl(f"gpu-{n}", "ml/PyTorchJob/big", seconds=2 + n / 10) for n in range(1, 21)]
    links = [xid("gpu-15", 149, seconds=2, fatal=True), xid("gpu-16", 145, seconds=2.1, fatal=True)]

    cluster.tick(*job, xid("gpu-3", 79, seconds=1), *links, seconds=5)
    cluster.tick(seconds=11)

    assert cluster.tainted == {"gpu-3", "gpu-15"}
    [link] = cluster.nodes["gpu-16"].record.incidents[:1]
    assert (link.role, link.root_cause) == (Role.COLLATERAL, "gpu-15")


def test_a_pod_of_every_node_makes_no_event_of_what_has_nothing_to_do_with_each_other() -> None:
    cluster = gpu_fleet(20)
    noise = [
        replace(
            nccl(f"gpu-{n}", "mon/Pod/exporter", seconds=n / 10), namespace="mon", pod=f"exporter-{n}xxxx"
        )
        for n in range(1, 21)
    ]
    # The API server tells that they are a DaemonSet's, and of no job.
    pods = {f"gpu-{n}": {f"mon/exporter-{n}xxxx": ""} for n in range(1, 21)}

    cluster.tick(*noise, xid("gpu-3", 79, seconds=1), xid("gpu-15", 149, seconds=2, fatal=True), seconds=3)
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=4)
    cluster.tick(seconds=10)

    assert cluster.tainted == {"gpu-3", "gpu-15"}


def test_pods_under_ever_new_names_push_no_kernel_line_out_of_the_window() -> None:
    cluster = gpu_fleet(20)

    cluster.tick(xid("gpu-1", 94), seconds=1)
    cluster.tick(xid("gpu-1", 94, seconds=HOUR), seconds=HOUR + 1)
    for number in range(1, 21):
        most = TRACES_OF_NODE_MOST * 2 if number == 1 else TRACES_MOST // 19
        names = (f"evil/Job/{number}-{n}" for n in range(most))
        lines = [nccl(f"gpu-{number}", name, seconds=HOUR + 9 + n / 1000) for n, name in enumerate(names)]
        cluster.tick(*lines, seconds=HOUR + 11)
    assert cluster.snapshot.window.dropped > TRACES_OF_NODE_MOST
    cluster.tick(xid("gpu-1", 94, seconds=2 * HOUR), seconds=2 * HOUR + 1)

    assert cluster.tainted == {"gpu-1"}


def test_a_job_that_crashes_again_and_again_is_written_no_more_often_than_growing_counts() -> None:
    cluster = gpu_fleet(10)

    for crashed in range(0, 3600, 180):
        cluster.tick(*crash(4, seconds=crashed), seconds=crashed + 6)
        for later in range(20, 180, 20):
            cluster.tick(seconds=crashed + later)

    assert Role.UNCLEAR in roles(cluster)
    kept = [change for change in cluster.writes if change.event is not EventReason.RECORDED]
    assert len(kept) <= 4 * (3600 / RULES.record_interval_seconds + 1)
