"""`doctor` says of nothing that it works only because the caller could do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.link import State, seen
from konductor_like.cli.doctor.report import checkup, exit_of
from konductor_like.exits import Exit
from konductor_like.model.attempts import Doing
from tests.cli.doctor_damages import (
    BINDING,
    MAX_STREAMS,
    NOBODY_ACTS,
    POLICY,
    THIRD,
    VALIDATION_POLICY,
    Damage,
    account_without,
    both,
    change,
    failing,
    for_another_account,
    for_pods,
    optional_parts,
    policy_with,
    remove,
    selecting_few,
    succeeded,
    validations,
)
from tests.cli.doctor_site import GPU_NODES, Site
from tests.cli.test_doctor import by_name


@pytest.mark.parametrize(
    ("damage", "link", "says"),
    [
        (
            change(publishes=False),
            "reading",
            "not known yet: the controller has not published how its queries",
        ),
        (change(publishes=False), "account", "not known yet: the controller has not published whether"),
        (
            succeeded(Doing.KERNEL, 60.0),
            "reading",
            "not known yet: Loki last answered the controller 6",
        ),
        (
            change(heard=0, leading_seconds=20.0),
            "kernel stream",
            "s, and has heard 0 of 3 GPU nodes",
        ),
        (change(heard=2, leading_seconds=200.0), "kernel stream", "has heard 2 of 3 GPU nodes"),
        (
            change(unheard=frozenset(GPU_NODES), leading_seconds=20.0),
            "heartbeats",
            "must be whole first",
        ),
        (
            change(unheard=frozenset(GPU_NODES), leading_seconds=20.0),
            "kernel stream",
            "s, and has heard 0 of 3 GPU nodes",
        ),
        (
            change(recent_names=dict.fromkeys(GPU_NODES)),
            "heartbeats",
            "not known yet: no heartbeat in the last 100 s from 3 of 3 GPU nodes",
        ),
        (
            change(**MAX_STREAMS),
            "heartbeats",
            f"not known yet: no heartbeat in the last 100 s from 1 of 3 GPU nodes: {THIRD}",
        ),
        (
            change(environment={"KONDUCTOR_EXTRA_MATCHERS": 'cluster="other"'}),
            "kernel stream",
            'has no heartbeat; KONDUCTOR_EXTRA_MATCHERS is cluster="other" here, and empty in the controller',
        ),
        (
            change(environment={"KONDUCTOR_NODE_LABEL": "node"}),
            "node label",
            "the controller hears nodes; KONDUCTOR_NODE_LABEL is node here, and k8s_node_name in the",
        ),
        (
            both(NOBODY_ACTS, succeeded(Doing.RIGHTS, 3600.0)),
            "account",
            "not known yet: the controller has not published whether",
        ),
        (
            policy_with(lambda spec: spec["validations"].pop(0)),
            "admission policy",
            "differs from the manifest of this version in its expressions; what they deny is not known",
        ),
    ],
)
def test_a_link_that_is_too_young_or_cannot_be_tried_is_neither_whole_nor_broken(
    damage: Damage, link: str, says: str, facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    damage(site)

    links = checkup(facts(site))

    found = by_name(links)[link]
    assert (found.state, says in found.seen) == (State.UNKNOWN, True), found
    assert [each for each in links if each.state in (State.WARN, State.BROKEN)] == []
    assert exit_of(links) is Exit.UNKNOWN


def test_a_person_who_may_not_act_as_the_account_sees_the_controllers_own_check(
    facts: Callable[[Site], Facts],
) -> None:
    site = Site()
    NOBODY_ACTS(site)

    links = checkup(facts(site))

    assert exit_of(links) is Exit.OK
    found = by_name(links)
    assert found["admission policy"].seen == "present, bound, and as in the manifest of this version"
    assert "it checked its rights " in found["account"].seen


def test_a_controller_on_a_laptop_breaks_no_link(facts: Callable[[Site], Facts]) -> None:
    site = Site(holder="kims-laptop", account=())
    remove("deployments/konductor-like", POLICY, BINDING)(site)

    links = checkup(facts(site))

    found = by_name(links)
    assert "it follows the Nodes; it checked its rights " in found["account"].seen
    assert "no policy limits the controller: it runs outside" in found["admission policy"].seen
    assert [link.name for link in links if link.state is not State.OK] == ["admission policy"]
    assert exit_of(links) is Exit.OK


def test_the_missing_right_of_a_controller_on_a_laptop_is_its_own(facts: Callable[[Site], Facts]) -> None:
    site = Site(holder="kims-laptop")
    both(remove("deployments/konductor-like"), failing(Doing.RIGHTS, error="patch nodes"))(site)

    link = by_name(checkup(facts(site)))["account"]

    assert (link.state, link.seen) == (State.BROKEN, "the controller may not: patch nodes")


@pytest.mark.parametrize("damage", [for_another_account, for_pods, selecting_few])
def test_a_policy_that_limits_nobody_is_broken_by_comparison_alone(
    damage: Callable[[dict[str, Any]], None], facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    both(NOBODY_ACTS, policy_with(damage))(site)

    assert by_name(checkup(facts(site)))["admission policy"].state is State.BROKEN


def test_what_the_api_server_adds_to_a_policy_is_no_difference(facts: Callable[[Site], Facts]) -> None:
    site = Site()
    added = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    policy_with(lambda spec: spec["matchConstraints"].update(added))(site)

    assert by_name(checkup(facts(site)))["admission policy"].state is State.OK


@pytest.mark.parametrize("condition", ["TrainyGPUFaulty", "GPUBroken"])
def test_the_policies_of_optional_parts_are_compared_too(
    condition: str, facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    optional_parts(condition)(site)

    found = facts(site)

    assert by_name(checkup(found))["admission policy"].state is State.OK
    assert set(seen(found.policies)) == {
        "konductor-like",
        "konductor-like-node-condition",
        "konductor-like-job-events",
    }


@pytest.mark.parametrize("namespace", ["konductor-like-validation", "tests"])
def test_the_policy_of_validations_is_compared_for_the_namespace_of_their_jobs(
    namespace: str, facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    validations(namespace)(site)

    links = by_name(checkup(facts(site)))

    assert (links["admission policy"].state, links["account"].state) == (State.OK, State.OK), links


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (remove(VALIDATION_POLICY), "admission policy"),
        (account_without(("create", "jobs")), "account"),
        (account_without(("create", "jobs"), ("get", "pods/log")), "account"),
    ],
)
def test_what_only_validations_lack_is_in_their_manifest(
    damage: Damage, name: str, facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    validations()(site)
    damage(site)

    do = by_name(checkup(facts(site)))[name].do

    assert do == "kubectl apply -f manifests/validation.yaml (with the chart: validation.enabled: true)"


@pytest.mark.parametrize(
    ("damage", "name"),
    [(remove(POLICY), "admission policy"), (account_without(("patch", "nodes")), "account")],
)
def test_what_the_controller_lacks_is_in_its_own_manifest(
    damage: Damage, name: str, facts: Callable[[Site], Facts]
) -> None:
    site = Site()
    validations()(site)
    damage(site)

    assert "kubectl apply -k ." in by_name(checkup(facts(site)))[name].do


def test_a_condition_that_the_policy_does_not_list_is_broken(facts: Callable[[Site], Facts]) -> None:
    site = Site()
    optional_parts("TrainyGPUFaulty")(site)
    site.settings["node_condition"] = "GPUBroken"

    link = by_name(checkup(facts(site)))["admission policy"]

    assert (link.state, "does not list the condition GPUBroken" in link.seen) == (State.BROKEN, True)


@pytest.mark.parametrize("part", ["node-condition", "job-events"])
def test_an_optional_policy_that_limits_nobody_is_broken(part: str, facts: Callable[[Site], Facts]) -> None:
    site = Site()
    optional_parts("TrainyGPUFaulty")(site)
    site.objects[f"validatingadmissionpolicybindings/konductor-like-{part}"]["spec"]["policyName"] = "old"

    links = by_name(checkup(facts(site)))

    assert links["admission policy"].state is State.BROKEN
    assert part in links["admission policy"].seen
