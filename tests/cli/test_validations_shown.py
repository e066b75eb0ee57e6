"""``status`` and ``explain`` tell of a validation: its story, what it means for the return, what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cli.explain.node import NodeExplanation, document, explain_node, paragraphs
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import status_report
from konductor_like.cli.status.text import View, status_lines
from konductor_like.model import KernelPosition, NodeState, ReleaseHow, Validation, ValidationVerdict
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import unrepaired
from konductor_like.policy.operator import operator_taint, validate
from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.policy.recovery.verdict import Action, reboot_words
from tests.cli.kinds import ASKED, FAILED, PASSED, RUNNING, UNKNOWN
from tests.cli.scenes import NOW, OTHER_BOOT, RULES, ago, ago_ns
from tests.cli.test_returns import STOPPED, fleet, rebooted, returned

BY_VALIDATION = PolicyConfig(returns_by_validation=True, validates=True, brake_max_percent=100)
ASKS = replace(BY_VALIDATION, returns_by_validation=False)
REHEARSES = replace(BY_VALIDATION, rehearses=True)
BOOT = str(rebooted().machine.boot_id)
WAITS = replace(ASKED, waits="pods use its GPUs: ml/Pod/a")
LINE = "the validation failed: GPU 0000:4e:00: memory"
BY_ITSELF = "returns by itself after a validation that passes; "
MET = "Its need was met by the reboot seen at 2026-05-06T11:40:00Z. "
TEST = "konductor-like validate gpu-1"
RESET = "konductor-like reset gpu-1 --reason '...'"
RELEASE = "release the node: `konductor-like reset gpu-1`."
THEN = "Run diagnostics (`{}`), then " + RELEASE
REHEARSED = "KONDUCTOR_RECOVERY is rehearse: the controller would validate the node now"
BY_HAND = THEN.format("dcgmi diag -r 3")
BY_US = THEN.format(TEST)
NO_CLUE = "he result of the validation is unknown: no result came in time"
ALL_PASSED = "ll 8 GPUs passed a validation at level 3 with driver 570.133.20"


def validated(validation: Validation | None, state: NodeState | None = None, **of_record: Any) -> NodeState:
    """Return a rebooted node with this validation, which began in its present boot."""
    state = state or rebooted()
    if validation is not None and validation.began_at is not None:
        read = KernelPosition(BOOT, None, 5_000_000_000)
        validation = replace(validation, boot_id=BOOT, read=read)
    return replace(state, record=replace(state.record, validation=validation, **of_record))


def explained(state: NodeState, policy: PolicyConfig = BY_VALIDATION) -> NodeExplanation:
    return explain_node("gpu-1", fleet(state, policy=policy), RULES)


def told(found: NodeExplanation, wanted: str) -> str | list[str]:
    """Return the paragraph of ``explain`` with this label; empty without one."""
    return next((text for label, text in paragraphs(found) if label == wanted), "")  # type: ignore[return-value]  # str or list


CASES: list[tuple[PolicyConfig, Validation | None, Action, str, str, list[str]]] = [
    (BY_VALIDATION, None, Action.WAIT, BY_ITSELF + "the controller begins it by itself", "", []),
    (BY_VALIDATION, WAITS, Action.WAIT, BY_ITSELF + "it waits: pods use its GPUs: ml/Pod/a", "", []),
    (BY_VALIDATION, RUNNING, Action.WAIT, BY_ITSELF + "it runs since 2026-05-06T11:59:30Z", "", []),
    (
        BY_VALIDATION,
        PASSED,
        Action.WAIT,
        f"returns by itself when its kernel log is read beyond the test: a{ALL_PASSED}",
        "",
        [],
    ),
    (
        BY_VALIDATION,
        FAILED,
        Action.REPAIR,
        f"does not return by itself now: {LINE}",
        f"{MET}T{LINE[1:]}. Have that repaired. {BY_US}",
        [TEST, RESET],
    ),
    (
        BY_VALIDATION,
        UNKNOWN,
        Action.CHECK_AND_RELEASE,
        f"does not return by itself now: t{NO_CLUE}",
        f"{MET}T{NO_CLUE}. {BY_US}",
        [TEST, RESET],
    ),
    (ASKS, None, Action.CHECK_AND_RELEASE, "", MET + BY_US, [TEST, RESET]),
    (PolicyConfig(), None, Action.CHECK_AND_RELEASE, "", MET + BY_HAND, [RESET]),
    (
        ASKS,
        WAITS,
        Action.CHECK_AND_RELEASE,
        "",
        f"{MET}A validation waits: {WAITS.waits}. After a pass, {RELEASE}",
        [f"{TEST} --cancel", RESET],
    ),
    (
        ASKS,
        PASSED,
        Action.CHECK_AND_RELEASE,
        "",
        f"{MET}A{ALL_PASSED}: {RELEASE}",
        [RESET],
    ),
    (ASKS, FAILED, Action.REPAIR, "", f"{MET}T{LINE[1:]}. Have that repaired. {BY_US}", [TEST, RESET]),
    (
        ASKS,
        replace(FAILED, asked_at=ago(4000)),
        Action.CHECK_AND_RELEASE,
        "",
        MET + BY_US,
        [TEST, RESET],
    ),
    (
        REHEARSES,
        None,
        Action.CHECK_AND_RELEASE,
        f"does not return by itself now: {REHEARSED}",
        MET + BY_HAND,
        [RESET],
    ),
]


@pytest.mark.parametrize(("policy", "validation", "action", "back", "to_do", "commands"), CASES)
def test_explain_says_what_a_validation_means_for_the_return_and_what_to_do(
    policy: PolicyConfig,
    validation: Validation | None,
    action: Action,
    back: str,
    to_do: str,
    commands: list[str],
) -> None:
    found = explained(validated(validation), policy)

    assert found.report.verdict.action is action
    assert told(found, "Return") == back
    assert told(found, "To do") == to_do
    assert found.next_commands == commands


def test_a_pass_of_an_earlier_boot_tells_nothing_about_this_one() -> None:
    state = rebooted()
    state = replace(state, record=replace(state.record, validation=replace(PASSED, boot_id=OTHER_BOOT)))
    found = explained(state, ASKS)

    assert told(found, "To do") == MET + BY_US
    assert f", in the earlier boot {OTHER_BOOT}" in told(found, "Validation")[1]


@pytest.mark.parametrize(
    ("validation", "says"),
    [
        (PASSED, f"A{ALL_PASSED}: release the node"),
        (FAILED, f"T{LINE[1:]}. Have that repaired."),
        (RUNNING, "A validation runs since 2026-05-06T11:59:30Z. After a pass, release"),
    ],
)
def test_a_node_that_a_person_tainted_for_a_validation_has_the_advice_of_its_verdict(
    validation: Validation, says: str
) -> None:
    whole = replace(rebooted(), taints=(), record=replace(rebooted().record, incidents=()))
    change = operator_taint(whole, at=ago(60), by="kim", reason="to test it")
    assert change is not None
    assert change.record is not None
    state = validated(validation, replace(rebooted(), record=change.record))
    assert not unrepaired(state)

    assert str(told(explained(state, ASKS), "To do")).startswith(says)


def test_a_fault_that_still_needs_its_repair_keeps_its_advice() -> None:
    [fault] = rebooted().record.incidents
    open_one = replace(fault, met_ns=None, met_by=None, last=KernelPosition(BOOT, None, 1))

    found = explained(validated(FAILED, incidents=(open_one,)), ASKS)

    assert told(found, "To do") == fault.advice


def test_explain_tells_the_story_of_a_validation() -> None:
    assert told(explained(validated(PASSED)), "Validation") == [
        "level 3, asked for by kim@example.com 60s ago (2026-05-06T11:59:00Z)",
        "attempt a1 (1 of at most 2) begun 30s ago (2026-05-06T11:59:30Z), for 8 GPUs",
        f"pass 10s ago (2026-05-06T11:59:50Z): a{ALL_PASSED}",
        "GPU 0000:4e:00 GPU-10000000-0000-4000-8000-000000000001, serial 165",
        "GPU 0000:5d:00 GPU-20000000-0000-4000-8000-000000000002",
    ]
    assert told(explained(validated(WAITS)), "Validation") == [
        "level 3, asked for by kim@example.com 60s ago (2026-05-06T11:59:00Z)",
        "a validation waits: pods use its GPUs: ml/Pod/a",
    ]
    assert told(explained(rebooted()), "Validation") == ""


def test_a_verdict_of_an_earlier_time_out_says_so() -> None:
    for state in (validated(PASSED, returned()), validated(replace(PASSED, asked_at=ago(4000)))):
        assert told(explained(state), "Validation")[0].endswith(", of an earlier time out")


def test_the_last_write_of_a_wish_names_the_person() -> None:
    change = validate(rebooted(), 3, by="kim", at=ago(60))
    found = explained(replace(rebooted(), record=change.record or rebooted().record))

    assert "by kim, audit id " in told(found, "Last write")
    assert document(found)["act"]["by"] == "kim"


def test_a_node_on_probation_says_after_what_it_returned() -> None:
    state = returned()
    mark = replace(state.record.releases[0], how=ReleaseHow.VALIDATED)
    by_validation = replace(state, record=replace(state.record, releases=(mark,)))

    assert str(told(explained(by_validation), "Return")).startswith("returned by itself, after a validation;")
    assert str(told(explained(state), "Return")).startswith("returned by itself, after a reboot;")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (BY_VALIDATION, "after a validation, at most 4 an hour"),
        (REHEARSES, "rehearsed only (KONDUCTOR_RECOVERY): the controller validates and returns no node"),
        (PolicyConfig(validates=True, recovery_by_file=True), f"off. KONDUCTOR_RECOVERY_FILE: {BY_FILE}"),
        (replace(ASKS, returns_by_reboot=True), "by reboot, at most 4 an hour"),
    ],
)
def test_status_says_after_what_nodes_return(policy: PolicyConfig, words: str) -> None:
    assert f"Returns:     {words}" in status_lines(status_report(fleet(rebooted(), policy=policy)))


@pytest.mark.parametrize(("policy", "is_told"), [(BY_VALIDATION, True), (ASKS, False)])
def test_a_stop_of_returns_matters_where_the_controller_returns_nodes(
    policy: PolicyConfig, is_told: bool
) -> None:
    report = status_report(fleet(rebooted(), policy=policy, controls=STOPPED))

    assert bool(report.returns_stopped) is is_told
    assert any(line.startswith("Returns:     stopped: ") for line in status_lines(report)) is is_told


@pytest.mark.parametrize(
    ("validation", "line", "cell", "numbers"),
    [
        (ASKED, ["Validations: 1 waiting"], "asked", (1, 0)),
        (RUNNING, ["Validations: 1 running"], "running", (0, 1)),
        (FAILED, [], "fail", (0, 0)),
        (None, [], "-", (0, 0)),
    ],
)
def test_status_counts_validations_under_way_and_shows_the_stage_or_verdict(
    validation: Validation | None, line: list[str], cell: str, numbers: tuple[int, int]
) -> None:
    report = status_report(fleet(validated(validation)))
    lines = status_lines(report, View(wide=True))

    assert [each for each in lines if each.startswith("Validations:")] == line
    [header] = [each for each in lines if each.startswith("NODE ")]
    [row] = [each for each in lines if each.startswith("gpu-1 ")]
    assert row[header.index("VALIDATION") :].split()[0] == cell
    summary = status_document(report)["summary"]
    assert (summary["validationsWaiting"], summary["validationsRunning"]) == numbers


def test_the_document_has_the_whole_validation() -> None:
    def shown(validation: Validation | None) -> Any:
        return status_document(status_report(fleet(validated(validation))))["nodes"][0]["validation"]

    assert shown(None) is None
    assert shown(replace(PASSED, verdict=ValidationVerdict.UNKNOWN, why="no time")) == {
        "stage": "ended",
        "level": 3,
        "by": "kim@example.com",
        "askedAt": "2026-05-06T11:59:00Z",
        "reason": None,
        "attempt": "a1",
        "tries": 1,
        "since": "2026-05-06T11:59:30Z",
        "bootID": BOOT,
        "endedAt": "2026-05-06T11:59:50Z",
        "waits": None,
        "verdict": "unknown",
        "why": "no time",
        "driver": "570.133.20",
        "expectedGPUs": 8,
        "gpus": [
            {"bus": "0000:4e:00", "uuid": "GPU-10000000-0000-4000-8000-000000000001", "serial": "165"},
            {"bus": "0000:5d:00", "uuid": "GPU-20000000-0000-4000-8000-000000000002", "serial": None},
        ],
    }
    waits = shown(WAITS)
    assert (waits["waits"], waits["attempt"], waits["verdict"], waits["expectedGPUs"]) == (
        WAITS.waits,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (BY_VALIDATION, "The node returns by itself, on probation, after a validation, if nothing speaks"),
        (REHEARSES, f"The taint stays, because {REHEARSED}. {BY_HAND}"),
        (ASKS, f"The taint stays. {BY_US}"),
        (PolicyConfig(), f"The taint stays. {BY_HAND}"),
    ],
)
def test_the_event_about_a_reboot_says_what_comes_next(policy: PolicyConfig, words: str) -> None:
    after = rebooted()
    assert after.record.machine is not None
    earlier = replace(after.record.machine, boot_id=OTHER_BOOT)
    before = replace(after, record=replace(after.record, machine=earlier))
    assert after.record.incidents[0].met_ns == ago_ns(1200)

    assert words in reboot_words(before, after.record, policy, NOW)
