"""Commands show returns by reboot: who may return, who may not and why, probation, the stop of the fleet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli.explain.node import explain_node, paragraphs
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.node import node_report
from konductor_like.cli.status.report import Fleet, StatusReport, status_report
from konductor_like.cli.status.text import status_lines, warnings
from konductor_like.cluster.lease.annotations import RETURNED_ANNOTATION, encode_returned
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import (
    BrakeState,
    Control,
    ControlAct,
    Controls,
    Coverage,
    Gap,
    Held,
    IncidentState,
    Life,
    Loss,
    MetBy,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    ReleaseHow,
    ReturnedNode,
    SkipReason,
    Source,
    Verb,
)
from konductor_like.model.attempts import Attempts, Unwritten
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import Health
from konductor_like.policy.node.release import release
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, OTHER_BOOT, RULES, ago, ago_ns, incident, settings_of, with_record
from tests.cli.test_explain_node import RUNNING

BY_REBOOT = PolicyConfig(returns_by_reboot=True, brake_max_percent=100)
HEARD = Coverage(NOW, listed_are_measured=False)
READ = {Source.KERNEL: ago_ns(1)}
STOPPED = Controls(returned=tuple(ReturnedNode(f"gpu-{n}", ago(9000 - n), ago(8000 - n)) for n in (7, 8, 9)))
WORDS = (
    "no node returns by itself: 3 of the last 10 returned nodes failed again (gpu-7 at 2026-05-06T09:46:47Z, "
    "gpu-8 at 2026-05-06T09:46:48Z, gpu-9 at 2026-05-06T09:46:49Z); "
    "`konductor-like resume` allows returns again"
)


def rebooted() -> NodeState:
    """A node whose reboot, 20 minutes ago, met the need of its fault."""
    fault = replace(incident(boot=OTHER_BOOT, seconds_ago=7200), met_ns=ago_ns(1200), met_by=MetBy.REBOOT)
    state = decode_node(with_record(make_node("gpu-1"), fault, tainted=True))
    return replace(state, record=replace(state.record, gpus=8))


def returned(**changes: Any) -> NodeState:
    """A node on probation."""
    state = decode_node(make_node("gpu-1"))
    record = replace(
        rebooted().record,
        incidents=(),
        releases=(Release(ago(600), "konductor-like", "a reboot", ReleaseHow.REBOOT),),
        life=Life(
            quarantines=(Quarantine(ago(7200), ago(600), "xid.79", ReleaseHow.REBOOT),),
            probation_until=ago(-85_800),
        ),
        **changes,
    )
    return replace(state, record=record)


def fleet(
    state: NodeState,
    *,
    policy: PolicyConfig = BY_REBOOT,
    controls: Controls = Controls(),  # noqa: B008  # a frozen value
    coverage: Coverage | None = HEARD,
    **controller: Any,
) -> Fleet:
    nodes = {"gpu-1": state, "gpu-2": decode_node(make_node("gpu-2"))}
    running = replace(
        RUNNING,
        controls=controls,
        coverage=coverage,
        settings=settings_of(policy),
        read_ns=READ,
    )
    return Fleet(NOW, nodes, replace(running, **controller), nodes)


def status(state: NodeState, **known: Any) -> StatusReport:
    return status_report(fleet(state, **known))


def explained(state: NodeState, **known: Any) -> str:
    """Return the paragraph ``Return`` of ``explain``."""
    found = explain_node("gpu-1", fleet(state, **known), RULES)
    return "".join(str(text) for label, text in paragraphs(found) if label == "Return")


def test_explain_says_that_a_rebooted_node_returns_by_itself() -> None:
    heard = "its kernel log was heard for 10m since the reboot, without a gap"
    assert explained(rebooted()) == f"returns by itself when {heard}"
    assert status_document(status(rebooted()))["nodes"][0]["whyNotReturned"] is None


def not_rebooted(**life: Any) -> NodeState:
    """A node that failed in its present boot, with seven of its eight GPUs left."""
    state = decode_node(with_record(make_node("gpu-1"), incident(), tainted=True))
    record = replace(state.record, gpus=8, life=replace(state.record.life, **life))
    return replace(state, record=record, gpus=replace(state.gpus, allocatable=7))


def test_explain_says_that_a_reboot_is_all_that_a_node_needs_to_return() -> None:
    failed, whole = not_rebooted(), "if it has all its GPUs then (now 7 of 8 GPUs)"

    assert explained(failed) == f"returns by itself after a reboot, {whole}"
    assert explained(replace(failed, gpus=replace(failed.gpus, allocatable=8), ready=False)) == (
        "returns by itself after a reboot"
    )
    hold = "not before 2026-05-06T12:10:00Z"
    assert (
        explained(not_rebooted(hold_until=ago(-600))) == f"returns by itself after a reboot, {whole}, {hold}"
    )
    assert explained(replace(failed, unschedulable=True)).startswith("does not return by itself now: ")
    assert explained(failed, holder=None).startswith("does not return by itself now: ")
    assert explained(not_rebooted(replace_since=ago(60))) == ""


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"controls": STOPPED}, WORDS),
        ({"holder": None}, "the controller does not run"),
        (
            {
                "coverage": replace(
                    HEARD, lost={"gpu-1": Loss(9, ago_ns(600), str(rebooted().machine.boot_id))}
                )
            },
            "the kernel overwrote lines of its present boot before they were read",
        ),
    ],
    ids=["stopped", "no controller", "lost lines"],
)
def test_explain_and_status_name_the_same_reason_why_a_node_stays_out(
    known: dict[str, Any], why: str
) -> None:
    found = explained(rebooted(), **known)

    assert found.startswith("does not return by itself now: ")
    assert why in found
    [node, _] = status_document(status(rebooted(), **known))["nodes"]
    assert found == f"does not return by itself now: {node['whyNotReturned']}"


def test_a_held_node_keeps_others_out_while_it_waits_for_the_cool_down_and_not_for_a_place() -> None:
    controller = fleet(rebooted()).controller
    cooling = BrakeState(5, 0, 1, (Held("gpu-2", incident(), SkipReason.COOLDOWN),), rearms_at=ago(-300))
    full = BrakeState(5, 1, 1, (Held("gpu-2", incident()),))

    why = node_report(rebooted(), controller, cooling, NOW).verdict.why_not_returned or ""

    assert why.startswith("the brake holds gpu-2 back: the brake's cool-down ends at 2026-05-06T12:05:00Z")
    assert node_report(rebooted(), controller, full, NOW).verdict.why_not_returned is None


def test_with_the_default_settings_only_the_json_says_that_a_person_returns_the_node() -> None:
    assert explained(rebooted(), policy=PolicyConfig()) == ""
    [node, other] = status_document(status(rebooted(), policy=PolicyConfig()))["nodes"]
    assert node["whyNotReturned"] == "KONDUCTOR_RETURN is ask, so a person returns it"
    assert other["whyNotReturned"] is None


def test_without_the_controllers_settings_nobody_knows_whether_a_node_returns() -> None:
    known = {"settings": None, "why_settings_unknown": "the controller's settings are not known"}
    found = status_document(status(rebooted(), controls=STOPPED, **known))

    assert found["nodes"][0]["whyNotReturned"] == "the controller's settings are not known"
    assert found["returns"] is None


def test_status_shows_a_node_on_probation_until_when() -> None:
    report = status(returned())

    assert report.nodes[0].health is Health.PROBATION
    lines = status_lines(report)
    assert "1 probation, 1 healthy" in lines[0]
    [row] = [line.split(maxsplit=4) for line in lines if line.startswith("gpu-1 ")]
    assert row[1:] == ["probation", "(until", "2026-05-07T11:50:00Z)", "10m   -       -     -"]
    node = status_document(report)["nodes"][0]
    assert (node["state"], node["probationUntil"]) == ("probation", "2026-05-07T11:50:00Z")
    assert (node["timesOut"][0]["how"], node["timesOut"][0]["relapse"]) == ("reboot", False)
    words = "returned by itself, after a reboot; on probation until 2026-05-07T11:50"
    assert explained(returned()).startswith(words)
    first = next(text for label, text in paragraphs(explain_node("gpu-1", fleet(returned()), RULES)))
    assert first == "gpu-1 is on probation (until 2026-05-07T11:50:00Z) since 2026-05-06T11:50:00Z, 10m"


def test_status_says_once_that_returns_are_on_and_which_nodes_return_by_themselves() -> None:
    lines = status_lines(status(rebooted()))

    assert "Returns:     by reboot, at most 4 an hour" in lines
    assert (
        "  xid 79: returns by itself when its kernel log was heard for 10m since the reboot, without a gap"
        in lines
    )
    assert not any("reset" in line for line in lines)
    assert explain_node("gpu-1", fleet(rebooted()), RULES).next_commands == []
    off = status_lines(status(rebooted(), policy=PolicyConfig()))
    assert not any(line.startswith("Returns:") for line in off)
    assert any("`konductor-like reset gpu-1`" in line for line in off)


def test_status_shows_how_many_gpus_of_a_faulty_node_are_there() -> None:
    state = rebooted()
    state = replace(state, record=replace(state.record, gpus=8), gpus=replace(state.gpus, allocatable=7))

    [row] = [line for line in status_lines(status(state)) if line.startswith("gpu-1 ")]

    assert "faulty (7 of 8 GPUs)" in row


def test_status_counts_nodes_that_are_short_of_gpus_without_a_fault() -> None:
    state = decode_node(make_node("gpu-1"))
    short = replace(state, gpus=replace(state.gpus, allocatable=7))

    report = status(short)

    assert "2 healthy (1 short of GPUs)" in status_lines(report)[0]
    assert status_document(report)["nodes"][0]["qualifier"] == "7 of 8 GPUs"


def test_no_return_is_promised_to_a_node_that_is_short_of_gpus() -> None:
    """The count is that of the record, or without one the Node's capacity."""
    whole = rebooted()
    lost = replace(whole, gpus=replace(whole.gpus, allocatable=7))
    accepted = replace(lost, record=replace(lost.record, gpus=7))

    for state in (lost, replace(lost, record=replace(lost.record, gpus=8))):
        assert explained(state) == "does not return by itself now: it has only 7 of 8 GPUs"
        assert not any("returns by itself" in line for line in status_lines(status(state)))
    assert explained(accepted).startswith("returns by itself when ")


