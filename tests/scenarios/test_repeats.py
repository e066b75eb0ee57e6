"""A node that fails again and again."""

from __future__ import annotations

from datetime import timedelta

from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import LOST, gpu

NODE = gpu(2)
HOUR = 3600.0


def fails(site: Site) -> timedelta | None:
    """Let the node fail. Return how long it is held."""
    site.kernel(NODE, LOST)
    site.run(10)
    assert site.tainted == {NODE}
    record = site.record(NODE)
    assert record.life.tainted_at is not None
    return None if record.life.hold_until is None else record.life.hold_until - record.life.tainted_at


def comes_back(site: Site) -> str:
    """Release the node. Return the output of the command."""
    done = site.cli("reset", NODE, "--yes", "--reason", "rebooted it")
    assert done.code == 0
    site.run(10)
    assert site.tainted == set()
    site.advance(HOUR)
    return done.out + done.err


def test_a_node_that_fails_three_times_in_a_day_is_held_longer_each_time_and_then_marked(
    site_of: Opens,
) -> None:
    site = site_of(make_fleet(5))
    site.run(10)

    assert fails(site) is None
    site.advance(HOUR)
    comes_back(site)

    assert fails(site) == timedelta(minutes=30)
    assert "meant to stay out of service until" in site.cli("explain", "node", NODE).out
    site.advance(HOUR)
    site.restart()
    comes_back(site)

    assert fails(site) == timedelta(minutes=60)
    assert site.record(NODE).life.replace_since is not None
    assert site.cli("status").rows[0].split()[:3] == [NODE, "faulty", "(replace)"]
    told = site.cli("explain", "node", NODE).out
    assert "marked for replacement: it failed 3 times in 7 days" in told
    events = site.told("GPUFaultTainted")
    assert any("failed too often and is marked for replacement." in event["message"] for event in events)

    site.restart()
    site.run(60)
    assert site.record(NODE).life.replace_since is not None
    assert "Unmet need: replacement (it failed 3 times in 7 days)" in comes_back(site)
    assert site.record(NODE).life.replace_since is None
    fails(site)
    assert site.record(NODE).life.replace_since is not None
