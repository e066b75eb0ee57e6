"""The shipped roles and the shipped policy, against everything that the controller and the commands do.

The real processes run one scenario under the account of the manifest, and the stand-in records every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from konductor_like.cli.app import execute
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.events import LeaseEvents
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.cluster.lease.checkpoint import CURSOR_ANNOTATION
from konductor_like.cluster.lease.election import LeaderLease
from konductor_like.cluster.preflight import controller_permissions
from konductor_like.model import EventReason
from konductor_like.settings import Settings
from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.demo.story import XID_31, XID_79
from konductor_like_sandbox.kubernetes import Call, KubernetesServer, Rule
from konductor_like_sandbox.kubernetes.access import Attempt
from tests.cli.transcripts import forget_settings
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of, single
from tests.manifests.schema import problems
from tests.processes.forked import forking
from tests.processes.waiting import logged, until
from tools.manifests.manifests import documents

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

DOCS = documents("controller_deployment.yaml")
RULES = rules_of(DOCS)
FOR_EVERYBODY = Rule(
    ("create",),
    ("selfsubjectaccessreviews", "selfsubjectreviews"),
    ("authorization.k8s.io", "authentication.k8s.io"),
)
"""What ``system:basic-user`` grants to every account, in every cluster, without a role of ours."""
FIRST = {"POD_NAME": "konductor-like-first", "POD_UID": "1"}
SECOND = {"POD_NAME": "konductor-like-second", "POD_UID": "2"}


@dataclass(frozen=True)
class Played:
    """The results of the scenario."""

    calls: list[Call]
    policy: Policy


def attempt(call: Call) -> Attempt:
    return Attempt(call.verb, call.resource, call.group, call.namespace, call.name)


def ended(controller: RunningController) -> int | None:
    until(lambda: controller.process.poll() is not None, "it ends", controller)
    return controller.process.returncode


def command(stage: Stage, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        forget_settings(patch)
        for name, value in stage.environment.items():
            patch.setenv(name, value)
        assert execute(list(arguments), "konductor-like") == 0, arguments


def saved_cursor(stage: Stage) -> bool:
    leases = stage.cluster.objects("leases", "konductor-like")
    return any(CURSOR_ANNOTATION in lease["metadata"].get("annotations", {}) for lease in leases)


def play(stage: Stage) -> None:
    """Dry run, first start, taint, record, status, reset, standing by, take-over, purge, release."""
    stage.kernel("gpu-01", XID_79)
    assert ended(stage.start_controller("--dry-run", "--once")) == 0

    first = stage.start_controller(**FIRST)
    until(lambda: stage.node("gpu-01").tainted, "gpu-01 is tainted", first)
    stage.kernel("gpu-02", XID_31)
    until(lambda: stage.node("gpu-02").recorded(31), "gpu-02 is recorded", first)
    until(lambda: bool(stage.cluster.objects("events")), "an Event is there", first)
    command(stage, "status")
    command(stage, "reset", "gpu-01", "--yes", "--dry-run=server")
    command(stage, "reset", "gpu-01", "--yes", "--reason", "swapped the GPU")
    assert not stage.node("gpu-01").tainted
    assert ended(stage.start_controller("--once", **SECOND)) == 1  # the first one holds the Lease

    until(lambda: saved_cursor(stage), "its cursor is on the Lease", first)
    first.kill()
    restarted = stage.start_controller(**FIRST)
    until(logged(restarted, "from the saved cursor"), "it takes its own Lease", restarted)
    stage.kernel("gpu-03", XID_79)
    until(lambda: stage.node("gpu-03").tainted, "gpu-03 is tainted", restarted)
    command(stage, "reset", "--all", "--purge", "--yes")
    assert restarted.stop() == 0
    fleet_event(stage)
    assert ended(stage.start_controller("--once", **FIRST)) == 0


def fleet_event(stage: Stage) -> None:
    """Minutes of silence in one call: the Event that a controller sends about its Lease."""
    with closing(KubeClient.connect(str(stage.kubeconfig), None, 10.0)) as client:
        lease = LeaderLease(
            client,
            "konductor-like",
            "konductor-like",
            "third",
            duration_seconds=30,
            renew_deadline_seconds=20,
            renew_interval_seconds=10,
        )
        assert lease.try_acquire().is_ours
        events = LeaseEvents(client, "third")
        assert events.send(lease.reference, EventReason.SILENT, "Not heard: gpu-01, gpu-02.")
        assert lease.release(LeasePayload())


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    stage, policy = Stage(gpu_nodes=4), Policy(DOCS)
    stage.cluster = KubernetesServer(require_token=True, schema=problems, admission=policy)
    with forking(), stage:
        stage.cluster.create_namespace("konductor-like")
        token = stage.cluster.access.add_user(CONTROLLER, RULES)
        stage.cluster.kubeconfig(stage.kubeconfig, token)
        play(stage)
        yield Played(stage.cluster.calls(), policy)


def test_no_needed_call_is_denied(played: Played) -> None:
    denied = [
        (str(call.rbac), call.namespace, call.name) for call in played.calls if call.status in (401, 403)
    ]

    assert denied == []


def test_every_call_is_granted_by_a_shipped_rule(played: Played) -> None:
    beyond = [call.rbac for call in played.calls if not any(rule.covers(attempt(call)) for rule in RULES)]

    assert set(beyond) == {
        ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
        ("create", "authentication.k8s.io", "selfsubjectreviews"),
    }
    assert all(FOR_EVERYBODY.covers(attempt(call)) for call in played.calls if call.rbac in beyond)


@pytest.mark.parametrize("rule", list(single(RULES)), ids=lambda rule: f"{rule.verbs[0]}-{rule.resources[0]}")
def test_no_granted_right_is_unused(played: Played, rule: Rule) -> None:
    used = [call for call in played.calls if rule.covers(attempt(call)) and call.status in (200, 201)]

    assert used


def test_the_policy_validates_and_allows_every_write_to_a_node(played: Played) -> None:
    patches = [call for call in played.calls if call.rbac == ("patch", "", "nodes") and call.status == 200]

    assert len(patches) >= 4
    assert played.policy.validated >= len(patches)


def test_the_roles_grant_the_rights_checked_at_the_start_and_no_wider_ones() -> None:
    settings = Settings()
    needed = controller_permissions(settings.namespace, settings.lease_name)

    missing = [p for p in needed if not any(rule.covers(Attempt(**p.attributes)) for rule in RULES)]

    assert missing == []

    for rule in RULES:
        assert "*" not in {*rule.verbs, *rule.resources, *rule.groups, *rule.names}
        assert rule.namespaces or rule.resources in (("nodes",), ("pods",), ("resourceslices",))
