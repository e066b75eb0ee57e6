"""Keeps the Jobs of validations as the records ask for them, in a thread beside the reconcile (rule 33).

Each round compares the attempts on the records with the Jobs that exist. A Job that is missing is created,
one that no record asks for is deleted, and the result of one that has ended is read. The worker writes no
record: the next decision does, from what :meth:`Validations.seen` returns. It remembers nothing that it could
not see again after a restart. While no record asks for a validation, it sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from konductor_like.cluster.api.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    LeadershipLost,
)
from konductor_like.cluster.node.writer import WriteDeadline
from konductor_like.cluster.validation_jobs import Order, ValidationClient
from konductor_like.cluster.validation_seen import DEADLINE_EXCEEDED, SeenJob, SeenPod, why_waiting
from konductor_like.controller import logs
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideThread
from konductor_like.detection.validation import MOST_BYTES, Ordered, read_output
from konductor_like.model import (
    JobReport,
    NodeState,
    Validation,
    ValidationJobs,
    ValidationResult,
    ValidationStage,
    ValidationVerdict,
)

ROUND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
LOOK_SECONDS = 30.0
"""Seconds for which an answer about a node's pods is used."""
LOOKS_A_ROUND = 10
LOG_TRIES = 12
"""Rounds in which the log of an ended pod may fail to be read, until the result is unknown."""
ORPHANS_SECONDS = 600.0
"""Seconds between two looks for Jobs that no record asks for, while no validation runs."""

FreshNode = Callable[[str], NodeState | None]
"""Reads a Node from the API server; None if there is none. Raises a KubeError."""


@dataclass(frozen=True, slots=True)
class ValidationPorts:
    """The requests of the worker."""

    jobs: ValidationClient
    node: FreshNode
    users: Callable[[str], str]
    """Returns the pods that use a node's GPUs, in words."""
    deadline: WriteDeadline
    command: bool
    """Whether the user's own command runs in a validation."""


@dataclass(slots=True)
class _Look:
    at: float
    users: str


@dataclass(slots=True)
class _Memory:
    """What saves requests; all of it can be seen again."""

    results: dict[str, ValidationResult] = field(default_factory=dict)
    looks: dict[str, _Look] = field(default_factory=dict)
    failed_logs: dict[str, int] = field(default_factory=dict)


