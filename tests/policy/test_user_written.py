"""Kernel-log records that somebody wrote from user space: told as such, and by a setting no fault at all."""

from __future__ import annotations

from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from tests.policy.scenes import Cluster, fault, fleet

IGNORED = "a user wrote it into the kernel log"


def test_a_record_that_a_user_wrote_taints_by_default_and_the_event_says_who_wrote_it() -> None:
    cluster = Cluster(fleet(2))

    plan = cluster.tick(fault(user_written=True))

    assert cluster.tainted == {"gpu-1"}
    assert "xid 79 on GPU 0000:4e:00 (written by a user): GPU lost." in plan.changes[0].message


def test_what_the_driver_prints_is_not_called_written_by_a_user() -> None:
    plan = Cluster(fleet(2)).tick(fault())

    assert "written by a user" not in plan.changes[0].message


def test_by_the_setting_such_a_record_is_counted_as_ignored_and_leaves_no_trace() -> None:
    cluster = Cluster(fleet(2), PolicyConfig(count_user_written=False))

    plan = cluster.tick(fault("gpu-1", user_written=True), fault("gpu-2"))

    assert [(item.fault.node, item.reason) for item in plan.ignored] == [("gpu-1", IGNORED)]
    assert [change.node for change in plan.changes] == ["gpu-2"]


def test_the_setting_is_what_the_rules_are_made_of() -> None:
    assert Settings().rules().count_user_written
    assert not Settings(user_written="ignore").rules().count_user_written


def test_an_incident_stops_being_a_users_once_the_driver_prints_the_same() -> None:
    cluster = Cluster(fleet(2))

    cluster.tick(fault(stamp=100, user_written=True))
    [written] = cluster.nodes["gpu-1"].record.incidents
    assert written.user_written

    cluster.tick(fault(seconds=700, stamp=800), seconds=700)
    cluster.tick(seconds=1400)
    [printed] = cluster.nodes["gpu-1"].record.incidents
    assert not printed.user_written
    assert printed.count == 2
