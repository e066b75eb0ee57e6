"""Who shows when our taint is removed: each kind of writer, with and without a second taint (rule 23)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from konductor_like.cluster.node.managers import changed_by, writers_of
from konductor_like.cluster.node.patch import OUR_TAINT
from konductor_like.policy.node.removal import is_person
from tests.contract.kubernetes_target import Answer, Target

MERGE_PATCH, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
OTHER = {"key": "contract.example/other", "value": "x", "effect": "NoSchedule"}
SECOND = 1.1
"""Seconds after which an entry has another time: the server writes whole seconds."""
UNSUPPORTED = 415
"""The stand-in takes no apply of Nodes: these cases are for a real API server."""
Removal = Callable[[Target, str, list[dict[str, str]], str], Answer]


def merged(target: Target, path: str, taints: list[dict[str, str]], manager: str) -> Answer:
    """Write the list without our taint, as kubectl and most controllers do."""
    return target.patch(path, {"spec": {"taints": taints or None}}, MERGE_PATCH, fieldManager=manager)


def removed(target: Target, path: str, taints: list[dict[str, str]], manager: str) -> Answer:
    """Remove our taint by its place in the list."""
    return target.patch(path, [{"op": "remove", "path": f"/spec/taints/{len(taints)}"}], fieldManager=manager)


def replaced(target: Target, path: str, taints: list[dict[str, str]], manager: str) -> Answer:
    """Write an old copy of the Node back."""
    node: dict[str, Any] = target.get(path).body
    node["spec"]["taints"] = taints
    return target.send("PUT", path, node, params={"fieldManager": manager})


def applied(target: Target, path: str, taints: list[dict[str, str]], manager: str) -> Answer:
    """Own the list of taints by server-side apply."""
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": path.rpartition("/")[2]}}
    body = {**wanted, "spec": {"taints": taints}}
    return target.send("PATCH", path, body, APPLY, params={"fieldManager": manager, "force": "true"})


PERSONS = ["kubectl-taint", "kubectl-edit", "kubectl-patch", "k9s", "node-fetch", "Mozilla"]
CASES = [
    *((merged, name, True) for name in PERSONS),
    (removed, "kubectl-patch", True),
    (merged, "karpenter", False),
    (replaced, "kubectl-replace", False),
    (replaced, "node-pool", False),
    (applied, "kubectl", False),
    (applied, "argocd-controller", False),
]


def _words(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.fixture(scope="module")
def steps(target: Target) -> dict[tuple[Removal, str, bool], tuple[str | None, list[Any]]]:
    """Who changed each Node, and its taints then; the waits for another second are shared by all cases."""
    asked = [(how, manager, second) for how, manager, _ in CASES for second in (False, True)]
    paths = {each: target.create_node(spec={"taints": [OTHER]} if each[2] else {}) for each in asked}
    time.sleep(SECOND)
    before = {}
    for each, node in paths.items():
        taints = [*node.body["spec"].get("taints", []), dict(OUR_TAINT)]
        path = f"/api/v1/nodes/{node.meta['name']}"
        before[each] = target.patch(
            path, {"spec": {"taints": taints}}, MERGE_PATCH, fieldManager="konductor-like"
        )
    time.sleep(SECOND)
    found: dict[tuple[Removal, str, bool], tuple[str | None, list[Any]]] = {}
    for (how, manager, second), old in before.items():
        path = f"/api/v1/nodes/{old.meta['name']}"
        new = how(target, path, [OTHER] if second else [], manager)
        if how is applied and new.status == UNSUPPORTED:
            continue
        assert new.status == 200, new.body
        by = changed_by(*(writers_of(each.meta.get("managedFields")) for each in (old, new)))
        found[how, manager, second] = by, new.body["spec"].get("taints", [])
    return found


@pytest.mark.parametrize(("how", "manager", "person"), CASES, ids=_words)
def test_a_writer_shows_if_the_node_has_another_taint(
    steps: Mapping[Any, Any], how: Removal, manager: str, *, person: bool
) -> None:
    if (how, manager, True) not in steps:
        pytest.skip("the stand-in takes no apply of Nodes")
    by, taints = steps[how, manager, True]

    assert taints == [OTHER]
    assert by == (f"{manager} (apply)" if how is applied else manager)
    assert is_person(by) is person


@pytest.mark.parametrize(
    ("how", "manager"), [case[:2] for case in CASES if case[0] is not applied], ids=_words
)
def test_a_writer_that_only_removes_shows_nowhere(
    steps: Mapping[Any, Any], how: Removal, manager: str
) -> None:
    assert steps[how, manager, False] == (None, [])


def test_an_apply_of_an_empty_list_shows_its_writer(steps: Mapping[Any, Any]) -> None:
    if (applied, "argocd-controller", False) not in steps:
        pytest.skip("the stand-in takes no apply of Nodes")
    by, taints = steps[applied, "argocd-controller", False]

    assert (by, taints) == ("argocd-controller (apply)", [])
