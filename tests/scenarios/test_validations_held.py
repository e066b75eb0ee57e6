"""A pass returns no node while a person, a hold, a pause, a switch or a wrong clock keeps it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from konductor_like.model import OPT_OUT_LABEL, ReleaseHow, ValidationStage, ValidationVerdict
from konductor_like.policy.recovery.guards import BY_FILE
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_validations import (
    MINUTES,
    NODE,
    PASSES,
    SECOND,
    THIRD,
    fails,
    fixed,
    jobs,
    open_site,
    outcome,
    steps,
    validation,
)
from tests.scenarios.words import LOST, gpu

STEP = 15.0
ENDED_PASS = (ValidationStage.ENDED, ValidationVerdict.PASS)


def run(site: Site, minutes: float, step_seconds: float = STEP) -> None:
    site.run(minutes * MINUTES, step_seconds)


def until_job(site: Site) -> None:
    """Let the node fail and boot, and wait until its validation runs."""
    fixed(site, NODE)
    run(site, 5)
    assert jobs(site) == [NODE]


def ended(site: Site, node: str = NODE) -> tuple[ValidationStage, ValidationVerdict | None]:
    return (validation(site, node).stage, validation(site, node).verdict)


def why(site: Site, node: str = NODE) -> str:
    [found] = site.cli("status", node, "-o", "json").document["nodes"]
    return str(found["whyNotReturned"])


def test_a_cordon_while_a_test_runs_leaves_the_verdict_and_keeps_the_node_out_until_it_is_lifted(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    until_job(site)
    site.kube.edit_node(NODE, lambda node: node["spec"].update(unschedulable=True))
    site.kube.jobs.programs[NODE] = PASSES
    run(site, 6)

    assert ended(site) == ENDED_PASS
    assert site.tainted == {NODE}
    assert why(site) == "the Node is cordoned"
    assert site.kube.node(NODE)["spec"]["unschedulable"] is True

    site.kube.edit_node(NODE, lambda node: node["spec"].pop("unschedulable"))
    run(site, 1)
    assert site.tainted == set()
    assert len(site.told("GPUNodeValidating")) == 1


def test_in_a_pause_the_running_test_ends_and_is_noted_and_nothing_begins_and_nothing_returns(
    site_of: Opens,
) -> None:
    site = open_site(site_of)
    until_job(site)
    fixed(site, SECOND)
    assert site.cli("pause", "--reason", "cabling").code == 0
    site.kube.jobs.programs |= {NODE: PASSES, SECOND: PASSES}
    run(site, 8)

    assert ended(site) == ENDED_PASS
    assert site.tainted == {NODE, SECOND}
    assert site.record(SECOND).validation is None
    assert jobs(site) == []

    assert site.cli("resume").code == 0
    run(site, 1)
    assert site.tainted == {SECOND}
    run(site, 6)
    assert site.tainted == set()


def test_none_begins_while_the_brake_holds_a_node(site_of: Opens) -> None:
    site = open_site(site_of, brake_max_percent=20)
    fixed(site, NODE)
    site.kernel(SECOND, LOST)
    run(site, 8)

    assert site.tainted == {NODE}
    assert jobs(site) == []
    assert f"the brake holds {SECOND} back" in why(site)

    assert site.cli("reset", SECOND, "--yes", "--reason", "looked at").code == 0
    run(site, 2)
    assert jobs(site) == [NODE]


def test_a_node_that_is_ignored_meanwhile_keeps_its_taint_until_it_is_not(site_of: Opens) -> None:
    site = open_site(site_of)
    until_job(site)
    site.kube.edit_node(NODE, lambda node: node["metadata"]["labels"].update({OPT_OUT_LABEL: "true"}))
    site.kube.jobs.programs[NODE] = PASSES
    run(site, 6)

    assert ended(site) == ENDED_PASS
    assert site.tainted == {NODE}
    assert jobs(site) == []

    site.kube.edit_node(NODE, lambda node: node["metadata"]["labels"].pop(OPT_OUT_LABEL))
    run(site, 1)
    assert site.tainted == set()


@pytest.mark.parametrize("text", ["return: ask\n", "return: validated\nrecovery: rehearse\n"])
def test_the_file_of_an_earlier_version_leaves_the_return_to_a_person_as_long_as_it_is_there(
    text: str, site_of: Opens, tmp_path: Path
) -> None:
    file = tmp_path / "recovery.yaml"
    site = open_site(site_of, recovery_file=file)
    until_job(site)
    file.write_text(text)
    fixed(site, SECOND)
    site.kube.jobs.programs[NODE] = PASSES
    run(site, 6)

    assert ended(site) == ENDED_PASS
    assert site.tainted == {NODE, SECOND}
    assert why(site) == "the file of KONDUCTOR_RECOVERY_FILE is there, so a person returns it"
    assert site.record(SECOND).validation is None
    assert site.cli("validate", SECOND, "--yes", "--reason", "a try").code == 1
    assert BY_FILE in site.cli("status").out.replace("\n", " ")

    file.unlink()
    run(site, 1)
    assert site.record(NODE).releases[0].how is ReleaseHow.VALIDATED


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_an_hour_off_returns_no_node_before_its_log_is_read_past_the_test(
    hours: int, site_of: Opens
) -> None:
    site = open_site(site_of)
    until_job(site)
    site.process.set_clock(hours * 3600 * 10**9)
    site.kube.jobs.programs[NODE] = PASSES
    site.run(15, 5)
    assert ended(site) == ENDED_PASS
    site.run(110, 10)
    assert site.tainted == {NODE}

    run(site, 4)
    assert site.tainted == ({NODE} if hours > 0 else set())  # by the clock ahead, its log is not read


def test_the_third_relapse_stops_returns_after_a_validation_until_a_person_resumes(site_of: Opens) -> None:
    site = open_site(site_of, returns_per_hour=10, brake_cooldown_seconds=0)
    bad = [NODE, SECOND, THIRD]
    site.kube.jobs.programs |= dict.fromkeys(site.names, PASSES)
    fixed(site, *bad)
    run(site, 12, 30)
    assert site.tainted == set()

    fails(site, *bad)
    life = site.record(NODE).life
    assert life.tainted_at is not None
    assert life.hold_until is not None
    assert (life.hold_until - life.tainted_at).total_seconds() == 3600  # the double of half an hour

    fixed(site, gpu(5))
    run(site, 8, 30)
    assert site.tainted == {*bad, gpu(5)}
    assert site.record(gpu(5)).validation is None
    assert "3 of the last 10 returned nodes failed again" in why(site, gpu(5))

    assert site.cli("resume").code == 0
    run(site, 8, 30)
    assert site.tainted == {*bad}


def fails_again(site: Site) -> None:
    """Let the node fail, be reset by a person, fail again and boot."""
    fails(site, NODE)
    assert site.cli("reset", NODE, "--yes", "--reason", "new riser").code == 0
    site.run(10)
    assert site.tainted == set()
    fixed(site, NODE)
    site.kube.jobs.programs[NODE] = outcome(*steps(4))
    run(site, 5)
    assert site.cli("validate", NODE, "--level", "4").code == 0
    run(site, 4)
    assert ended(site) == ENDED_PASS
    assert site.tainted == {NODE}


def test_a_pass_that_has_grown_old_in_a_hold_is_repeated_when_the_hold_ends(site_of: Opens) -> None:
    site = open_site(site_of, size=3, hold_base_seconds=7200)
    fails_again(site)
    first = validation(site)
    assert "meant to stay out of service until" in why(site)

    run(site, 100, 300)
    assert validation(site) == first
    assert site.tainted == {NODE}
    run(site, 25, 60)

    assert site.tainted == set()
    assert (validation(site).by, validation(site).attempt != first.attempt) == ("konductor-like", True)


def test_a_node_that_is_marked_for_replacement_is_returned_by_a_person_only(site_of: Opens) -> None:
    site = open_site(site_of, hold_base_seconds=60, repeat_count=2)
    fails_again(site)
    run(site, 20, 60)

    assert site.tainted == {NODE}
    assert "replace" in why(site)
    assert len(site.told("GPUNodeValidating")) == 1  # by a person; no other follows
    said = site.cli("reset", NODE, "--yes", "--reason", "all is new")
    assert "Unmet need: replacement" in said.err
    site.run(10)
    assert site.tainted == set()