def test_no_return_is_promised_to_a_node_whose_gpus_cannot_be_counted() -> None:
    state = rebooted()
    mig = replace(state, gpus=replace(state.gpus, comparable=False))

    assert explained(mig).startswith("does not return by itself now: its GPUs cannot be counted")
    assert not any("returns by itself" in line for line in status_lines(status(mig)))


@pytest.mark.parametrize(
    ("coverage", "why"),
    [
        (
            replace(HEARD, gaps=(Gap(ago_ns(700), ago_ns(300), frozenset({"gpu-1"})),)),
            "its kernel log has a gap",
        ),
        (replace(HEARD, gaps=(Gap(ago_ns(700), None, None),)), "its kernel log has a gap"),
        (replace(HEARD, gaps=(Gap(ago_ns(3000), ago_ns(1150), frozenset({"gpu-1"})),)), None),
        (replace(HEARD, gaps=(Gap(ago_ns(700), ago_ns(300), frozenset({"gpu-2"})),)), None),
        (replace(HEARD, unknown=frozenset({"gpu-1"})), "the kernel log of its present boot does not arrive"),
        (None, "the kernel log of its present boot does not arrive"),
    ],
    ids=[
        "a gap",
        "a gap until now",
        "the reboot itself",
        "another node's gap",
        "silent",
        "nothing published",
    ],
)
def test_no_return_is_promised_to_a_node_that_was_not_heard_in_full(
    coverage: Coverage | None, why: str | None
) -> None:
    found = explained(rebooted(), coverage=coverage)

    assert found == f"does not return by itself now: {why}" if why else found.startswith("returns by itself")


