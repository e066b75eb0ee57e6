from __future__ import annotations

from typing import Any

import pytest

from konductor_like.cluster.node_decoder import last_writer
from konductor_like.cluster.transport import FIELD_MANAGER

SPEC: dict[str, Any] = {"f:spec": {"f:taints": {}}}


def entry(manager: str, minute: int, **parts: Any) -> dict[str, Any]:
    """One entry of managedFields, so many minutes after noon."""
    return {
        "manager": manager,
        "operation": "Update",
        "time": f"2026-05-06T12:{minute:02}:00Z",
        "fieldsV1": SPEC,
        **parts,
    }


def test_the_latest_writer_is_named_wherever_it_stands_in_the_list() -> None:
    fields = [entry("kubectl-edit", 5), entry("kubectl-taint", 9), entry("node-feature-discovery", 2)]

    assert last_writer(fields) == "kubectl-taint"


def test_we_are_never_the_suspect() -> None:
    assert last_writer([entry(FIELD_MANAGER, 9)]) is None


def test_a_writer_who_came_before_us_is_no_answer_to_who_changed_it_after_us() -> None:
    assert last_writer([entry("kubectl-edit", 1), entry(FIELD_MANAGER, 5)]) is None


def test_a_writer_in_our_own_second_may_have_come_after_us() -> None:
    assert last_writer([entry(FIELD_MANAGER, 5), entry("kubectl-taint", 5)]) == "kubectl-taint"


@pytest.mark.parametrize(
    "routine",
    [
        entry("kubelet", 9),
        entry("kube-controller-manager", 9),
        entry("k3s", 9),
        entry("gpu-agent", 9, subresource="status"),
        entry("prober", 9, fieldsV1={"f:status": {}}),
    ],
    ids=["kubelet", "node controller", "a distribution's one binary", "subresource", "status"],
)
def test_routine_writes_are_passed_over(routine: dict[str, Any]) -> None:
    assert last_writer([entry("kubectl-taint", 5), routine]) == "kubectl-taint"


@pytest.mark.parametrize(
    "odd",
    [None, {}, "x", [None, 3], [{}], [{"manager": 3}], [{"manager": "kubelet", "time": 5}]],
    ids=str,
)
def test_odd_fields_name_nobody(odd: object) -> None:
    assert last_writer(odd) is None


def test_an_entry_counts_without_fields_but_not_without_a_time() -> None:
    assert last_writer([{"manager": "kubectl"}]) is None
    assert last_writer([{"manager": "kubectl", "time": "2026-05-06T12:00:00Z"}]) == "kubectl"
