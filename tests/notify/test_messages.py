"""Which Events are notified of, how they become messages, and the words of a message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.model import EventReason, FaultKind, IncidentKey, Release, ReleaseHow, Severity
from konductor_like.notify.messages import (
    Message,
    cloud_event,
    current,
    next_message,
    slack_message,
    text_of,
    trial_message,
)
from konductor_like.notify.news import TOLD, Kind, News, Out, fault_words, news_of_fleet, why_released
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import REPEAT_ADVICE
from tests.notify.scenes import event, messages_of, news_in, news_of, tainted_node
from tests.policy.scenes import Cluster, at, fault, fleet, node, reset_node
from tests.policy.shared import RULES, nccl, rack, xid

NOT_SENT = {
    EventReason.RECORDED,
    EventReason.READ_LATE,  # its node is suspect, as after RECORDED
    EventReason.SHADOW,
    EventReason.PAUSED,
    EventReason.RESUMED,
    EventReason.BRAKE_RESET,
    EventReason.FREE,
    EventReason.DELETED,
    EventReason.REBOOTED,
    EventReason.ENDED,
    EventReason.RETURNS_RESUMED,
    EventReason.RESTORED,  # Alertmanager tells the end of an alert
    EventReason.VALIDATING,
    EventReason.VALIDATED,
    EventReason.JOBS_NODE,  # its node is tainted, which is sent
    EventReason.REMOVED,  # the taint is put back, or contested, which is sent
    EventReason.PUT_BACK,
    EventReason.OVERRULED,  # each of its nodes is contested, which is sent
}
"""The Events without a notification: records, acts of people, and good news of the brake."""
HOUR = 3600.0


@pytest.mark.parametrize("reason", EventReason)
def test_every_reason_of_an_event_is_either_sent_or_decided_not_to_be(reason: EventReason) -> None:
    assert (reason in TOLD) is not (reason in NOT_SENT)


def news(reason: EventReason = EventReason.TAINTED, name: str = "gpu-1", **facts: Any) -> News:
    return News(reason, f"{reason}-{name}", at(0), "Something happened.", name, **facts)


def test_a_tainted_node_is_one_message_with_gpu_rule_needs_command_and_runbook() -> None:
    assert text_of(tainted_node(), "prod-eu", at(0)).splitlines() == [
        "[prod-eu] gpu-7 out of service · Xid 79, GPU lost · needs reboot · 1 of 10 out",
        "12:00 UTC, gpu-7: xid 79 on GPU 0000:4e:00: GPU lost. Reboot the node. Needs: reboot.",
        "Next: konductor-like explain node gpu-7. Runbook: konductor-like explain GPUFaultTainted.",
        f"Audit id: {tainted_node().news[0].audit_id}. Rule: xid.79.",
    ]


def test_a_node_that_fails_again_after_its_reboot_is_a_message_with_the_new_need() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault("gpu-7"))
    cluster.reboot("gpu-7", "boot-b")
    cluster.tick(seconds=60)
    cluster.tick(fault("gpu-7", boot="boot-b", stamp=5, seconds=120), seconds=120)

    [_, message] = messages_of(news_in(cluster))

    title, text, runbook, _ = text_of(message).splitlines()
    assert title == "gpu-7 worse · Xid 79, GPU lost · needs inspection · 1 of 10 out"
    assert "gpu-7: The fault came back after its need was met by the reboot seen at " in text
    assert text.endswith(f"{REPEAT_ADVICE} Needs: inspection.")
    assert runbook.endswith("Runbook: konductor-like explain GPUFaultWorsened.")
    [news] = message.news
    assert (news.needs, news.rule, news.kind.urgent) == ("inspection", "xid.79", True)


def test_a_rack_of_twenty_nodes_is_one_message_with_count_root_cause_and_first_nodes() -> None:
    cluster = Cluster(rack(20), RULES)
    faults = [xid(f"gpu-{number}", 79, seconds=number / 10) for number in range(1, 21)]
    cluster.tick(*faults, seconds=3)
    assert len(cluster.tainted) == 20

    [message] = messages_of(news_in(cluster))

    headline, names, *_ = text_of(message).splitlines()
    assert headline == "20 nodes out of service · Xid 79, GPU lost · needs reboot · 20 of 20 out"
    assert names.startswith("2026-03-04 12:00 UTC: gpu-")
    assert names.endswith(" and 15 more.")
    assert cloud_event(message)["data"]["count"] == 20
    assert {each["failure_group"] for each in cloud_event(message)["data"]["nodes"]} != {None}


def test_the_root_cause_is_named_first() -> None:
    facts: dict[str, Any] = {"failure_group": "domain rack-7@2026-03-04T12:00:00Z", "root_cause": "gpu-5"}

    [message] = messages_of(
        news(name=f"gpu-{number}", fault="Xid 105, NVLink", **facts) for number in range(1, 9)
    )

    assert text_of(message, now=at(0)).splitlines()[:3] == [
        "8 nodes out of service · Xid 105, NVLink",
        "12:00 UTC: gpu-5, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more.",
        "gpu-5: Something happened.",
    ]
    assert cloud_event(message)["subject"] == "gpu-5"


def test_a_node_of_a_job_has_the_failure_group_and_the_job() -> None:
    job, cluster = "ml/PyTorchJob/llama", Cluster(fleet(10), RULES)
    errors = [nccl(f"gpu-{number}", job, seconds=number / 10) for number in range(1, 6)]
    cluster.tick(xid("gpu-4", 79, seconds=0.5), *errors, seconds=3)

    [message] = messages_of(news_in(cluster))

    [told] = cloud_event(message)["data"]["nodes"]
    assert (told["job"], told["root_cause"]) == (job, "gpu-4")
    assert told["failure_group"].startswith(job)


def test_nodes_with_different_faults_are_messages_of_their_own() -> None:
    faults = ["Xid 79, GPU lost", "Xid 48, ECC", "Xid 79, GPU lost"]

    messages = messages_of(news(name=f"gpu-{place}", fault=what) for place, what in enumerate(faults))

    assert [each.headline for each in messages] == [
        "2 nodes out of service · Xid 79, GPU lost",
        "gpu-1 out of service · Xid 48, ECC",
    ]


def test_a_failure_group_of_a_domain_is_no_job() -> None:
    cluster = Cluster(rack(3), RULES)
    cluster.tick(*(xid(f"gpu-{number}", 79) for number in (1, 2)), seconds=3)

    assert {(each.failure_group is None, each.job) for each in news_in(cluster)} == {(False, None)}


def test_held_nodes_are_one_message_and_the_event_of_the_brake_is_another() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{number}") for number in range(1, 11)))
    brake = news_of_fleet(EventReason.HOLDING, "The brake began to hold back 8 nodes at noon: x.", "", at(0))

    _, held, whole = messages_of([*news_in(cluster), brake])

    assert text_of(held, now=at(0)).splitlines()[:2] == [
        "8 nodes faulty, taint held back · Xid 79, GPU lost · needs reboot · 2 of 10 out",
        "12:00 UTC: gpu-2, gpu-3, gpu-4, gpu-5, gpu-6 and 3 more.",
    ]
    assert whole.headline == "The brake began to hold back 8 nodes at noon"
    assert [each["type"] for each in map(cloud_event, (held, whole))] == ["ai.trainy.konduktor.node.held"] * 2


def marked_node() -> Cluster:
    """A cluster whose last write taints gpu-1 and marks it for replacement."""
    cluster = Cluster(fleet(5), PolicyConfig(repeat_count=2))
    cluster.tick(fault(stamp=1))
    reset_node(cluster, "gpu-1", HOUR, read=HOUR)
    cluster.writes.clear()

    cluster.tick(fault(seconds=2 * HOUR, stamp=2 * HOUR), seconds=2 * HOUR)
    return cluster


def test_one_message_tells_the_taint_and_the_mark_for_replacement() -> None:
    [message] = messages_of(news_in(marked_node()))

    assert message.headline == "gpu-1 out of service · Xid 79, GPU lost · marked for replacement · 1 of 5 out"
    assert cloud_event(message)["type"] == "ai.trainy.konduktor.node.tainted"
    assert cloud_event(message)["data"]["nodes"][0]["marked_for_replacement"] is True
    [marked] = message.news
    [_, other] = messages_of([marked, replace(marked, node="gpu-2", marked_for_replacement=False)])
    assert " · needs replacement · " in other.headline


def test_a_second_taint_of_a_marked_node_does_not_mark_it_again() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault())
    [change] = cluster.writes
    assert change.record is not None

    before = replace(
        change, record=replace(change.record, life=replace(change.record.life, replace_since=at(-HOUR)))
    )

    [again] = news_of(cluster.nodes["gpu-1"], before)
    assert (again.kind, again.marked_for_replacement) == (Kind.TAINTED, False)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (event(EventReason.SILENT), Kind.LOG_LOST),
        (event(EventReason.RETURNED), Kind.RETURNED),
        (event(EventReason.RELAPSED), Kind.FAILED),
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

    [message] = messages_of(news_in(cluster))

    assert text_of(message, now=at(0)).splitlines()[:2] == [
        "30 nodes back in service · released by ann: new riser · 0 of 30 out",
        "12:00 UTC: gpu-1, gpu-10, gpu-11, gpu-12, gpu-13 and 25 more.",
    ]


def returned(number: int, why: str) -> News:
    reason = EventReason.RETURNED if why.startswith("after") else EventReason.RELEASED
    return news(reason, f"gpu-{number:02}", why=why, needs="reboot")


def test_returns_for_different_reasons_are_messages_of_their_own() -> None:
    messages = messages_of(
        returned(number, "released by alice: new riser" if number < 3 else "after a reboot")
        for number in range(1, 61)
    )

    assert [each.headline for each in messages] == [
        "2 nodes back in service · released by alice: new riser",
        "58 nodes back in service · after a reboot",
    ]


def test_two_controllers_that_decide_the_same_write_give_it_one_id() -> None:
    assert tainted_node().id == tainted_node().id != tainted_node("gpu-8").id


def test_the_id_of_a_message_does_not_depend_on_the_order_of_its_news() -> None:
    one, other = news(name="gpu-1"), news(name="gpu-2")

    assert Message((one, other)).id == Message((other, one)).id != one.id


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

    sent = [json.dumps(cloud_event(each)) + text_of(each) for each in messages_of(news_in(cluster))]

    assert sent
    assert "secret-model" not in "".join(sent)


def test_the_message_of_another_programs_condition_does_not_leave_the_cluster() -> None:
    cluster = Cluster(fleet(10))
    told = fault(
        "gpu-1", rule="condition.GPUProblem", kind=FaultKind.CONDITION, text="secret-model", stamp=None
    )
    cluster.tick(told)
    assert 'Condition: "secret-model"' in cluster.writes[-1].message

    [message] = messages_of(news_in(cluster))
    assert "secret-model" not in json.dumps(cloud_event(message)) + text_of(message)
    assert "Needs: reboot." in text_of(message)
    quoting = event(EventReason.HELD, 'Held: x. Condition: "secret-model"')
    assert [sent.text for sent in news_of(node(), quoting)] == ["Held: x."]


def test_a_line_that_is_not_in_the_record_does_not_leave_the_cluster_either() -> None:
    """The record may have dropped the incident of an Event, or may be somebody else's."""
    quoting = event(EventReason.HELD, 'Held: Xid 79. Line: "NVRM: Xid 79, name=secret-model"')

    [sent] = news_of(node(), quoting)

    assert sent.text == "Held: Xid 79."


