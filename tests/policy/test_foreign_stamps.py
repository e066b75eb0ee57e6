"""Lines without a boot id, with stamps of another boot or clock, beside releases (rules 2 to 4).

Such a line raises no bound of the lines that name their boot, and no stamp above the uptime counts. After any
release, a line that was read before it taints nothing, however it is shipped again, and a line that was
printed after it taints.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    Doubt,
    EventReason,
    Fault,
    KernelPosition,
    RecentEvidence,
    Severity,
    Source,
)
from konductor_like.policy.node.covers import COVERED_BY_TIME, COVERED_LATE
from konductor_like.policy.node.health import open_incidents
from konductor_like.policy.node.incidents import SEEN_BEFORE
from konductor_like.policy.node.record_builder import INCIDENTS_MOST
from konductor_like.policy.node.release import release
from tests.policy.scenes import GPU, Cluster, at, fault, fleet, ns, reset_node

OTHER = "0000:9a:00"
BOOT = "boot-a"


def named(seq: int, stamp: float, seconds: float, **parts: str) -> Fault:
    """A line of the kernel-log reader."""
    return fault(boot=BOOT, seq=seq, stamp=stamp, seconds=seconds, **parts)  # type: ignore[arg-type]  # texts


def events(cluster: Cluster) -> list[tuple[EventReason | None, str]]:
    """Return all Events about lines that were read late, with their rules."""
    told = [pair for each in cluster.writes for pair in ((each.event, each.message), *each.also)]
    return [(event, message.split(" on ")[0]) for event, message in told if event is EventReason.READ_LATE]


@pytest.mark.parametrize("began", [-5300, None], ids=["with heartbeats", "without"])
@pytest.mark.parametrize("gpu", [GPU, OTHER])
def test_a_stamp_ahead_of_the_uptime_hides_no_line_that_names_its_boot(gpu: str, began: float | None) -> None:
    """It was seen on a real cluster: each later fault of the boot "precedes the last release"."""
    cluster = Cluster(fleet(10))
    cluster.tick(named(470, 5300, 0, rule="xid.48"), seconds=1)
    cluster.tick(fault(rule="xid.48", stamp=9000.1, seconds=100), seconds=101)
    if began is not None:
        cluster.hear("gpu-1", began)
    reset_node(cluster, "gpu-1", 150, read=149)
    cluster.tick(named(470, 5300, 160, rule="xid.48"), seconds=161)
    assert cluster.tainted == set()

    cluster.tick(named(478, 5463.77, 163, rule="xid.48", gpu=gpu), seconds=164)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("began", [-5300, None], ids=["with heartbeats", "without"])
def test_the_record_of_an_earlier_build_hides_a_fault_only_until_a_heartbeat_is_heard(
    began: float | None,
) -> None:
    """That build kept one stamp, whatever the line named: the higher one replaced the sequence number."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(boot=BOOT, stamp=9000.1, rule="xid.48"), seconds=101)
    reset_node(cluster, "gpu-1", 150, read=149)
    if began is not None:
        cluster.hear("gpu-1", began)

    cluster.tick(named(470, 5300, 160, rule="xid.79"), seconds=161)
    assert cluster.tainted == set()
    cluster.tick(named(478, 5463.77, 163, rule="xid.79"), seconds=164)

    assert cluster.tainted == ({"gpu-1"} if began is not None else set())


def test_where_a_reset_knows_no_line_of_the_boot_the_uptime_is_the_bound() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(severity=Severity.SUSPECT, stamp=None, source=Source.POD))
    reset_node(cluster, "gpu-1", 100, read=99)
    cluster.hear("gpu-1", began=-500)

    plan = cluster.tick(named(7, 599, 120), named(6, 550, 120, rule="xid.48"), seconds=121)
    assert [dropped.reason for dropped in plan.ignored] == [COVERED_LATE] * 2
    assert cluster.tainted == set()
    cluster.tick(named(8, 601, 120), seconds=122)

    assert cluster.tainted == {"gpu-1"}


def test_a_line_whose_incident_is_forgotten_is_covered_in_the_other_form_too() -> None:
    """A full record keeps the release and drops incidents."""
    cluster = Cluster(fleet(10))
    cluster.tick(named(6, 5350, 0, rule="xid.48"), fault(stamp=5400), seconds=101)
    reset_node(cluster, "gpu-1", 150, read=149)
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, incidents=()))
    cluster.hear("gpu-1", began=-5300)

    plan = cluster.tick(named(7, 5400, 160), seconds=161)

    assert [dropped.reason for dropped in plan.ignored] == [COVERED_LATE]
    assert cluster.tainted == set()


