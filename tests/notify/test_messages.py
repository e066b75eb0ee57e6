"""Which Events are notified of, how they become messages, and the words of a message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.model import EventReason
from konductor_like.notify.messages import (
    KINDS,
    Kind,
    Message,
    News,
    cloud_event,
    grouped,
    news_of_fleet,
    slack_message,
    text_of,
    trial_message,
    within,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import REPEAT_ADVICE
from tests.notify.scenes import event, news_in, news_of, tainted_node
from tests.policy.scenes import Cluster, at, fault, fleet, node, reset_node
from tests.policy.shared import RULES, rack, xid

NOT_SENT = {
    EventReason.RECORDED,
    EventReason.ACKNOWLEDGED,
    EventReason.SHADOW,
    EventReason.PAUSED,
    EventReason.RESUMED,
    EventReason.BRAKE_RESET,
    EventReason.FREE,
    EventReason.DELETED,
    EventReason.REBOOTED,
    EventReason.ENDED,
    EventReason.RETURNS_RESUMED,
    EventReason.JOBS_NODE,  # its node is tainted, which is sent
}
"""The Events without a notification: records, acts of people, and good news of the brake."""
HOUR = 3600.0


@pytest.mark.parametrize("reason", EventReason)
def test_every_reason_of_an_event_is_either_sent_or_decided_not_to_be(reason: EventReason) -> None:
    assert (reason in KINDS) is not (reason in NOT_SENT)


def news(kind: Kind = Kind.TAINTED, name: str = "gpu-1", **facts: Any) -> News:
    return News(kind, EventReason.TAINTED, f"{kind}-{name}", at(0), "Something happened.", name, **facts)


def test_a_tainted_node_is_one_message_with_gpu_rule_needs_command_and_runbook() -> None:
    assert text_of(tainted_node()).splitlines() == [
        "Tainted: gpu-7.",
        "xid 79 on GPU 0000:4e:00: GPU lost. Reboot the node. Needs: reboot.",
        f"Rule: xid.79. Audit id: {tainted_node().news[0].audit_id}.",
        "Next: konductor-like explain node gpu-7. Runbook: konductor-like explain GPUFaultTainted.",
    ]


def test_a_node_that_fails_again_after_its_reboot_is_a_message_with_the_new_need() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault("gpu-7"))
    cluster.reboot("gpu-7", "boot-b")
    cluster.tick(seconds=60)
    cluster.tick(fault("gpu-7", boot="boot-b", stamp=5, seconds=120), seconds=120)

    [_, message] = grouped(news_in(cluster))

    title, text, *_, last = text_of(message).splitlines()
    assert title == "Worsened: gpu-7."
    assert text.startswith("The fault came back after its need was met by the reboot seen at ")
    assert text.endswith(f"{REPEAT_ADVICE} Needs: inspection.")
    assert last.endswith("Runbook: konductor-like explain GPUFaultWorsened.")
    [news] = message.news
    assert (news.needs, news.rule, news.kind.urgent) == ("inspection", "xid.79", True)


def test_a_rack_of_twenty_nodes_is_one_message_with_count_root_cause_and_first_nodes() -> None:
    cluster = Cluster(rack(20), RULES)
    faults = [xid(f"gpu-{number}", 79, seconds=number / 10) for number in range(1, 21)]
    cluster.tick(*faults, seconds=3)
    assert len(cluster.tainted) == 20

    [message] = grouped(news_in(cluster))

    lines = text_of(message).splitlines()
    assert lines[0].startswith("Tainted: 20 nodes: gpu-")
    assert lines[0].endswith(" and 15 more.")
    assert cloud_event(message)["data"]["count"] == 20
    assert {each["failure_group"] for each in cloud_event(message)["data"]["nodes"]} != {None}


def test_the_root_cause_is_named_first() -> None:
    facts: dict[str, Any] = {"failure_group": "domain rack-7@2026-03-04T12:00:00Z", "root_cause": "gpu-5"}

    [message] = grouped(news(name=f"gpu-{number}", **facts) for number in range(1, 9))

    assert text_of(message).splitlines()[:3] == [
        "Tainted: 8 nodes: gpu-5, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more.",
        "Root cause: gpu-5.",
        "gpu-5: Something happened.",
    ]
    assert cloud_event(message)["subject"] == "gpu-5"


def test_held_nodes_are_one_message_together_with_the_event_of_the_brake() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{number}", rule=f"xid.{70 + number}") for number in range(1, 11)))
    brake = news_of_fleet(EventReason.HOLDING, "The brake began to hold back 8 nodes.", "", at(0))

    messages = grouped(news_in(cluster) + brake)

    held = messages[-1]
    assert [message.kind for message in messages] == [Kind.TAINTED, Kind.TAINTED, Kind.HELD]
    assert text_of(held).splitlines()[:2] == [
        "Held: 8 nodes: gpu-2, gpu-3, gpu-4, gpu-5, gpu-6 and 3 more.",
        "The brake began to hold back 8 nodes.",
    ]


def test_a_mark_for_replacement_is_a_message_of_its_own_beside_the_taint() -> None:
    cluster = Cluster(fleet(5), PolicyConfig(repeat_count=2))
    cluster.tick(fault(stamp=1))
    reset_node(cluster, "gpu-1", HOUR, read=HOUR)
    cluster.writes.clear()

    cluster.tick(fault(seconds=2 * HOUR, stamp=2 * HOUR), seconds=2 * HOUR)

    marked, tainted = sorted(grouped(news_in(cluster)), key=lambda message: message.kind)
    assert (marked.kind, tainted.kind) == (Kind.REPLACEMENT, Kind.TAINTED)
    assert "marked for replacement" in text_of(marked)
    assert marked.id != tainted.id


def test_a_second_taint_of_a_marked_node_does_not_mark_it_again() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault())
    [change] = cluster.writes
    assert change.record is not None

    before = replace(
        change, record=replace(change.record, life=replace(change.record.life, replace_since=at(-HOUR)))
    )

    assert [each.kind for each in news_of(cluster.nodes["gpu-1"], before)] == [Kind.TAINTED]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (event(EventReason.SILENT), Kind.COVERAGE),
        (event(EventReason.RETURNED), Kind.RETURNED),
        (event(EventReason.RELAPSED), Kind.RELAPSED),
        (event(EventReason.CONTESTED), Kind.RETURNED),
    ],
    ids=lambda value: getattr(value, "event", value),
)
def test_other_events_of_a_node_keep_their_words(change: Any, kind: Kind) -> None:
    [one] = news_of(node(), change)

    assert (one.kind, one.text, one.node) == (kind, "Something happened.", "gpu-1")


def test_the_reset_of_thirty_nodes_is_one_message() -> None:
    cluster = Cluster(fleet(30), RULES)
    cluster.tick(*(fault(f"gpu-{number}") for number in range(1, 31)))
    cluster.writes.clear()
    for name in cluster.nodes:
        reset_node(cluster, name, HOUR, read=HOUR)

    [message] = grouped(news_in(cluster))

    assert message.title == "Released: 30 nodes: gpu-1, gpu-10, gpu-11, gpu-12, gpu-13 and 25 more"
    assert "Released by ann: new riser." in text_of(message)


def test_two_controllers_that_decide_the_same_write_give_it_one_id() -> None:
    assert tainted_node().id == tainted_node().id != tainted_node("gpu-8").id


def test_the_id_of_a_message_does_not_depend_on_the_order_of_its_news() -> None:
    one, other = news(name="gpu-1"), news(name="gpu-2")

    assert Message(Kind.TAINTED, (one, other)).id == Message(Kind.TAINTED, (other, one)).id != one.id


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:4e:00): 79, pid=4711, name=secret-model",
        'NVRM: Xid 79 "secret-model" Line: "secret-model" Held: x',
    ],
)
@pytest.mark.parametrize("size", [1, 10])
def test_no_line_of_a_log_leaves_the_cluster(text: str, size: int) -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{number}", text=text) for number in range(1, size + 1)))
    assert "secret-model" in cluster.writes[-1].message

    sent = [json.dumps(cloud_event(each)) + text_of(each) for each in grouped(news_in(cluster))]

    assert sent
    assert "secret-model" not in "".join(sent)


def test_a_line_that_is_not_in_the_record_does_not_leave_the_cluster_either() -> None:
    """The record may have dropped the incident of an Event, or may be somebody else's."""
    quoting = event(EventReason.HELD, 'Held: Xid 79. Line: "NVRM: Xid 79, name=secret-model"')

    [sent] = news_of(node(), quoting)

    assert sent.text == "Held: Xid 79."


