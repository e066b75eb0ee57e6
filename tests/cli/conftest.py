"""A cluster to try the commands on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.client import KubeClient
from konductor_like.sandbox.kubernetes import KubernetesServer
from tests.cli.scenes import NOW, RULES, SCENES, seed_lease
from tests.cli.transcripts import forget_settings

Cluster = Callable[[str], KubernetesServer]


class Done(NamedTuple):
    """What a command printed, and its exit status."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its output as JSON."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process."""

    def run_command(*arguments: str) -> Done:
        capsys.readouterr()
        code = execute(arguments, "konductor-like")
        return Done(code, *capsys.readouterr())

    return run_command


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """``-v`` changes the logging of the whole process; the next test is another process to its mind."""
    root, ours = logging.getLogger(), logging.getLogger("konductor_like")
    before = (list(root.handlers), ours.level)
    yield
    root.handlers[:] = before[0]
    ours.setLevel(before[1])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Starts the stand-in with a scene's nodes and a running controller's Lease; ``KUBECONFIG`` names it."""
    forget_settings(monkeypatch)
    monkeypatch.setattr(session, "now", lambda: NOW)
    monkeypatch.setattr("konductor_like.cli.explain.command.digest_of", lambda _: RULES)
    with ExitStack() as exits:

        def start(scene: str) -> KubernetesServer:
            server = exits.enter_context(KubernetesServer(nodes=SCENES[scene]()))
            kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
            monkeypatch.setenv("KUBECONFIG", kubeconfig)
            with closing(KubeClient.connect(kubeconfig, None, 10)) as client:
                seed_lease(server, client)
            server.clear_calls()
            return server

        yield start
