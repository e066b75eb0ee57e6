"""Random lives of one node that is validated: a worker's reports, people's wishes, switches and clock steps.

What truly happened to the machine is kept beside the record, so that a return can be judged by the facts: the
boots, the Jobs with what they found, and the lines that were delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from konductor_like.model import (
    Change,
    Fault,
    FaultKind,
    GpuCount,
    Growth,
    JobReport,
    KernelPosition,
    NodeState,
    RecentEvidence,
    ReleaseHow,
    Severity,
    Source,
    Stage,
    Validation,
    ValidationJobs,
    ValidationResult,
    ValidationStage,
    ValidationVerdict,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.operator import cancel_validation, validate
from tests.policy.answers import NAME, planned, policy_of
from tests.policy.lives import EVENTS, GPUS, Life

PASS, FAIL, UNKNOWN = ValidationVerdict
_OFTEN = {name: weight for name, weight in EVENTS.items() if name not in ("registers again", "restart")}
OWN = {
    "way back": 60,
    "job ends": 60,
    "validate": 30,
    "cancel": 10,
    "switch": 16,
    "clock step": 5,
    "opt out": 4,
    "busy": 4,
    "worker fails": 4,
    "pod line": 5,
    "restarting fault": 8,
    "line of the test": 25,
    "worker restarts": 5,
}
"""What happens to a validated node, besides the rest."""


@dataclass(slots=True)
class Job:
    """What truly became of one attempt's Job."""

    boot_id: str
    began: datetime
    """True time."""
    began_us: int
    """Microseconds since the machine's boot."""
    gpus: int
    """Number of GPUs that it tested."""
    report: JobReport
    ended: datetime | None = None
    """True time at which its result was known."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A line that was delivered, as the machine printed it."""

    code: int
    gpu: str | None
    severity: Severity
    needs: str | None
    source: Source
    boot_id: str | None
    at_us: int | None
    at_ns: int