def test_a_heartbeat_of_another_boot_tells_nothing() -> None:
    cluster = Cluster(fleet(10))
    cluster.hear("gpu-1", began=-500)
    cluster.reboot("gpu-1", "boot-b")

    cluster.tick(fault(stamp=100_000, seconds=120), seconds=121)

    assert cluster.tainted == {"gpu-1"}


def test_the_longest_possible_uptime_is_no_bound() -> None:
    """It is higher than the uptime, and would cover faults to come."""
    cluster = Cluster(fleet(10))
    cluster.reboot("gpu-1", "boot-b", reported=-5000)
    cluster.tick(fault(stamp=100), seconds=1)
    reset_node(cluster, "gpu-1", 60, read=59)

    cluster.tick(fault(stamp=170, seconds=70, gpu=OTHER), seconds=71)

    assert cluster.tainted == {"gpu-1"}


def test_a_replayed_kernel_log_without_boot_ids_is_no_suspicion() -> None:
    cluster = Cluster(fleet(10))
    lines = [fault(stamp=stamp, seconds=stamp) for stamp in (100, 110, 120)]
    cluster.tick(*lines, seconds=121)
    reset_node(cluster, "gpu-1", 160, read=159)

    again = [replace(line, timestamp_ns=ns(500)) for line in lines]
    plan = cluster.tick(*again, seconds=501)

    assert [dropped.reason for dropped in plan.ignored] == [SEEN_BEFORE] * 3
    assert plan.changes == ()


def test_a_line_that_both_forms_of_the_log_ship_counts_once() -> None:
    cluster = Cluster(fleet(10))

    cluster.tick(fault(stamp=100), seconds=1)
    cluster.tick(named(7, 100, 2), seconds=3)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (incident.count, cluster.snapshot.grown) == (1, {})


def test_the_kernel_log_reader_that_replaces_a_plain_one_prints_no_news() -> None:
    """Its first heartbeat comes after the ring that it prints."""
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(stamp=stamp, seconds=stamp) for stamp in (100, 110, 120)), seconds=121)
    old = fault("gpu-2", stamp=100, before_install=True)
    cluster.tick(old, seconds=122)
    reset_node(cluster, "gpu-1", 160, read=159)

    lines = [named(number, stamp, 500) for number, stamp in ((6, 100), (7, 110), (9, 120))]
    plan = cluster.tick(*lines, replace(lines[0], node="gpu-2"), seconds=501)

    assert plan.changes == ()


def test_a_replay_of_lines_from_before_two_releases_is_no_suspicion() -> None:
    cluster = Cluster(fleet(10))
    for stamp in (100, 200):
        cluster.tick(fault(stamp=stamp, seconds=stamp), seconds=stamp + 1)
        assert cluster.tainted == {"gpu-1"}
        reset_node(cluster, "gpu-1", stamp + 60, read=stamp + 59)

    plan = cluster.tick(fault(stamp=100, seconds=500), fault(stamp=200, seconds=500), seconds=501)

    assert plan.changes == ()


def test_a_replay_of_a_line_whose_stamp_drifts_ahead_of_the_uptime_taints_nothing() -> None:
    cluster = Cluster(fleet(10))
    cluster.hear("gpu-1", began=-10_000)
    cluster.tick(fault(stamp=10_090), seconds=1)
    reset_node(cluster, "gpu-1", 60, read=59)

    plan = cluster.tick(fault(stamp=10_090, seconds=100), seconds=101)

    assert [dropped.reason for dropped in plan.ignored] == [SEEN_BEFORE]
    assert cluster.tainted == set()


