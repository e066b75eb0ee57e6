"""Transcripts: text files that say what is there, what is typed, and exactly what comes of it.

A file starts with what it shows in one line, then the scene, then commands with what they print::

    A name that the cluster does not have
    cluster: one faulty
    env: NAME=value
    file: dmesg.txt
    | a line of it
    $ konductor-like status gpu-1 gpu-99
    NODE ...                            standard output
    2> node/gpu-99 not found            standard error
    => 3

``cluster`` names a scene of ``scenes.py``; without one there is no kubeconfig. ``lease: none`` is a
cluster where no controller ever ran, ``lease: old`` one whose controller does not publish its settings.
``controller: NAME=NUMBER`` is one of its settings, ``env`` is the person's. ``stdin`` lines are piped
in. ``! refuse VERB RESOURCE`` between commands lets the API server deny that from here on.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.client import KubeClient
from konductor_like.policy.config import PolicyConfig
from konductor_like.sandbox.kubernetes import KubernetesServer
from tests.cli.scenes import NOW, RULES, SCENES, seed_lease, settings_of

FOLDER = Path(__file__).parent / "transcripts"
_OURS = ("KONDUCTOR_", "LOG_ENDPOINT", "WATCHED_NAMESPACES", "KUBE")


@dataclass
class Scene:
    """The head of a transcript, and the commands below it."""

    title: str
    head: list[str] = field(default_factory=list)
    cluster: str = ""
    lease: str = ""
    policy: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    steps: list[str] = field(default_factory=list)


def read(path: Path) -> Scene:
    """Parse a transcript; what it expects is compared as text, so only head and commands are read."""
    lines = path.read_text("utf-8").splitlines()
    scene = Scene(title=lines[0])
    target = ""
    for line in lines[1:]:
        if line.startswith(("$ ", "! ")):
            scene.steps.append(line)
        elif not scene.steps:
            scene.head.append(line)
            target = _head_line(scene, line, target)
    return scene


def _head_line(scene: Scene, line: str, target: str) -> str:
    if line.startswith("|"):
        scene.files[target] += line[2:] + "\n"
        return target
    name, _, value = line.partition(": ")
    match name:
        case "cluster":
            scene.cluster = value
        case "lease":
            scene.lease = value
        case "controller":
            key, _, setting = value.partition("=")
            scene.policy[key] = int(setting)
        case "env":
            key, _, setting = value.partition("=")
            scene.environment[key] = setting
        case "file":
            scene.files[value] = ""
            return value
        case "stdin":
            scene.stdin += value + "\n"
        case _:
            raise ValueError(f"{scene.title}: {line!r} is no part of a transcript's head")
    return ""


def replay(
    scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run the commands of a transcript, and write it anew with what they printed."""
    _set(scene, folder, monkeypatch)
    written = [scene.title, *scene.head]
    with _cluster(scene, folder, monkeypatch) as server:
        for step in scene.steps:
            written.append(step)
            if step.startswith("! "):
                _, verb, resource = step[2:].split()
                assert server is not None
                server.access.deny(verb, resource, "*")
                continue
            monkeypatch.setattr("sys.stdin", _Input(scene.stdin))
            status = execute(shlex.split(step[2:])[1:], "konductor-like")
            printed = capsys.readouterr()
            written += printed.out.splitlines()
            written += [f"2> {line}".rstrip() for line in printed.err.splitlines()]
            written.append(f"=> {status}")
    text = "\n".join(written) + "\n"
    text = text.replace(str(folder), "TMP")
    return re.sub(r"127\.0\.0\.1:\d+", "SERVER", text)


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the person who runs the tests has set counts."""
    for name in os.environ:
        if name.upper().startswith(_OURS):
            monkeypatch.delenv(name)


def _set(scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)
    for name, value in {"HOME": str(folder), "COLUMNS": "80", **scene.environment}.items():
        monkeypatch.setenv(name, value)
    for name, text in scene.files.items():
        (folder / name).write_text(text, "utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(session, "now", lambda: NOW)
    monkeypatch.setattr(session, "who", lambda: "kim@laptop")
    monkeypatch.setattr("konductor_like.cli.explain.command.digest_of", lambda _: RULES)


@contextmanager
def _cluster(
    scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesServer | None]:
    if not scene.cluster:
        yield None
        return
    with KubernetesServer(nodes=SCENES[scene.cluster]()) as server:
        kubeconfig = server.kubeconfig(folder / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        if scene.lease != "none":
            with closing(KubeClient.connect(str(kubeconfig), None, 10)) as client:
                settings = settings_of(PolicyConfig(**scene.policy))  # type: ignore[arg-type]  # its whole numbers
                seed_lease(server, client, None if scene.lease == "old" else settings)
        yield server


class _Input(io.TextIOWrapper):
    """A pipe with this text in it."""

    def __init__(self, text: str) -> None:
        super().__init__(io.BufferedReader(io.BytesIO(text.encode())), "utf-8")
