"""Fixtures of the contract suite: the servers to test, Nodes and namespaces.

The servers are the stand-ins, or the real ones named by ``KONDUCTOR_TEST_LOKI_URL`` and
``KONDUCTOR_TEST_KUBECONFIG``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract import kubernetes_target, loki_target


@pytest.fixture(scope="module")
def target() -> Iterator[kubernetes_target.Target]:
    """The API server."""
    with kubernetes_target.open_target() as target:
        yield target


@pytest.fixture
def group(target: kubernetes_target.Target) -> str:
    """A label value of four Nodes."""
    value = target.name()
    for number in range(4):
        target.create_node(metadata={"labels": {"group": value, "number": str(number)}})
    return value


@pytest.fixture
def node(target: kubernetes_target.Target) -> kubernetes_target.Answer:
    """A Node for one test, as read."""
    return target.create_node()


@pytest.fixture(scope="module")
def loki() -> Iterator[loki_target.Target]:
    """The Loki."""
    with loki_target.open_target() as target:
        yield target


@pytest.fixture
def namespace(loki: loki_target.Target) -> str:
    """A namespace without lines."""
    return loki.namespace()


@pytest.fixture
def at_ns() -> int:
    """About a minute ago."""
    return loki_target.a_minute_ago_ns()
