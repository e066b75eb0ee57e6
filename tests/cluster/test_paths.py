from __future__ import annotations

import pytest

from konductor_like.cluster.client import (
    NODES_PATH,
    events_path,
    lease_path,
    namespace_path,
    node_path,
    spoken_path,
)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (NODES_PATH, "nodes"),
        (node_path("gpu-1"), "nodes/gpu-1"),
        (node_path("../x"), "nodes/..%2Fx"),
        (node_path(".."), "nodes/%2E%2E"),
        (namespace_path("a"), "namespaces/a"),
        (events_path("default"), "events in namespace default"),
        (lease_path("a", "b"), "leases/b in namespace a"),
    ],
)
def test_a_path_is_spoken_of_as_people_do(path: str, words: str) -> None:
    assert spoken_path(path) == words


def test_a_node_name_cannot_leave_its_place_in_the_path() -> None:
    assert node_path("a/../../b?c") == "/api/v1/nodes/a%2F..%2F..%2Fb%3Fc"
