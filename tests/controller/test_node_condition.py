"""Writing Node conditions beside the reconcile: what is written, when, and how often (rule 40)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import cast

import pytest

from konductor_like.cluster.api.errors import (
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
    LeadershipLost,
)
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.node_condition import (
    AGAIN_SECONDS,
    DENIED_SECONDS,
    WRITES_A_ROUND,
    NodeConditions,
)
from konductor_like.controller.side.work import running
from konductor_like.model import (
    CONDITION_MARK,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    Condition,
    Coverage,
    NodeState,
    Taint,
)
from tests.cluster.scenes import wait_until
from tests.policy.scenes import at, fleet

KIND = "TrainyGPUFaulty"
OURS = (Taint(TAINT_KEY, TAINT_VALUE, TAINT_EFFECT),)


class Cluster:
    """Nodes in memory, whose conditions are written, and a clock that the test moves."""

    problem: Exception | None = None

    def __init__(self, size: int = 3, kind: str = KIND, heard: bool = True) -> None:
        self.nodes: dict[str, NodeState] = fleet(size)
        self.seconds = 0.0
        self.errors: list[KubeError] = []
        self.sent: list[tuple[str, str]] = []
        self.metrics = Metrics()
        self.conditions = self.leadership(kind)
        if heard:
            self.hear()

    def leadership(self, kind: str) -> NodeConditions:
        return NodeConditions(
            kind,
            self,
            self.write,
            self.metrics,
            clock=lambda: self.seconds,
            now=lambda: at(self.seconds),
        )

    def snapshot(self) -> Mapping[str, NodeState]:
        return dict(self.nodes)

    def write(self, state: NodeState, condition: Condition | None, _now: datetime) -> NodeState:
        self.sent.append((state.name, condition.status if condition else "removed"))
        if self.errors:
            raise self.errors.pop(0)
        return replace(state, conditions=(condition,) if condition else ())

    def apply(self, state: NodeState) -> None:
        self.nodes[state.name] = state

    def hear(self, *silent: str) -> None:
        """Every node is heard but these, which fell silent."""
        coverage = Coverage(at(0), frozenset(silent), frozenset(self.nodes), listed_are_measured=True)
        self.conditions.hear(coverage, frozenset(silent))

    def rounds(self, count: int = 1) -> list[tuple[str, str]]:
        """Let rounds pass, a second apart; return what was sent in them."""
        before = len(self.sent)
        for _ in range(count):
            self.conditions.round()
            self.seconds += 1
        return self.sent[before:]

    def taint(self, name: str) -> None:
        self.nodes[name] = replace(self.nodes[name], taints=OURS)

    def change(self, name: str, **parts: str) -> None:
        """Another writer changes the condition of a node."""
        [stands] = self.nodes[name].conditions
        self.nodes[name] = replace(self.nodes[name], conditions=(replace(stands, **parts),))

    def condition(self, name: str) -> Condition:
        [found] = self.nodes[name].conditions
        return found

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"konductor_like_{name}", labels) or 0.0


def test_every_gpu_node_gets_a_condition_once_and_then_nothing_is_sent() -> None:
    cluster = Cluster(3)

    assert cluster.rounds() == [("gpu-1", "False"), ("gpu-2", "False"), ("gpu-3", "False")]
    assert cluster.rounds(600) == []
    assert cluster.count("node_conditions_waiting") == 0


def test_5000_nodes_get_their_first_condition_at_five_a_second_and_a_faulty_one_goes_first() -> None:
    cluster = Cluster(5000)
    assert len(cluster.rounds(2)) == 2 * WRITES_A_ROUND
    assert cluster.count("node_conditions_waiting") == 4995

    cluster.taint("gpu-4321")

    assert cluster.rounds()[0] == ("gpu-4321", "True")


def test_5000_nodes_whose_conditions_are_right_see_no_write() -> None:
    """Also not after a restart of the controller: what a Node has comes from the watch."""
    cluster = Cluster(5000)
    stands = Condition(KIND, "False", "NoFault", f"{CONDITION_MARK}in other words", "2026-03-04T11:00:00Z")
    cluster.nodes = {name: replace(state, conditions=(stands,)) for name, state in cluster.nodes.items()}

    assert cluster.rounds(60) == []


def test_nothing_is_sent_before_the_controller_knows_who_is_heard() -> None:
    assert Cluster(heard=False).rounds(10) == []


def test_a_taint_and_its_end_are_written_with_the_time_of_the_change() -> None:
    cluster = Cluster()
    cluster.rounds(10)
    cluster.taint("gpu-2")
    assert cluster.rounds(10) == [("gpu-2", "True")]
    assert cluster.condition("gpu-2").since == "2026-03-04T12:00:10Z"

    cluster.nodes["gpu-2"] = replace(cluster.nodes["gpu-2"], taints=())

    assert cluster.rounds() == [("gpu-2", "False")]
    assert cluster.condition("gpu-2").since == "2026-03-04T12:00:20Z"


def test_another_reason_keeps_the_time_of_the_last_change_of_the_status() -> None:
    cluster = Cluster()
    cluster.rounds(100)
    cluster.change("gpu-1", reason="Suspect")

    assert cluster.rounds() == [("gpu-1", "False")]
    assert cluster.condition("gpu-1").since == "2026-03-04T12:00:00Z"


def test_a_silent_node_becomes_unknown_and_false_when_it_is_heard_again() -> None:
    cluster = Cluster()
    cluster.rounds()

    cluster.hear("gpu-3")
    assert cluster.rounds(10) == [("gpu-3", "Unknown")]
    cluster.hear()
    assert cluster.rounds(10) == [("gpu-3", "False")]


def test_a_condition_that_another_writer_removes_is_written_again_once_a_minute_with_its_old_time() -> None:
    cluster = Cluster(1)
    cluster.rounds(100)

    for _ in range(300):  # an agent that replaces the whole list each second
        cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], conditions=())
        cluster.rounds()

    assert len(cluster.sent) == 1 + 300 / AGAIN_SECONDS
    cluster.rounds(round(AGAIN_SECONDS))
    assert cluster.condition("gpu-1").since == "2026-03-04T12:00:00Z"


def test_a_real_change_does_not_wait_for_that_minute() -> None:
    cluster = Cluster(1)
    cluster.rounds()
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], conditions=())
    cluster.taint("gpu-1")

    assert cluster.rounds() == [("gpu-1", "True")]


@pytest.mark.parametrize(("kind", "sent"), [("", "removed"), ("NewName", "False")])
def test_switched_off_or_renamed_the_old_condition_leaves_every_node_and_the_log_names_it(
    kind: str, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    cluster = Cluster(2)
    cluster.rounds()
    cluster.taint("gpu-2")
    cluster.rounds()
    cluster.conditions = cluster.leadership(kind)
    cluster.hear()

    urgent = ("gpu-2", "True" if kind else "removed")
    assert cluster.rounds(100) == [urgent, ("gpu-1", sent)]
    assert [name.type for state in cluster.nodes.values() for name in state.conditions] == (
        [kind] * 2 if kind else []
    )
    [line] = [each.message for each in caplog.records]
    assert line.endswith("the controller removes the Node condition TrainyGPUFaulty of before.")


def test_without_a_name_and_without_old_conditions_nothing_is_sent() -> None:
    assert Cluster(kind="").rounds(100) == []


def test_a_missing_right_is_logged_once_with_the_manifest_and_tried_again_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.errors = [KubeForbidden("cannot patch nodes/gpu-1/status: forbidden") for _ in range(3)]

    sent = cluster.rounds(round(3 * DENIED_SECONDS))

    assert sent == [("gpu-1", "False")] * 3
    assert cluster.count("kube_errors_total", error="KubeForbidden") == 3
    [line] = [each.message for each in caplog.records]
    assert "cannot patch nodes/gpu-1/status: forbidden. The controller taints nodes as before" in line
    assert "apply manifests/node_condition.yaml" in line

    assert len(cluster.rounds(2)) == 3  # all nodes, once the right is there


POLICY = KubeForbidden("ValidatingAdmissionPolicy denied the request")
POLICY.by_admission = True
FOREIGN = Condition("GPUBroken", "True", "X", f"{CONDITION_MARK}by another program", "2026-03-04T11:00:00Z")


class Guarded(Cluster):
    """The policy lets the controller write and remove its condition alone; some nodes have another's."""

    def __init__(self, size: int, *foreign: str, denied: tuple[str, ...] = ()) -> None:
        super().__init__(size)
        self.denied = denied
        for name in foreign:
            self.nodes[name] = replace(self.nodes[name], conditions=(FOREIGN,))

    def write(self, state: NodeState, condition: Condition | None, now: datetime) -> NodeState:
        written = super().write(state, condition, now)
        if FOREIGN in state.conditions or state.name in self.denied:
            raise POLICY
        others = tuple(each for each in self.nodes[state.name].conditions if each.type != KIND)
        return replace(written, conditions=(*written.conditions, *others))


