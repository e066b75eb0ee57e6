"""Which Events are notified of, how they become messages, and the words of a message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.model import EventReason, FaultKind, IncidentKey, Release, ReleaseHow, Severity
from konductor_like.notify.headlines import headline
from konductor_like.notify.messages import (
    Message,
    cloud_event,
    current,
    grouped,
    next_message,
    slack_message,
    text_of,
    trial_message,
    within,
)
from konductor_like.notify.news import (
    KINDS,
    Kind,
    News,
    Out,
    fault_words,
    news_of_fleet,
    news_of_freed,
    why_released,
    with_groups,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import REPEAT_ADVICE
from konductor_like.policy.operator import operator_taint
from tests.notify.scenes import event, news_in, news_of, tainted_node
from tests.policy.scenes import Cluster, at, fault, fleet, node, reset_node
from tests.policy.shared import RULES, nccl, rack, xid

NOT_SENT = {
    EventReason.RECORDED,
    EventReason.READ_LATE,  # its node is suspect, as after RECORDED
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
    EventReason.VALIDATING,
    EventReason.JOBS_NODE,  # its node is tainted, which is sent
    EventReason.REMOVED,  # the taint is put back, or contested, which is sent
    EventReason.PUT_BACK,
    EventReason.OVERRULED,  # each of its nodes is contested, which is sent
}
"""The Events without a notification: records, acts of people, and good news of the brake."""
HOUR = 3600.0


@pytest.mark.parametrize("reason", EventReason)
def test_every_reason_of_an_event_is_either_sent_or_decided_not_to_be(reason: EventReason) -> None:
    assert (reason in KINDS) is not (reason in NOT_SENT)


def news(kind: Kind = Kind.TAINTED, name: str = "gpu-1", **facts: Any) -> News:
    return News(kind, EventReason.TAINTED, f"{kind}-{name}", at(0), "Something happened.", name, **facts)


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

    [_, message] = grouped(news_in(cluster))

    title, text, runbook, _ = text_of(message).splitlines()
    assert title == "gpu-7 worse · Xid 79, GPU lost · now needs inspection · 1 of 10 out"
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

    [message] = grouped(news_in(cluster))

    headline, names, *_ = text_of(message).splitlines()
    assert (
        headline == "20 nodes out of service · began on gpu-1: Xid 79, GPU lost · needs reboot · 20 of 20 out"
    )
    assert names.startswith("2026-03-04 12:00 UTC: gpu-")
    assert names.endswith(" and 15 more.")
    assert cloud_event(message)["data"]["count"] == 20
    assert {each["failure_group"] for each in cloud_event(message)["data"]["nodes"]} != {None}


def test_the_root_cause_is_named_first() -> None:
    facts: dict[str, Any] = {"failure_group": "domain rack-7@2026-03-04T12:00:00Z", "root_cause": "gpu-5"}

    [message] = grouped(
        news(name=f"gpu-{number}", fault=f"Xid {100 + number}, NVLink", **facts) for number in range(1, 9)
    )

    assert text_of(message, now=at(0)).splitlines()[:4] == [
        "8 nodes out of service · began on gpu-5: Xid 105, NVLink",
        "12:00 UTC: gpu-5, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more.",
        "Root cause: gpu-5.",
        "gpu-5: Something happened.",
    ]
    assert cloud_event(message)["subject"] == "gpu-5"


JOB = "ml/PyTorchJob/llama"


def dying_job(*others: str) -> Cluster:
    """A cluster whose gpu-4 is tainted before the lines of its job come; the others have the same Xid."""
    cluster = Cluster(fleet(10), RULES)
    cluster.tick(xid("gpu-4", 79), seconds=1)
    [alone] = news_in(cluster)
    assert alone.failure_group is None
    late = [xid(name, 79, seconds=2 + place / 10) for place, name in enumerate(others)]
    cluster.tick(*late, *(nccl(f"gpu-{number}", JOB, seconds=2.5) for number in range(2, 7)), seconds=3)
    return cluster


def test_a_root_cause_that_is_tainted_before_its_failure_group_is_known_is_named_first() -> None:
    [message] = grouped(news_in(dying_job("gpu-2", "gpu-3")))

    assert text_of(message, now=at(0)).splitlines()[:4] == [
        f"3 nodes out of service · began on gpu-4: Xid 79, GPU lost · job {JOB} · needs reboot · 3 of 10 out",
        "12:00 UTC: gpu-4, gpu-2, gpu-3.",
        "Root cause: gpu-4.",
        "gpu-4: xid 79 on GPU 0000:4e:00: GPU lost. Reboot the node. Needs: reboot.",
    ]
    event = cloud_event(message)
    assert event["subject"] == "gpu-4"
    assert {(each["root_cause"], each["job"]) for each in event["data"]["nodes"]} == {("gpu-4", JOB)}


def test_a_node_outside_the_job_with_the_same_fault_is_another_message() -> None:
    messages = grouped(news_in(dying_job("gpu-9")))

    assert [each.headline for each in messages] == [
        f"gpu-4 out of service · Xid 79, GPU lost · job {JOB} · needs reboot · 2 of 10 out",
        "gpu-9 out of service · Xid 79, GPU lost · needs reboot · 2 of 10 out",
    ]


def test_a_later_message_about_the_failure_group_names_the_root_cause_too() -> None:
    found = news_in(dying_job("gpu-2", "gpu-3"))

    [one], [two] = grouped(found[1:2]), grouped(found[1:])

    assert one.headline.startswith("gpu-2 out of service · Xid 79, GPU lost, began on gpu-4 · job ml/")
    assert two.headline.startswith("2 nodes out of service · Xid 79, GPU lost, began on gpu-4 · job ml/")
    assert "Root cause: gpu-4." in text_of(two).splitlines()


def test_a_message_about_several_failures_names_no_root_cause_and_the_number_of_jobs() -> None:
    [message] = grouped(
        [
            news(Kind.HELD, "gpu-1", fault="Xid 79, GPU lost", root_cause="gpu-1", job="ml/Job/a"),
            news(Kind.HELD, "gpu-2", fault="Xid 79, GPU lost", root_cause="gpu-2", job="ml/Job/b"),
            news(Kind.HELD, "gpu-3", fault="Xid 79, GPU lost"),
        ]
    )

    assert message.headline == "3 nodes faulty, taint held back · Xid 79, GPU lost · 2 jobs"
    assert "Root cause" not in text_of(message)


def test_the_failure_group_of_a_news_is_that_of_the_latest_incident_of_the_same_fault() -> None:
    cluster = dying_job()
    state = cluster.nodes["gpu-4"]
    [fatal] = [each for each in state.record.incidents if each.key.rule == "xid.79"]
    newer = replace(fatal, last_ns=fatal.last_ns + 1, failure_group=None, role=None)
    again = replace(state, record=replace(state.record, incidents=(newer, *state.record.incidents)))
    one = news(name="gpu-4", rule="xid.79", gpu=fatal.key.gpu)

    assert with_groups([one], {"gpu-4": again}) == [one]
    assert with_groups([one], {"gpu-5": state}) == [one]
    for other in (replace(one, rule="xid.48"), replace(one, gpu=None), replace(one, rule=None)):
        assert with_groups([other], {"gpu-4": state}) == [other]
    [told] = with_groups([one], {"gpu-4": state})
    assert (told.failure_group, told.root_cause) == (fatal.failure_group, "gpu-4")


def test_a_failure_group_of_a_domain_is_no_job() -> None:
    cluster = Cluster(rack(3), RULES)
    cluster.tick(*(xid(f"gpu-{number}", 79) for number in (1, 2)), seconds=3)

    assert {(each.failure_group is None, each.job) for each in news_in(cluster)} == {(False, None)}


def test_held_nodes_are_one_message_together_with_the_event_of_the_brake() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{number}", rule=f"xid.{70 + number}") for number in range(1, 11)))
    brake = news_of_fleet(EventReason.HOLDING, "The brake began to hold back 8 nodes.", "", at(0))

    messages = grouped(news_in(cluster) + brake)

    held = messages[-1]
    assert [message.kind for message in messages] == [Kind.TAINTED, Kind.TAINTED, Kind.HELD]
    assert text_of(held, now=at(0)).splitlines()[:3] == [
        "8 nodes faulty, taint held back · Xid 72 on 1, Xid 73 on 1, 6 more · needs reboot · 2 of 10 out",
        "12:00 UTC: gpu-2, gpu-3, gpu-4, gpu-5, gpu-6 and 3 more.",
        "The brake began to hold back 8 nodes.",
    ]


def test_the_first_held_node_is_named_with_its_fault_although_the_brake_has_an_event_too() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-2"))
    brake = news_of_fleet(EventReason.HOLDING, "The brake began to hold back 1 node.", "", at(0))

    message = grouped(brake + news_in(cluster))[0]

    headline, text, runbook, _ = text_of(message, now=at(0)).splitlines()
    assert headline == "gpu-2 faulty, taint held back · Xid 79, GPU lost · needs reboot · 1 of 5 out"
    assert text.startswith("12:00 UTC, gpu-2: xid 79 on GPU 0000:4e:00: GPU lost. ")
    assert runbook.endswith("explain GPUFaultHeldByBrake.")


def marked_node() -> Cluster:
    """A cluster whose last write taints gpu-1 and marks it for replacement."""
    cluster = Cluster(fleet(5), PolicyConfig(repeat_count=2))
    cluster.tick(fault(stamp=1))
    reset_node(cluster, "gpu-1", HOUR, read=HOUR)
    cluster.writes.clear()

    cluster.tick(fault(seconds=2 * HOUR, stamp=2 * HOUR), seconds=2 * HOUR)
    return cluster


def test_one_message_tells_the_taint_and_the_mark_for_replacement_and_a_second_one_is_for_machines() -> None:
    tainted, marked = grouped(news_in(marked_node()))

    assert (tainted.kind, marked.kind) == (Kind.TAINTED, Kind.REPLACEMENT)
    assert tainted.headline == "gpu-1 out of service · Xid 79, GPU lost · marked for replacement · 1 of 5 out"
    assert marked.headline == "gpu-1 marked for replacement · Xid 79, GPU lost · 1 of 5 out"
    assert marked.id != tainted.id
    both = [cloud_event(each)["data"]["nodes"][0] for each in (tainted, marked)]
    assert [each["marked_for_replacement"] for each in both] == [True, True]


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

    assert text_of(message, now=at(0)).splitlines()[:2] == [
        "30 nodes back in service · released by ann: new riser · 0 of 30 out",
        "12:00 UTC: gpu-1, gpu-10, gpu-11, gpu-12, gpu-13 and 25 more.",
    ]


def returned(number: int, why: str) -> News:
    reason = EventReason.RETURNED if why.startswith("after") else EventReason.RELEASED
    return replace(news(Kind.RETURNED, f"gpu-{number:02}"), reason=reason, why=why)


def test_sixty_returns_for_different_reasons_are_one_message_that_counts_each_reason() -> None:
    [message] = grouped(
        returned(number, "released by alice: new riser" if number < 3 else "after a reboot")
        for number in range(1, 61)
    )

    assert text_of(message, now=at(0)).splitlines()[:4] == [
        "60 nodes back in service · 58 after a reboot; 2 released by alice: new riser",
        "12:00 UTC: gpu-01, gpu-02, gpu-03, gpu-04, gpu-05 and 55 more.",
        "After a reboot: gpu-03, gpu-04, gpu-05, gpu-06, gpu-07 and 53 more.",
        "Released by alice: new riser: gpu-01, gpu-02.",
    ]


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


def test_the_message_of_another_programs_condition_does_not_leave_the_cluster() -> None:
    cluster = Cluster(fleet(10))
    told = fault(
        "gpu-1", rule="condition.GPUProblem", kind=FaultKind.CONDITION, text="secret-model", stamp=None
    )
    cluster.tick(told)
    assert 'Condition: "secret-model"' in cluster.writes[-1].message

    [message] = grouped(news_in(cluster))
    assert "secret-model" not in json.dumps(cloud_event(message)) + text_of(message)
    assert "Needs: reboot." in text_of(message)
    quoting = event(EventReason.HELD, 'Held: x. Condition: "secret-model"')
    assert [sent.text for sent in news_of(node(), quoting)] == ["Held: x."]


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
    headline, first, *_, last = text_of(sent[-1], now=at(0)).splitlines()
    assert headline == "18 notifications in one message"
    assert (first, last) == ("12:00 UTC: gpu-2 out of service", "and 8 more")
    assert within(messages, 20) == messages


def told(messages: list[Message]) -> list[tuple[Kind, list[str]]]:
    return [(message.kind, message.nodes) for message in messages]


def test_messages_are_in_the_order_of_time_and_join_only_where_no_node_is_told_out_of_order() -> None:
    found = [
        news(Kind.RETURNED, "gpu-1"),
        news(name="gpu-2"),
        news(name="gpu-3"),
        news(Kind.RETURNED, "gpu-2"),
        news(Kind.RETURNED, "gpu-4"),
        news(name="gpu-1", rule="xid.48"),
        news(name="gpu-5"),
    ]

    assert told(grouped(found)) == [
        (Kind.RETURNED, ["gpu-1"]),
        (Kind.TAINTED, ["gpu-2", "gpu-3", "gpu-5"]),
        (Kind.RETURNED, ["gpu-2", "gpu-4"]),
        (Kind.TAINTED, ["gpu-1"]),
    ]


@pytest.mark.parametrize(
    ("kind", "reason", "is_overtaken"),
    [
        (Kind.RETURNED, EventReason.RETURNED, True),
        (Kind.RETURNED, EventReason.RELEASED, True),
        (Kind.HELD, EventReason.HELD, True),
        (Kind.FREED, EventReason.RELEASED, True),
        (Kind.RETURNED, EventReason.CONTESTED, False),
        (Kind.TAINTED, EventReason.TAINTED, False),
        (Kind.COVERAGE, EventReason.SILENT, False),
    ],
)
def test_a_later_taint_of_the_node_overtakes_what_is_wrong_by_then(
    kind: Kind, reason: EventReason, is_overtaken: bool
) -> None:
    first, second = replace(news(kind), reason=reason), replace(news(kind, "gpu-2"), reason=reason)
    taint = news(rule="xid.48")

    assert current([first, second, taint]) == ([second, taint] if is_overtaken else [first, second, taint])
    assert current([first, second], [taint]) == ([second] if is_overtaken else [first, second])
    assert current([taint, first]) == [taint, first]


def test_news_of_the_whole_brake_are_not_overtaken() -> None:
    [brake] = news_of_fleet(EventReason.HOLDING, "The brake began to hold.", "", at(0))

    stop = news_of_fleet(EventReason.RETURNS_STOPPED, "No node returns.", "", at(1))

    assert current([brake, *stop]) == [brake, *stop]


def test_several_times_are_a_span_and_have_the_date_of_another_day() -> None:
    span = Message(Kind.TAINTED, (replace(news(), at=at(-HOUR * 13)), replace(news(name="gpu-2"), at=at(0))))

    assert "2026-03-03 23:00 to 12:00 UTC: gpu-1, gpu-2." in text_of(span, now=at(0))
    assert "2026-03-03 23:00 to 2026-03-04 12:00 UTC: " in text_of(span)


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ("gpu-04.example.com", "gpu-04.example.com"),
        ("ip-10-31-0-23.eu-west-1.compute.internal", "ip-10-31-0-23"),
        ("10.31.0.23.racks.north.example.com", "10.31.0.23.racks.north.example.com"),
    ],
)
def test_a_long_name_has_no_domain_in_the_first_line_and_is_whole_below(node: str, shown: str) -> None:
    text = text_of(Message(Kind.TAINTED, (news(name=node),)), now=at(0))

    assert text.startswith(f"{shown} out of service\n12:00 UTC, {node}: ")
    assert f"explain node {node}." in text


@pytest.mark.parametrize(
    ("change", "headline"),
    [
        (event(EventReason.RELAPSED), "gpu-1 failed on probation, out of service"),
        (event(EventReason.SILENT), "gpu-1: kernel log silent"),
        (event(EventReason.OVERRUN), "gpu-1: kernel log lost lines"),
        (event(EventReason.AMBIGUOUS), "gpu-1: two machines report under this name"),
        (event(EventReason.RESTORED), "gpu-1: kernel log arrives again"),
        (event(EventReason.CONTESTED), "gpu-1 taint contested"),
    ],
    ids=lambda value: getattr(value, "event", "") or "",
)
def test_each_kind_has_a_first_line_of_its_own(change: Any, headline: str) -> None:
    [message] = grouped(news_of(node(), change))

    assert message.headline == headline


def test_a_message_about_a_kernel_log_has_no_number_and_a_fault_without_a_need_names_none() -> None:
    out = Out(1, 10)
    silent = news(Kind.COVERAGE, out=out)
    none = news(needs="none", fault="Xid 79, GPU lost", out=out)

    assert [each.headline for each in grouped([replace(silent, reason=EventReason.SILENT), none])] == [
        "gpu-1: kernel log silent",
        "gpu-1 out of service · Xid 79, GPU lost · 1 of 10 out",
    ]
    [fleet_wide] = grouped(news_of_fleet(EventReason.SILENT, "Many logs are silent.", "", at(0), out))
    assert fleet_wide.headline == "Many logs are silent"


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


def test_a_node_that_is_held_no_longer_says_who_or_what_ended_it() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-2"), fault("gpu-3"))
    held = {name: cluster.nodes[name].record.incidents[0] for name in ("gpu-2", "gpu-3")}
    reset_node(cluster, "gpu-2", 60)
    cluster.reboot("gpu-3", "boot-b")
    cluster.tick(seconds=60)

    freed = [news_of_freed(cluster.nodes[name], held[name], at(60), Out(1, 5))[0] for name in held]

    assert [each.headline for each in grouped(freed[:1])] == [
        "gpu-2 no longer held back · released by ann: new riser · 1 of 5 out"
    ]
    assert freed[1].why == "xid 79 on GPU 0000:4e:00 has ended by a reboot"
    cluster.apply(operator_taint(cluster.nodes["gpu-2"], at=at(90), by="ann", reason="not repaired"))
    [by_hand] = news_of_freed(cluster.nodes["gpu-2"], held["gpu-2"], at(90))
    assert (by_hand.why, by_hand.reason) == ("tainted by ann", EventReason.TAINTED)
    assert [each.reason for each in freed] == [EventReason.RELEASED, EventReason.REBOOTED]


def test_a_message_counts_a_node_once_and_has_the_time_of_its_first_news() -> None:
    early, late = news(name="gpu-2"), replace(news(name="gpu-1"), at=at(60))

    assert Message(Kind.SUMMARY, (late, early, news(Kind.HELD, "gpu-1"))).nodes == ["gpu-1", "gpu-2"]
    assert Message(Kind.TAINTED, (late, early)).at == early.at


def test_no_other_news_of_the_node_overtakes_its_return() -> None:
    back, silent = news(Kind.RETURNED), replace(news(Kind.COVERAGE), reason=EventReason.SILENT)

    assert current([back, silent]) == [back, silent]
    assert current([back], [silent]) == [back]


def test_a_summary_is_in_the_order_of_time_and_tells_no_more_messages_than_there_are() -> None:
    early = news(name="gpu-1", rule="xid.48")
    late = replace(news(name="gpu-1", rule="xid.79"), at=at(60))
    between = replace(news(name="gpu-2", rule="xid.48"), at=at(30))

    [summary] = within([Message(Kind.TAINTED, (late,)), Message(Kind.TAINTED, (between, early))], 1)

    assert [each.at for each in summary.news] == [at(0), at(30), at(60)]
    for shuffled in (summary, Message(Kind.SUMMARY, (late, between, early))):
        assert text_of(shuffled, now=at(0)).splitlines()[1:] == [
            "12:00 UTC: 2 nodes out of service",
            "12:01 UTC: gpu-1 out of service",
        ]


def test_nodes_that_are_held_no_longer_for_different_reasons_have_a_line_for_each_reason() -> None:
    found = [replace(news(Kind.FREED, f"gpu-{place}"), why=why) for place, why in enumerate(("a", "b", "b"))]

    [message] = grouped(found)

    assert text_of(message).splitlines()[2:4] == ["B: gpu-1, gpu-2.", "A: gpu-0."]


def test_a_contested_taint_and_news_of_the_fleet_join_no_returns_of_nodes() -> None:
    back, fleet_wide = news(Kind.RETURNED), news(Kind.RETURNED, "")
    contested = replace(news(Kind.RETURNED, "gpu-2"), reason=EventReason.CONTESTED)

    assert [len(each.news) for each in grouped([back, contested, fleet_wide])] == [1, 1, 1]


def test_a_message_without_a_cluster_and_a_reason_has_null_for_both() -> None:
    data = cloud_event(trial_message(at(0)))["data"]

    assert (data["cluster"], data["runbook"]) == (None, None)


def test_a_long_summary_tells_ten_messages() -> None:
    many = grouped(news(name=f"gpu-{number}", rule=f"xid.{number}") for number in range(12))
    [summary] = within(many, 1)

    assert len(text_of(summary).splitlines()) == 12
    assert text_of(summary).endswith("\nand 2 more")


def test_the_news_that_are_not_in_the_next_message_stay_and_at_the_limit_all_are_in_one() -> None:
    one, two = news(rule="xid.48"), news(name="gpu-2", rule="xid.79")

    message, rest = next_message([one, two], 2)
    assert (message and message.news, rest) == ((one,), [two])
    message, rest = next_message([one, two], 1)
    assert (message and message.kind, rest) == (Kind.SUMMARY, [])
    assert next_message([], 1) == (None, [])


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


def test_a_verdict_is_a_message_and_a_return_after_a_validation_says_so() -> None:
    passed = news(Kind.VALIDATED, fault="Xid 79, GPU lost", needs="none")
    failed = news(Kind.NOT_VALIDATED, fault="Xid 79, GPU lost", needs="none")
    mark = Release(at(0), "konductor-like", "all 8 GPUs passed", ReleaseHow.VALIDATED)

    assert headline(Kind.VALIDATED, [passed]) == "gpu-1 passed its validation · Xid 79, GPU lost"
    assert headline(Kind.NOT_VALIDATED, [failed]) == "gpu-1 not validated · Xid 79, GPU lost"
    assert [kind.urgent for kind in (Kind.VALIDATED, Kind.NOT_VALIDATED)] == [False, True]
    assert why_released(mark) == "validated"