@pytest.mark.parametrize(
    ("kept", "more", "why", "advice"),
    [
        ({"gpu-1": "gap"}, 0, "its kernel log has a gap", "Run diagnostics"),
        ({"gpu-1": "moon"}, 0, "for a reason that this command does not know (moon)", "Run diagnostics"),
        ({"gpu-2": "gap"}, 3, "keeps more nodes out than its Lease can name", "Run diagnostics"),
        ({"gpu-1": "replaying"}, 0, "the controller still reads older lines", "returns by itself later"),
        ({"gpu-1": "too-young"}, 0, None, "returns by itself when its kernel log was heard for 10m"),
        ({"gpu-2": "gap"}, 0, None, "returns by itself when its kernel log was heard for 10m"),
    ],
)
def test_a_guard_that_only_the_controller_knows_is_shown_from_its_lease(
    kept: dict[str, str], more: int, why: str | None, advice: str
) -> None:
    report = status(rebooted(), attempts=Attempts("holder", kept_out=kept, kept_more=more))

    [node, _] = status_document(report)["nodes"]
    assert (why in node["whyNotReturned"]) if why else node["whyNotReturned"] is None
    assert advice in node["advice"]
    assert (node["action"] == "wait") is advice.startswith("returns")


def action_of(state: NodeState, **known: Any) -> tuple[str, str]:
    node = status_document(status(state, **known))["nodes"][0]
    return node["action"], node["advice"]