def test_a_condition_that_another_program_wrote_in_our_name_stops_no_condition_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Guarded(10, "gpu-3", "gpu-4", "gpu-5", "gpu-6")

    sent = cluster.rounds(60)

    for state in cluster.nodes.values():
        assert [each.status for each in state.conditions if each.type == KIND] == ["False"], state.name
    assert len(sent) == 10 + 4
    assert cluster.rounds(round(DENIED_SECONDS) - 120) == []
    assert len(cluster.rounds(120)) == 4  # the removal is tried again every ten minutes
    assert "ValidatingAdmissionPolicy denied" in caplog.records[0].message


def test_a_taint_of_a_node_with_such_a_condition_is_reported_at_once() -> None:
    cluster = Guarded(3, "gpu-2")
    cluster.rounds(60)

    cluster.taint("gpu-2")

    assert cluster.rounds(2) == [("gpu-2", "True")]


def test_a_node_whose_condition_is_refused_delays_no_other_and_is_tried_again_every_ten_minutes() -> None:
    cluster = Guarded(20, denied=("gpu-1",))
    cluster.taint("gpu-1")  # urgent, so it goes first
    cluster.rounds(60)
    assert all(state.conditions for name, state in cluster.nodes.items() if name != "gpu-1")
    assert cluster.sent.count(("gpu-1", "True")) == 1

    for minute in range(20):
        cluster.taint(f"gpu-{1 + minute}")
        assert cluster.rounds(60)[:1] in ([(f"gpu-{1 + minute}", "True")], [])
    assert cluster.sent.count(("gpu-1", "True")) == 3


