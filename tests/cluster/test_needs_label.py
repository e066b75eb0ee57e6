"""The label for what a node needs, under the admission policies of this version and of the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes
from konductor_like.cluster.node.writer import LABEL_REFUSED_SECONDS, NodeWriter, Outcome
from konductor_like.model import HEALTH_LABEL, NEEDS_LABEL, Change, Needs, NodeRecord, NodeState, Verb
from konductor_like_sandbox.kubernetes import KubernetesServer, Review
from tests.cluster.scenes import OURS, TEAM, raw_node, taint
from tests.cluster.writer_scenes import Waits, make_writer
from tests.manifests.policy import Policy, old_policy
from tests.manifests.roles import CONTROLLER, rules_of
from tools.manifests.manifests import documents

DOCS = documents("controller_deployment.yaml")
OLD, NEW = old_policy(), Policy(DOCS)
LABELLED = replace(taint(), needs=Needs.REBOOT)


class Site:
    """An API server with an admission policy that can be applied anew, and the controller's writer."""

    def __init__(self, policy: Callable[[Review], str], folder: Path) -> None:
        self.policy = policy
        self.server = KubernetesServer(require_token=True, admission=lambda review: self.policy(review))
        self.server.access.add_user(CONTROLLER, rules_of(DOCS))
        self.folder, self.waits = folder, Waits()
        self.told: list[str] = []

    def __enter__(self) -> Site:
        self.server.__enter__()
        token = self.server.access.add_user(CONTROLLER, rules_of(DOCS))
        kubeconfig = self.server.kubeconfig(self.folder / "config", token)
        self.client = KubeClient.connect(str(kubeconfig), None, 5.0)
        self.writer: NodeWriter = make_writer(self.client, self.waits, on_label_refused=self.told.append)
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.server.__exit__(None, None, None)

    def state(self, name: str = "gpu-1") -> NodeState:
        """The Node as it is now; it is created if it is missing."""
        if name not in (nodes := list_nodes(self.client, node_decoder())):
            self.server.put_node(raw_node(name, taints=[TEAM]))
            nodes = list_nodes(self.client, node_decoder())
        self.server.clear_calls()
        return nodes[name]

    def labels(self, name: str = "gpu-1") -> tuple[str | None, str | None]:
        """The Node's labels for health and needs."""
        labels = self.server.node(name)["metadata"]["labels"]
        return labels.get(HEALTH_LABEL), labels.get(NEEDS_LABEL)

    def patches(self) -> list[int]:
        """The answers to the patches since the last state was read."""
        return [call.status for call in self.server.calls("patch")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[[Callable[[Review], str]], Site]]:
    opened: list[Site] = []

    def opens(policy: Callable[[Review], str]) -> Site:
        opened.append(Site(policy, tmp_path).__enter__())
        return opened[-1]

    yield opens
    for each in opened:
        each.__exit__()


Opens = Callable[[Callable[[Review], str]], Site]


def test_the_label_comes_with_the_taint_in_one_patch(site: Opens) -> None:
    here = site(NEW)

    result = here.writer.write(here.state(), LABELLED)

    assert result.outcome is Outcome.APPLIED
    assert here.labels() == ("faulty", "reboot")
    assert (here.patches(), here.told, here.writer.labels_needs) == ([200], [], True)


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid"], ids=["403", "422, the default reason"])
def test_under_an_older_policy_the_node_is_tainted_at_once_without_the_label(
    site: Opens, reason: str
) -> None:
    here = site(old_policy(reason=reason))

    result = here.writer.write(here.state(), LABELLED)

    assert (result.outcome, result.change) == (Outcome.APPLIED, LABELLED)
    assert result.state is not None
    assert (result.state.tainted, result.state.as_read.needs) == (True, None)
    assert here.server.node("gpu-1")["spec"]["taints"] == [TEAM, OURS]
    assert here.labels() == ("faulty", None)
    assert here.patches() == [403 if reason == "Forbidden" else 422, 200]
    assert here.waits.slept == [], "the taint must not wait"
    [told] = here.told
    assert NEEDS_LABEL in told
    assert "manifests/controller_deployment.yaml" in told


