"""A batch of any lines gives the same result as its lines one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.model import Fault, FaultKind, IncidentState, NodeRecord, Plan, Severity, Source
from tests.policy.scenes import Cluster, fault, node, reset_node

LONG_AFTER = 100_000.0


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    """Lines of few rules, GPUs, boots and times, so that they repeat, overtake and clear each other."""
    moment = draw(st.integers(0, 12))
    stamp = draw(st.sampled_from([None, moment, moment, moment, moment - 3]))
    boot = draw(st.sampled_from([None, None, "boot-a", "boot-0", "boot-next"]))
    source = draw(st.sampled_from([Source.KERNEL, Source.KERNEL, Source.KERNEL, Source.POD]))
    rule = draw(st.sampled_from(["xid.79", "xid.163", "xid.154", "cuda.ecc"]))
    severity = {"xid.79": Severity.FATAL, "xid.163": Severity.SUSPECT, "cuda.ecc": Severity.SUSPECT}.get(
        rule, draw(st.sampled_from([Severity.FATAL, Severity.INFO]))
    )
    found = fault(
        seconds=moment,
        stamp=None if stamp is None else 100.0 + stamp,
        boot=boot,
        rule=rule,
        gpu=draw(st.sampled_from(["0000:4e:00", "0000:5f:00"])),
        severity=severity,
        kind=FaultKind.CUDA if rule == "cuda.ecc" else FaultKind.XID,
        source=source,
        text=f"{rule} at {draw(st.integers(0, 2))}",
        before_install=draw(st.sampled_from([False, False, False, True])),
        user_written=draw(st.booleans()),
    )
    if rule == "xid.154" and draw(st.booleans()):
        clears = draw(st.sampled_from(["xid.163", "xid.163" if severity is Severity.FATAL else "xid.154"]))
        return replace(found, finding=found.finding._replace(clears=clears))
    return found


def in_order(batch: Iterable[Fault]) -> list[Fault]:
    """Sort lines as one decision does."""

    def order(one: Fault) -> tuple[int, int]:
        return (one.timestamp_ns, one.finding.position.stamp_us or 0)

    return sorted(batch, key=order)


def cluster_with_a_past(past: list[Fault], *, was_reset: bool) -> Cluster:
    """A cluster whose gpu-1 was in boot-0 before, with a record and perhaps a reset."""
    cluster = Cluster({"gpu-1": node(boot="boot-0"), **{f"gpu-{i}": node(f"gpu-{i}") for i in range(2, 9)}})
    cluster.tick(*past)
    cluster.reboot("gpu-1", "boot-a")
    cluster.tick(*past)
    is_open = any(i.state is not IncidentState.RELEASED for i in cluster.nodes["gpu-1"].record.incidents)
    if was_reset and is_open:
        reset_node(cluster, "gpu-1", 6, read=4)
    return cluster


def outcome(cluster: Cluster, plans: list[Plan]) -> tuple[NodeRecord, Counter[object], Counter[object]]:
    """Return the record of gpu-1 after all writes, the counted lines, and the ignored lines."""
    cluster.tick(seconds=LONG_AFTER)
    counted = Counter((one.finding.text, one.timestamp_ns) for plan in plans for one in plan.counted)
    ignored = Counter((item.fault, item.reason) for plan in plans for item in plan.ignored)
    record = replace(cluster.nodes["gpu-1"].record, act=None)  # the id of the write may differ
    return record, Counter(counted), Counter(ignored)


@settings(max_examples=120, deadline=None)
@given(past=st.lists(faults(), max_size=4), was_reset=st.booleans(), batch=st.lists(faults(), max_size=14))
def test_a_batch_gives_the_same_result_as_its_lines_one_by_one(
    past: list[Fault], was_reset: bool, batch: list[Fault]
) -> None:
    batch = in_order(batch)
    at_once = cluster_with_a_past(past, was_reset=was_reset)
    one_by_one = cluster_with_a_past(past, was_reset=was_reset)

    folded = [at_once.tick(*batch, seconds=20)]
    single = [one_by_one.tick(one, seconds=20) for one in batch]

    assert outcome(at_once, folded) == outcome(one_by_one, single)


def test_the_lowest_stamp_without_a_boot_id_is_kept_until_it_is_written() -> None:
    cluster = Cluster({"gpu-1": node(), "gpu-2": node("gpu-2")})
    cluster.tick(fault(stamp=97, boot="boot-a"))

    for stamp in (100, 101):
        cluster.tick(fault(seconds=stamp - 100, stamp=stamp), seconds=20)
    cluster.tick(seconds=LONG_AFTER)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (incident.first_us, incident.last.plain_us) == (100_000_000, 101_000_000)


def test_a_storm_in_one_batch_is_one_incident_with_the_exact_count_and_one_write() -> None:
    cluster = Cluster({"gpu-1": node(), "gpu-2": node("gpu-2")})

    plan = cluster.tick(*(fault(seconds=i / 1000, stamp=100 + i / 1000) for i in range(5000)))

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (incident.count, incident.state) == (5000, IncidentState.ACTIVE)
    assert incident.last.plain_us == 104_999_000
    assert incident.last.boot_id == cluster.nodes["gpu-1"].record.read.boot_id == "boot-a"
    assert len(plan.counted) == 5000
    assert len(cluster.writes) == 1


def test_a_fault_of_several_lines_counts_all_of_them_unless_some_may_be_counted_already() -> None:
    first, latest = fault(seconds=1, stamp=101), replace(fault(seconds=5, stamp=105), times=4)
    news, known = Cluster({"gpu-1": node()}), Cluster({"gpu-1": node()})
    known.tick(first, fault(seconds=3, stamp=103), seconds=10)

    news.tick(first, latest, seconds=20)
    known.tick(first, latest, seconds=20)
    for cluster in (news, known):
        cluster.tick(first, latest, seconds=30)
        cluster.tick(seconds=LONG_AFTER)

    assert [incident.count for incident in news.nodes["gpu-1"].record.incidents] == [5]
    assert [incident.count for incident in known.nodes["gpu-1"].record.incidents] == [3]


def test_counts_are_written_although_the_clock_was_set_back_by_a_day() -> None:
    cluster = Cluster({"gpu-1": node()})
    cluster.tick(fault(seconds=86_400, stamp=101), seconds=86_400)
    cluster.tick(fault(seconds=86_401, stamp=102), seconds=86_401)

    cluster.tick(seconds=0)

    assert [incident.count for incident in cluster.nodes["gpu-1"].record.incidents] == [2]