def published(guard: str) -> Attempts:
    return Attempts("holder", kept_out={"gpu-1": guard})


@pytest.mark.parametrize("attempts", [Attempts(), Attempts("holder", kept_out=None)])
def test_no_return_is_promised_while_the_guards_of_the_controller_are_not_known(attempts: Attempts) -> None:
    action, advice = action_of(rebooted(), attempts=attempts)

    assert (action, "Run diagnostics" in advice) == ("check-and-release", True)
    assert "has not published which guards" in explained(rebooted(), attempts=attempts)


@pytest.mark.parametrize(
    ("attempts", "action", "words"),
    [
        (published("silent"), "fix-reader", "look at the kernel-log reader's pod"),
        (published("write-fails"), "fix-controller", "`konductor-like doctor` names the cause"),
        (published("return-limit"), "wait", "returns by itself later: other nodes return first"),
        (published("gap"), "check-and-release", "Run diagnostics"),
    ],
)
def test_a_node_that_only_something_else_keeps_out_is_not_to_be_released_by_hand(
    attempts: Attempts, action: str, words: str
) -> None:
    found, advice = action_of(rebooted(), attempts=attempts)

    assert (found, words in advice) == (action, True)


def test_during_a_hold_the_node_returns_by_itself_later() -> None:
    life = replace(rebooted().record.life, hold_until=ago(-600))
    held = replace(rebooted(), record=replace(rebooted().record, life=life))

    action, advice = action_of(held)

    assert (action, "returns by itself later: meant to stay out" in advice) == ("wait", True)


def test_explain_says_once_why_a_node_stays_out() -> None:
    life = replace(rebooted().record.life, hold_until=ago(-600))
    held = replace(rebooted(), record=replace(rebooted().record, life=life))

    page = dict(paragraphs(explain_node("gpu-1", fleet(held), RULES)))

    assert page["Return"] == "returns by itself later, not before 2026-05-06T12:10:00Z"
    assert str(page).count("failed 1 times") == 1
    assert page["To do"] == ""
    silent = dict(paragraphs(explain_node("gpu-1", fleet(rebooted(), attempts=published("silent")), RULES)))
    assert str(silent).count("the kernel log of its present boot does not arrive") == 1
    assert str(silent["To do"]).startswith("look at the kernel-log reader's pod")


def test_a_node_that_is_marked_for_replacement_is_not_to_be_released_after_a_reboot() -> None:
    life, [met] = replace(rebooted().record.life, replace_since=ago(60)), rebooted().record.incidents
    record = replace(rebooted().record, life=life, incidents=(replace(met, needs="replacement"),))

    action, advice = action_of(replace(rebooted(), record=record))

    assert (action, "checked or replaced" in advice, "release" in advice) == ("replace", True, False)


@pytest.mark.parametrize(
    ("times", "days_ago", "tainted", "shown"),
    [
        (3, 1, False, True),
        (4, 1, False, True),
        (2, 1, False, False),
        (3, 8, False, False),
        (3, 1, True, False),
    ],
)
def test_a_node_that_was_released_although_it_failed_too_often_says_so(
    times: int, days_ago: float, tainted: bool, shown: bool
) -> None:
    at = ago(days_ago * 86_400)
    past = (Quarantine(at - timedelta(hours=1), at, "xid.79", ReleaseHow.RESET),) * times
    state = decode_node(with_record(make_node("gpu-1"), tainted=tainted))
    report = status(replace(state, record=replace(state.record, life=Life(quarantines=past))))

    assert (f"failed {times} times" in report.nodes[0].qualifier) is shown
    assert ("healthy (1 failed too often)" in status_lines(report)[0]) is shown