def test_a_node_with_a_very_long_name_is_tainted_too(site: Opens) -> None:
    here, name = site(OLD), "gpu-" + "x" * 240

    assert here.writer.write(here.state(name), replace(LABELLED, node=name)).outcome is Outcome.APPLIED
    assert here.labels(name) == ("faulty", None)


def test_the_refusal_is_remembered_for_all_nodes_and_asked_again_later(site: Opens) -> None:
    here = site(OLD)
    here.writer.write(here.state(), LABELLED)

    here.writer.write(here.state("gpu-2"), replace(LABELLED, node="gpu-2"))
    assert (here.patches(), len(here.told)) == ([200], 1)
    assert not here.writer.labels_needs

    here.waits.now += LABEL_REFUSED_SECONDS
    assert here.writer.labels_needs
    here.writer.write(here.state("gpu-3"), replace(LABELLED, node="gpu-3"))
    assert (here.patches(), len(here.told)) == ([403, 200], 2)


def test_a_label_alone_that_is_refused_leaves_the_node_as_it_is(site: Opens) -> None:
    here = site(NEW)
    here.writer.write(here.state(), LABELLED)
    here.policy = OLD
    upkeep = replace(LABELLED, verb=Verb.RECORD, needs=Needs.INSPECTION, upkeep=True)

    result = here.writer.write(here.state(), upkeep)

    assert (result.outcome, here.patches()) == (Outcome.APPLIED, [403])
    assert here.labels() == ("faulty", "reboot")
    assert not here.writer.labels_needs


def test_another_change_that_the_policy_denies_is_not_blamed_on_the_label(site: Opens) -> None:
    denial = "ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: no"
    here = site(lambda review: denial if (review.resource, review.operation) == ("nodes", "UPDATE") else "")

    result = here.writer.write(here.state(), LABELLED)

    assert result.outcome is Outcome.FAILED
    assert "freeze" in str(result.error)
    # The third is a dry run of the taint alone, which the policy denies, too.
    assert (here.patches(), here.told, here.writer.labels_needs) == ([403, 403, 403], [], True)


def test_a_lost_race_is_told_from_a_refused_label(site: Opens) -> None:
    here = site(OLD)
    decided_on = here.state()
    here.server.edit_node("gpu-1", lambda node: node["spec"].update(taints=[]))

    result = here.writer.write(decided_on, LABELLED)

    assert (result.outcome, here.patches()) == (Outcome.CONFLICT, [422])
    assert here.writer.labels_needs


def test_an_upgrade_of_the_controller_first_writes_the_label_once_the_policy_is_applied(
    site: Opens,
) -> None:
    here = site(OLD)
    here.writer.write(here.state(), LABELLED)
    here.policy = NEW
    here.waits.now += LABEL_REFUSED_SECONDS

    result = here.writer.write(here.state(), replace(LABELLED, verb=Verb.RECORD, upkeep=True))

    assert (result.outcome, here.labels()) == (Outcome.APPLIED, ("faulty", "reboot"))


def test_a_release_removes_the_label_or_leaves_it_if_the_policy_does_not_allow_that(site: Opens) -> None:
    here = site(NEW)
    release = Change("gpu-1", Verb.UNTAINT, NodeRecord(), None)
    here.writer.write(here.state(), LABELLED)
    here.writer.write(here.state(), release)
    assert here.labels() == (None, None)

    here.writer.write(here.state(), LABELLED)
    here.policy = OLD
    assert here.writer.write(here.state(), release).outcome is Outcome.APPLIED
    assert here.server.node("gpu-1")["spec"]["taints"] == [TEAM]
    assert here.labels() == (None, "reboot")
