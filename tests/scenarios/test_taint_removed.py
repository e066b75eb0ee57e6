"""Programs and people take our taint off, alone or with the record, and change it (rule 23)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.model import RECORD_ANNOTATION, TAINT_KEY, Stage
from konductor_like.model.time import text_of_ns
from konductor_like_sandbox.kubernetes.managed_fields import record_write
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_validations import fails, jobs, open_site
from tests.scenarios.words import gpu

NODE = gpu(2)
OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}
Edit = Callable[[dict[str, Any]], None]


def without_taint(node: dict[str, Any]) -> None:
    node["spec"]["taints"] = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != TAINT_KEY]


def without_record(node: dict[str, Any]) -> None:
    node["metadata"]["annotations"].pop(RECORD_ANNOTATION, None)


def without_both(node: dict[str, Any]) -> None:
    without_taint(node)
    without_record(node)


def broken(site_of: Opens, **settings: Any) -> Site:
    """A site with a node that has another taint, and ours for an Xid 79."""
    site = open_site(site_of, **{"return_by": "ask", "validation_image": "", **settings})
    site.kube.edit_node(NODE, lambda node: node["spec"].update(taints=[OTHER]))
    fails(site, NODE)
    return site


def writes(site: Site, manager: str, edit: Edit) -> None:
    """Let a field manager change the Node."""

    def change(node: dict[str, Any]) -> None:
        before = {**site.kube.node(NODE)}
        edit(node)
        record_write(before, node, manager, "", str(text_of_ns(site.clock.true_ns)))

    site.kube.edit_node(NODE, change)


def labels(site: Site) -> dict[str, str]:
    return {k: v for k, v in site.kube.node(NODE)["metadata"]["labels"].items() if "trainy" in k}


def told(site: Site) -> set[str]:
    events = site.kube.objects("events", "default")
    return {each["reason"] for each in events if each["involvedObject"]["name"] == NODE}


FAULTY = {"trainy.konduktor.ai/health": "faulty", "trainy.konduktor.ai/needs": "reboot"}


@pytest.mark.parametrize("edit", [without_taint, without_both], ids=["taint", "taint and record"])
def test_a_persons_removal_is_a_release_with_an_event_and_without_labels(site_of: Opens, edit: Edit) -> None:
    site = broken(site_of)

    writes(site, "kubectl-edit", edit)
    site.run(600, 30)

    assert NODE not in site.tainted
    assert (labels(site), "GPUFaultReleased" in told(site)) == ({}, True)
    assert [mark.by for mark in site.record(NODE).releases] == ["kubectl-edit"]


@pytest.mark.parametrize("edit", [without_taint, without_both], ids=["taint", "taint and record"])
@pytest.mark.parametrize("manager", ["karpenter", "kubectl-replace"])
def test_a_programs_removal_is_put_back_within_seconds(site_of: Opens, manager: str, edit: Edit) -> None:
    site = broken(site_of)
    before = site.record(NODE)

    writes(site, manager, edit)
    site.run(5)
    assert (labels(site), NODE in site.tainted) == (FAULTY, False)
    assert f"{NODE}" in site.cli("status", "--state", "faulty").out
    site.run(20)

    assert (labels(site), NODE in site.tainted) == (FAULTY, True)
    assert told(site) == {"GPUFaultTainted", "GPUTaintRemoved", "GPUTaintPutBack"}
    assert site.record(NODE).incidents == before.incidents
    assert site.record(NODE).life.tainted_at == before.life.tainted_at


def test_taint_and_record_removed_while_no_controller_runs_come_back_from_the_lease(site_of: Opens) -> None:
    site = broken(site_of)
    site.run(60)
    since = site.record(NODE).life.tainted_at
    site.kill()

    writes(site, "karpenter", without_both)
    site.start()
    site.run(60)

    assert NODE in site.tainted
    assert site.record(NODE).life.tainted_at == since
    assert labels(site)["trainy.konduktor.ai/health"] == "faulty"
    assert "xid 79" in site.cli("explain", NODE).out


def test_a_record_alone_that_is_removed_comes_back_with_reason_need_and_claim(site_of: Opens) -> None:
    site = broken(site_of)
    before = site.record(NODE)

    writes(site, "kubectl-annotate", without_record)
    site.run(20)

    after = site.record(NODE)
    assert (after.incidents, after.life) == (before.incidents, before.life)
    assert (labels(site), "GPUTaintPutBack" in told(site)) == (FAULTY, True)


def test_a_purge_by_our_command_is_not_undone(site_of: Opens) -> None:
    site = broken(site_of)

    site.cli("reset", NODE, "--purge", "--yes", "--by", "ann")
    site.run(1200, 30)

    assert (NODE in site.tainted, labels(site)) == (False, {})
    assert RECORD_ANNOTATION not in site.kube.node(NODE)["metadata"]["annotations"]


def test_a_program_that_goes_on_is_contested_and_the_node_stays_faulty(site_of: Opens) -> None:
    site = broken(site_of)
    for _ in range(4):
        writes(site, "pool-controller", without_taint)
        site.run(400, 10)

    state = site.nodes()[NODE]
    assert (state.stage, labels(site)) == (Stage.REMOVED, FAULTY)
    assert "GPUTaintContested" in told(site)
    words = site.cli("explain", NODE).out
    assert "is faulty (contested)" in words
    assert "contested: pool-controller removed the taint" in words

    site.cli("reset", NODE, "--yes", "--by", "ann")
    site.run(30)
    assert labels(site) == {}


@pytest.mark.parametrize("removals", [1, 4], ids=["put back soon", "contested"])
@pytest.mark.parametrize("named", [(NODE,), ("--all",)], ids=["by name", "all"])
def test_a_purge_of_a_node_without_its_taint_is_not_undone(
    site_of: Opens, removals: int, named: tuple[str, ...]
) -> None:
    site = broken(site_of)
    for _ in range(removals):
        site.run(400, 20)
        writes(site, "pool-controller", without_taint)
        site.run(5)

    site.cli("reset", *named, "--purge", "--yes", "--by", "ann")
    site.run(600, 20)

    assert (NODE in site.tainted, labels(site)) == (False, {})
    assert RECORD_ANNOTATION not in site.kube.node(NODE)["metadata"]["annotations"]


def test_purges_one_after_another_are_not_undone(site_of: Opens) -> None:
    site = broken(site_of)
    fails(site, gpu(3), gpu(4))

    for name in (NODE, gpu(3), gpu(4)):
        site.cli("reset", name, "--purge", "--yes", "--by", "ann")
    site.run(600, 20)

    assert site.tainted == set()


def test_a_contested_node_returns_by_the_guards_of_any_other_node(site_of: Opens) -> None:
    site = broken(site_of, return_by="reboot")
    for _ in range(4):
        writes(site, "pool-controller", without_taint)
        site.run(400, 20)
    assert "GPUTaintContested" in told(site)

    site.reboot(NODE, "b2000000-0000-4000-8000-000000000002")
    site.run(300, 20)
    assert site.record(NODE).life.claimed
    [rebooted] = [each for each in site.told("GPUNodeRebooted") if each["involvedObject"]["name"] == NODE]
    assert "contested" not in rebooted["message"]
    site.run(600, 20)

    assert (site.record(NODE).life.claimed, NODE in site.tainted) == (False, False)
    assert "GPUNodeReturned" in told(site)


def test_a_contest_ends_a_validation_that_runs(site_of: Opens) -> None:
    site = open_site(site_of, return_by="reboot")
    fails(site, NODE)
    site.cli("validate", NODE, "--level", "2", "--yes", "--by", "ann")
    site.run(60)
    assert len(jobs(site)) == 1

    for _ in range(4):
        writes(site, "pool-controller", without_taint)
        site.run(400, 20)

    assert "GPUTaintContested" in told(site)
    assert (site.record(NODE).validation, jobs(site)) == (None, [])


def test_another_effect_is_put_right_and_another_value_is_left_alone(site_of: Opens) -> None:
    site = broken(site_of)
    site.run(120)

    def set_taint(value: str, effect: str) -> Edit:
        def edit(node: dict[str, Any]) -> None:
            without_taint(node)
            node["spec"]["taints"].append({"key": TAINT_KEY, "value": value, "effect": effect})

        return edit

    writes(site, "kubectl-edit", set_taint("true", "NoExecute"))
    site.run(20)
    ours = [each for each in site.kube.node(NODE)["spec"]["taints"] if each["key"] == TAINT_KEY]
    assert ours == [{"key": TAINT_KEY, "value": "true", "effect": "NoSchedule"}]

    writes(site, "kubectl-taint", set_taint("rma-42", "NoSchedule"))
    site.run(600, 30)
    assert labels(site) == FAULTY
    assert "kept out by trainy.konduktor.ai/faulty=rma-42" in site.cli("explain", NODE).out
    writes(site, "kubectl-taint", without_taint)
    site.run(30)
    assert labels(site) == {}