def told(messages: list[Message]) -> list[tuple[Kind, list[str]]]:
    return [(message.first.kind, list(message.about)) for message in messages]


def test_messages_are_in_the_order_of_time_and_join_only_where_no_node_is_told_out_of_order() -> None:
    found = [
        news(EventReason.RETURNED, "gpu-1"),
        news(name="gpu-2"),
        news(name="gpu-3"),
        news(EventReason.RETURNED, "gpu-2"),
        news(EventReason.RETURNED, "gpu-4"),
        news(name="gpu-1", rule="xid.48"),
        news(name="gpu-5"),
    ]

    assert told(messages_of(found)) == [
        (Kind.RETURNED, ["gpu-1", "gpu-4"]),
        (Kind.TAINTED, ["gpu-1", "gpu-2", "gpu-3", "gpu-5"]),
        (Kind.RETURNED, ["gpu-2"]),
    ]


@pytest.mark.parametrize(
    ("reason", "is_overtaken"),
    [
        (EventReason.RETURNED, True),
        (EventReason.RELEASED, True),
        (EventReason.HELD, True),
        (EventReason.CONTESTED, False),
        (EventReason.TAINTED, False),
        (EventReason.NOT_VALIDATED, False),
        (EventReason.SILENT, False),
    ],
)
def test_a_later_taint_of_the_node_overtakes_what_is_wrong_by_then(
    reason: EventReason, is_overtaken: bool
) -> None:
    first, second = news(reason), news(reason, "gpu-2")
    taint = news(rule="xid.48")

    assert current([first, second, taint]) == ([second, taint] if is_overtaken else [first, second, taint])
    assert current([first, second], [taint]) == ([second] if is_overtaken else [first, second])
    assert current([taint, first]) == [taint, first]


