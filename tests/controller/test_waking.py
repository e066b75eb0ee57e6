"""Changes of nodes are gathered, a delivery is reconciled at once; and wrong clocks are logged."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from konductor_like.controller import logs
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop import leadership as leaderships
from konductor_like.controller.loop.leadership import Leadership
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reading.poller import Delivery
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import Coverage, Misnamed
from tests.controller.reconciling import Scene, xid
from tests.policy.scenes import at, ns

FLEET = SimpleNamespace(update=lambda *_: Coverage(at(0)), hearing={})


def bare_leadership(
    clock_ahead_seconds: Callable[[], float] = lambda: 0.0,
    *,
    reconciler: Reconciler | None = None,
    nodes: Nodes | None = None,
    fleet: object = None,
) -> Leadership:
    """Return a leadership without sources: the tests use its inbox, its clocks and its nodes."""
    return Leadership(
        cast("Reconciler", reconciler),
        cast("Nodes", nodes),
        {},
        Metrics(),
        cast("FleetMonitor", fleet),
        intervals={},
        stale_seconds=300,
        now_ns=lambda: 1,
        clock_ahead_seconds=clock_ahead_seconds,
        stop=threading.Event(),
    )


def test_changes_of_nodes_make_one_reconcile_and_a_delivery_does_not_wait_for_more_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leadership = bare_leadership()
    monkeypatch.setattr(leaderships, "WAKE_SECONDS", 0.01)
    for _ in range(100):
        leadership.wake()
    assert leadership._next_deliveries(3600.0) == []
    assert leadership._inbox.empty()

    monkeypatch.setattr(leaderships, "WAKE_SECONDS", 3600.0)
    delivery = Delivery("kernel", cast("PollResult", None))
    leadership.wake()
    leadership._inbox.put(delivery)

    assert leadership._next_deliveries(3600.0) == [delivery]


def test_records_left_to_write_wake_the_next_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(size=100)
    text = "[9.0] NVRM: Xid (PCI:0000:1b:00): 63, pid=1"
    scene.run(*(replace(xid(f"gpu-{i}"), text=text) for i in range(1, 101)), seconds=2)
    leadership = bare_leadership(reconciler=scene.reconciler, nodes=scene.cluster, fleet=FLEET)
    monkeypatch.setattr(leaderships, "datetime", SimpleNamespace(now=lambda _: at(3)))
    monkeypatch.setattr(leaderships, "WAKE_SECONDS", 0.0)
    reconciles = 1

    leadership._reconcile([])
    while not leadership._inbox.empty():
        leadership._reconcile(leadership._next_deliveries(0.0))
        reconciles += 1

    assert (len(scene.cluster.written), reconciles) == (100, 3)


def test_clocks_that_differ_are_logged_once_and_a_large_difference_blames_no_single_clock() -> None:
    log = io.StringIO()
    logs.set_up("text", "info", stream=log)
    ahead_seconds = 0.0
    leadership = bare_leadership(lambda: ahead_seconds)

    for ahead_seconds in (0.0, 30.0, 30.0, -7200.0, -7200.0, 30.0, 0.0):  # noqa: B007  # what the leadership asks for
        leadership._log_clock_difference()

    told = [line.split("WARNING ")[-1] for line in log.getvalue().splitlines()]
    assert len(told) == 2
    assert told[0].startswith("Loki's clock differs by +30 s from this machine's. The controller reads by")
    assert told[1].startswith("Loki's clock differs by -7200 s from this machine's, according to the Date")
    assert "clocks of this machine, of Loki and of any gateway between them" in told[1]


def test_names_that_no_node_has_go_onto_the_lease_with_the_coverage() -> None:
    scene = Scene()
    scene.run(xid("GPU-2"), seconds=2)
    scene.run(seconds=700)
    leadership = bare_leadership(reconciler=scene.reconciler, nodes=scene.cluster, fleet=FLEET)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaderships, "datetime", SimpleNamespace(now=lambda _: at(700)))
        leadership._update_coverage()

    coverage = leadership.lease_content().coverage
    assert coverage is not None
    assert dict(coverage.misnamed) == {"GPU-2": Misnamed(1, ns(1))}


@pytest.mark.parametrize(
    ("hearing", "says"),
    [
        ({"gpu-1": None, "gpu-2": None}, "INFO Read once: 2 of 3 GPU nodes are heard, 1 tainted."),
        ({}, "WARNING Read once: 0 of 3 GPU nodes are heard, 1 tainted. `konductor-like doctor` finds"),
    ],
)
def test_a_run_with_once_says_at_its_end_how_many_nodes_it_heard(
    monkeypatch: pytest.MonkeyPatch, hearing: object, says: str
) -> None:
    log, scene = io.StringIO(), Scene(3)
    logs.set_up("text", "info", stream=log)
    scene.run(xid("gpu-2"), seconds=2)
    fleet = SimpleNamespace(update=FLEET.update, hearing=hearing)
    leadership = bare_leadership(reconciler=scene.reconciler, nodes=scene.cluster, fleet=fleet)
    monkeypatch.setattr(leaderships, "datetime", SimpleNamespace(now=lambda _: at(3)))
    monkeypatch.setattr(leaderships, "ONCE_SECONDS", 0.0)

    assert leadership.run_once()

    assert says in log.getvalue()