def test_messages_above_the_limit_become_a_summary() -> None:
    messages = grouped(news(name=f"gpu-{number}", rule=f"xid.{number}") for number in range(20))

    sent = within(messages, 3)

    assert [message.kind for message in sent] == [Kind.TAINTED, Kind.TAINTED, Kind.SUMMARY]
    assert sorted(each.id for message in sent for each in message.news) == sorted(
        each.id for message in messages for each in message.news
    )
    assert text_of(sent[-1]).startswith("18 notifications in one, to send fewer messages:\nTainted: gpu-")
    assert within(messages, 20) == messages


ATTRIBUTES = {
    "specversion": r"1\.0",
    "id": r".+",
    "source": r"/[\w./%~-]+",
    "type": r"ai\.trainy\.konduktor\.[a-z.-]+",
    "subject": r".+",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "datacontenttype": r"application/json",
}
"""The attributes of CloudEvents 1.0 that the controller sets. By the specification's JSON schema each is a
string that is not empty, ``source`` is a URI reference, and ``time`` is of RFC 3339."""


@pytest.mark.parametrize(
    "message",
    [
        tainted_node(),
        trial_message(at(0)),
        *grouped(news_of_fleet(EventReason.HOLDING, "The brake began to hold.", "", at(0))),
        *grouped(news(name=f"gpu-{number:04}.example.com", rule="xid.79") for number in range(3000)),
        *within(grouped(news(kind) for kind in (Kind.TAINTED, Kind.HELD, Kind.RETURNED)), 1),
    ],
    ids=["node", "test", "fleet", "3,000 nodes", "summary"],
)
def test_a_message_is_a_cloud_event(message: Message) -> None:
    found = json.loads(json.dumps(cloud_event(message, "prod eu/1")))
    data = found.pop("data")

    assert {"specversion", "id", "source", "type"} <= found.keys() <= ATTRIBUTES.keys()
    for name, value in found.items():
        assert isinstance(value, str)
        assert re.fullmatch(ATTRIBUTES[name], value), (name, value)
        assert re.fullmatch(r"[a-z0-9]{1,20}", name)
    datetime.fromisoformat(found["time"])
    assert found["source"] == "/konductor-like/prod%20eu%2F1"
    assert data["text"].startswith("[prod eu/1] ")
    assert len(json.dumps(cloud_event(message))) < 64 * 1024
    assert len(data["nodes"]) <= 100


def test_slack_text_mentions_nobody_and_is_short() -> None:
    hostile = "<!channel> & <@U1|x> @here \x1b[31m\u202e" + "x" * 50_000
    message = Message(Kind.RETURNED, (replace(news(Kind.RETURNED), text=hostile),))

    text = slack_message(message)["text"]

    assert "&lt;!channel&gt; &amp; &lt;@U1|x&gt; @\u200bhere \\x1b[31m\\u202e" in text
    assert not re.search(r"[<>]|@(here|channel|everyone)", text)
    assert len(text) < 3000