def test_news_of_the_whole_brake_are_not_overtaken() -> None:
    brake = news_of_fleet(EventReason.HOLDING, "The brake began to hold.", "", at(0))

    stop = news_of_fleet(EventReason.RETURNS_STOPPED, "No node returns.", "", at(1))

    assert current([brake, stop]) == [brake, stop]


def test_a_time_has_the_date_of_another_day() -> None:
    late = Message((replace(news(), at=at(-HOUR * 13)), replace(news(name="gpu-2"), at=at(0))))

    assert "2026-03-03 23:00 UTC: gpu-1, gpu-2." in text_of(late, now=at(0))
    assert "\n23:00 UTC: gpu-1, gpu-2." in text_of(late, now=at(-HOUR * 13))


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ("gpu-04.example.com", "gpu-04.example.com"),
        ("ip-10-31-0-23.eu-west-1.compute.internal", "ip-10-31-0-23"),
        ("10.31.0.23.racks.north.example.com", "10.31.0.23.racks.north.example.com"),
    ],
)
def test_a_long_name_has_no_domain_in_the_first_line_and_is_whole_below(node: str, shown: str) -> None:
    text = text_of(Message((news(name=node),)), now=at(0))

    assert text.startswith(f"{shown} out of service\n12:00 UTC, {node}: ")
    assert f"explain node {node}." in text


