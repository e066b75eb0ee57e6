"""A validation on the node: by a person's wish, and unasked for a return on probation (rule 36)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.model import ReleaseHow, Stage, Validation, ValidationStage, ValidationVerdict
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from konductor_like_sandbox.kubernetes.jobs import Ended, Started
from konductor_like_sandbox.kubernetes.store import Key
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import LOST, gpu
from tests.validation_outputs import ATTEMPT, BOOT, FACTS, NCCL, Step, dcgm_of, log_of, message_of

NODE, SECOND, THIRD = gpu(2), gpu(3), gpu(4)
SPACE = "konductor-like-validation"
IMAGE = "registry.test/dcgm@sha256:" + "0" * 64
NEW_BOOT = "b2000000-0000-4000-8000-000000000002"
MINUTES = 60.0


def open_site(site_of: Opens, size: int = 5, *, silent: bool = False, **settings: Any) -> Site:
    """Return a site on which validations may run. With ``silent`` a node is heard from its next boot on."""
    given = {"brake_max_percent": 100, "validation_image": IMAGE, "return_by": "validated", **settings}
    site = site_of(make_fleet(size), **given)
    site.kube.create_namespace(SPACE)
    name = "konductor-like-validation"
    site.kube.put(
        "priorityclasses", {"metadata": {"name": name}, "value": -1000, "preemptionPolicy": "Never"}
    )
    site.silent.update(site.names if silent else ())
    site.hearts()
    site.run(130)
    return site


def fails(site: Site, *nodes: str) -> None:
    for node in nodes:
        site.kernel(node, LOST)
    site.run(10)
    assert site.tainted >= set(nodes)


def outcome(*steps: Step, boot: str = NEW_BOOT, gpus: int = 8) -> Callable[[Started], Ended]:
    """Return the program of a Job that prints these steps, in this boot."""

    def run(started: Started) -> Ended:
        def own(text: str) -> str:
            return text.replace(ATTEMPT, started.environment["KL_ATTEMPT"]).replace(BOOT, boot)

        return Ended(0, own(log_of(*steps).decode()).encode(), own(message_of(*steps, gpus=gpus)))

    return run


def steps(level: int, **changes: str) -> tuple[Step, ...]:
    dcgm = json.dumps(dcgm_of(4, level))
    return (("facts", 0, FACTS), ("dcgm", 0, changes.get("dcgm", dcgm)), ("nccl", 0, NCCL))


PASSES = outcome(*steps(3))
DOUBTFUL = outcome(*steps(3, dcgm=json.dumps(dcgm_of(4, 3)).replace('"Pass"', '"Skip"', 1)))
SEVEN = re.sub(r"<gpu id=.*?</gpu>", "", FACTS, count=1, flags=re.DOTALL).replace(">8<", ">7<")
LACKING = outcome(("facts", 0, SEVEN), gpus=7)


def validation(site: Site, node: str = NODE) -> Validation:
    found = site.record(node).validation
    assert found is not None
    return found


def jobs(site: Site) -> list[str]:
    """Return the nodes of the Jobs that exist."""
    return [job["metadata"]["annotations"]["trainy.konduktor.ai/node"] for job in site.kube.objects("jobs")]


def fixed(site: Site, *nodes: str) -> None:
    """Let the nodes fail and boot, which meets the needs of an Xid 79."""
    fails(site, *nodes)
    for node in nodes:
        site.reboot(node, NEW_BOOT)


def test_without_an_image_not_one_request_is_sent_that_was_not_sent_before(site_of: Opens) -> None:
    site = open_site(site_of, validation_image="", return_by="ask")
    fixed(site, NODE)
    site.run(20 * MINUTES, step_seconds=30)

    assert not [path for _, path in site.calls if "jobs" in path or SPACE in path]
    assert site.record(NODE).validation is None


def test_the_way_back_record_first_then_one_job_then_the_log_and_then_probation(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    before: list[Validation] = []

    def program(started: Started) -> Ended:
        before.append(validation(site))
        return PASSES(started)

    site.kube.jobs.programs[NODE] = program
    site.run(4 * MINUTES, step_seconds=10)

    [at_start] = before  # the attempt and its boot were on the record before the Job
    assert (at_start.stage, at_start.boot_id) == (ValidationStage.RUNNING, NEW_BOOT)
    passed = validation(site)
    assert (passed.stage, passed.verdict) == (ValidationStage.ENDED, ValidationVerdict.PASS), passed
    assert (passed.level, passed.by, passed.driver, len(passed.gpus)) == (3, "konductor-like", "575.51.02", 8)
    assert site.tainted == {NODE}  # its log is not read past the end of the test yet
    site.run(4 * MINUTES, step_seconds=10)
    assert site.tainted == {NODE}
    explained = site.cli("explain", "node", NODE).out
    assert "the controller must see it Ready, with all its GPUs, for 10m without a break" in explained
    site.run(3 * MINUTES, step_seconds=10)
    assert site.tainted == set()
    record = site.record(NODE)
    assert record.life.stage(tainted=False) is Stage.PROBATION
    assert record.releases[0].how is ReleaseHow.VALIDATED
    assert jobs(site) == []
    [told] = site.told("GPUNodeReturned")
    assert "passed a validation at level 3" in told["message"]
    assert len(site.told("GPUNodeValidating")) == len(site.told("GPUNodeValidated")) == 1


def test_a_node_whose_need_is_not_met_is_validated_by_a_persons_wish_and_does_not_return(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    fails(site, NODE)
    site.run(10 * MINUTES, step_seconds=30)
    assert site.record(NODE).validation is None

    site.kube.jobs.programs[NODE] = outcome(
        *steps(2), boot=site.kube.node(NODE)["status"]["nodeInfo"]["bootID"]
    )
    assert site.cli("validate", NODE, "--level", "2").code == 0
    site.run(10 * MINUTES, step_seconds=30)

    assert validation(site).verdict is ValidationVerdict.PASS
    assert validation(site).by == "kim@laptop"
    assert site.tainted == {NODE}


def test_a_fault_on_probation_after_a_validation_is_a_relapse_and_ends_the_nodes_own_returns(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.kube.jobs.programs[NODE] = PASSES
    site.run(11 * MINUTES, step_seconds=10)
    assert site.tainted == set()

    fails(site, NODE)
    site.reboot(NODE, NEW_BOOT.replace("b2", "b3"))
    site.run(3 * 3600, step_seconds=120)

    assert site.tainted == {NODE}
    assert len(site.told("GPUNodeRelapsed")) == 1
    assert len(site.told("GPUNodeValidating")) == 1


def test_a_late_line_of_the_test_spoils_the_pass_and_one_after_the_return_is_a_relapse(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    fixed(site, NODE, SECOND)
    site.kube.jobs.programs |= {NODE: PASSES, SECOND: PASSES}
    site.run(3.5 * MINUTES, step_seconds=10)
    assert validation(site).verdict is ValidationVerdict.PASS

    site.kernel(NODE, LOST, late=60)
    site.run(10 * MINUTES)

    assert validation(site).verdict is ValidationVerdict.FAIL
    assert "xid 79" in validation(site).why
    assert site.tainted == {NODE}


@pytest.mark.parametrize("program", [DOUBTFUL, LACKING])
def test_a_failure_or_two_unknown_results_leave_the_node_to_a_person(site_of: Opens, program: Any) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.kube.jobs.programs[NODE] = program
    site.run(30 * MINUTES, step_seconds=15)

    ended = validation(site)
    tries = 1 if program is LACKING else 2
    verdict = ValidationVerdict.FAIL if program is LACKING else ValidationVerdict.UNKNOWN
    assert (ended.stage, ended.verdict, ended.tries) == (ValidationStage.ENDED, verdict, tries)
    assert site.tainted == {NODE}
    assert len(site.told("GPUNodeValidating")) == tries
    assert len(site.told("GPUNodeNotValidated")) == tries


def test_seven_of_eight_gpus_are_not_validated(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)

    def seven(node: dict[str, Any]) -> None:
        node["status"]["allocatable"]["nvidia.com/gpu"] = "7"

    site.kube.edit_node(NODE, seven)
    site.run(20 * MINUTES, step_seconds=30)

    assert site.record(NODE).validation is None
    assert "7 of 8 GPUs" in site.cli("status", NODE, "-o", "wide").out


def test_a_node_whose_kernel_log_is_silent_is_validated_by_a_persons_wish_only_and_stays_out(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    fails(site, NODE)
    site.reboot(NODE, NEW_BOOT, silent=True)
    site.kube.jobs.programs[NODE] = PASSES
    site.run(20 * MINUTES, step_seconds=30)
    assert site.record(NODE).validation is None

    site.cli("validate", NODE)
    site.run(10 * MINUTES, step_seconds=30)

    assert validation(site).verdict is ValidationVerdict.PASS
    assert site.tainted == {NODE}


def test_a_job_that_somebody_deletes_is_not_made_again_for_its_attempt(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.run(5 * MINUTES)
    assert jobs(site) == [NODE]
    first = validation(site).attempt

    [job] = site.kube.objects("jobs")
    site.kube._store.delete("jobs", Key(job["metadata"]["namespace"], job["metadata"]["name"]))
    site.run(5 * MINUTES)

    assert "deleted" in validation(site).why
    assert validation(site).attempt == first
    assert jobs(site) == []


def test_a_node_that_is_deleted_under_its_validation_takes_the_job_along(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.run(5 * MINUTES)
    assert jobs(site) == [NODE]

    site.kube.delete_node(NODE)
    site.run(2 * MINUTES)

    assert jobs(site) == []


def test_a_restart_at_any_moment_makes_no_second_job_and_leads_to_the_same_end(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.kube.jobs.waits[NODE] = ("ContainerCreating", "")
    attempts = set()
    for _ in range(4):
        site.run(1.5 * MINUTES)
        attempts |= {job["metadata"]["name"] for job in site.kube.objects("jobs")}
        site.restart(5)
    site.kube.jobs.waits.clear()
    site.kube.jobs.programs[NODE] = PASSES
    site.run(10 * MINUTES, step_seconds=15)

    assert len(attempts) == 1
    assert site.tainted == set()


def test_two_run_at_a_time_while_a_taint_is_as_fast_as_ever(site_of: Opens) -> None:
    site = open_site(site_of, size=8)
    fixed(site, NODE, SECOND, THIRD)
    site.run(5 * MINUTES)

    assert len(jobs(site)) == 2
    waiting = [each for each in (NODE, SECOND, THIRD) if each not in jobs(site)]
    assert "no more may at a time" in validation(site, waiting[0]).waits
    fails(site, gpu(6))


def test_a_rehearsal_validates_and_returns_nothing_and_says_what_it_would_do(
    site_of: Opens, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = open_site(site_of, recovery="rehearse")
    fixed(site, NODE)
    site.run(10 * MINUTES, step_seconds=30)

    assert jobs(site) == []
    assert site.record(NODE).validation is None
    assert "would validate" in site.cli("status", NODE, "-o", "json").out
    assert sum("would be validated now" in each for each in caplog.messages) == 1


def test_a_cancelled_validation_loses_its_job(site_of: Opens) -> None:
    site = open_site(site_of)
    fixed(site, NODE)
    site.run(5 * MINUTES)
    assert jobs(site) == [NODE]

    assert site.cli("pause", "--reason", "a look").code == 0
    assert site.cli("validate", NODE, "--cancel").code == 0
    site.run(2 * MINUTES)

    assert jobs(site) == []
    assert site.record(NODE).validation is None
