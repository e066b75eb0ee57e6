"""Each command answers bad input with one clear message and the right exit status, and changes nothing."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.controller import launch
from konductor_like.exits import Exit
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.conftest import Cluster, Done, Run
from tests.cli.test_app import COMMANDS

HOSTILE: Mapping[str, str] = {
    "an empty word": "",
    "control characters": "a\x1b[31m\r\nb\u202e",
    "bytes that are no text": "a\udcff",
    "the longest word that Linux passes": "x" * 131_071,
}
RIGHT: Mapping[str, Sequence[str]] = {
    "reset": ("gpu-1",),
    "taint": ("gpu-1", "--reason=x"),
    "pause": ("--reason=x",),
    "explain": ("gpu-1",),
    "rules show": ("xid.79",),
    "rules test": ("rules.yaml",),
    "scan": ("dmesg.txt",),
    "demo xid": ("gpu-1", "79"),
    "demo reboot": ("gpu-1",),
}
"""By command, the arguments of a right command line."""
OTHERWISE: Mapping[tuple[str, str], Collection[int]] = {
    ("status", "--selector"): {Exit.USAGE, Exit.FAILED},  # the API server refuses a selector that is too long
    ("explain", "RULE|LINE|NODE"): {Exit.USAGE, Exit.OK},  # any text may be the line of a log
    ("explain", "further"): {Exit.USAGE, Exit.OK},
    ("rules list", "--file"): {Exit.USAGE, Exit.FAILED},  # no file can have so long a name
    ("rules show", "--file"): {Exit.USAGE, Exit.FAILED},
    ("rules test", "FILE"): {Exit.USAGE, Exit.FAILED},
    ("rules test", "further"): {Exit.USAGE, Exit.FAILED},
    ("scan", "FILE"): {Exit.USAGE, Exit.FAILED},
    ("scan", "further"): {Exit.USAGE, Exit.PARTLY},
    ("report", "--output"): {
        Exit.USAGE,
        Exit.PARTLY,
        Exit.FAILED,
    },  # any text may name a file, and Loki cannot be read
    ("backtest", "--nodes"): {Exit.USAGE, Exit.FAILED},
    ("backtest", "--rules"): {Exit.USAGE, Exit.FAILED},
    ("doctor", "--kubeconfig"): {Exit.USAGE, Exit.FOUND},  # the link to the API server is broken
    ("doctor", "--context"): {Exit.USAGE, Exit.FOUND},
}
"""The exit statuses of other parameters than those that only a wrong command line can give."""
FILES: Mapping[str, Sequence[str]] = {
    "scan": ("scan", "FILE"),
    "rules test": ("rules", "test", "FILE"),
    "rules list": ("rules", "list", "--file=FILE"),
    "rules show": ("rules", "show", "xid.79", "--file=FILE"),
    "backtest, rules": ("backtest", "--nodes=lines", "--rules=FILE"),
    "backtest, nodes": ("backtest", "--nodes=FILE"),
    "kubeconfig": ("status", "--kubeconfig=FILE"),
}
"""Command lines with a file."""
MESSAGE_BYTES = 5_000
OF_RIGHT_WORDS = "No faults in |is good|had the taint|^written: "
"""Messages about arguments that are right, and about a node of this cluster."""
WRITES = ("create", "update", "patch", "delete")


def words(value: object) -> str:
    """Return the name of a test by its command line."""
    return " ".join(map(str, value)) if isinstance(value, list) else ""


def start(_settings: Settings, *, kubeconfig: str | None, context: str | None, **_: object) -> int:
    """Find the cluster as the controller does; fail if there is one."""
    KubeClient.connect(kubeconfig, context, 1)
    return pytest.fail("the controller was started")


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of ten megabytes, written once."""
    file = tmp_path_factory.mktemp("files") / "huge"
    file.write_bytes(b"x" * 10_000_000)
    return file