def test_a_record_that_is_behind_hides_neither_the_repair_nor_the_brake() -> None:
    state = decode_node(with_record(make_node("gpu-1"), incident(), tainted=True))
    failing = Attempts("holder", {}, (Unwritten("gpu-1", Verb.RECORD),), others=1, kept_out={})

    assert action_of(state, attempts=failing)[0] == "repair"
    held = decode_node(with_record(make_node("gpu-1"), incident(state=IncidentState.HELD)))
    node = status_document(status(held, attempts=failing))["nodes"][0]
    assert (node["state"], node["qualifier"], "cordon" in node["advice"]) == ("held", None, False)


def test_a_damaged_record_is_not_taken_for_somebody_elses_taint() -> None:
    state = decode_node(with_record(make_node("gpu-1"), incident(), tainted=True))
    damaged = replace(state, record=NodeRecord(), record_problem="it is not JSON")

    action, advice = action_of(damaged)

    assert (action, "find out who" in advice) == ("clear-record", False)


def test_a_held_node_on_probation_is_not_said_to_return_by_itself() -> None:
    state = returned()
    held = incident(state=IncidentState.HELD, seconds_ago=60)

    assert explained(replace(state, record=replace(state.record, incidents=(held,)))) == (
        "returned by itself, after a reboot, and failed again: its taint ends its automatic returns"
    )


def test_a_reset_without_a_reason_warns_of_a_relapse() -> None:
    at, relapse = ago(60), Quarantine(ago(7200), ago(600), "xid.79", ReleaseHow.REBOOT, relapse=True)
    record = replace(rebooted().record, life=Life(at, quarantines=(relapse,)))
    state = replace(rebooted(), record=record)
    known: dict[str, Any] = {"at": NOW, "by": "kim", "read_ns": READ}

    warned = release(state, reason="", **known)
    told = release(state, reason="GPU replaced", **known)

    assert warned is not None
    assert told is not None
    assert "failed again on probation at 2026-05-06T11:59:00Z, and nobody recorded a repair" in warned.message
    assert "probation" not in told.message


def test_status_says_that_returns_are_stopped_and_how_to_go_on() -> None:
    report = status(rebooted(), controls=STOPPED)

    assert f"Returns:     stopped: {WORDS}" in status_lines(report)
    assert not list(warnings(report))
    assert status_document(report)["returns"] == {
        "byReboot": True,
        "byValidation": False,
        "rehearsed": False,
        "stopped": True,
    }
    resumed = STOPPED.with_act(ControlAct(Control.RESUME, ago(10), "kim", relapses=STOPPED.returned))
    assert status_document(status(rebooted(), controls=resumed))["returns"]["stopped"] is False


def test_resume_ends_a_stop_of_returns_also_without_a_pause(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    from tests.cli.scenes import note_on_the_lease

    cluster("healthy")
    note_on_the_lease(tmp_path, RETURNED_ANNOTATION, encode_returned(STOPPED.returned))

    ended = "automatic returns resumed (3 relapses no longer count)\n"
    assert run("resume").out == f"tainting unchanged (it was not paused)\n{ended}"
    assert run("resume").out == "tainting unchanged (it was not paused)\n"
    assert run("pause", "--reason", "roll-out").code == 0
    assert run("resume").out == "tainting resumed\n"


def test_resume_ends_a_stop_whose_relapses_a_wrong_clock_dated_in_the_future(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    from tests.cli.scenes import note_on_the_lease

    later = (replace(each, relapsed_at=datetime.now(UTC) + timedelta(days=2)) for each in STOPPED.returned)
    cluster("healthy")
    note_on_the_lease(tmp_path, RETURNED_ANNOTATION, encode_returned(later))

    assert "automatic returns resumed" in run("resume").out
    assert "automatic returns" not in run("resume").out


def test_one_resume_ends_a_pause_and_a_stop(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    from tests.cli.scenes import note_on_the_lease

    cluster("healthy")
    note_on_the_lease(tmp_path, RETURNED_ANNOTATION, encode_returned(STOPPED.returned))
    assert run("pause", "--reason", "roll-out").code == 0

    ended = "automatic returns resumed (3 relapses no longer count)\n"
    assert run("resume").out == f"tainting resumed\n{ended}"
    assert run("status", "--state", "probation", "-o", "name").out == ""