def test_lines_that_may_be_new_are_told_once_for_a_rule_and_release() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=9000))
    reset_node(cluster, "gpu-1", 60, read=59)
    for seconds, gpus in ((100, range(8)), (200, range(4, 12))):
        lines = [fault(stamp=500 + n, seconds=seconds, gpu=f"0000:{n:02x}:00") for n in gpus]
        cluster.tick(*lines, fault(rule="xid.48", stamp=520, seconds=seconds), seconds=seconds + 1)

    both = [(EventReason.READ_LATE, "xid 79"), (EventReason.READ_LATE, "xid 48")]
    assert cluster.tainted == set()
    assert events(cluster) == both
    reset_node(cluster, "gpu-1", 300, read=299)
    again = [fault(stamp=500 + n, seconds=400, gpu=f"0000:{n:02x}:00") for n in range(8)]
    cluster.tick(*again, seconds=401)
    assert events(cluster) == both

    cluster.tick(fault(stamp=600, seconds=500, gpu="0000:01:00"), seconds=501)

    assert events(cluster) == [*both, (EventReason.READ_LATE, "xid 79")]


def test_a_line_that_may_be_new_escalates_nothing_and_ends_with_a_reset() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=9000))
    reset_node(cluster, "gpu-1", 60, read=59)
    cluster.tick(fault(stamp=500, seconds=100), seconds=101)
    [*_, doubtful] = cluster.nodes["gpu-1"].record.incidents
    assert (doubtful.severity, doubtful.doubt, doubtful.taints) == (
        *(Severity.SUSPECT, Doubt.MAY_BE_NEW),
        False,
    )

    assert open_incidents(cluster.nodes["gpu-1"].record, cluster.nodes["gpu-1"]) == []

    change = reset_node(cluster, "gpu-1", 200, read=199)

    assert change.health is None


def test_a_late_line_without_a_position_is_suspect_and_told() -> None:
    """Its time alone shows that it precedes the release."""
    cluster = Cluster(fleet(10))
    cluster.tick(fault(stamp=None))
    reset_node(cluster, "gpu-1", 60, read=5)

    plan = cluster.tick(fault(stamp=None, seconds=30), seconds=71)

    assert [dropped.reason for dropped in plan.ignored] == [COVERED_BY_TIME]
    assert events(cluster) == [(EventReason.READ_LATE, "xid 79")]
    assert cluster.tick(fault(stamp=None, seconds=30), seconds=80).changes == ()


def test_a_full_record_keeps_no_late_line() -> None:
    cluster = Cluster(fleet(10))
    rules = [f"xid.{n}" for n in range(INCIDENTS_MOST)]
    cluster.tick(*(named(100 + n, 100 + n, 0, rule=rule) for n, rule in enumerate(rules)))
    reset_node(cluster, "gpu-1", 60, read=59)

    plan = cluster.tick(named(99, 99, 70, rule="xid.999"), seconds=71)

    assert [dropped.reason for dropped in plan.ignored] == [COVERED_LATE]
    assert plan.changes == ()


def test_a_test_or_a_suspicion_that_a_release_covers_is_no_suspicion() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(named(10, 100, 0))
    reset_node(cluster, "gpu-1", 60, read=59)

    lines = [
        replace(named(9, 90, 70, rule="xid.14"), before_install=False),
        named(8, 80, 70, rule="xid.63"),
    ]
    test, suspect = (
        replace(line, finding=line.finding._replace(severity=severity))
        for line, severity in zip(lines, (Severity.TEST, Severity.SUSPECT), strict=True)
    )
    plan = cluster.tick(test, suspect, seconds=71)

    assert plan.changes == ()


@pytest.mark.parametrize(
    ("place", "written"),
    [
        (KernelPosition(BOOT, 7, 90), {"seq": 7, "us": 90}),
        (KernelPosition(BOOT, None, 90), {"us": 90}),
        (KernelPosition(BOOT, plain_us=90), {"us": 90, "named": 0}),
        (KernelPosition(BOOT, 7, 90, 9000), {"seq": 7, "us": 9000, "named": 90}),
    ],
    ids=["the reader's line", "the journal's line", "a line without a boot id", "both"],
)
def test_an_earlier_build_reads_the_highest_stamp(place: KernelPosition, written: dict[str, int]) -> None:
    cluster = Cluster(fleet(1))
    cluster.tick(fault())
    record = cluster.nodes["gpu-1"].record
    incident = replace(record.incidents[0], last=place, first_us=place.plain_us)
    record = replace(record, incidents=(incident,), read=place)

    text = encode(record)

    place_json = ",".join(f'"{name}":{number}' for name, number in written.items())
    assert f'"at":{{{place_json}}}' in text
    assert f'"read":{{{place_json}}}' in text
    assert decode(text) == (record, None)