def test_refused_nodes_that_are_gone_are_forgotten() -> None:
    cluster = Guarded(3, "gpu-1", denied=("gpu-2",))
    cluster.rounds(10)
    cluster.nodes = {}

    cluster.rounds()

    assert cluster.conditions._refused == {}


def test_after_an_outage_the_writes_go_on_with_pauses_that_grow(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(1)
    cluster.errors = [KubeUnavailable("out of order") for _ in range(20)]

    sent = cluster.rounds(600)

    assert 20 < len(sent) + 1 <= 22
    assert cluster.condition("gpu-1").status == "False"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [KubeNotFound("gone"), KubeInvalid("another UID")])
def test_a_node_that_is_gone_or_made_again_delays_no_other(error: KubeError) -> None:
    cluster = Cluster(2)
    cluster.errors = [error]

    assert cluster.rounds(30) == [("gpu-1", "False"), ("gpu-2", "False")]
    assert cluster.rounds(60) == [("gpu-1", "False")]  # it exists after all


def test_nothing_is_sent_after_the_lease_is_lost() -> None:
    """The writer asks for the deadline before each request; the round ends with the first refusal."""
    cluster = Cluster()
    cluster.errors = [LeadershipLost("the Lease could not be renewed")]

    assert len(cluster.rounds()) == 1
    assert cluster.count("kube_errors_total", error="LeadershipLost") == 0


def test_nodes_that_are_gone_are_forgotten() -> None:
    cluster = Cluster(0)
    for generation in range(50):
        cluster.nodes = {
            name: replace(state, as_read=replace(state.as_read, uid=f"{name}-{generation}"))
            for name, state in fleet(100).items()
        }
        cluster.hear()
        cluster.rounds(20)

    conditions = cluster.conditions
    assert len(cluster.sent) == 5000
    assert len(conditions._sent) <= 100


def test_its_thread_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konductor_like.controller.side.node_condition.ROUND_SECONDS", 0.01)
    cluster = Cluster()

    with running(cluster.conditions):
        wait_until(lambda: all(state.conditions for state in cluster.nodes.values()))

    assert [each.name for each in cluster.conditions._threads] == ["conditions"]


def test_after_a_bug_its_thread_rests_for_a_minute() -> None:
    cluster = Cluster()
    cluster.conditions._wait_seconds = 0
    cluster.nodes = {"gpu-1": cast("NodeState", None)}

    with pytest.raises(AttributeError):
        cluster.conditions.step()

    assert cluster.conditions._wait_seconds == AGAIN_SECONDS
