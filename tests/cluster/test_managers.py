"""Who changed a Node in a step: which entry of ``managedFields`` changed (rule 23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api.watch import WatchEvent
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.managers import changed_by, with_removal, writers_of
from konductor_like.cluster.node.store import NodeStore
from konductor_like.model import TAINT_EFFECT, TAINT_KEY, TAINT_VALUE, NodeState, Writer
from tests.cluster import scenes

if TYPE_CHECKING:
    from konductor_like.cluster.api.client import ReadOnlyKubeClient

OURS = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
OTHER = {"key": "other", "effect": "NoSchedule"}


def entry(manager: str, second: int, operation: str = "Update", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "time": f"2026-03-04T12:00:{second:02}Z", **more}


US = entry("konductor-like", 10)


def state(*taints: dict[str, str], fields: list[dict[str, Any]], uid: str = "uid-1") -> NodeState:
    """Return a decoded Node with these taints and this ``managedFields``."""
    node = scenes.raw_node(taints=list(taints))
    node["metadata"] |= {"uid": uid, "managedFields": fields}
    return decode_node(node)


def step(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str | None:
    """Return who changed a Node whose ``managedFields`` were ``before`` and are ``after``."""
    return changed_by(writers_of(before), writers_of(after))


def test_a_new_entry_and_a_later_time_show_who_wrote() -> None:
    known = entry("kubectl-taint", 5)

    assert step([US], [US, entry("kubectl-taint", 20)]) == "kubectl-taint"
    assert step([US, known], [US, entry("kubectl-taint", 20)]) == "kubectl-taint"


def test_a_write_that_only_removes_shows_nobody_although_a_person_wrote_before() -> None:
    person = entry("kubectl-edit", 30)

    assert step([US, person], [US, person]) is None
    assert step([US, person], [US]) is None  # its fields were taken over


def test_the_entry_of_an_old_copy_shows_nobody() -> None:
    """A PUT of an old copy brings its entries back, with their times of then."""
    assert step([US], [entry("kubectl-edit", 2)]) is None


def test_an_apply_is_named_as_one() -> None:
    assert step([US], [US, entry("kubectl", 20, "Apply")]) == "kubectl (apply)"


def test_our_own_entry_and_that_of_the_status_do_not_count() -> None:
    after = [entry("konductor-like", 20), entry("kubelet", 21, subresource="status")]

    assert step([US], after) is None


def test_two_entries_in_one_step_are_no_persons() -> None:
    assert step([US], [US, entry("kubectl-edit", 20), entry("pool", 20)]) == "kubectl-edit, pool"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(ANYTHING)
def test_managed_fields_of_any_form_are_read(fields: Any) -> None:
    assert changed_by((), writers_of(fields)) is None
    writers_of([fields, {"manager": fields, "time": fields}])


@pytest.mark.parametrize(
    ("seen_all", "uid", "by"), [(True, "uid-1", "k9s"), (False, "uid-1", None), (True, "uid-2", None)]
)
def test_only_a_step_that_the_watch_showed_tells_who_removed_the_taint(
    seen_all: bool, uid: str, by: str | None
) -> None:
    before = state(OURS, OTHER, fields=[US])
    after = state(OTHER, fields=[US, entry("k9s", 20)], uid=uid)

    found = with_removal(after, before, is_step=seen_all)

    assert (found.removed_by, found.writers) == (by, ())


def test_who_removed_the_taint_is_known_until_it_is_there_again() -> None:
    gone = [US, entry("k9s", 20)]
    known = state(OURS, OTHER, fields=[US])
    off = with_removal(state(OTHER, fields=gone), known, is_step=True)

    later = with_removal(state(fields=gone), off, is_step=False)
    back = with_removal(state(OURS, fields=gone), later, is_step=True)

    assert (off.removed_by, later.removed_by, back.removed_by) == ("k9s", "k9s", None)
    assert back.writers == (Writer("konductor-like", "Update", US_NS), Writer("k9s", "Update", K9S_NS))


def test_another_value_is_a_taint_of_our_key_so_its_step_counts() -> None:
    before = state({**OURS, "value": "rma-42"}, OTHER, fields=[US])
    after = state(OTHER, fields=[US, entry("k9s", 20)])

    assert with_removal(after, before, is_step=True).removed_by == "k9s"


[(_, _, US_NS), (_, _, K9S_NS)] = writers_of([US, entry("k9s", 20)])


@pytest.mark.parametrize("lag", [1, 2], ids=["same version", "later version"])
def test_an_answer_ahead_of_the_watch_hides_no_person(lag: int) -> None:
    def event(version: int, *taints: dict[str, str], fields: list[dict[str, Any]]) -> WatchEvent:
        node = scenes.raw_node(taints=list(taints))
        node["metadata"] |= {"uid": "uid-1", "managedFields": fields, "resourceVersion": str(version)}
        return WatchEvent("MODIFIED", node)

    store = NodeStore(cast("ReadOnlyKubeClient", None), decode_node)
    gone = [US, entry("kubectl-taint", 20)]
    store._take(event(10, OURS, OTHER, fields=[US]))

    store.apply(decode_node(event(10 + lag, OTHER, fields=gone).object))
    [ahead] = store.snapshot().values()
    store._take(event(11, OTHER, fields=gone))
    [found] = store.snapshot().values()

    assert (ahead.removed_by, found.removed_by) == (None, "kubectl-taint")
    assert found.as_read.resource_version == str(10 + lag)
