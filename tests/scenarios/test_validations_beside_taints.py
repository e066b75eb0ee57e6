"""Validations never delay a taint: fifty wishes, two attempts, one that hangs, and slow answers about Jobs.

On simulated time, with the same faults with and without validations. A slow answer holds up the worker's own
thread, so here the worker makes a round only once the answer has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.record import encode
from konductor_like.controller.side.validations import Validations
from konductor_like.model import RECORD_ANNOTATION, ValidationStage
from konductor_like.policy.operator import validate
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_validations import IMAGE, SPACE
from tests.scenarios.words import LOST, gpu

TESTED = [gpu(number) for number in range(1, 51)]
FAILING = [gpu(number) for number in (51, 52)]
SLOW_SECONDS = 15.0
STEP_SECONDS = 5.0


def wish_validations(kube: KubernetesServer, settings: Settings, names: Iterable[str], at: datetime) -> None:
    """Write onto each of these nodes that somebody asks for a validation."""
    decode = node_decoder(settings)
    for name in names:
        change = validate(decode(kube.node(name)), 2, by="kim@laptop", at=at)
        assert change.record is not None
        text = encode(change.record)

        def write(node: dict[str, Any], text: str = text) -> None:
            node["metadata"]["annotations"][RECORD_ANNOTATION] = text

        kube.edit_node(name, write)


def slowed(site: Site) -> None:
    """Let the worker wait for an answer between two rounds."""
    assert site._process is not None
    assert site._process._leadership is not None
    worker = site._process._leadership._validations
    assert worker is not None
    last_seconds = float("-inf")

    def round_() -> None:
        nonlocal last_seconds
        if site.clock.seconds() - last_seconds >= SLOW_SECONDS:
            last_seconds = site.clock.seconds()
            Validations.round(worker)

    worker.round = round_  # type: ignore[method-assign]  # the answers of the API server are slow


def seconds_to_taints(site_of: Opens, *, with_validations: bool) -> Mapping[str, float]:
    """Return the seconds from each fault until its taint, while the other nodes are validated or not."""
    image = IMAGE if with_validations else ""
    site = site_of(make_fleet(52), brake_max_percent=100, validation_image=image)
    site.kube.create_namespace(SPACE)
    meta = {"name": "konductor-like-validation"}
    site.kube.put("priorityclasses", {"metadata": meta, "value": -1000, "preemptionPolicy": "Never"})
    for name in TESTED:
        site.kernel(name, LOST)
    site.run(10)
    assert site.tainted == set(TESTED)
    if with_validations:
        slowed(site)
        wish_validations(site.kube, site.settings, TESTED, site.clock.moment())
    site.run(45, step_seconds=15)
    found = {}
    for name in FAILING:
        site.kernel(name, LOST)
        begun = site.clock.seconds()
        while name not in site.tainted:
            site.run(STEP_SECONDS)
        found[name] = site.clock.seconds() - begun
    if with_validations:
        stages = [each.stage for name in TESTED if (each := site.record(name).validation)]
        assert stages.count(ValidationStage.RUNNING) == len(site.kube.objects("jobs")) == 2  # they hang
        assert stages.count(ValidationStage.ASKED) == len(TESTED) - 2
    return found


def test_no_taint_is_later_because_of_validations(site_of: Opens) -> None:
    without = seconds_to_taints(site_of, with_validations=False)

    assert seconds_to_taints(site_of, with_validations=True) == without
    assert max(without.values()) <= 2 * STEP_SECONDS
