"""Multi-node NVLink domains: a rack whose link fails, and racks that only share a job."""

from __future__ import annotations

import pytest

from konductor_like.model import Role
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import (
    LINK_DOWN,
    LOST,
    NCCL,
    PEERS_LINK,
    REMAP,
    REMAP_FATAL,
    crash,
    gpu,
    gpus,
    racks,
)

ORIGIN = gpu(40)


def link_fails(site: Site, *, at: float = 0.0, origin_late: float = 0.2, idle_from: int = 65) -> None:
    """Let all nodes of the first rack report the fault: six as fatal, one as its peer's, one as its own."""
    for number, name in enumerate(gpus(64)):
        site.kernel(
            name, REMAP_FATAL if number < 6 or number + 1 >= idle_from else REMAP, at=at + number / 100
        )
    site.kernel(gpu(41), PEERS_LINK, at=at + 0.3)
    site.kernel(ORIGIN, LINK_DOWN, at=at + 0.3, late=origin_late)


@pytest.mark.parametrize("origin_late", [0.2, 3.0], ids=["in order", "origin 3 s late"])
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_an_nvlink_fault_of_a_rack_taints_only_the_node_whose_link_failed(
    site_of: Opens, origin_late: float, restarted: bool
) -> None:
    site = site_of(racks(2, 64))
    site.run(10)
    link_fails(site, origin_late=origin_late)

    site.run(2, step_seconds=2)
    assert site.tainted == set()
    if restarted:
        site.restart()
    site.run(30, step_seconds=2)

    assert site.tainted == {ORIGIN}
    assert site.labels == {"faulty": 1, "suspect": 7}
    assert site.in_role(Role.ROOT_CAUSE) == {ORIGIN}
    assert site.in_role(Role.COLLATERAL) == set(gpus(64))
    assert len(site.events) == 1
    told = site.cli("explain", "node", gpu(3)).out
    assert f"not tainted: it followed from a failure on {ORIGIN}: look there first" in told
    assert "Drain the node" not in told
    assert f": it followed from a failure on {ORIGIN}: look there first" in site.cli("status").out


def test_a_job_over_two_racks_and_idle_nodes_of_one_are_one_failure_group(
    site_of: Opens,
) -> None:
    site = site_of(racks(2, 64))
    site.run(10)
    link_fails(site, idle_from=61)
    for rank, name in enumerate([*gpus(60), *gpus(64, first=65)]):
        site.pod(name, "ml/PyTorchJob/wide", NCCL, rank=rank, at=1 + rank / 50)

    site.run(40)

    assert site.tainted == {ORIGIN}
    assert len(site.events) == 1
    assert site.in_role(Role.UNCLEAR) == set()
    assert len(site.in_role(Role.COLLATERAL)) == 128


def test_two_jobs_that_crash_at_once_on_the_same_racks_are_two_failure_groups(site_of: Opens) -> None:
    site = site_of(racks(4, 16))
    site.hearts()
    site.run(70)
    one = [gpu(number) for number in range(1, 49, 2)]
    other = [gpu(number) for number in range(2, 65, 2)]
    site.kernel(gpu(5), LOST)
    crash(site, one, "ml/PyTorchJob/one", at=0.5)
    crash(site, other, "ml/Job/two", at=1)

    site.run(60)

    assert site.tainted == {gpu(5)}
    assert {name.split("@")[0] for name in site.events} == {"ml/PyTorchJob/one", "ml/Job/two"}
    assert site.in_role(Role.COLLATERAL) == set(one)
    assert site.in_role(Role.UNCLEAR) == set(other)
    assert site.labels == {"faulty": 1, "suspect": 32}
