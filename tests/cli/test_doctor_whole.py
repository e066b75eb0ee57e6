"""`doctor` raises no alarm at an installation that is only unusual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.link import State
from konductor_like.cli.doctor.report import checkup, exit_of
from konductor_like.cli.session import like_the_controller
from konductor_like.exits import Exit
from konductor_like.model.attempts import Doing
from konductor_like.settings import Settings
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.kubernetes.errors import matching
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node
from tests.cli.doctor_damages import (
    FIRST,
    NOBODY_ACTS,
    Damage,
    account_without,
    binding_with,
    both,
    change,
    loki,
    put,
    succeeded,
)
from tests.cli.doctor_site import Site, deployment
from tests.cli.scenes import settings_of
from tests.cli.test_doctor import by_name
from tests.manifests.roles import rules_of
from tools.manifests.manifests import documents


def one_node(site: Site) -> None:
    """Leave one Node, which is everything at once."""
    site.nodes, site.names = site.nodes[:1], {FIRST: ""}
    site.pods = [each for each in site.pods if each["spec"]["nodeName"] == FIRST]
    site.heard = 1


def no_pods_watched(site: Site) -> None:
    """Watch no namespace, and ship none."""
    site.watched, site.shipped_namespaces = (), ()
    site.environment = {"WATCHED_NAMESPACES": ""}
    site.pods_read_seconds = None


def every_node_tainted(site: Site) -> None:
    """Let the controller have tainted each node."""
    for node in site.nodes:
        node["spec"]["taints"] = [
            {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
        ]


WHOLE: Mapping[str, Damage] = {
    "one node": one_node,
    "every node is tainted": every_node_tainted,
    "a standby": put(
        "deployments/konductor-like", deployment("konductor-like", "konductor-like", replicas=2)
    ),
    "no pods' logs": no_pods_watched,
    "no question for pods": both(change(settings={"ask_for_pods": False}), account_without(("list", "pods"))),
    "a slow poll": both(change(settings={"poll_interval_seconds": 120.0}), succeeded(Doing.KERNEL, 130.0)),
    "a gateway before Loki": both(
        change(oldest_seconds=84_000.0),
        loki(lambda server: server.fail(Mishap(status=404), None, matching(path="/config"))),
    ),
    "a policy that also audits": binding_with(validationActions=["Deny", "Audit"]),
    "matchers that this shell does not have": change(
        settings={"extra_matchers": 'k8s_cluster_name=~".+"', "namespace_label": "k8s_namespace_name"}
    ),
    "a label that this shell has otherwise, and that changes nothing": change(
        environment={"KONDUCTOR_EXTRA_MATCHERS": 'k8s_namespace_name=~".+"'}
    ),
    "parts of this shell whose objects other links look at": change(
        environment={"KONDUCTOR_JOB_EVENTS": "true", "KONDUCTOR_NODE_CONDITION": "TrainyGPUFaulty"}
    ),
    "a controller that publishes no selectors": change(settings={"kernel_selector": ""}),
    "a person who may not act as the account": NOBODY_ACTS,
    "a viewer": change(rules=rules_of(documents("people_rbac.yaml"), "konductor-like-viewers")),
}


@pytest.mark.parametrize("site_of", WHOLE.values(), ids=WHOLE.keys())
def test_an_unusual_installation_is_whole(site_of: Damage, facts: Callable[[Site], Facts]) -> None:
    site = Site()
    site_of(site)

    assert [link for link in checkup(facts(site)) if link.state is not State.OK] == []


def test_a_pool_that_is_scaled_to_zero_breaks_no_link(facts: Callable[[Site], Facts]) -> None:
    site = Site(nodes=[make_cpu_node("cpu-1")], pods=[], names={}, heard=0)

    links = checkup(facts(site))

    assert "normal while a pool is scaled to zero" in by_name(links)["GPU nodes"].seen
    assert exit_of(links) is Exit.UNKNOWN


def test_settings_that_the_controller_does_not_publish_are_no_difference(
    facts: Callable[[Site], Facts],
) -> None:
    site = Site(settings={"kernel_selector": ""}, heard=0, leading_seconds=200.0)

    assert by_name(checkup(facts(site)))["kernel stream"].details == ()


def test_the_controllers_queries_count_where_this_shell_sets_nothing() -> None:
    theirs = settings_of(
        kernel_selector='{a="1"}', extra_matchers='b="2"', node_label="n", namespace_label="s"
    )
    ours = Settings(extra_matchers="")

    asked = like_the_controller(ours, theirs)

    assert (asked.kernel_selector, asked.extra_matchers, asked.node_label) == ('{a="1"}', "", "n")
    assert like_the_controller(ours, replace(theirs, kernel_selector="")).node_label == "k8s_node_name"
    assert like_the_controller(ours, None) == ours
