"""What a turn waits for: changes of nodes gather, a delivery is judged at once."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from konductor_like.controller import term as terms
from konductor_like.controller.edges import Nodes
from konductor_like.controller.fleetwatch import FleetWatch
from konductor_like.controller.lags import Lags
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.sources import Delivery
from konductor_like.controller.term import Term
from konductor_like.controller.tick import Tick
from konductor_like.loki.reader import Batch


def bare_term() -> Term:
    """Without sources; only its inbox is of interest."""
    return Term(
        cast("Tick", None),
        cast("Nodes", None),
        {},
        Metrics(),
        cast("FleetWatch", None),
        cast("Lags", None),
        intervals={},
        stale_seconds=300,
        now_ns=lambda: 1,
        stop=threading.Event(),
    )


@pytest.fixture
def term() -> Term:
    return bare_term()


def test_a_delivery_does_not_wait_for_changes_that_may_come(
    term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "WAKE_SECONDS", 3600.0)
    delivery = Delivery("kernel", cast("Batch", None))
    term.wake()
    term._inbox.put(delivery)

    assert term._next_deliveries(3600.0) == [delivery]


def test_changes_of_nodes_are_looked_at_together(term: Term, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "WAKE_SECONDS", 0.01)
    for _ in range(100):
        term.wake()

    assert term._next_deliveries(3600.0) == []
    assert term._inbox.empty()
