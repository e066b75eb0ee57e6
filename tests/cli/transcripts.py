"""Transcripts: text files with a scene, commands, and the exact output of each command.

A file starts with a line about what it shows, then the scene, then commands with their output::

    A name that the cluster does not have
    cluster: one faulty
    env: NAME=value
    file: dmesg.txt
    | a line of the file
    $ konductor-like status gpu-1 gpu-99
    NODE ...                            standard output
    2> node/gpu-99 not found            standard error
    => 3

``cluster`` names a scene of ``scenes.py``; without it there is no kubeconfig. With ``lease: none`` no
controller has ever run; with ``lease: old`` the controller does not publish its settings.
``controller: NAME=NUMBER`` is a setting of the controller, ``env`` a variable of the person. ``stdin`` lines
are piped in. With ``terminal: xterm`` standard output is a terminal of this kind, and an escape character is
written as ``\\e``; BUILD is the program's build. In ``$ COLUMNS=80 konductor-like status`` the variable is
for this command. After ``! refuse VERB RESOURCE`` between commands the API server denies this.
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

from konductor_like.build import this_program
from konductor_like.cli import session
from konductor_like.cli.app import execute
from konductor_like.cluster.api.client import KubeClient
from konductor_like.policy.config import PolicyConfig
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.scenes import NOW, RULES, SCENES, seed_lease, settings_of

FOLDER = Path(__file__).parent / "transcripts"
PERSON = "kim@example.com"
"""The user of the kubeconfig, as the API server knows them."""
_OURS = ("KONDUCTOR_", "LOG_ENDPOINT", "WATCHED_NAMESPACES", "KUBE")
_HEAD = ("cluster", "lease", "controller", "env", "file", "stdin", "terminal")


@dataclass
class Transcript:
    """The head of a transcript, by keyword, and the commands below it."""

    head: list[str]
    given: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _HEAD})
    files: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)


def read(path: Path) -> Transcript:
    """Parse the head and the commands of a transcript; its expected output is compared as text."""
    title, *lines = path.read_text("utf-8").splitlines()
    transcript = Transcript([title])
    for line in lines:
        if line.startswith(("$ ", "! ")):
            transcript.steps.append(line)
        elif not transcript.steps:
            transcript.head.append(line)
            if line.startswith("|"):
                transcript.files[transcript.given["file"][-1]] += line[2:] + "\n"
                continue
            name, _, value = line.partition(": ")
            transcript.given[name].append(value)
            if name == "file":
                transcript.files[value] = ""
    return transcript


def replay(
    transcript: Transcript, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run the commands of a transcript, and return it with their present output."""
    given = transcript.given
    set_surroundings(monkeypatch)
    for name, value in [
        ("HOME", str(folder)),
        ("COLUMNS", "80"),
        *(("TERM", each) for each in given["terminal"]),
        *(each.split("=", 1) for each in given["env"]),
    ]:
        monkeypatch.setenv(name, value)
    for name, text in transcript.files.items():
        (folder / name).write_text(text, "utf-8")
    monkeypatch.chdir(folder)
    stdin = "".join(f"{line}\n" for line in given["stdin"])
    written = list(transcript.head)
    with _cluster(given, folder, monkeypatch) as server:
        for step in transcript.steps:
            written.append(step)
            if step.startswith("! "):
                _, verb, resource = step[2:].split()
                assert server is not None
                server.access.deny(verb, resource, "*")
                continue
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
            words = shlex.split(step[2:])
            with monkeypatch.context() as for_this_command:
                while "=" in words[0]:
                    for_this_command.setenv(*words.pop(0).split("=", 1))
                if given["terminal"]:
                    for_this_command.setattr("sys.stdout.isatty", lambda: True)
                status = execute(words[1:], "konductor-like")
            printed = capsys.readouterr()
            written += printed.out.splitlines()
            written += [f"2> {line}".rstrip() for line in printed.err.splitlines()]
            written.append(f"=> {status}")
    text = "\n".join(written) + "\n"
    text = text.replace(str(folder), "TMP").replace("\x1b", "\\e").replace(this_program().build, "BUILD")
    return re.sub(r"127\.0\.0\.1:\d+", "SERVER", text)


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of the person who runs the tests."""
    for name in os.environ:
        if name.upper().startswith(_OURS):
            monkeypatch.delenv(name)


def set_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time and the rules of the scenes."""
    forget_settings(monkeypatch)
    monkeypatch.setattr(session, "now", lambda: NOW)
    monkeypatch.setattr("konductor_like.cli.explain.command.digest_of", lambda _: RULES)


@contextmanager
def serving(
    scene: str, folder: Path, monkeypatch: pytest.MonkeyPatch, policy: PolicyConfig, lease: str = ""
) -> Iterator[KubernetesServer]:
    """Run the stand-in with a scene's nodes and a running controller's Lease; ``KUBECONFIG`` names it."""
    with KubernetesServer(nodes=SCENES[scene]()) as server:
        kubeconfig = str(server.kubeconfig(folder / "kubeconfig", server.access.add_user(PERSON)))
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        if lease != "none":
            with closing(KubeClient.connect(kubeconfig, None, 10)) as client:
                seed_lease(server, client, None if lease == "old" else settings_of(policy))
        server.clear_calls()
        yield server


@contextmanager
def _cluster(
    given: dict[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesServer | None]:
    if not given["cluster"]:
        yield None
        return
    pairs = (each.split("=") for each in given["controller"])
    policy = PolicyConfig(**{name: int(value) for name, value in pairs})  # type: ignore[arg-type]  # its whole numbers
    with serving(given["cluster"][0], folder, monkeypatch, policy, "".join(given["lease"])) as server:
        yield server
