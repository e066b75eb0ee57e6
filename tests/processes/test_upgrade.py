"""An upgrade to the label for needs: the real controller under the older and the newer admission policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.model import NEEDS_LABEL
from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.kubernetes import KubernetesServer, Review
from tests.manifests.policy import Policy, old_policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.processes.waiting import logged, until
from tools.manifests.manifests import documents

pytestmark = pytest.mark.processes

DOCS = documents("controller_deployment.yaml")
XID_79 = "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."


class Upgrade:
    """A stage whose admission policy can be applied anew."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.policy = old_policy()
        stage.cluster = KubernetesServer(require_token=True, admission=self._admission)

    def _admission(self, review: Review) -> str:
        return self.policy(review)

    def start(self) -> RunningController:
        """Start this version's controller with the account and the rights of the manifest."""
        self.stage.cluster.kubeconfig(self.stage.kubeconfig, self.token)
        return self.stage.start_controller(KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", KONDUCTOR_TAIL="false")

    def prepare(self) -> None:
        """Create what the manifest has beside the controller."""
        self.stage.cluster.create_namespace("konductor-like")
        self.token = self.stage.cluster.access.add_user(CONTROLLER, rules_of(DOCS))

    def needs(self, name: str) -> str | None:
        """The node's label for needs."""
        label: str | None = self.stage.cluster.node(name)["metadata"]["labels"].get(NEEDS_LABEL)
        return label


@pytest.fixture
def upgrade() -> Iterator[Upgrade]:
    stage = Stage(gpu_nodes=8)
    found = Upgrade(stage)
    with stage:
        found.prepare()
        yield found


def test_a_controller_before_its_policy_taints_without_the_label_and_labels_once_it_is_applied(
    upgrade: Upgrade,
) -> None:
    stage = upgrade.stage
    first = upgrade.start()
    stage.kernel("gpu-01", XID_79)
    until(lambda: stage.node("gpu-01").tainted, "gpu-01 is tainted", first)
    until(logged(first, "Install the admission policy of this version"), "the log says it", first)
    assert upgrade.needs("gpu-01") is None
    assert first.stop() == 0

    upgrade.policy = Policy(DOCS)
    second = upgrade.start()

    until(lambda: upgrade.needs("gpu-01") == "reboot", "gpu-01 has the label", second)
    assert stage.node("gpu-01").tainted


def test_a_policy_before_its_controller_lets_the_first_taint_have_the_label(upgrade: Upgrade) -> None:
    upgrade.policy = Policy(DOCS)
    controller = upgrade.start()

    upgrade.stage.kernel("gpu-01", XID_79)

    until(lambda: upgrade.stage.node("gpu-01").tainted, "gpu-01 is tainted", controller)
    assert upgrade.needs("gpu-01") == "reboot"
