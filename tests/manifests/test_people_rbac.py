"""The roles for people: every command works with them, and they grant nothing that no command uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.api.client import KubeClient, events_path
from konductor_like.model import Severity
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.access import Attempt
from konductor_like_sandbox.kubernetes.exec import Command, Outcome
from konductor_like_sandbox.kubernetes.fleet import make_reader_pod
from tests.cli.scenes import NOW, SCENES, boot_of, incident, seed_lease, with_record
from tests.cli.transcripts import forget_settings
from tests.manifests.roles import rules_of, single
from tools.manifests.manifests import documents, only

LogIn = Callable[[str], None]
DOCS = documents("people_rbac.yaml")
VIEWERS, OPERATORS = "konductor-like-viewers", "konductor-like-operators"
TESTERS = "konductor-like-testers"
LOOKING = (
    *("status", "explain node gpu-1", "brake status", "reset --all --yes --dry-run"),
    "taint gpu-2 --reason x --dry-run",
)
ACTING = (
    "taint gpu-2 --reason x",
    "pause --reason x",
    "brake reset",
    "reset gpu-1 --yes",
)
PURGE = "reset gpu-1 --purge --yes"
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
        groups = (OPERATORS, TESTERS) if group == TESTERS else (group,)  # testers are operators, too
        token = server.access.add_user(group, [rule for each in groups for rule in rules_of(DOCS, each)])
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / group, token)))

    return become


def run(command: str) -> int:
    return execute(command.split(), "konductor-like")


def denied(server: KubernetesServer) -> list[tuple[str, str]]:
    """Return the refused requests, apart from those in another's name: nobody here may impersonate."""
    own = (call for call in server.calls() if "impersonate-user" not in call.request.headers)
    return [(call.verb, call.resource) for call in own if call.status == 403]


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
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:1")
    check_the_chain(server)

    used = [Attempt(c.verb, c.resource, c.group, c.namespace, c.name) for c in server.calls()]
    unused = [rule for rule in single(rules_of(DOCS, OPERATORS)) if not any(map(rule.covers, used))]

    assert used
    assert unused == []


def taint_for(server: KubernetesServer, asked: Command) -> Outcome:
    """Do what reader, Loki and controller do with the line of a test: taint the node, create the Event."""
    node, line = server.node("gpu-2"), asked.words[-1]
    test = incident("xid.14", "0000:ff:1f", severity=Severity.TEST, boot=boot_of(node), evidence=line)
    server.put_node(with_record(node, test, tainted=True))
    about = {"kind": "Node", "name": "gpu-2", "uid": node["metadata"]["uid"], "apiVersion": "v1"}
    event = {
        "metadata": {"name": "taint", "namespace": "default"},
        "involvedObject": about,
        "reason": "GPUFaultTainted",
        "message": line,
    }
    path = server.kubeconfig(
        Path(os.environ["KUBECONFIG"]).parent / "anybody", server.access.add_user("anybody")
    )
    with closing(KubeClient.connect(str(path), None, 10)) as client:
        client.create(events_path("default"), event)
    return Outcome()


def test_testers_may_test_a_node_and_no_right_of_theirs_is_unused(
    server: KubernetesServer, log_in: LogIn
) -> None:
    server.put_pod(make_reader_pod("gpu-2"))
    server.exec.run = lambda asked: taint_for(server, asked)
    log_in(OPERATORS)
    assert run("reset gpu-1 --yes") == 0  # else the brake has no room
    assert run("test gpu-2 --with-jobs") == 1
    server.clear_calls()

    log_in(TESTERS)
    assert run("test gpu-2") == 0

    assert denied(server) == []
    used = [Attempt(c.verb, c.resource, c.group, c.namespace, c.name) for c in server.calls()]
    used += [replace(each, verb="create") for each in used if each.resource == "pods/exec"]
    assert [rule for rule in single(rules_of(DOCS, TESTERS)) if not any(map(rule.covers, used))] == []
    in_pods = [rule for rule in rules_of(DOCS, TESTERS) if "pods/exec" in rule.resources]
    assert [tuple(rule.namespaces) for rule in in_pods] == [("dmesg-logging",)]