@dataclass
class ValidatedLife(Life):
    """One node's life under validations. The time of ``now`` is true; the controller's clock may be off."""

    events: ClassVar[Mapping[str, int]] = {**_OFTEN, **OWN}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mode = "validated"
        self.ahead = timedelta()
        self.clock_moved_at = self.now
        self.jobs: dict[str, Job] = {}
        self.users: str | None = ""
        self.problem = ""
        self.lines: dict[tuple[Any, ...], Printed] = {}
        """The lines that are delivered and not released."""
        self.known: set[tuple[Any, ...]] = set()
        self.grown: Mapping[str, tuple[Growth, ...]] = {}

    # What happens

    def do_way_back(self) -> None:
        """Everything around the machine is in order, it boots, is validated, and its log is heard.

        Of a node that is in service, a GPU fails before; a person has repaired one that no pass returns.
        """
        life = self.state.record.life
        if any(each.relapse for each in life.quarantines) or life.marked or life.contested_at:
            super().do_reset()
            self.lines.clear()
            self.pass_time(self.random.choice([60, 700_000]))
        self.put_in_order()
        if not self.state.tainted:
            self.fails(self.random.choice([79, 48]))
        self.do_reboot()
        for _ in range(6):
            self.pass_time(120)
            self._end_jobs(PASS)
        self.pass_time(self.random.choice([60, 600]))

    def put_in_order(self) -> None:
        super().put_in_order()
        self.users, self.problem = "", ""
        self.state = replace(self.state, opted_out=False)

    def do_job_ends(self) -> bool:
        """A Job ends in some way; if none runs, a person asks for one before."""
        if self.random.random() < 0.7 and not self._running() and self.state.tainted:
            self.put_in_order()
            self.mode = "validated" if self.mode == "no image" else self.mode
            self.apply(validate(self.state, 4, by="kim", at=self.now))
            self.pass_time(60)
        done = self._end_jobs(self.random.choice([PASS, FAIL, UNKNOWN, "gone", "refused"]))
        self.pass_time(self.random.choice([10, 300, 3500, 3700]))
        return done

    def _end_jobs(self, verdict: str) -> bool:
        running = self._running()
        for job in running:
            if verdict == PASS and job.gpus < self._expected():
                verdict = FAIL  # the strict reading counts the GPUs
            job.ended = self.now
            if verdict in ("gone", "refused"):
                job.report = JobReport("job", "no", gone=verdict == "gone", refused=verdict == "refused")
            else:
                why = "" if verdict == PASS else "why"
                job.report = JobReport("job", result=ValidationResult(ValidationVerdict(verdict), why))
            self.happened[f"{verdict} reported"] += 1
        return bool(running)

    def _running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.ended is None]

    def do_validate(self) -> bool:
        level = self.random.choice([2, 3, 4])
        return self.state.tainted and self.apply(validate(self.state, level, by="kim", at=self.now))

    def do_cancel(self) -> bool:
        return self.apply(cancel_validation(self.state, at=self.now))

    def do_switch(self) -> None:
        self.mode = self.random.choice(
            ["validated", "validated", "reboot", "reboot", "ask", "rehearse", "no image"]
        )

    def do_clock_step(self) -> None:
        self.ahead = timedelta(hours=self.random.choice([-2, -1, 0, 0, 0, 1, 2]))
        self.clock_moved_at = self.now

    def do_opt_out(self) -> None:
        self.state = replace(self.state, opted_out=not self.state.opted_out)

    def do_busy(self) -> None:
        self.users = self.random.choice([None, "train/llm-7", ""])

    def do_worker_fails(self) -> None:
        self.problem = self.random.choice(["no", "no", ""])

    def do_worker_restarts(self) -> None:
        """A controller starts again that has looked at no Job yet."""
        self.users, self.window = None, RecentEvidence()

    def do_pod_line(self) -> None:
        found = self.line(79, self.random.choice(GPUS))
        place = found.finding._replace(position=KernelPosition())
        self.tick(replace(found, finding=place, source=Source.POD))

    def do_restarting_fault(self) -> None:
        """A fatal fault needs no repair of the machine."""
        found = self.line(95, self.random.choice(GPUS))
        finding = found.finding._replace(rule="xid.46", code=46, needs="application-restart")
        self.tick(replace(found, finding=finding))

    def do_line_of_the_test(self) -> bool:
        """A line of the test's time arrives some minutes late."""
        if not self._running():
            return False
        found = self.line(self.random.choice([79, 63, 31, 14]), self.random.choice(GPUS))
        self.pass_time(60)
        self._end_jobs(PASS)
        self.pass_time(self.random.choice([30, 300]))
        self.tick(found)
        return True

    def do_reset(self) -> bool:
        return self._forgets(super().do_reset(), "reset")

    def _forgets(self, done: bool, what: str) -> bool:
        if done:
            self.lines.clear()
            self.happened[f"{what} of a validated node"] += self.state.record.validation is not None
        return done

    def do_by_hand(self) -> bool:
        if not self.state.tainted:
            return False
        taints = tuple(each for each in self.state.taints if not each.ours)
        self.state = replace(self.state, taints=taints, removed_by="kubectl-taint")
        self.lines.clear()
        self.pass_time(30)
        return True

    # The decision

    @property
    def clock(self) -> datetime:
        """The controller's clock."""
        return self.now + self.ahead

    @property
    def policy(self) -> PolicyConfig:
        return replace(
            policy_of(self.ask),
            returns_by_reboot=self.mode == "reboot",
            returns_by_validation=self.mode in ("validated", "rehearse"),
            rehearses=self.mode == "rehearse",
            validates=self.mode != "no image",
        )

    def tick(self, *faults: Fault) -> None:
        for fault in faults:
            self._note(fault)
        self._work()
        users = {} if self.users is None else {NAME: self.users}
        reports = {name: job.report for name, job in self.jobs.items()}
        seen = ValidationJobs({} if self.problem else reports, users, self.problem)
        plan = planned(replace(self.snapshot(), validations=seen), faults, self.policy, self.clock)
        for change in plan.changes:
            self._judge(change)
            self.apply(change)
            if change.verb is Verb.UNTAINT:
                self.lines.clear()
        self.grown, self.window = plan.grown, plan.window

    def _work(self) -> None:
        """Make the Job of the attempt that is on the record."""
        validation = self.state.record.validation
        running = validation is not None and validation.stage is ValidationStage.RUNNING
        if running and validation and validation.attempt not in self.jobs and not self.problem:
            assert validation.boot_id is not None
            uptime_us = round((self.now - self.booted).total_seconds() * 1e6)
            gpus = self.state.gpus.allocatable
            self.jobs[validation.attempt] = Job(self.boot_id, self.now, uptime_us, gpus, JobReport("job"))

    def _note(self, fault: Fault) -> None:
        finding, place = fault.finding, fault.finding.position
        key = (finding.rule, finding.gpu, place.boot_id, place.stamp_us, fault.source)
        is_ours = finding.kind is FaultKind.NODE or finding.clears or key in self.known
        if is_ours or finding.severity is Severity.INFO or fault.node != NAME:
            return
        if place.boot_id in self.state.record.past_boots:  # rule 3: a line of a boot that the node has left
            return
        self.known.add(key)
        self.lines[key] = Printed(
            finding.code or 0, finding.gpu, finding.severity, finding.needs, fault.source,
            place.boot_id, place.stamp_us, fault.timestamp_ns,
        )  # fmt: skip

    def _expected(self) -> int:
        return max(self.state.gpus.capacity, self.state.record.gpus or 0)

    # The promises

    def _judge(self, change: Change) -> None:
        """Check one write of the controller against what truly happened."""
        before, record = self.state.record.validation, change.record
        assert record is not None
        after = record.validation
        if after is not None and after != before:
            self._judge_step(before, after)
        if change.verb is Verb.TAINT:
            assert change.incident is not None
            assert any(key[0] == change.incident.key.rule for key in self.lines), self.history
        if change.verb is Verb.UNTAINT:
            how = record.releases[0].how
            self.happened[f"returned: {how}"] += 1
            if how is ReleaseHow.VALIDATED:
                assert before is not None
                self._judge_return(before, after)
            elif how is ReleaseHow.REBOOT:
                assert self.mode == "reboot"
                assert not self._of_this_boot(Severity.FATAL)
            else:
                assert how is ReleaseHow.TEST_ENDED, how
                assert not [
                    each
                    for each in self.lines.values()
                    if each.source is Source.KERNEL and self._is_grave(each)
                ], self.history

    def _judge_step(self, before: Validation | None, after: Validation) -> None:
        self.happened[f"{after.stage}: {after.verdict}"] += 1
        if after.verdict is PASS and after.stage is ValidationStage.ENDED:
            truth = self.jobs[after.attempt].report.result
            assert truth is not None
            assert truth.verdict is PASS, self.history
        is_new = before is None or before.attempt != after.attempt
        if after.stage is ValidationStage.RUNNING and is_new:
            state = self.state
            assert after.tries <= 2
            assert after.attempt not in self.jobs
            assert not self.ask.get("pause")
            self._judge_node(state)
            assert self.mode not in ("rehearse", "no image")
            assert (self.users, self.problem) == ("", "")
            assert state.gpus.allocatable >= self._expected()

    def _judge_return(self, tested: Validation, after: Validation | None) -> None:
        state, job = self.state, self.jobs[tested.attempt]
        assert self.mode == "validated"
        assert job.report.result is not None
        assert job.report.result.verdict is PASS
        assert job.boot_id == self.boot_id, "of the present boot"
        assert job.gpus >= self._expected()
        assert state.gpus.allocatable >= self._expected()
        assert tested.ended_at is not None
        assert job.ended is not None
        assert abs(self.clock - tested.ended_at) <= timedelta(hours=1)
        if self.clock_moved_at < job.ended:
            assert self.now - job.ended >= timedelta(seconds=120), "its log is read past the end"
        assert after is not None
        assert after.verdict is PASS
        for line in self.lines.values():
            if line.source is Source.KERNEL:
                is_later = line.boot_id == job.boot_id and (line.at_us or 0) > job.began_us
                assert not is_later, (line, self.history)
            if line.severity is Severity.FATAL and line.source is Source.KERNEL:
                restarts = line.needs == "application-restart"
                assert restarts or line.boot_id != self.boot_id, (line, self.history)
                assert line.needs != "support"
        life = state.record.life
        assert life.stage(tainted=True) is Stage.OUT
        assert life.hold_until is None or life.hold_until <= self.clock
        assert not life.marked
        assert life.contested_at is None
        assert not any(each.relapse for each in life.quarantines)
        assert not any(each.key.startswith("karpenter") for each in state.taints)
        assert not self.ask.get("pause")
        assert not self.ask.get("gap")
        self._judge_node(state)

    def _judge_node(self, state: NodeState) -> None:
        assert not state.opted_out, self.history
        assert not state.unschedulable, self.history
        assert state.ready, self.history
        assert state.gpus.layout == GpuCount(8, 8).layout

    def _of_this_boot(self, severity: Severity) -> list[Printed]:
        of_boot = [each for each in self.lines.values() if each.boot_id == self.boot_id]
        return [each for each in of_boot if each.severity is severity]

    def _is_grave(self, line: Printed) -> bool:
        """Whether the line is a reason for the taint, and of a boot that the Node has reached."""
        if line.source is not Source.KERNEL or line.severity is not Severity.FATAL:
            return False
        return int(str(line.boot_id).removeprefix("boot-")) <= self.boots
