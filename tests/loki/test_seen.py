"""The memory of what was delivered."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.loki.response import Entry, Naming
from konductor_like.loki.seen import Seen, identity
from tests.loki.support import NOW, SECOND, entry, settings

NAMING = Naming.of(settings())
LINE = entry(NOW, "NVRM: one", k8s_pod_uid="u1", k8s_container_restart_count="0")


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(
            entry(
                NOW, "NVRM: one", k8s_pod_uid="u1", k8s_container_restart_count="0", observed_timestamp="7"
            ),
            id="read again by the collector",
        ),
        pytest.param(
            entry(
                NOW,
                "NVRM: one",
                k8s_pod_uid="u1",
                k8s_container_restart_count="0",
                k8s_daemonset_name="dmesg",
            ),
            id="enriched later",
        ),
    ],
)
def test_a_line_shipped_twice_is_the_same_line(again: Entry) -> None:
    assert identity(LINE, NAMING) == identity(again, NAMING)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            entry(NOW + 1, "NVRM: one", k8s_pod_uid="u1", k8s_container_restart_count="0"), id="time"
        ),
        pytest.param(entry(NOW, "NVRM: two", k8s_pod_uid="u1", k8s_container_restart_count="0"), id="text"),
        pytest.param(
            entry(NOW, "NVRM: one", node="gpu-b", k8s_pod_uid="u1", k8s_container_restart_count="0"),
            id="node",
        ),
        pytest.param(entry(NOW, "NVRM: one", k8s_pod_uid="u2", k8s_container_restart_count="0"), id="pod"),
        pytest.param(
            entry(NOW, "NVRM: one", k8s_pod_uid="u1", k8s_container_restart_count="1"), id="restart"
        ),
        pytest.param(
            entry(NOW, "NVRM: one", node=None, k8s_pod_uid="u1", k8s_container_restart_count="0"),
            id="no node",
        ),
    ],
)
def test_another_line_is_another_line(other: Entry) -> None:
    assert identity(LINE, NAMING) != identity(other, NAMING)


def test_without_a_node_any_label_tells_lines_apart() -> None:
    one, two = (Entry(NOW, "NVRM", {"job": "kmsg", "host": host}) for host in ("a", "b"))

    assert identity(one, NAMING) != identity(two, NAMING)


@hypothesis.settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
)
def test_parts_never_run_into_one_another(first: list[str], second: list[str]) -> None:
    one, two = (entry(NOW, text, k8s_pod_uid=uid) for uid, text in (first, second))

    assert (identity(one, NAMING) == identity(two, NAMING)) == (first == second)


@hypothesis.settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(0, 200 * SECOND), max_size=30), st.integers(0, 200 * SECOND))
def test_nothing_needed_is_forgotten_and_memory_is_bounded(timestamps: list[int], before_ns: int) -> None:
    seen = Seen()
    for timestamp in timestamps:
        seen.add(timestamp, str(timestamp).encode())

    seen.forget_before(before_ns)

    kept = {timestamp for timestamp in timestamps if seen.has(timestamp, str(timestamp).encode())}
    assert kept >= {timestamp for timestamp in timestamps if timestamp >= before_ns}
    assert not [timestamp for timestamp in kept if timestamp < before_ns - 10 * SECOND]
    assert len(seen) == len(kept)


def test_what_was_not_added_was_not_seen() -> None:
    seen = Seen()
    seen.add(NOW, b"one")

    assert seen.has(NOW, b"one")
    assert not seen.has(NOW, b"two")
    assert not seen.has(NOW + 100 * SECOND, b"one")
