"""The worker keeps the Jobs of validations as the records ask for them, and decides nothing (rule 33)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from konductor_like.cluster.api.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
    LeadershipLost,
)
from konductor_like.cluster.validation_jobs import Order, ValidationClient
from konductor_like.cluster.validation_seen import DEADLINE_EXCEEDED, SeenJob, SeenPod
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side import validations
from konductor_like.controller.side.validations import (
    LOG_TRIES,
    LOOK_SECONDS,
    LOOKS_A_ROUND,
    ORPHANS_SECONDS,
    ValidationPorts,
    Validations,
)
from konductor_like.model import (
    NodeState,
    Validation,
    ValidationJobs,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.model.nodes import Taint
from tests.policy.scenes import at
from tests.policy.test_guards import STATE

ASKED = Validation(ValidationStage.ASKED, 3, at(0), "kim")
RUNNING = replace(
    ASKED, stage=ValidationStage.RUNNING, attempt="a1", boot_id="boot-b", began_at=at(0), expected_gpus=8
)
POD = SeenPod("pod-1", "pod-uid", at(0), phase="Running", node="gpu-1")
SHORT = "0/5 nodes are available: 1 Insufficient nvidia.com/gpu."
HELD = replace(POD, phase="Pending", node="", waiting="Unschedulable")
ENDED = replace(POD, phase="Succeeded", ended="Completed", exit_code=0, termination="no message of ours")


class Cluster:
    """Nodes and Jobs in memory, and a clock that the test moves."""

    problem: Exception | None = None

    def __init__(self, validation: Validation | None = None, **of_state: Any) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.put(validation, **of_state)
        self.existing: dict[str, SeenJob] = {}
        self.pods: dict[str, SeenPod] = {}
        self.using: dict[str, str] = {}
        self.errors: dict[str, KubeError] = {}
        """By request, the error that it raises from now on."""
        self.requests: list[str] = []
        self.woken = 0
        self.seconds = 0.0
        self.metrics = Metrics()
        self.worker = self.leadership()

    def leadership(self) -> Validations:
        ports = ValidationPorts(cast("ValidationClient", self), self.node, self.users, self, command=False)
        return Validations(ports, self, self.metrics, changed=self.wake, clock=lambda: self.seconds)

    def put(self, validation: Validation | None, **of_state: Any) -> None:
        record = replace(STATE.record, validation=validation)
        self.nodes["gpu-1"] = replace(STATE, record=record, **of_state)

    def round(self, seconds: float = 5.0) -> ValidationJobs:
        """Let a round pass; return what the decision sees after it."""
        self.requests = []
        self.worker.round()
        self.seconds += seconds
        seen = self.worker.seen()
        assert seen is not None
        return seen

    # The nodes, as the controller knows them

    def snapshot(self) -> Mapping[str, NodeState]:
        return dict(self.nodes)

    def apply(self, state: NodeState) -> None:
        raise AssertionError(f"the worker writes no Node: {state.name}")

    # The requests

    def _asked(self, request: str) -> None:
        self.requests.append(request)
        if request in self.errors:
            raise self.errors[request]

    def wake(self) -> None:
        self.woken += 1

    def node(self, name: str) -> NodeState | None:
        self._asked("node")
        return self.nodes.get(name)

    def users(self, name: str) -> str:
        self._asked("users")
        return self.using.get(name, "")

    def budget_seconds(self) -> float:
        if "fence" in self.errors:
            raise self.errors["fence"]
        return 10.0

    def jobs(self) -> list[SeenJob]:
        self._asked("jobs")
        return list(self.existing.values())

    def create(self, order: Order, _timeout_seconds: float) -> SeenJob:
        self._asked("create")
        return self.add(order.attempt, order.node, order.node_uid)

    def add(self, attempt: str = "a1", node: str = "gpu-1", uid: str = "uid-gpu-1", **of_job: Any) -> SeenJob:
        job = SeenJob(f"validation-{attempt}", f"job-{attempt}", attempt, node, uid, at(0), **of_job)
        self.existing[attempt] = job
        return job

    def delete(self, job: SeenJob, _timeout_seconds: float) -> None:
        self._asked("delete")
        self.existing.pop(job.attempt, None)

    def pod(self, job: SeenJob) -> SeenPod | None:
        self._asked("pod")
        return self.pods.get(job.attempt)

    def log(self, _pod: SeenPod, _limit_bytes: int) -> bytes:
        self._asked("log")
        return b""

    def refusal(self, _job: SeenJob) -> str:
        self._asked("refusal")
        return "exceeded quota"

    def untolerated(self, taints: Iterable[Taint]) -> str:
        return ", ".join(each.key for each in taints)

    def shown(self, metric: str) -> float | None:
        """Return a metric, given with its labels."""
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return next((float(each.rpartition(" ")[2]) for each in lines if each.startswith(f"{metric} ")), None)


def error(kind: type[KubeError] = KubeUnavailable, words: str = "no") -> KubeError:
    return kind(words)


def test_without_a_wish_nothing_is_sent_but_one_look_for_jobs_of_before() -> None:
    cluster = Cluster()

    cluster.round()
    assert cluster.requests == ["jobs"]
    cluster.round(ORPHANS_SECONDS - 5.0)
    assert cluster.requests == []
    cluster.round()
    assert cluster.requests == ["jobs"]
    assert cluster.woken == 1


def test_an_attempt_on_the_record_gets_one_job_and_the_decision_hears_of_it() -> None:
    cluster = Cluster(RUNNING)

    assert cluster.round().reports["a1"].job_uid == "job-a1"
    assert cluster.requests == ["jobs", "create"]
    cluster.round()
    cluster.round()
    assert cluster.requests == ["jobs", "pod", "refusal"]
    assert [*cluster.existing] == ["a1"]
    assert cluster.woken == 2  # the second report says why there is no pod


def test_a_restart_adopts_the_job() -> None:
    cluster = Cluster(RUNNING)
    cluster.round()
    cluster.worker = cluster.leadership()

    assert cluster.round().reports["a1"].job_uid == "job-a1"
    assert "create" not in cluster.requests


@pytest.mark.parametrize("of_job", [None, {"deleting": True}, {"uid": "another"}])
def test_a_job_that_somebody_deleted_or_replaced_is_gone_and_not_created_again(
    of_job: dict[str, Any] | None,
) -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    if of_job is not None:
        cluster.existing["a1"] = replace(cluster.add(), **of_job)

    assert cluster.round().reports["a1"].gone
    assert "create" not in cluster.requests


@pytest.mark.parametrize(
    ("refusal", "is_refused"),
    [
        (error(KubeInvalid), True),
        (error(KubeConflict), True),
        (error(KubeForbidden), False),
        (error(KubeNotFound), False),
    ],
)
def test_a_job_that_can_never_be_created_is_refused_and_a_missing_right_or_namespace_waits(
    refusal: KubeError, is_refused: bool
) -> None:
    cluster = Cluster(RUNNING)
    cluster.errors["create"] = refusal

    report = cluster.round().reports["a1"]

    assert (report.job_uid, report.refused) == ("", is_refused)
    assert "no" in report.why


@pytest.mark.parametrize("request_", ["jobs", "pod"])
def test_while_the_api_server_fails_the_attempt_waits_and_the_next_round_goes_on(request_: str) -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add()
    cluster.errors[request_] = error()

    seen = cluster.round()
    assert (seen.problem, seen.reports["a1"].why) == ("no", "no")
    assert not seen.reports["a1"].gone
    del cluster.errors[request_]
    cluster.pods["a1"] = POD
    assert cluster.round().reports["a1"].why == ""


@pytest.mark.parametrize("create", [True, False])
def test_without_the_lease_no_job_is_created_and_none_deleted(create: bool) -> None:
    cluster = Cluster(RUNNING if create else None)
    if not create:
        cluster.add()
    cluster.errors["fence"] = error(LeadershipLost)

    cluster.worker.round()

    assert not {"create", "delete"} & {*cluster.requests}
    assert cluster.worker.seen() is None


# Orphans


@pytest.mark.parametrize(
    ("validation", "of_state"),
    [
        (None, {}),
        (ASKED, {}),
        (replace(RUNNING, attempt="a2", job_uid="x"), {}),
        (replace(RUNNING, stage=ValidationStage.ENDED), {}),
        (RUNNING, {"machine": replace(STATE.machine, node_uid="uid-2"), "taints": ()}),
    ],
)
def test_a_job_that_no_record_asks_for_is_deleted(
    validation: Validation | None, of_state: dict[str, Any]
) -> None:
    cluster = Cluster(validation, **of_state)
    cluster.add()

    cluster.round()

    assert "a1" not in cluster.existing


def test_a_job_of_a_node_that_was_deleted_is_deleted() -> None:
    cluster = Cluster()
    cluster.add(node="gpu-9")

    cluster.round()

    assert cluster.existing == {}


def test_a_job_stays_if_its_record_cannot_be_read_or_the_node_asks_for_it_by_now() -> None:
    damaged = Cluster(None, record_problem="no JSON")
    damaged.add()
    damaged.round()
    assert [*damaged.existing] == ["a1"]

    nameless = Cluster()
    nameless.add(node="")
    nameless.round()
    assert [*nameless.existing] == ["a1"]

    late = Cluster()
    late.add()
    known = late.snapshot()
    late.put(RUNNING)
    late.snapshot = lambda: known  # type: ignore[method-assign]  # the watch lags behind
    late.round()
    assert [*late.existing] == ["a1"]


# The result


def test_the_result_of_an_ended_job_is_read_once_and_its_job_deleted_when_it_is_on_the_record() -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add(complete=True)
    cluster.pods["a1"] = ENDED

    result = cluster.round().reports["a1"].result
    assert result is not None
    assert result.verdict is ValidationVerdict.UNKNOWN  # the strict reading has its own tests
    assert cluster.requests == ["jobs", "pod", "log"]
    assert cluster.round().reports["a1"].result == result
    assert cluster.requests == ["jobs"]

    cluster.put(replace(RUNNING, stage=ValidationStage.ENDED))
    cluster.round()
    assert cluster.existing == {}
    cluster.round()
    cluster.round()
    assert cluster.requests == []


def ended(pod: SeenPod | None, **of_job: Any) -> str:
    """Return why the result is unknown."""
    cluster = Cluster(replace(RUNNING, job_uid="job-a1", waits="ImagePullBackOff"))
    cluster.add(**of_job)
    if pod is not None:
        cluster.pods["a1"] = pod
    result = cluster.round().reports["a1"].result
    assert result is not None
    assert result.verdict is ValidationVerdict.UNKNOWN
    return result.why


def test_an_end_without_a_result_is_unknown_and_says_why() -> None:
    failed = {"failed": "BackoffLimitExceeded"}

    late = ended(ENDED, failed=DEADLINE_EXCEEDED)
    assert "deadline" in late
    assert late == "it did not end before its deadline; at last, ImagePullBackOff"
    assert "gone" in ended(None, **failed)
    assert "Evicted" in ended(replace(ENDED, reason="Evicted"), **failed)
    assert "another node" in ended(replace(ENDED, node="gpu-2"), complete=True)


def test_a_log_that_cannot_be_read_is_asked_for_again_and_given_up_after_a_minute() -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add(complete=True)
    cluster.pods["a1"] = ENDED
    cluster.errors["log"] = error()

    for _ in range(LOG_TRIES - 1):
        assert cluster.round().reports["a1"].result is None
    assert cluster.round().reports["a1"].result is not None


# The nodes that wait


def test_the_pods_of_a_node_with_a_wish_are_looked_at_every_half_minute() -> None:
    cluster = Cluster(ASKED)
    cluster.using["gpu-1"] = "train/llm-7"

    assert cluster.round(LOOK_SECONDS - 1).users == {"gpu-1": "train/llm-7"}
    cluster.using.clear()
    assert cluster.round(1).users == {"gpu-1": "train/llm-7"}
    assert cluster.round().users == {"gpu-1": ""}
    cluster.put(None)
    assert cluster.round().users == {}


def test_an_old_answer_about_pods_is_no_answer() -> None:
    cluster = Cluster(ASKED)
    cluster.round()
    cluster.errors["users"] = error(KubeForbidden)

    cluster.round(2 * LOOK_SECONDS)

    assert cluster.round().users == {}


def test_a_node_without_our_taint_asks_for_nothing() -> None:
    cluster = Cluster(RUNNING, taints=())

    assert cluster.round() == ValidationJobs()


# What each condition is for


def test_an_attempt_without_a_name_is_not_run() -> None:
    cluster = Cluster(replace(RUNNING, attempt=""))

    assert cluster.round() == ValidationJobs()
    assert cluster.requests == ["jobs"]


def test_a_job_that_is_being_deleted_is_not_deleted_again() -> None:
    cluster = Cluster()
    cluster.add(deleting=True)

    cluster.round()

    assert cluster.requests == ["jobs"]


def test_why_a_pod_does_not_run_is_asked_only_as_far_as_it_is_not_known() -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add()
    cluster.using["gpu-1"] = "train/llm-7"
    cluster.pods["a1"] = POD
    cluster.round()
    assert cluster.requests == ["jobs", "pod"]

    cluster.pods["a1"] = replace(
        POD, phase="Pending", node="", waiting="Unschedulable", waiting_message=SHORT
    )
    assert "train/llm-7" in cluster.round().reports["a1"].why
    assert cluster.requests == ["jobs", "pod", "users"]


def test_a_pod_that_a_taint_keeps_away_names_the_taints_of_the_node() -> None:
    taints = (*STATE.taints, Taint("team", "a", "NoSchedule"))
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"), taints=taints)
    cluster.add()
    message = "0/5 nodes are available: 1 node(s) had untolerated taint(s)."
    cluster.pods["a1"] = replace(HELD, waiting_message=message)

    assert "keeps its pod away (trainy.konduktor.ai/faulty, team)" in cluster.round().reports["a1"].why


@pytest.mark.parametrize("answered", [True, False])
def test_a_job_whose_node_is_gone_right_after_its_creation_is_deleted_in_the_next_round(
    *, answered: bool
) -> None:
    cluster = Cluster()
    cluster.round()
    cluster.put(RUNNING)
    if not answered:
        cluster.errors["create"] = error()
    cluster.round()
    cluster.add()
    cluster.nodes.clear()

    cluster.round()

    assert cluster.requests == ["jobs", "node", "delete"]
    assert cluster.existing == {}


def test_a_pod_that_is_being_deleted_tells_nothing_new() -> None:
    """A kubelet then says of a container without an image that it is being created."""
    cluster = Cluster(replace(RUNNING, job_uid="job-a1", waits="the image does not come"))
    cluster.add()
    cluster.pods["a1"] = replace(POD, phase="Pending", waiting="ContainerCreating", deleting=True)

    assert cluster.round().reports["a1"].why == "the image does not come"


def test_a_deadline_names_the_last_reason_only_if_there_is_one() -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add(failed=DEADLINE_EXCEEDED)

    result = cluster.round().reports["a1"].result

    assert result is not None
    assert "at last" not in result.why


def test_nothing_is_remembered_of_attempts_that_are_over() -> None:
    cluster = Cluster(replace(RUNNING, job_uid="job-a1"))
    cluster.add(complete=True)
    cluster.pods["a1"] = ENDED
    cluster.errors["log"] = error()
    cluster.round()
    cluster.errors.clear()
    cluster.round()
    memory = cluster.worker._memory
    assert (len(memory.results), len(memory.failed_logs)) == (1, 1)

    cluster.put(None)
    cluster.round()

    assert (memory.results, memory.failed_logs) == ({}, {})


def test_the_nodes_that_wait_longest_are_looked_at_first_and_ten_in_a_round() -> None:
    cluster = Cluster()
    record = replace(STATE.record, validation=ASKED)
    cluster.nodes = {f"n{n:02}": replace(STATE, name=f"n{n:02}", record=record) for n in range(12)}

    assert sorted(cluster.round().users) == [f"n{n:02}" for n in range(LOOKS_A_ROUND)]
    assert len(cluster.round(LOOK_SECONDS).users) == 12
    cluster.round()
    assert cluster.requests.count("users") == 10  # those of the first round
    cluster.round()
    assert cluster.requests.count("users") == 2


def test_the_metrics_tell_stages_and_failures() -> None:
    cluster = Cluster(ASKED)
    cluster.errors["users"] = error()
    cluster.round()
    assert cluster.shown('konductor_like_validations{stage="asked"}') == 1
    assert cluster.shown('konductor_like_kube_errors_total{error="KubeUnavailable"}') == 1

    cluster.put(replace(RUNNING, job_uid="job-a1"))
    cluster.add(complete=True)
    cluster.pods["a1"] = ENDED
    cluster.round()
    cluster.round()
    assert cluster.shown('konductor_like_validations{stage="asked"}') == 0
    assert cluster.shown('konductor_like_validations{stage="running"}') == 1


def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(RUNNING)
    cluster.errors["jobs"] = error(words="jobs is forbidden")
    cluster.round()
    cluster.round()
    cluster.errors["jobs"] = error(words="timed out")
    cluster.round()

    said = [record.getMessage() for record in caplog.records]
    assert [each.split(". ")[0] for each in said] == ["jobs is forbidden", "timed out"]


def test_a_round_is_made_after_its_pause_and_none_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validations, "ROUND_SECONDS", 0.0)
    cluster = Cluster(RUNNING)
    cluster.worker.step()
    assert cluster.requests == ["jobs", "create"]

    cluster.requests = []
    cluster.worker.closing.set()
    cluster.worker.step()
    assert cluster.requests == []