class History:
    """One boot of a node with heartbeats: lines in both forms, foreign stamps, releases and restarts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(fleet(20))
        self.began = -self.random.choice([30.0, 2000.0, 90_000.0])
        self.now, self.number = 0.0, 0
        self.read: list[Fault] = []
        """The boot's own lines that were read, each as the kernel-log reader prints it."""
        self.happened: Counter[str] = Counter()

    def line(self) -> Fault:
        """The kernel prints a fatal line now."""
        self.number += self.random.randint(1, 9)
        self.now += self.random.choice([0.1, 3.0, 70.0])
        rule, gpu = self.random.choice(["xid.79", "xid.48"]), self.random.choice([GPU, OTHER, None])
        parts = {"rule": rule, "text": f"line {self.number}"}
        return replace(
            named(self.number, self.now - self.began, self.now, **parts),
            finding=named(self.number, self.now - self.began, self.now, **parts).finding._replace(gpu=gpu),
        )

    def shipped(self, line: Fault, form: str = "") -> Fault:
        """The line as it arrives now, in one of the two forms."""
        form = form or self.random.choice(["plain", "named"])
        self.happened[form] += 1
        place = line.finding.position
        if form == "plain":
            place = KernelPosition(None, None, place.stamp_us)
        return replace(line, timestamp_ns=ns(self.now), finding=line.finding._replace(position=place))

    def foreign(self) -> Fault:
        """A line without a boot id, with a stamp of another boot or clock."""
        up = self.now - self.began
        stamp = self.random.choice([up * self.random.random(), up + self.random.uniform(0, 5000), 1e7])
        self.happened["above the uptime"] += stamp > up
        return self.shipped(replace(fault(stamp=stamp), finding=fault(stamp=stamp).finding), "plain")

    def tick(self, *lines: Fault) -> None:
        self.now += self.random.choice([0.1, 1.0])
        read = {Source.KERNEL: ns(self.now)}
        self.cluster.snapshot = replace(self.cluster.snapshot, read_ns=read)
        self.cluster.hear("gpu-1", self.began)
        self.cluster.tick(*lines, seconds=self.now)

    def print_and_read(self) -> None:
        line = self.line()
        self.read.append(line)
        for _ in range(self.random.choice([1, 2])):
            self.tick(self.shipped(line))
        if self.random.random() < 0.3:
            self.tick(self.foreign())

    def release(self) -> None:
        state, how = self.cluster.nodes["gpu-1"], self.random.choice(["reset", "by hand"])
        self.now += self.random.choice([0.1, 1.0, 1000.0])
        if how == "by hand" and state.tainted:
            self.cluster.untaint_by_hand("gpu-1")
        elif change := release(state, at=at(self.now), by="ann", reason="seen", read_ns={}):
            self.cluster.apply(change)
        self.happened[how] += 1
        self.tick()

    def restart(self) -> None:
        """Another controller starts from what is on the Node."""
        state = self.cluster.nodes["gpu-1"]
        if not state.record.empty:
            self.cluster.nodes["gpu-1"] = replace(state, record=decode(encode(state.record))[0])
        snapshot = replace(self.cluster.snapshot, grown={}, window=RecentEvidence())
        if self.cluster.snapshot.grown:
            return  # what was counted and not written is lost with a controller, and that is another matter
        self.cluster.snapshot = snapshot
        self.happened["restart"] += 1

    @property
    def tainted(self) -> bool:
        return self.cluster.nodes["gpu-1"].tainted


def test_after_any_release_what_was_read_taints_nothing_and_what_is_printed_taints() -> None:
    happened: Counter[str] = Counter()
    for seed in range(60):
        story = History(seed)
        for number in range(3):
            for _ in range(story.random.randint(1, 3)):
                story.print_and_read()
            story.release()
            assert not story.tainted, (seed, number)
            for _ in range(4):
                if story.random.random() < 0.3:
                    story.restart()
                story.tick(story.shipped(story.random.choice(story.read)))
                assert not story.tainted, (seed, number)
            if story.random.random() < 0.3:
                story.tick(story.foreign())
                if story.tainted:
                    story.release()
            story.print_and_read()
            assert story.tainted, (seed, number)
        happened += story.happened

    assert min(happened[each] for each in ("plain", "named", "above the uptime")) > 50, happened
    assert min(happened[each] for each in ("reset", "by hand", "restart")) > 20, happened