@pytest.mark.parametrize(
    ("change", "headline"),
    [
        (event(EventReason.RELAPSED), "gpu-1 failed on probation, out of service"),
        (event(EventReason.SILENT), "gpu-1 silent, no kernel log arrives"),
        (event(EventReason.OVERRUN), "gpu-1 lost lines of the kernel log"),
        (event(EventReason.AMBIGUOUS), "gpu-1 reported by two machines"),
        (event(EventReason.NOT_VALIDATED), "gpu-1 not validated"),
        (event(EventReason.CONTESTED), "gpu-1 taint contested"),
    ],
    ids=lambda value: getattr(value, "event", "") or "",
)
def test_each_kind_has_a_first_line_of_its_own(change: Any, headline: str) -> None:
    [message] = messages_of(news_of(node(), change))

    assert message.headline == headline


def test_a_fault_without_a_need_names_none_and_news_of_the_fleet_have_the_events_words() -> None:
    out = Out(1, 10)
    none = news(needs="none", fault="Xid 79, GPU lost", out=out)

    assert [each.headline for each in messages_of([none])] == [
        "gpu-1 out of service · Xid 79, GPU lost · 1 of 10 out",
    ]
    fleet_wide = news_of_fleet(EventReason.SILENT, "Many logs are silent.", "", at(0), out)
    assert [each.headline for each in messages_of([fleet_wide])] == ["Many logs are silent · 1 of 10 out"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "Xid 79, GPU lost"),
        ({"severity": Severity.TEST}, "Xid 79, GPU lost (a test)"),
        ({"severity": Severity.TEST, "title": "The driver's own fake error: a test"}, "Xid 79, The driver's"),
        ({"code": None, "title": "The driver lost the GPU"}, "The driver lost the GPU"),
        ({"key": IncidentKey("operator", None)}, "a person's taint"),
    ],
    ids=["xid", "test", "title of a test", "no number", "person"],
)
def test_a_fault_is_named_by_its_number_and_title(facts: dict[str, Any], words: str) -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault())

    found = fault_words(replace(cluster.nodes["gpu-1"].record.incidents[0], **facts))

    assert found.startswith(words)
    assert found.count("test") == words.count("(a test)") + ("fake" in found)


