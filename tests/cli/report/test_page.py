"""The page: its numbers lead to their outages, it says what is not known, and no text can break it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from konductor_like.cli.report.render import NAME_CHARS, TEXT_CHARS, rendered
from konductor_like.history.outages import End
from konductor_like.history.read import History, TrailReading
from tests.cli.report.reading import Element, Page
from tests.history.fleet_month import simulated
from tests.history.values import END, START, day, fleet_of, history_of, outage, told

HOSTILE = "<script>alert(1)</script>\"'`]]>--></style></svg>{{ 7*7 }}{% raw %}&amp;\u202egnp.exe\x1b[2J"


def page_of(history: History) -> Page:
    return Page(rendered(history, history.end))


@cache
def month() -> Page:
    return page_of(told(simulated(120)))


def tiles(page: Page) -> dict[str, Element]:
    """Return the numbers at the top by their name."""
    [tiles] = [each for each in page.root.all("ul") if each.get("class") == "tiles"]
    return {tile.all("span")[0].text: tile.all("strong")[0] for tile in tiles.all("li")}


def value(page: Page, name: str) -> str:
    return tiles(page)[name].text


def test_the_numbers_at_the_top_are_those_of_the_outages() -> None:
    fleet = fleet_of([("gpu-1", "550"), ("gpu-2", "550")])
    outages = [outage("gpu-1", 1, 24), outage("gpu-2", 2, 48), outage("gpu-1", 29.5, None)]
    page = page_of(history_of(outages, fleet))

    assert value(page, "GPU hours lost") == "672"  # 8 GPUs for 24, 48 and 12 hours
    assert value(page, "outages") == "3"
    assert value(page, "available") == f"{1 - 84 / 1440:.2%}"
    assert value(page, "median repair time") == "36.0 h"
    assert value(page, "still out of service") == "1"
    assert value(page, "taken out for nothing") == "0"


def test_nodes_still_out_are_those_at_the_end_of_the_time() -> None:
    page = page_of(history_of([outage("a", 29.9, 24), outage("b", 29.9, None), outage("c", 29, 2)]))

    assert value(page, "still out of service") == "2"
    assert page.nodes(tiles(page)["still out of service"].all("a")[0]) == ["a", "b"]
    assert "nodes, for failures, at the end: 6 May 2026, 12:00 UTC" in page.text


def test_nodes_still_out_are_not_known_without_the_nodes() -> None:
    page = page_of(history_of([outage("a", 29.9, None, end=End.UNKNOWN)], problem="no cluster"))

    assert value(page, "still out of service") == "not known"


def test_each_number_leads_to_its_outages() -> None:
    page = page_of(
        history_of(
            [
                outage("gpu-1", 1, 24, rack="r1"),
                outage("gpu-2", 2, 0.2, by="ann", reason="false alarm", rack="r2"),
                outage("gpu-3", 29.5, None, rule="xid.48"),
                outage("gpu-4", 3, 1, rule="xid.14", how="time"),
                outage("gpu-5", -2, 80, how="reboot", by=None),
            ]
        )
    )

    def of(element: Element) -> list[str]:
        return page.nodes(element.all("a")[0])

    assert of(tiles(page)["GPU hours lost"]) == ["gpu-5", "gpu-1", "gpu-2", "gpu-3"]
    assert of(tiles(page)["outages"]) == ["gpu-1", "gpu-2", "gpu-3"]
    assert of(tiles(page)["still out of service"]) == ["gpu-3"]
    assert of(tiles(page)["median repair time"]) == ["gpu-5", "gpu-1", "gpu-2"]
    assert of(tiles(page)["taken out for nothing"]) == ["gpu-2"]
    assert of(page.section("By fault").all("tr")[2]) == ["gpu-3"]
    assert page.nodes(page.section("By node").all("tr")[1].all("a")[-1]) == ["gpu-5"]
    assert of(page.section("By rack").all("tr")[2]) == ["gpu-2"]
    assert of(page.section("By how the node was returned").all("tr")[2]) == ["gpu-5"]
    assert of(page.section("Nodes taken out for nothing").all("tr")[1]) == ["gpu-2"]
    assert len(page.rows) == 5


def test_every_link_of_a_month_leads_to_as_many_outages_as_it_says_and_its_style_shows_them_alone() -> None:
    page = month()
    [style] = page.root.all("style")
    said = {each.get("id"): each for each in page.root.all("p") if each.get("class") == "chosen"}
    used = {link.get("href").removeprefix("#") for link in page.root.all("a")} - {"outages"}

    assert used == set(said)
    assert len(used) > 50
    for name, words in said.items():
        shown = sum(name in row.get("class").split() for row in page.rows)
        assert f": {shown}. Show all {len(page.rows)}" in words.text
        assert f"#{name}:target~.wide tbody tr:not(.{name})" in style.text


def test_a_fault_says_what_it_means_if_the_rules_have_it() -> None:
    page = page_of(history_of([outage(hours=3), outage("gpu-2", rule="own.rule")]))

    assert [row[0] for row in page.cells("By fault")] == ["xid 79 GPU has fallen off the bus", "own rule"]


def test_a_gpu_that_failed_often_and_shortly_is_shown_by_its_number_of_failures() -> None:
    long = [outage(f"gpu-{number}", 2, 100 + number) for number in range(10, 25)]
    short = [outage("gpu-1", 1 + number, 0.1, gpu="0000:1b:00") for number in range(3)]
    twice = [outage("gpu-2", 1, 1, gpu="0000:4e:00"), outage("gpu-2", 4, 1, gpu="0000:5f:00")]
    before = [outage("gpu-3", -1, 30), outage("gpu-3", 5)]
    page = page_of(history_of([*long, *short, *twice, *before]))

    assert page.cells("Nodes that failed more than once") == [
        ["gpu-1", "2.4", "3", ""],
        ["gpu-2", "16.0", "2", ""],
    ]
    assert page.cells("GPUs that failed more than once") == [["gpu-1 0000:1b:00", "2.4", "3", ""]]
    [row] = page.section("GPUs that failed more than once").all("tbody")[0].all("tr")
    assert page.nodes(row.all("a")[1]) == ["gpu-1"] * 3
    assert "gpu-1" not in [row[0] for row in page.cells("By node")]  # by hours it is not among the first


def test_at_most_ten_nodes_failed_most_often() -> None:
    page = page_of(history_of(outage(f"gpu-{number}", begin) for number in range(12) for begin in (1, 2)))

    assert len(page.cells("Nodes that failed more than once")) == 10
    assert "2 more failed more than once." in page.section("Nodes that failed more than once").text


def test_the_number_of_outages_leads_to_those_that_began_and_the_hours_to_all() -> None:
    page = page_of(history_of([outage("gpu-1", -1, 30), outage("gpu-2", 1), outage("gpu-3", 8)]))
    [row] = page.section("By fault").all("tbody")[0].all("tr")
    first, second = page.section("Outages a week").all("tbody")[0].all("tr")[:2]

    assert [(each.text, page.nodes(each)) for each in row.all("a")] == [
        ("2", ["gpu-2", "gpu-3"]),
        ("80.0", ["gpu-1", "gpu-2", "gpu-3"]),
    ]
    assert [(each.text, page.nodes(each)) for each in first.all("a")] == [
        ("64.0", ["gpu-1", "gpu-2"]),
        ("1", ["gpu-2"]),
    ]
    assert [each.text for each in second.all("a")] == ["16.0", "1"]


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    text = rendered(told(simulated(60)), END)
    tags = {each.tag for each in _everything(month().root)}

    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "svg", "form", "base"}
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face|\son[a-z]+=", text)
    assert "default-src 'none'; style-src 'unsafe-inline'" in text


def _everything(element: Element) -> list[Element]:
    return [element, *(each for inside in element.inside for each in _everything(inside))]


def test_tables_have_headers_and_plots_have_words() -> None:
    page = month()

    for table in page.root.all("table"):
        [head] = table.all("thead")
        assert head.all("th")
        assert {each.get("scope") for each in table.all("th")} <= {"col", "row"}
    plots = page.root.all("ol")
    assert [plot.get("aria-label") for plot in plots] == [
        "GPU hours lost each day",
        "Returned nodes by the time it took",
    ]
    for column in (column for plot in plots for column in plot.all("li")):
        named = (column.all("a") + column.all("span"))[0]
        assert re.search(r": [\d,.]+ (GPU hours|outages)", named.get("aria-label"))


@pytest.mark.parametrize("hostile", [HOSTILE, "x" * 10_000, "<b>" * 3000, "\u05d0\u202e\u2066" * 100])
def test_no_text_breaks_the_page(hostile: str) -> None:
    names = dict.fromkeys(
        ("rule", "gpu", "rack", "model", "driver", "reason", "by", "failure_group"), hostile
    )
    fleet = fleet_of([(hostile, hostile), ("gpu-2", "550")], model=hostile, pool=hostile)
    outages = [
        outage(hostile, 1, 2, **names),
        outage(hostile, 2, 0.1, **{**names, "reason": f"false alarm {hostile}"}),
        outage("gpu-3", 3, rule="operator", begun_by=hostile),
        outage("gpu-2", 4, differs=True, evidence=hostile),
    ]
    trail = TrailReading(START, END, problem=hostile)
    text = rendered(history_of(outages, fleet, trail=trail, problem=hostile), END)
    page = Page(text)

    assert len(page.rows) == 4
    assert not {each.tag for each in _everything(page.root)} & {"script", "b{", "svg"}
    assert [each.text for each in page.root.all("b")] == [
        each.text for each in page.root.all("b") if each.text.replace(",", "").isdecimal()
    ]
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", page.text)
    assert len(text) < 200_000
    assert max(len(each.text) for each in page.root.all("bdi")) <= TEXT_CHARS
    assert max(len(name.text) for head in page.root.all("th") for name in head.all("bdi")) <= NAME_CHARS


def test_a_hostile_text_is_shown_as_it_is() -> None:
    page = page_of(history_of([outage("gpu-1", reason="<script>alert(1)</script> & co]]>")]))

    assert "<script>alert(1)</script> & co]]>" in page.text


def test_the_page_says_on_top_that_it_is_incomplete() -> None:
    trail = TrailReading(START, END, lines=1, first_at=START, read_until=day(3), problem="Loki is away")
    page = page_of(history_of([outage()], trail=trail))

    [warning] = [each for each in page.root.all("section") if each.get("class") == "warning"]
    assert page.root.all("section")[0] is warning
    assert "incomplete" in warning.text
    assert "The audit trail cannot be read after 2026-04-09T12:00:00Z: Loki is away" in warning.text
    begin, read = "2026-04-06T12:00:00Z", "2026-04-09T12:00:00Z"
    assert f"tells outages from {begin} to {read}. Others are {RECORDS}" in warning.text


def test_the_page_is_incomplete_without_the_nodes() -> None:
    page = page_of(history_of([outage()], problem="no cluster"))

    assert "This report is incomplete" in page.text
    assert "The Nodes cannot be read, so outages that go on are not known: no cluster" in page.text
    assert "Earlier ones are not known, because the Nodes could not be read" in page.text
    assert value(page, "available") == "not known"


RECORDS = (
    "known from the nodes' records alone, which keep ten failures of each node and none of a deleted Node"
)


@pytest.mark.parametrize(
    ("first", "hours", "says"),
    [
        (1.1, 720, f"tells outages from 2026-04-07T14:24:00Z on. Earlier ones are {RECORDS}"),
        (0.5, 24, f"tells outages from 2026-04-07T00:00:00Z on. Earlier ones are {RECORDS}"),
        (None, 24, f"tells no outage of this time: outages are {RECORDS}"),
        (0.9, 720, ""),
        (9 / 1440, 1, ""),
    ],
    ids=["a day of a month", "half of a day", "no line", "less than a day", "nine minutes"],
)
def test_a_trail_that_begins_late_is_told_on_top(first: float | None, hours: float, says: str) -> None:
    end = day(hours / 24)
    trail = TrailReading(START, end, lines=9, first_at=None if first is None else day(first), read_until=end)
    page = page_of(replace(history_of([outage(begin=0.01, hours=0.1)], trail=trail), end=end))

    warnings = [each for each in page.root.all("section") if each.get("class") == "warning"]
    assert bool(warnings) is bool(says)
    assert says in " ".join(each.text for each in warnings)
    if says:
        assert page.root.all("section")[0] is warnings[0]
        assert "This report may be incomplete" in warnings[0].text
        assert "may look better than they were" in warnings[0].text
        assert "No gap is known" not in page.text


def test_the_page_of_a_whole_history_has_no_warning() -> None:
    page = page_of(history_of([outage()]))

    assert "incomplete" not in page.text
    assert "No gap is known." in page.text


def test_the_page_says_how_much_is_known() -> None:
    late = TrailReading(START, END, lines=7, first_at=day(4), read_until=END)
    page = page_of(history_of([outage(in_record=True), outage("b", 2, None, end=End.UNKNOWN)], trail=late))
    known = " ".join(page.section("How much is known").text.split())

    assert "read from 2026-04-06T12:00:00Z to 2026-05-06T12:00:00Z: 7 lines, the first at 2026-04-10" in known
    assert "The first line of the audit trail in this time is of 2026-04-10T12:00:00Z" in known
    assert "The end of 1 outage is not known: b" in known


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        ({}, "Nothing is known of this time: no GPU node was found, and no outage."),
        (fleet_of([("gpu-1", "550")]), "No outage is known of this time."),
    ],
)
def test_a_history_without_outages_makes_a_page_that_says_so(fleet: dict[str, object], says: str) -> None:
    nothing = TrailReading(START, END, read_until=END)
    page = page_of(history_of([], fleet, trail=nothing))  # type: ignore[arg-type]  # of NodeStates

    assert says in page.text
    assert "Loki has no line of the audit trail of this time" in page.text
    assert page.rows == []
    assert value(page, "outages") == "0"
    assert value(page, "median repair time") == "none"


def test_hours_are_node_hours_if_no_number_of_gpus_is_known() -> None:
    page = page_of(history_of([outage(hours=5, gpus=None)]))

    assert value(page, "node hours lost") == "5.0"
    assert page.section("By fault").all("th")[2].text == "Node hours"


def test_the_page_says_what_was_taken_out_for_nothing_and_what_that_means() -> None:
    page = page_of(history_of([outage(hours=0.2, reason="false alarm", by="ann"), outage("b", 2)]))
    section = " ".join(page.section("Nodes taken out for nothing").text.split())

    assert page.cells("Nodes taken out for nothing") == [["xid 79", "1", "2", "0.2"]]
    assert (
        "a named person returned it within 30 minutes, with a reason that begins with “false alarm”, "
        "“false positive”, “no fault found” or “nothing wrong”; and the node did not fail again within 24 "
        "hours"
    ) in section


def test_days_and_weeks_are_those_of_the_calendar_in_utc() -> None:
    late = outage("gpu-1", begin=2.9, hours=1)  # 9 April, 09:36
    page = page_of(replace(history_of([late, outage("gpu-2", 6.6)]), end=day(9.25)))  # 13 April, 02:24

    days = [
        (column.all("a") + column.all("span"))[0].get("aria-label").split(": ")
        for column in page.root.all("ol")[0].all("li")
    ]
    assert days[0] == ["6 Apr (only 12.0 h)", "0.0 GPU hours"]
    assert days[-1] == ["15 Apr (only 18.0 h)", "0.0 GPU hours"]
    assert [each for each in days if each[1] != "0.0 GPU hours"] == [
        ["9 Apr", "8.0 GPU hours"],
        ["13 Apr", "16.0 GPU hours"],
    ]
    weeks = [[row[0], row[2]] for row in page.cells("Outages a week")]
    assert weeks == [["6 Apr (only 6.5 d)", "1"], ["13 Apr (only 2.8 d)", "1"]]
    assert "Only outages on 9 April: 1." in page.text
    assert "Only outages from 6 April to 12 April: 1." in page.text
    assert page.text.count("in UTC, the first and the last may be parts") == 2


def test_a_long_span_has_a_column_for_each_week() -> None:
    found = history_of([outage(begin=-20, hours=2)])
    page = page_of(replace(found, start=day(-60)))

    assert page.root.all("ol")[0].get("aria-label") == "GPU hours lost each week"
    assert len(page.root.all("ol")[0].all("li")) == 14  # twelve whole, two parts
