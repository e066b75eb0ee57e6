"""Liveness, readiness and metrics over HTTP."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from konductor_like.controller.reporting.health_server import HealthServer
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.settings import parse_listen


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def server(reasons: list[str]) -> Iterator[HealthServer]:
    probes = HealthServer("127.0.0.1:0", Metrics().registry, alive=list, ready=lambda: list(reasons))
    yield probes
    probes.close()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server._server.server_port}{path}", timeout=5
        ) as answer:  # loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_dependency_that_is_down_makes_it_unready_but_not_dead(
    server: HealthServer, reasons: list[str]
) -> None:
    assert get(server, "/readyz") == (200, "ok\n")
    reasons.append("Loki does not answer")

    assert get(server, "/readyz") == (503, "Loki does not answer\n")
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/") == (404, "try /healthz, /readyz or /metrics\n")


def test_metrics_start_at_zero(server: HealthServer) -> None:
    status, text = get(server, "/metrics")

    assert status == 200
    assert 'konductor_like_actions_total{result="applied",verb="taint"} 0.0' in text
    assert 'konductor_like_lines_without_node_total{source="kernel"} 0.0' in text
    assert "_created" not in text


@pytest.mark.parametrize(
    ("listen", "expected"),
    [(":8080", ("0.0.0.0", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))],
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert parse_listen(listen) == expected


@pytest.mark.parametrize("listen", ["8080", "host:", "host:http", ":70000", ""])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_listen(listen)


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address_is_served() -> None:
    probes = HealthServer("[::1]:0", Metrics().registry, alive=list, ready=list)
    try:
        with urllib.request.urlopen(
            f"http://[::1]:{probes._server.server_port}/healthz", timeout=5
        ) as answer:
            assert answer.read() == b"ok\n"
    finally:
        probes.close()