def test_a_message_counts_a_node_once_and_has_the_time_of_its_first_news() -> None:
    early, late = news(name="gpu-2"), replace(news(name="gpu-1"), at=at(60))

    assert list(Message((late, early, news(EventReason.HELD))).about) == ["gpu-1", "gpu-2"]
    assert Message((late, early)).at == early.at


def test_no_other_news_of_the_node_overtakes_its_return() -> None:
    back, silent = news(EventReason.RETURNED), news(EventReason.SILENT)

    assert current([back, silent]) == [back, silent]
    assert current([back], [silent]) == [back]


def test_a_contested_taint_joins_no_return_and_news_of_the_fleet_join_none_of_nodes() -> None:
    back, contested = news(EventReason.RETURNED), news(EventReason.CONTESTED, "gpu-2")
    silent, fleet_wide = news(EventReason.SILENT), news(EventReason.SILENT, "")

    assert [len(each.news) for each in messages_of([back, contested])] == [1, 1]
    assert [each.first.kind for each in messages_of([silent, fleet_wide])] == [Kind.LOG_LOST, Kind.FLEET]


def test_a_message_without_a_cluster_and_a_reason_has_null_for_both() -> None:
    data = cloud_event(trial_message(at(0)))["data"]

    assert (data["cluster"], data["runbook"]) == (None, None)


def test_the_news_that_are_not_in_the_next_message_stay() -> None:
    one, two, three = news(), news(EventReason.HELD), news(name="gpu-2")

    assert next_message([one, two, three]) == (Message((one, three)), [two])
    assert next_message([two]) == (Message((two,)), [])


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
        *messages_of([news_of_fleet(EventReason.HOLDING, "The brake began to hold.", "", at(0))]),
        *messages_of(news(name=f"gpu-{number:04}.example.com", rule="xid.79") for number in range(3000)),
    ],
    ids=["node", "test", "fleet", "3,000 nodes"],
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
    message = Message((replace(news(EventReason.RETURNED), text=hostile),))

    text = slack_message(message)["text"]

    assert "&lt;!channel&gt; &amp; &lt;@U1|x&gt; @\u200bhere \\x1b[31m\\u202e" in text
    assert not re.search(r"[<>]|@(here|channel|everyone)", text)
    assert len(text) < 3000


def test_a_verdict_is_a_message_and_a_return_after_a_validation_says_so() -> None:
    failed = news(EventReason.NOT_VALIDATED, fault="Xid 79, GPU lost", needs="none")
    mark = Release(at(0), "konductor-like", "all 8 GPUs passed", ReleaseHow.VALIDATED)

    assert Message((failed,)).headline == "gpu-1 not validated · Xid 79, GPU lost"
    assert failed.kind.urgent
    assert why_released(mark) == "validated"


TYPES = {
    EventReason.TAINTED: "tainted",
    EventReason.RELAPSED: "relapsed",
    EventReason.RETURNS_STOPPED: "relapsed",
    EventReason.WORSENED: "worsened",
    EventReason.HELD: "held",
    EventReason.HOLDING: "held",
    EventReason.SILENT: "coverage-lost",
    EventReason.OVERRUN: "coverage-lost",
    EventReason.AMBIGUOUS: "coverage-lost",
    EventReason.MISNAMED: "coverage-lost",
    EventReason.RETURNED: "returned",
    EventReason.RELEASED: "returned",
    EventReason.CONTESTED: "returned",
    EventReason.NOT_VALIDATED: "not-validated",
}
"""The ends of the CloudEvents' types since the first version that sent them: receivers filter by these."""


def test_the_types_of_cloud_events_stay() -> None:
    assert {reason: told.type for reason, told in TOLD.items()} == {
        reason: f"node.{end}" for reason, end in TYPES.items()
    }
    assert cloud_event(trial_message(at(0)))["type"] == "ai.trainy.konduktor.test"


def test_two_controllers_of_different_versions_give_a_taint_the_same_id() -> None:
    """The id of a fact is part of the CloudEvent's interface: a164fb25 made this one."""
    [one] = news_of(node("gpu-1"), event(EventReason.SILENT))

    assert one.id == "abe424d89d602d9a9d62"