@pytest.fixture
def server(cluster: Cluster, huge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KubernetesServer:
    """Start a cluster, and go to a folder with files; Loki refuses connections, no controller may start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr(launch, "run", start)
    (tmp_path / "dmesg.txt").write_text("a quiet line\n")
    (tmp_path / "rules.yaml").write_text("overrides: {}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").hardlink_to(huge)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "private").write_text("of another user")
    opened = io.open

    def guarded(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file) == "private":  # root could read any mode
            raise PermissionError(13, "Permission denied", "private")
        return opened(file, *arguments, **options)

    monkeypatch.setattr("io.open", guarded)
    monkeypatch.setattr("builtins.open", guarded)
    return cluster("every state")


def hostile_lines(name: str, value: str) -> Iterator[tuple[str, list[str]]]:
    """Yield command lines with the value as each argument, as a further argument, and for each option."""
    command, right = name.split(), list(RIGHT.get(name, ()))
    parameters = COMMANDS[name].params
    arguments = [each for each in right if not each.startswith("--")]
    options = [each for each in right if each.startswith("--")]
    names = [each.display_name_raw for each in parameters if each.param_type_name == "argument"]
    for number, label in enumerate([*names[: len(arguments)], "further"]):
        yield label, [*command, *arguments[:number], value, *arguments[number + 1 :], *options]
    for parameter in parameters:
        option = max(parameter.opts, key=len)
        if (
            parameter.param_type_name == "option"
            and not parameter.is_flag
            and (value or option != "--reason")
        ):
            others = [each for each in right if not each.startswith(option)]
            yield option, [*command, *others, f"{option}={value}"]


def problem_with(done: Done, statuses: Collection[int], others: str = OF_RIGHT_WORDS) -> str:
    """Return what is wrong with the answer to bad input; empty if it is one message and a right status.

    ``others`` matches messages about the arguments that are right.
    """
    said = [line for line in done.err.splitlines() if not line.startswith("hint: ")]
    messages = [line for line in said if not re.search(others, line)]
    if done.code not in statuses:
        return f"exit status {done.code}"
    if "Traceback" in done.err or len(messages) != (done.code not in (Exit.OK, Exit.FOUND)):
        return f"{len(messages)} messages"
    if len(done.err.encode()) > MESSAGE_BYTES or not all(map(str.isprintable, messages)):
        return "a message that is long or controls the terminal"
    return "" if done.code != Exit.USAGE or not done.out else "output on standard output"


def state_of(server: KubernetesServer) -> str:
    """Return everything that the cluster stores."""
    return json.dumps([server.objects(table) for table in ("nodes", "leases", "events")], sort_keys=True)


def writes(server: KubernetesServer) -> list[str]:
    """Return the writes that reached the API server; to ask who one is and what one may do is no write."""
    calls = [call for verb in WRITES for call in server.calls(verb)]
    return [f"{call.verb} {call.resource}" for call in calls if not call.resource.endswith("reviews")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_word_is_refused_wherever_it_stands(name: str, server: KubernetesServer, run: Run) -> None:
    before = state_of(server)
    wrong = []
    for kind, value in HOSTILE.items():
        for label, line in hostile_lines(name, value):
            statuses = OTHERWISE.get((name, label), {Exit.USAGE})
            if problem := problem_with(done := run(*line), statuses):
                wrong.append(f"{kind} as {label}: {problem}: {done.err[:200]!r}")

    assert wrong == []
    assert writes(server) == []
    assert state_of(server) == before


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["scan", ""], "FILE"),
        (["explain", "xid", ""], "RULE|LINE|NODE"),
        (["status", "--context="], "--context"),
        (["backtest", "--since", ""], "--since"),
    ],
    ids=words,
)
def test_an_empty_word_is_refused_with_the_name_of_its_argument(line: list[str], name: str, run: Run) -> None:
    assert f"invalid value for '{name}': an empty word" in run(*line).err


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if name not in ("run", "demo xid", "demo reboot")]
)
def test_ten_megabytes_are_refused(name: str, server: KubernetesServer, run: Run) -> None:
    """No shell passes as much; a program that builds a command line might."""
    [(label, line), *_] = hostile_lines(name, "x" * 10_000_000)

    assert problem_with(run(*line), OTHERWISE.get((name, label), {Exit.USAGE})) == ""
    assert writes(server) == []


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (["status", "nosuch"], Exit.FAILED),
        (["reset", "nosuch"], Exit.FAILED),
        (["taint", "nosuch", "--reason=x"], Exit.FAILED),
        (["explain", "nosuch"], Exit.USAGE),
        (["explain", "node", "nosuch"], Exit.FAILED),
        (["rules", "show", "nosuch"], Exit.USAGE),
        (["scan", "nosuch"], Exit.FAILED),
        (["rules", "test", "nosuch"], Exit.USAGE),
        (["rules", "list", "--file=nosuch"], Exit.USAGE),
        (["backtest", "--nodes=lines", "--rules=nosuch"], Exit.USAGE),
        (["status", "--kubeconfig=nosuch"], Exit.USAGE),
        (["pause", "--reason=x", "--context=nosuch"], Exit.USAGE),
        (["pause", "--reason=x", "--for=soon"], Exit.USAGE),
        (["reset", "gpu-1", "--purge=yes"], Exit.USAGE),
        (["resume", "gpu-1"], Exit.USAGE),
        (["brake", "nosuch"], Exit.USAGE),
        (["nosuch"], Exit.USAGE),
        (["--nosuch"], Exit.USAGE),
    ],
    ids=words,
)
def test_an_unknown_word_is_named(line: list[str], status: int, server: KubernetesServer, run: Run) -> None:
    assert problem_with(done := run(*line), {status}) == "", done
    assert writes(server) == []


@pytest.mark.parametrize("file", ["folder", "private", "huge", "binary"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.usefixtures("server")
def test_a_file_that_cannot_be_used_is_named(name: str, file: str, run: Run) -> None:
    line = [word.replace("FILE", file) for word in FILES[name]]
    is_log = name == "scan" and file in ("huge", "binary")  # it has no fault

    done = run(*line)

    assert done.code in ({Exit.OK} if is_log else {Exit.USAGE, Exit.FAILED}), done.err
    assert len(done.err.splitlines()) <= 2
    assert is_log or file in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("line", "patches"),
    [
        (["status", "gpu-1", "gpu-1"], 0),
        (["reset", "gpu-1", "gpu-1", "--yes"], 1),
        (["taint", "gpu-3", "gpu-3", "--reason=x"], 1),
    ],
    ids=words,
)
def test_a_repeated_word_counts_once(
    line: list[str], patches: int, server: KubernetesServer, run: Run
) -> None:
    done = run(*line)

    assert done.code == Exit.OK
    assert done.out.count(f"{line[1]} ") == 1
    assert len(server.calls("patch", "nodes")) == patches
