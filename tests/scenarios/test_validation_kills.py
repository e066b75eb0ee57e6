"""The controller is killed at each of its requests while it validates and returns a node.

One site has a node for each kill, and the nodes fail and come back one after the other. All kills take a
minute, so ``make test`` tries a sixth of them: ``KONDUCTOR_TEST_KILLS`` is which sixth, or ``all``. A renewal
of the Lease is no such request: between two others it changes nothing that a validation depends on.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.model import NodeState, ReleaseHow, ValidationStage, ValidationVerdict
from konductor_like_sandbox.http import Reply, Request
from tests.chaos.process import Killed
from tests.chaos.wire import BrokenOffError
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site, kind_of
from tests.scenarios.test_validations import NEW_BOOT, PASSES, open_site
from tests.scenarios.words import LOST, gpu

PARTS = 6
_CHOSEN = os.environ.get("KONDUCTOR_TEST_KILLS", "0")
CHOSEN = range(PARTS) if _CHOSEN == "all" else [int(_CHOSEN) % PARTS]
SIZE = 13
STEP_SECONDS = 20.0
PASS_SECONDS = 1800.0
"""Simulated time after which a node must have returned."""
LEASE = "leases/*"
BEFORE, AFTER, ANSWER_LOST = WAYS = (
    "killed before it is sent",
    "killed after it took effect",
    "only its answer is lost",
)


class Point(NamedTuple):
    """One request of the way from a node's reboot to its return, and what happens at it."""

    method: str
    kind: str
    number: int
    """How many requests of this method and kind there were, this one included."""
    way: str


class Watched:
    """The way of one node; sees each request of the controller, and what became of it."""

    def __init__(self, site: Site, node: str, trouble: Point | None) -> None:
        self.site, self.node, self.trouble = site, node, trouble
        self.requests: Counter[tuple[str, str]] = Counter()
        self.jobs: list[str] = []
        """The attempts whose Jobs were created."""
        self.returned = 0
        """How often the taint was removed."""
        self.had_trouble = False

    def way_back(self) -> None:
        """Let the node fail, reboot and return."""
        site = self.site
        site.kernel(self.node, LOST)
        site.run(STEP_SECONDS)
        assert self.node in site.tainted
        site.reboot(self.node, NEW_BOOT)
        site.kube.jobs.programs[self.node] = PASSES
        site.meddle = self
        end_ns = site.clock.true_ns + PASS_SECONDS * 1e9
        while site.clock.true_ns < end_ns and (self.node in site.tainted or site.kube.objects("jobs")):
            site.run(STEP_SECONDS, STEP_SECONDS)
            if site.process.dead:
                site.restart(5)
        site.run(STEP_SECONDS, STEP_SECONDS)
        site.silent.add(self.node)

    def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply:
        kind = kind_of(request.path)
        self.requests[request.method, kind] += 1
        here = (request.method, kind, self.requests[request.method, kind])
        way = self.trouble.way if self.trouble is not None and self.trouble[:3] == here else ""
        self.had_trouble |= bool(way)
        if way == BEFORE:
            raise Killed(self.site.process)
        if kind == LEASE or request.method == "GET":
            reply = answer()
        else:
            before = self._state()
            reply = answer()
            self._check(request, kind, reply, before)
        if way == AFTER:
            raise Killed(self.site.process)
        if way == ANSWER_LOST:
            raise BrokenOffError
        return reply

    def _state(self) -> NodeState:
        return node_decoder(self.site.settings)(self.site.kube.node(self.node))

    def _check(self, request: Request, kind: str, reply: Reply, before: NodeState) -> None:
        after = self._state()
        validation = after.record.validation
        running = validation.attempt if validation and validation.stage is ValidationStage.RUNNING else ""
        if (request.method, kind, reply.status) == ("POST", "jobs", 201):
            name = json.loads(request.body)["metadata"]["name"]
            assert name == f"validation-{running}", "the attempt is on the record before its Job exists"
            self.jobs.append(name)
        if request.method == "DELETE":
            assert not running, "the Job stays until its result is on the record"
        assert before.tainted or not after.tainted, "the node is not tainted again"
        self.returned += before.tainted and not after.tainted


def points(found: Counter[tuple[str, str]]) -> list[Point]:
    """Return all kills at these requests."""
    return [
        Point(*request, number, way)
        for way in WAYS
        for request, count in found.items()
        for number in range(1, count + 1)
        if request[1] != LEASE
    ]


@pytest.mark.parametrize("part", CHOSEN)
def test_a_controller_killed_at_any_request_returns_the_node_after_one_job_all_the_same(
    part: int, site_of: Opens
) -> None:
    site = open_site(site_of, size=SIZE, silent=True, returns_per_hour=10)
    good = Watched(site, gpu(1), None)
    good.way_back()
    troubles = points(good.requests)[part::PARTS]
    assert 8 <= len(troubles) < SIZE

    for number, trouble in enumerate([None, *troubles], 1):
        way = good if trouble is None else Watched(site, gpu(number), trouble)
        if trouble is not None:
            way.way_back()
            assert way.had_trouble, trouble
        record = site.record(way.node)
        assert record.validation is not None
        ended = (record.validation.stage, record.validation.verdict, record.validation.tries)
        assert ended == (ValidationStage.ENDED, ValidationVerdict.PASS, 1), trouble
        assert way.jobs == [f"validation-{record.validation.attempt}"], trouble
        assert way.returned == 1, trouble
        assert record.releases[0].how is ReleaseHow.VALIDATED, trouble
        assert not site.kube.objects("jobs"), trouble
