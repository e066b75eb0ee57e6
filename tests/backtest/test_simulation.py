"""The simulated clock: nodes come back as assumed, and nodes that the brake held are tainted then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.backtest.history import Page, polled_ns, polls
from konductor_like.backtest.result import Peak, difference
from konductor_like.backtest.run import poll_intervals
from konductor_like.backtest.simulation import SimulatedNodes, Simulation, healthy_node
from konductor_like.catalog import load_catalog, read_user_rules
from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.detection import Detector
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.model import Change, Life, LogLine, NodeRecord, SkipReason, Source, Verb
from konductor_like.model.time import moment_of
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from tests.backtest.histories import SECOND_NS, START_NS, WrittenLine, pages, xid

POLL_NS = 5 * SECOND_NS
HOUR_NS = 3600 * SECOND_NS
END_NS = START_NS + 48 * HOUR_NS


def simulation(
    *,
    percent: float = 100,
    release_hours: float | None = 4,
    rules: str = "",
    nodes: SimulatedNodes | None = None,
    enforce_shadow: bool = False,
) -> Simulation:
    catalog = read_user_rules(rules, "rules.yaml", load_catalog()).catalog if rules else load_catalog()
    release_ns = None if release_hours is None else round(release_hours * HOUR_NS)
    nodes = nodes or SimulatedNodes([healthy_node(f"gpu-{number}") for number in range(1, 11)], complete=True)
    return Simulation(
        Detector(catalog),
        PolicyConfig(brake_max_percent=percent),
        nodes,
        poll_ns=POLL_NS,
        release_after_ns=release_ns,
        enforce_shadow=enforce_shadow,
    )


def played(written: list[WrittenLine], *simulations: Simulation) -> None:
    ordered = sorted(written, key=lambda one: one.at_ns)
    for poll_ns, lines in polls({Source.KERNEL: pages(ordered, END_NS)}, {Source.KERNEL: POLL_NS}):
        for one in simulations if lines else ():
            one.poll(poll_ns, lines)
    for one in simulations:
        one.finish(END_NS)


@pytest.mark.parametrize("hours", [4, None], ids=["until the assumed release", "for good"])
def test_a_node_is_out_from_the_poll_after_its_line(hours: float | None) -> None:
    one = simulation(release_hours=hours)

    played([xid("gpu-1", 7)], one)

    [outage] = one.verdicts().outages
    assert (outage.node, outage.start_ns) == ("gpu-1", START_NS + 10 * SECOND_NS)
    assert outage.end_ns == (hours and outage.start_ns + hours * HOUR_NS)
    assert outage.incident.key.rule == "xid.79"
    assert "fallen off" in outage.incident.evidence


def test_a_held_node_is_tainted_after_the_first_came_back() -> None:
    one = simulation(percent=10)

    played([xid("gpu-1", 7), xid("gpu-2", 60)], one)

    verdicts = one.verdicts()
    first, second = verdicts.outages
    assert (first.node, second.node) == ("gpu-1", "gpu-2")
    assert first.end_ns is not None
    assert first.end_ns <= second.start_ns <= first.end_ns + HOUR_NS
    held = [span for span in verdicts.held if span.why is SkipReason.BRAKE]
    assert {span.node for span in held} == {"gpu-2"}
    assert second.start_ns - first.end_ns == 300 * SECOND_NS, "the brake's cool-down"
    assert held[0].start_ns == START_NS + 65 * SECOND_NS
    assert verdicts.peak == Peak(START_NS + 10 * SECOND_NS, 1)


def test_after_its_release_a_new_line_taints_a_node_again_and_a_replay_does_not() -> None:
    one = simulation()

    played([xid("gpu-1", 7), xid("gpu-1", 6 * 3600, stamp=1007), xid("gpu-1", 7 * 3600)], one)

    starts = [outage.start_ns - START_NS for outage in one.verdicts().outages]
    assert starts == [10 * SECOND_NS, 7 * HOUR_NS + 5 * SECOND_NS]


def test_a_node_that_fails_repeatedly_stays_out_longer_and_then_for_good() -> None:
    one = simulation(release_hours=0.1)

    played([xid("gpu-1", 3600 * hour) for hour in (1, 3, 5)], one)

    first, second, third = one.verdicts().outages
    assert first.end_ns is not None
    assert first.end_ns - first.start_ns == 360 * SECOND_NS
    assert second.end_ns is not None
    assert second.end_ns - second.start_ns == 1800 * SECOND_NS
    assert "it failed 2 times" in second.why_longer
    assert third.end_ns is None
    assert "marked for replacement" in third.why_longer


def test_a_node_that_only_lines_name_exists_from_its_first_line_on() -> None:
    one = simulation(nodes=SimulatedNodes())

    played([xid("new-1", 7)], one)

    assert [outage.node for outage in one.verdicts().outages] == ["new-1"]
    assert one.verdicts().gpu_nodes == 1


def test_a_node_that_has_our_taint_today_starts_in_service() -> None:
    change = Change("gpu-1", Verb.TAINT, NodeRecord(life=Life(moment_of(START_NS))), "faulty")
    today = DryRunWriter().write(healthy_node("gpu-1"), change).state
    assert today is not None
    assert today.tainted
    one = simulation(nodes=SimulatedNodes([today]))

    played([xid("gpu-1", 7)], one)

    assert [outage.start_ns - START_NS for outage in one.verdicts().outages] == [10 * SECOND_NS]


@pytest.mark.parametrize(("days", "seconds"), [(0.125, (5, 15)), (2, (80, 80)), (30, (1200, 1200))])
def test_a_long_span_is_polled_less_often(days: float, seconds: tuple[int, int]) -> None:
    span = TimeWindow(START_NS, START_NS + round(days * 24 * HOUR_NS))

    found = poll_intervals(Settings(log_endpoint="http://loki"), span)

    assert tuple(found.values()) == tuple(each * SECOND_NS for each in seconds)


def test_a_rule_in_shadow_mode_taints_nothing_and_its_outages_are_reported() -> None:
    rules = "overrides:\n  xid.79.mode: shadow\n"
    one, enforced = simulation(rules=rules), simulation(rules=rules, enforce_shadow=True)

    played([xid("gpu-1", 7), xid("gpu-2", 60, code=48)], one, enforced)

    assert one.found_shadow
    assert [outage.node for outage in one.verdicts().outages] == ["gpu-2"]
    assert [outage.node for outage in enforced.verdicts().outages] == ["gpu-1", "gpu-2"]


def test_two_sets_of_rules_are_compared_in_one_pass() -> None:
    one, other = (
        simulation(),
        simulation(rules="overrides:\n  xid.31.severity: fatal\n  xid.79.severity: info\n"),
    )

    played([xid("gpu-1", 7), xid("gpu-2", 60, code=31), xid("gpu-3", 90, code=48)], one, other)

    found = difference(one.verdicts().outages, other.verdicts().outages)
    assert [outage.node for outage in found.added] == ["gpu-2"]
    assert [outage.node for outage in found.gone] == ["gpu-1"]
    assert found.same == 1


def test_a_line_that_names_another_boot_is_a_reboot_and_lines_of_the_old_boot_are_past() -> None:
    one = simulation(release_hours=1)
    wire = (
        "kmsg/1 boot={boot} seq=4 facility=0 priority=3 [{at}.000000] "
        "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."
    )
    boots = ["0d5c9a1e-7c44-4f0a-9a5e-3c1f6f0a2b77", "1d5c9a1e-7c44-4f0a-9a5e-3c1f6f0a2b77"]
    texts = [(10, boots[0], 5), (7200, boots[1], 3), (14400, boots[0], 6)]
    written = [
        WrittenLine("gpu-1", START_NS + at * SECOND_NS, wire.format(boot=boot, at=stamp))
        for at, boot, stamp in texts
    ]

    played(written, one)

    starts = [(outage.start_ns - START_NS) // SECOND_NS for outage in one.verdicts().outages]
    assert starts == [15, 7205]


def test_pod_lines_arrive_with_the_polls_of_pods_and_all_polls_are_in_order() -> None:
    def page(source: Source, *at: int) -> list[Page]:
        return [Page([LogLine(source, START_NS + ns, str(ns), {}, "gpu-1") for ns in at], END_NS)]

    second = SECOND_NS
    both = {Source.KERNEL: page(Source.KERNEL, second, 6 * second), Source.POD: page(Source.POD, 2 * second)}

    seen = [
        ((poll - START_NS) // second, [line.source for line in lines])
        for poll, lines in polls(both, {Source.KERNEL: 5 * second, Source.POD: 15 * second})
        if lines
    ]

    assert seen == [(5, [Source.KERNEL]), (10, [Source.KERNEL]), (15, [Source.POD])]
    assert polled_ns(START_NS, 5 * second, 5 * second) == START_NS + 5 * second


def test_lines_of_both_sources_are_yielded_before_more_is_read() -> None:
    read: list[int] = []

    def slow(source: Source, width: int) -> Iterator[Page]:
        for start in range(0, 60, width):
            read.append(start + width)
            line = LogLine(source, START_NS + start * SECOND_NS, "", {}, "gpu-1")
            yield Page([line], START_NS + (start + width) * SECOND_NS)

    both = {Source.KERNEL: slow(Source.KERNEL, 10), Source.POD: slow(Source.POD, 20)}
    yielded = polls(both, {Source.KERNEL: POLL_NS, Source.POD: 3 * POLL_NS})
    ahead = {(poll - START_NS) // SECOND_NS: max(read) for poll, lines in yielded if lines}

    assert list(ahead) == [5, 15, 25, 30, 35, 45, 55]
    assert all(upto <= poll + 35 for poll, upto in ahead.items())


def test_a_test_by_the_command_ends_after_two_minutes() -> None:
    one = simulation()
    text = "[1007.000000] NVRM: Xid (PCI:0000:ff:1f): 14, konductor-like test a1b2c3"

    played([WrittenLine("gpu-1", START_NS + 7 * SECOND_NS, text)], one)

    [outage] = one.verdicts().outages
    assert outage.end_ns == outage.start_ns + 120 * SECOND_NS


@pytest.mark.parametrize("hours", [4, None], ids=["before the assumed release", "although nobody releases"])
def test_a_test_ends_by_itself_after_an_hour(hours: float | None) -> None:
    one = simulation(release_hours=hours)

    played([xid("gpu-1", 7, code=14), xid("gpu-1", 2 * 3600)], one)

    first, second = one.verdicts().outages
    assert first.end_ns == first.start_ns + HOUR_NS
    assert second.start_ns == START_NS + 2 * HOUR_NS + 5 * SECOND_NS
    assert second.end_ns == (hours and second.start_ns + hours * HOUR_NS)
