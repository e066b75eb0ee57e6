"""A cluster to try the commands on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from konductor_like.cli.app import execute
from konductor_like.cli.doctor.facts import Facts
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.doctor_site import Site, facts_of
from tests.cli.transcripts import forget_settings, serving, set_surroundings

Cluster = Callable[[str], KubernetesServer]


class Done(NamedTuple):
    """A command's output and exit status."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The output, parsed as JSON."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line in this process."""

    def run_command(*arguments: str) -> Done:
        capsys.readouterr()
        code = execute(arguments, "konductor-like")
        return Done(code, *capsys.readouterr())

    return run_command


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Start the stand-in with a scene's nodes and a running controller's Lease; ``KUBECONFIG`` names it."""
    set_surroundings(monkeypatch)
    with ExitStack() as exits:

        def start(scene: str) -> KubernetesServer:
            return exits.enter_context(serving(scene, tmp_path, monkeypatch, PolicyConfig()))

        yield start


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], Facts]:
    """Return a function that gathers the facts of a site, without sockets."""
    forget_settings(monkeypatch)

    def gathered(site: Site) -> Facts:
        with site.in_memory(monkeypatch) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            return facts_of()

    return gathered
