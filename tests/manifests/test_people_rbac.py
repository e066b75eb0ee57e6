"""The roles for people: every command works with them, and they grant nothing that no command uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cli.status.watch import reports
from konductor_like.cluster.client import KubeClient, ReadOnlyKubeClient
from konductor_like.sandbox.kubernetes import KubernetesServer
from konductor_like.sandbox.kubernetes.access import Attempt
from tests.cli.scenes import NOW, SCENES, seed_lease
from tests.cli.transcripts import forget_settings
from tests.manifests.manifests import documents, only
from tests.manifests.roles import rules_of, single

LogIn = Callable[[str], None]
DOCS = documents("people_rbac.yaml")
VIEWERS, OPERATORS = "konductor-like-viewers", "konductor-like-operators"
LOOKING = (
    *("status", "explain node gpu-1", "brake status", "reset --dry-run"),
    "taint gpu-2 --reason x --dry-run",
)
ACTING = (
    "taint gpu-2 --reason x",
    "ack gpu-1 --reason x",
    "pause --reason x",
    "brake reset",
    "reset gpu-1",
)
PURGE = "reset gpu-1 --purge"
"""The command that also writes to the Lease."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    """A cluster with a faulty node and a Lease; no user has rights by default."""
    forget_settings(monkeypatch)
    monkeypatch.setattr(session, "now", lambda: NOW)
    with KubernetesServer(nodes=SCENES["one faulty"](), require_token=True) as server:
        admin = server.access.add_user("admin")
        with closing(
            KubeClient.connect(str(server.kubeconfig(tmp_path / "admin", admin)), None, 10)
        ) as client:
            seed_lease(server, client)
        server.clear_calls()
        yield server


@pytest.fixture
def log_in(server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogIn:
    """Makes the commands run as a member of a group."""

    def become(group: str) -> None:
        token = server.access.add_user(group, rules_of(DOCS, group))
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / group, token)))

    return become


def run(command: str) -> int:
    return execute(command.split(), "konductor-like")


def denied(server: KubernetesServer) -> list[tuple[str, str]]:
    return [(call.verb, call.resource) for call in server.calls() if call.status == 403]


@pytest.mark.parametrize("group", [VIEWERS, OPERATORS])
@pytest.mark.parametrize("command", LOOKING)
def test_both_groups_may_read(command: str, group: str, server: KubernetesServer, log_in: LogIn) -> None:
    log_in(group)

    assert run(command) == 0
    assert denied(server) == []


@pytest.mark.parametrize("command", [*ACTING, PURGE])
def test_operators_may_act_and_viewers_may_not(command: str, server: KubernetesServer, log_in: LogIn) -> None:
    log_in(VIEWERS)
    assert run(command) == 1
    assert denied(server)
    server.clear_calls()

    log_in(OPERATORS)
    assert run(command) == 0
    assert denied(server) == []


def watched(server: KubernetesServer) -> None:
    """Run `status --watch` until it has watched the Nodes."""
    with session.connected(ReadOnlyKubeClient, None, None) as (client, settings):
        for _ in reports(client, settings, (), None):
            if server.calls("watch", "nodes"):
                return


def check_the_chain(server: KubernetesServer) -> None:
    """Run the doctor against a cluster with the policy; nothing answers as Loki."""
    policy = only(documents("controller_deployment.yaml"), "ValidatingAdmissionPolicy")
    server.put("validatingadmissionpolicies", policy)
    run("doctor")


@pytest.mark.parametrize("group", [VIEWERS, OPERATORS])
def test_both_groups_may_check_the_chain(
    group: str, server: KubernetesServer, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:1")
    log_in(group)

    check_the_chain(server)
    assert denied(server) == []


def test_nothing_is_granted_that_no_command_uses(
    server: KubernetesServer, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(OPERATORS)
    for command in (*LOOKING, *ACTING, "resume"):
        assert run(command) == 0
    watched(server)
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:1")
    check_the_chain(server)

    used = [Attempt(c.verb, c.resource, c.group, c.namespace, c.name) for c in server.calls()]
    unused = [rule for rule in single(rules_of(DOCS, OPERATORS)) if not any(map(rule.covers, used))]

    assert used
    assert unused == []
