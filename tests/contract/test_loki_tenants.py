"""What we rely on of tenants, with the stand-in's ``auth_enabled``; no test here needs a real Loki."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.sandbox.loki import LokiServer
from tests.contract.loki_target import PLAIN, XID, Target, a_minute_ago_ns, around, kernel_resource, of


@pytest.fixture
def loki() -> Iterator[Target]:
    with LokiServer(auth_enabled=True) as server:
        yield Target(server.url, server, {"X-Scope-OrgID": "gpu-team"})


def test_without_a_tenant_nothing_is_told(loki: Target) -> None:
    anonymous = Target(loki.url, loki.server)

    assert anonymous.query_range(of("any"), *around(a_minute_ago_ns())).refusal == (401, PLAIN, "no org id\n")
    assert anonymous.push(({"a": "b"}, [])).status == 401
    assert anonymous.get("/ready").status == 200


def test_two_tenants_at_once_are_an_error_of_the_server(loki: Target) -> None:
    """As Loki has it while multi-tenant queries are off."""
    both = Target(loki.url, loki.server, {"X-Scope-OrgID": "gpu-team|other"})

    answer = both.query_range(of("any"), *around(a_minute_ago_ns()))

    assert (answer.status, answer.text) == (500, "multiple org IDs present")


def test_tenants_do_not_see_each_others_lines(loki: Target) -> None:
    at_ns = a_minute_ago_ns()
    loki.write(kernel_resource("dmesg-logging", "a"), (at_ns, XID))
    other = Target(loki.url, loki.server, {"X-Scope-OrgID": "other"})

    assert loki.query_range(of("dmesg-logging"), *around(at_ns)).texts == [XID]
    assert other.query_range(of("dmesg-logging"), *around(at_ns)).texts == []