class Validations(SideThread):
    """The worker of one leadership."""

    def __init__(
        self,
        ports: ValidationPorts,
        nodes: Nodes,
        metrics: Metrics,
        *,
        changed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``changed`` is called when the decision has something new to see. ``clock`` returns seconds."""
        super().__init__(name="validations", what="validations", close_seconds=CLOSE_SECONDS)
        self.changed = changed
        self._ports = ports
        self._nodes = nodes
        self._metrics = metrics
        self._clock = clock
        self._memory = _Memory()
        self._seen: ValidationJobs | None = None
        self._looked_for_orphans = float("-inf")
        self._has_jobs = False
        """Whether Jobs existed when they were last listed, or one may have been created since."""
        self._logged = ""

    def seen(self) -> ValidationJobs | None:
        """Return what was seen last; None before the first round. Any thread may call it."""
        return self._seen

    def step(self) -> None:
        """Wait, and make a round."""
        if not self.closing.wait(ROUND_SECONDS):
            self.round()

    def round(self) -> None:
        """Compare the records with the Jobs once, and act on the difference."""
        asked, running = self._wanted()
        for stage, count in ((ValidationStage.ASKED, len(asked)), (ValidationStage.RUNNING, len(running))):
            self._metrics.validations.labels(stage.value).set(count)
        is_due = self._clock() - self._looked_for_orphans >= ORPHANS_SECONDS
        problem, reports = "", dict[str, JobReport]()
        if running or is_due or self._has_jobs:
            try:
                reports = self._reconcile(running)
                self._looked_for_orphans = self._clock()
            except LeadershipLost:
                return
            except KubeError as error:
                problem = self._failed(error)
                reports = {each: JobReport("", problem) for each in running}
        users = self._look(asked)
        before, self._seen = self._seen, ValidationJobs(reports, users, problem)
        if before != self._seen:
            self.changed()

    def _wanted(self) -> tuple[list[str], dict[str, tuple[NodeState, Validation]]]:
        """Return the nodes with a wish, and by attempt the nodes with an attempt under way."""
        asked, running = list[str](), dict[str, tuple[NodeState, Validation]]()
        for name, state in self._nodes.snapshot().items():
            validation = state.record.validation
            if validation is None or not state.tainted:
                continue
            if validation.stage is ValidationStage.ASKED:
                asked.append(name)
            elif validation.stage is ValidationStage.RUNNING and validation.attempt:
                running[validation.attempt] = (state, validation)
        return asked, running

    def _reconcile(self, running: Mapping[str, tuple[NodeState, Validation]]) -> dict[str, JobReport]:
        jobs = {job.attempt: job for job in self._ports.jobs.jobs()}
        self._has_jobs = bool(jobs)
        self._delete_orphans(job for attempt, job in jobs.items() if attempt not in running)
        memory = self._memory
        memory.results = {each: result for each, result in memory.results.items() if each in running}
        memory.failed_logs = {each: tries for each, tries in memory.failed_logs.items() if each in running}
        return {
            attempt: self._report(state, validation, jobs.get(attempt))
            for attempt, (state, validation) in running.items()
        }

    def _delete_orphans(self, jobs: Iterable[SeenJob]) -> None:
        """Delete Jobs that no record asks for.

        The Jobs were listed before the Node is read here, so a record that was written in between is seen. A
        record that cannot be read in full may ask for the Job.
        """
        for job in jobs:
            if job.deleting or not job.node:
                continue
            state = self._ports.node(job.node)
            if state is not None and state.machine.node_uid == job.node_uid:
                validation = state.record.validation
                is_wanted = validation is not None and validation.stage is ValidationStage.RUNNING
                if state.record_problem or (is_wanted and validation and validation.attempt == job.attempt):
                    continue
            self._ports.jobs.delete(job, self._ports.deadline.budget_seconds())
            logs.info(f"node {job.node}: deleted the Job {job.name}, which no record asks for", node=job.node)

    def _report(self, state: NodeState, validation: Validation, job: SeenJob | None) -> JobReport:
        if job is None and validation.job_uid:
            return JobReport(validation.job_uid, gone=True)
        if job is not None and validation.job_uid not in ("", job.uid):
            return JobReport(validation.job_uid, gone=True)  # somebody made another Job of this name
        if job is None:
            return self._create(state, validation)
        if job.deleting:
            return JobReport(job.uid, gone=True)
        return self._look_at(job, state, validation)

    def _create(self, state: NodeState, validation: Validation) -> JobReport:
        timeout_seconds = self._ports.deadline.budget_seconds()
        order = Order(
            validation.attempt,
            state.name,
            state.machine.node_uid,
            validation.level,
            validation.expected_gpus,
        )
        self._has_jobs = True  # also if the answer is lost, or the Node is gone in the next round
        try:
            job = self._ports.jobs.create(order, timeout_seconds)
        except (KubeInvalid, KubeConflict) as error:
            return JobReport("", f"its Job is refused: {error}", refused=True)
        except KubeForbidden as error:
            # An admission policy refuses this Job; a missing right may be given a minute later.
            return JobReport("", f"its Job is refused: {error}", refused=error.by_admission)
        except KubeNotFound as error:
            return JobReport("", f"apply manifests/validation.yaml, which makes the namespace: {error}")
        logs.info(f"node {state.name}: created the Job {job.name}", node=state.name)
        return JobReport(job.uid)

    def _look_at(self, job: SeenJob, state: NodeState, validation: Validation) -> JobReport:
        attempt = validation.attempt
        if (known := self._memory.results.get(attempt)) is not None:
            return JobReport(job.uid, result=known)
        pod = self._ports.jobs.pod(job)
        if not job.finished:
            if pod is not None and pod.deleting:  # a kubelet then tells no reason any more
                return JobReport(job.uid, validation.waits)
            refusal = self._ports.jobs.refusal(job) if pod is None else ""
            is_held = pod is not None and not pod.node
            users = self._ports.users(state.name) if is_held else ""
            taints = self._ports.jobs.untolerated(state.taints)
            return JobReport(job.uid, why_waiting(pod, job, refusal=refusal, users=users, taints=taints))
        result = self._result(job, pod, state, validation)
        if result is None:
            return JobReport(job.uid, "its log could not be read yet")
        self._memory.results[attempt] = result
        return JobReport(job.uid, result=result)

    def _result(
        self, job: SeenJob, pod: SeenPod | None, state: NodeState, validation: Validation
    ) -> ValidationResult | None:
        """Return the result of a Job that has ended; None if its log has to be asked for again."""
        unknown = ValidationVerdict.UNKNOWN
        if job.failed == DEADLINE_EXCEEDED:
            last = (
                f"it did not end before its deadline; at last, {validation.waits}"  # a record cuts long words
            )
            return ValidationResult(unknown, last if validation.waits else why_waiting(pod, job))
        if pod is None:
            return ValidationResult(unknown, "its pod is gone: somebody deleted or displaced it")
        if pod.reason or pod.node != state.name:
            why = why_waiting(pod, job) or "its pod ran on another node"
            return ValidationResult(unknown, why)
        try:
            log = self._ports.jobs.log(pod, MOST_BYTES + 1)
        except KubeError as error:
            tries = self._memory.failed_logs[validation.attempt] = (
                self._memory.failed_logs.get(validation.attempt, 0) + 1
            )
            return ValidationResult(unknown, f"{error}") if tries >= LOG_TRIES else None
        ordered = Ordered(
            validation.attempt,
            validation.boot_id or "",
            validation.level,
            validation.expected_gpus,
            self._ports.command,
        )
        return read_output(log, pod.termination, ordered)

    def _look(self, asked: Iterable[str]) -> dict[str, str]:
        """Return the pods that use the GPUs of the nodes with a wish, by a recent answer or a new one."""
        now, asked = self._clock(), set(asked)
        looks = {name: each for name, each in self._memory.looks.items() if name in asked}
        due = sorted(asked, key=lambda name: (looks[name].at if name in looks else float("-inf"), name))
        for name in due[:LOOKS_A_ROUND]:
            if name in looks and now - looks[name].at < LOOK_SECONDS:
                break
            try:
                looks[name] = _Look(now, self._ports.users(name))
            except KubeError as error:
                self._failed(error)
                break
        self._memory.looks = looks
        return {name: each.users for name, each in looks.items() if now - each.at < 2 * LOOK_SECONDS}

    def _failed(self, error: KubeError) -> str:
        """Count and log a failure, each once; return its words."""
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if str(error) != self._logged:
            self._logged = str(error)
            logs.warning(
                f"{error}. Validations wait; tainting goes on. manifests/validation.yaml has the rights."
            )
        return str(error)
