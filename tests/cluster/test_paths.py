from __future__ import annotations

import pytest

from konductor_like.cluster import paths


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (paths.NODES, "nodes"),
        (paths.node("gpu-1"), "nodes/gpu-1"),
        (paths.node("../x"), "nodes/..%2Fx"),
        (paths.node(".."), "nodes/%2E%2E"),
        (paths.namespace("a"), "namespaces/a"),
        (paths.events("default"), "events in namespace default"),
        (paths.lease("a", "b"), "leases/b in namespace a"),
    ],
)
def test_a_path_is_spoken_of_as_people_do(path: str, words: str) -> None:
    assert paths.spoken(path) == words


def test_a_node_name_cannot_leave_its_place_in_the_path() -> None:
    assert paths.node("a/../../b?c") == "/api/v1/nodes/a%2F..%2F..%2Fb%3Fc"
