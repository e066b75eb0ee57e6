"""The behaviour that our watches rely on: events, selections, bookmarks and how a watch ends."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import pytest

from tests.contract.kubernetes_target import (
    MERGE_PATCH,
    Target,
    Watch,
    names,
    node_path,
)

NODES = "/api/v1/nodes"


def collect(watch: Watch) -> list[dict[str, Any]]:
    with watch:
        return list(watch)


def take(watch: Watch, count: int) -> list[dict[str, Any]]:
    """Return the first events of a watch, and close it."""
    with watch:
        return list(islice(watch, count))


def without_bookmarks(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name")) for e in events if e["type"] != "BOOKMARK"]


def test_a_watch_has_every_change_from_its_version_on_and_ends_in_time(target: Target, group: str) -> None:
    listed = target.get(NODES, labelSelector=f"group={group}")
    first, second, *_ = names(listed)
    target.patch(node_path(first), {"metadata": {"labels": {"x": "1"}}}, MERGE_PATCH)
    target.send("DELETE", node_path(second))
    made = target.create_node(metadata={"labels": {"group": group}}).meta["name"]
    version = listed.meta["resourceVersion"]
    started = time.monotonic()
    events = collect(
        target.watch(NODES, resourceVersion=version, labelSelector=f"group={group}", timeoutSeconds="2")
    )

    assert 1 <= time.monotonic() - started < 10
    seen = list(dict.fromkeys(without_bookmarks(events)))  # a server's admission may add a change of its own
    assert seen[:3] == [("MODIFIED", first), ("DELETED", second), ("ADDED", made)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


def test_a_watch_that_goes_on_later_shows_also_a_change_that_was_taken_back(
    target: Target, group: str
) -> None:
    listed = target.get(NODES, labelSelector=f"group={group}")
    first, version = names(listed)[0], listed.meta["resourceVersion"]
    for value in ("gone", "back"):
        target.patch(node_path(first), {"metadata": {"labels": {"gpu": value}}}, MERGE_PATCH)
    events = collect(
        target.watch(NODES, resourceVersion=version, labelSelector=f"group={group}", timeoutSeconds="1")
    )

    nodes = (event["object"] for event in events if event["type"] == "MODIFIED")
    shown = list(dict.fromkeys(node["metadata"]["labels"].get("gpu") for node in nodes))
    assert shown == ["gone", "back"]


def bookmarked_watch(target: Target, group: str, version: str) -> Watch:
    """A watch long enough for a bookmark: the real server sends one two seconds before the end."""
    return target.watch(
        NODES,
        resourceVersion=version,
        labelSelector=f"group={group}",
        allowWatchBookmarks="true",
        timeoutSeconds="1" if target.server else "5",
    )


def test_bookmarks_carry_a_version_and_nothing_else(target: Target, group: str) -> None:
    version = target.get(NODES, labelSelector=f"group={group}").meta["resourceVersion"]
    with bookmarked_watch(target, group, version) as watch:
        later = target.create_node().meta["resourceVersion"]  # outside the selection
        events = list(watch)

    assert {event["type"] for event in events} == {"BOOKMARK"}
    for bookmark in (event["object"] for event in events):
        assert (bookmark["kind"], bookmark["apiVersion"]) == ("Node", "v1")
        assert bookmark["metadata"].keys() == {"resourceVersion"}
        assert int(bookmark["metadata"]["resourceVersion"]) >= int(later)


def test_a_deletion_shows_the_object_under_the_version_of_its_deletion(target: Target, group: str) -> None:
    listed = target.get(NODES, labelSelector=f"group={group}")
    name = names(listed)[0]
    with target.watch(NODES, resourceVersion=listed.meta["resourceVersion"], timeoutSeconds="5") as watch:
        target.send("DELETE", node_path(name))
        event = next(e for e in watch if e["type"] == "DELETED")

    assert event["object"]["metadata"]["name"] == name
    assert event["object"]["metadata"]["labels"]["group"] == group
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(listed.meta["resourceVersion"])


def test_a_watch_from_a_forgotten_version_is_expired(target: Target, group: str) -> None:
    version = target.get(NODES, labelSelector=f"group={group}").meta["resourceVersion"]
    target.create_node()
    if target.server is None:
        version = "1"
    else:
        target.server.forget_history()
    events = collect(target.watch(NODES, resourceVersion=version, timeoutSeconds="2"))
    if target.server is None and events and events[0]["type"] != "ERROR":
        pytest.skip("this server still knows its first version")

    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "Expired", 410)
