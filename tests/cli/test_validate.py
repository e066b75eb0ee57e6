"""``validate NODE``: what it writes, what it refuses, and how it waits for the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from konductor_like.cli import session
from konductor_like.cli.nodes import validation as acts
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.record import encode
from konductor_like.cluster.published import SETTINGS_ANNOTATION, encode_settings
from konductor_like.model import (
    RECORD_ANNOTATION,
    Change,
    NodeRecord,
    Validation,
    ValidationStage,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.operator import validate
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.conftest import Cluster, Run
from tests.cli.kinds import ASKED, FAILED, PASSED, RUNNING, UNKNOWN
from tests.cli.scenes import NOW, faulty, note_on_the_lease, settings_of
from tests.cli.test_explain_node import RUNNING as CONTROLLER_RUNS

VALIDATES = PolicyConfig(validates=True)


class Place(NamedTuple):
    """What a test of the table may spoil."""

    server: KubernetesServer
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    run: Run

    def publish(self, policy: PolicyConfig = VALIDATES, **settings: str) -> None:
        note_on_the_lease(self.folder, SETTINGS_ANNOTATION, encode_settings(settings_of(policy, **settings)))

    def edit(self, **spec: Any) -> None:
        self.server.edit_node("gpu-1", lambda node: node["spec"].update(spec))

    @property
    def record(self) -> NodeRecord:
        return decode_node(self.server.node("gpu-1")).record

    def put(self, validation: Validation | None, **parts: Any) -> None:
        """Write the validation of gpu-1, as the controller would."""
        text = encode(replace(self.record, validation=validation, **parts))
        self.server.edit_node(
            "gpu-1", lambda node: node["metadata"]["annotations"].update({RECORD_ANNOTATION: text})
        )


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Place:
    found = Place(cluster("one faulty"), tmp_path, monkeypatch, run)
    found.publish()
    return found


def test_the_wish_is_on_the_record_with_the_person_and_the_level_that_the_faults_ask_for(
    place: Place,
) -> None:
    done = place.run("validate", "gpu-1", "--reason", "new riser")

    assert (done.code, done.out, done.err) == (0, "node/gpu-1 will be validated at level 3\n", "")
    wished = Validation(ValidationStage.ASKED, 3, NOW, "kim@example.com", "new riser")
    assert place.record.validation == wished
    assert "asked for by kim@example.com 0s ago (2026-05-06T12:00:00Z): new riser" in (
        place.run("explain", "gpu-1").out
    )
    assert place.record.act is not None
    assert place.record.act.at == NOW
    assert place.server.node("gpu-1")["spec"]["taints"]
    assert [each.key.rule for each in place.record.incidents] == ["xid.79"]


def test_a_person_chooses_level_and_name_and_a_verdict_makes_place_for_the_wish(place: Place) -> None:
    place.put(PASSED)

    assert place.run("validate", "gpu-1", "--level", "4", "--by", "lee").code == 0

    by = "lee (claimed, as kim@example.com)"
    assert place.record.validation == Validation(ValidationStage.ASKED, 4, NOW, by)


def test_a_level_below_that_of_the_faults_is_a_warning_if_a_pass_is_to_return_the_node(place: Place) -> None:
    words = "a pass at level 2 does not return it: its faults ask for level 3"
    assert place.run("validate", "gpu-1", "--level", "2", "--dry-run").err == ""

    place.publish(replace(VALIDATES, returns_by_validation=True))

    assert (
        place.run("validate", "gpu-1", "--level", "2", "--dry-run").err == f"warning: node/gpu-1: {words}\n"
    )
    assert place.run("validate", "gpu-1", "--dry-run", "--wait").err == ""
    assert place.record.validation is None


def stopped(place: Place) -> None:
    place.monkeypatch.setattr(session, "now", lambda: NOW + timedelta(seconds=120))


STATE = decode_node(faulty("gpu-1"))
CONTROLLER = replace(CONTROLLER_RUNS, settings=settings_of(VALIDATES))
REHEARSES = settings_of(replace(VALIDATES, returns_by_validation=True, rehearses=True))
REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (
        {"problem": "forbidden", "renewed": None},
        {},
        "whether a controller runs is not known: forbidden",
        "doctor`",
    ),
    ({"holder": None}, {}, "the controller does not run", "`konductor-like doctor` names the cause"),
    ({"settings": None, "why_settings_unknown": "not known"}, {}, "not known", "`konductor-like doctor`"),
    (
        {"settings": settings_of()},
        {},
        "the controller has no image for validations",
        "set KONDUCTOR_VALIDATION_IMAGE, and apply manifests/validation.yaml",
    ),
    ({"settings": REHEARSES}, {}, "KONDUCTOR_RECOVERY is rehearse, so no validation", "RECOVERY=on the con"),
    (
        {"settings": settings_of(replace(VALIDATES, recovery_by_file=True))},
        {},
        "the file of KONDUCTOR_RECOVERY_FILE is there, so no validation begins",
        "delete the ConfigMap konductor-like-recovery",
    ),
    (
        {},
        {"taints": ()},
        "the node is not tainted, and a validation takes all",
        "`konductor-like taint gpu-1",
    ),
    (
        {},
        {"record": replace(STATE.record, validation=replace(ASKED, waits="it is new"))},
        "a validation is under way already: a validation waits: it is new",
        "`konductor-like validate gpu-1 --cancel` ends it",
    ),
    (
        {},
        {"record": replace(STATE.record, validation=RUNNING)},
        "a validation is under way already: a validation runs since 2026-05-06T11:59:30Z",
        "`konductor-like explain gpu-1` shows it",
    ),
    ({}, {"unschedulable": True}, "the Node is cordoned", "ask again when that has changed"),
    ({}, {"opted_out": True}, "the node is ignored", "`konductor-like explain gpu-1` shows the node"),
]


@pytest.mark.parametrize(("of_controller", "of_node", "why", "way_out"), REFUSALS)
def test_a_wish_that_would_lead_to_nothing_has_a_reason_and_a_way_out(
    of_controller: dict[str, Any], of_node: dict[str, Any], why: str, way_out: str
) -> None:
    assert acts.refusal(STATE, CONTROLLER, NOW) is None

    found = acts.refusal(replace(STATE, **of_node), replace(CONTROLLER, **of_controller), NOW)

    assert found is not None
    assert found.why.startswith(why)
    assert way_out in found.way_out


def test_the_reason_is_one_sentence_with_a_hint_and_nothing_is_written(place: Place) -> None:
    place.edit(unschedulable=True)

    done = place.run("validate", "gpu-1")

    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "node/gpu-1 was not validated: the Node is cordoned\n"
        "hint: ask again when that has changed; `konductor-like explain gpu-1` shows the node\n"
    )
    assert not place.server.calls("patch", "nodes")


def test_the_settings_of_the_controller_decide_which_nodes_may_be_validated(place: Place) -> None:
    place.publish(node_selector="pool=a")

    assert "KONDUCTOR_NODE_SELECTOR does not select" in place.run("validate", "gpu-1").err


def test_a_node_that_does_not_exist_gets_a_suggestion(place: Place) -> None:
    done = place.run("validate", "gpu-01")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("node/gpu-01 not found\nhint: ")


def test_a_node_that_changes_before_the_write_is_looked_at_again(place: Place) -> None:
    def overtaken(*arguments: Any, **options: Any) -> Change:
        place.put(RUNNING)
        return validate(*arguments, **options)

    place.monkeypatch.setattr(acts, "validate", overtaken)

    done = place.run("validate", "gpu-1")

    assert done.code == 1
    assert "a validation is under way already" in done.err
    assert place.record.validation == RUNNING


@pytest.mark.parametrize("options", [("--wait",), ("--level", "3")])
def test_cancel_goes_alone(options: tuple[str, ...], run: Run) -> None:
    done = run("validate", "gpu-1", "--cancel", *options, "--kubeconfig", "none")

    assert done.code == 2
    assert "--cancel goes with neither --level nor --wait" in done.err


@pytest.mark.parametrize("under_way", [ASKED, RUNNING, replace(ASKED, verdict=UNKNOWN.verdict, tries=1)])
def test_a_wish_or_an_attempt_is_cancelled_also_while_no_controller_runs(
    under_way: Validation, place: Place
) -> None:
    place.put(under_way)
    stopped(place)

    done = place.run("validate", "gpu-1", "--cancel")

    assert (done.code, done.out) == (0, "node/gpu-1 is not validated any more\n")
    assert ("its Job runs until a controller deletes it" in done.err) is (under_way is RUNNING)
    assert place.record.validation is None
    assert place.server.node("gpu-1")["spec"]["taints"]


def test_a_cancellation_warns_that_the_controller_asks_again(place: Place) -> None:
    place.put(ASKED)
    assert place.run("validate", "gpu-1", "--cancel", "--dry-run").err == ""

    place.publish(replace(VALIDATES, returns_by_validation=True))

    words = "the controller itself asks for the next one"
    assert words in place.run("validate", "gpu-1", "--cancel", "--dry-run").err

    place.publish(replace(VALIDATES, returns_by_validation=True, rehearses=True))

    assert words not in place.run("validate", "gpu-1", "--cancel").err


@pytest.mark.parametrize("validation", [None, PASSED])
def test_nothing_to_cancel_is_a_failure_and_a_verdict_stays(
    validation: Validation | None, place: Place
) -> None:
    place.put(validation)

    done = place.run("validate", "gpu-1", "--cancel")

    assert done.code == 1
    assert done.err == ("node/gpu-1 has no validation that waits or runs: there is nothing to cancel\n")
    assert place.record.validation == validation


@pytest.mark.parametrize("options", [(), ("--purge",)])
def test_a_reset_says_that_it_cancels_the_validation(options: tuple[str, ...], place: Place) -> None:
    place.put(PASSED)
    words = "its validation at level 3 is cancelled"
    assert words not in place.run("reset", "gpu-1", "--yes", "--dry-run", *options).err

    place.put(RUNNING)

    assert words in place.run("reset", "gpu-1", "--yes", *options).err


# The wait


@pytest.fixture
def looked(place: Place) -> Iterator[list[Callable[[], object]]]:
    """Return the list of happenings, one before each further look of ``--wait``."""
    happenings: list[Callable[[], object]] = []

    def sleep(_seconds: float) -> None:
        happenings.pop(0)()

    place.monkeypatch.setattr(acts, "sleep", sleep)
    yield happenings
    assert not happenings, "the wait ended before all had happened"


def put(place: Place, validation: Validation | None, asked_at: datetime = NOW) -> Callable[[], object]:
    return lambda: place.put(validation and replace(validation, asked_at=asked_at))


def test_the_wait_tells_each_step_once_and_ends_with_the_verdict_and_its_gpus(
    place: Place, looked: list[Callable[[], object]]
) -> None:
    at = NOW + timedelta(microseconds=400_700)
    place.monkeypatch.setattr(session, "now", lambda: at)
    waits = replace(ASKED, waits="pods use its GPUs: ml/Pod/train-0")
    steps = [ASKED, waits, waits, RUNNING, replace(RUNNING, job_uid="j"), PASSED]
    looked += [put(place, each, at) for each in steps]

    done = place.run("validate", "gpu-1", "--wait")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "node/gpu-1 will be validated at level 3",
        "node/gpu-1 a validation is asked for",
        "node/gpu-1 a validation waits: pods use its GPUs: ml/Pod/train-0",
        "node/gpu-1 a validation runs since 2026-05-06T11:59:30Z",
        "node/gpu-1 all 8 GPUs passed a validation at level 3 with driver 570.133.20",
        "node/gpu-1 GPU 0000:4e:00 GPU-10000000-0000-4000-8000-000000000001, serial 165",
        "node/gpu-1 GPU 0000:5d:00 GPU-20000000-0000-4000-8000-000000000002",
    ]


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (FAILED, 1, "the validation failed: GPU 0000:4e:00: memory"),
        (UNKNOWN, 3, "the result of the validation is unknown: no result came in time"),
        (None, 3, "has no validation any more: it was cancelled, or the node was released"),
    ],
    ids=["failed", "unknown", "cancelled"],
)
def test_the_exit_status_of_the_wait_is_the_verdict(
    end: Validation | None, code: int, says: str, place: Place, looked: list[Callable[[], object]]
) -> None:
    looked.append(put(place, end))

    done = place.run("validate", "gpu-1", "--wait")

    assert (done.code, done.out.splitlines()[-1]) == (code, f"node/gpu-1 {says}")


def test_an_unknown_result_that_is_tried_once_more_does_not_end_the_wait(
    place: Place, looked: list[Callable[[], object]]
) -> None:
    again = replace(UNKNOWN, stage=ValidationStage.ASKED, tries=1, waits="the first result is unknown")
    looked += [put(place, again), put(place, PASSED)]

    done = place.run("validate", "gpu-1", "--wait")

    assert done.code == 0
    assert "node/gpu-1 a validation waits: the first result is unknown\n" in done.out


def test_another_validation_ends_the_wait(place: Place, looked: list[Callable[[], object]]) -> None:
    looked.append(put(place, replace(PASSED, by="lee"), NOW + timedelta(seconds=1)))

    done = place.run("validate", "gpu-1", "--wait")

    assert done.code == 3
    assert done.out.endswith("another validation was asked for, by lee at 2026-05-06T12:00:01Z\n")


def test_a_deleted_node_ends_the_wait(place: Place, looked: list[Callable[[], object]]) -> None:
    looked.append(lambda: place.server.delete_node("gpu-1"))

    done = place.run("validate", "gpu-1", "--wait")

    assert (done.code, done.out.splitlines()[-1]) == (3, "node/gpu-1 was deleted")


def test_the_wait_survives_refused_reads_and_tells_a_stopped_controller_once(
    place: Place, looked: list[Callable[[], object]]
) -> None:
    mishaps = place.server.mishaps
    looked += [
        lambda: mishaps.add(refusal(403), times=None, when=matching("GET", "/nodes/gpu-1")),
        lambda: None,
        mishaps.clear,
        lambda: stopped(place),
        lambda: None,
        put(place, PASSED),
    ]

    done = place.run("validate", "gpu-1", "--wait")

    assert done.code == 0
    assert [line.partition(": ")[0] for line in done.err.splitlines()] == ["warning", "warning"]
    assert done.err.count("the controller does not run") == 1


def test_ctrl_c_ends_only_the_wait(place: Place) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    place.monkeypatch.setattr(acts, "sleep", interrupt)

    done = place.run("validate", "gpu-1", "--wait")

    assert done.code == 130
    assert done.err == (
        "interrupted: the validation goes on; `konductor-like explain gpu-1` shows it, and "
        "`konductor-like validate gpu-1 --cancel` ends it\n"
    )
    assert place.record.validation is not None
