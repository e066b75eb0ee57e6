"""The command line as a whole: quick start, the right name, no traceback for expected errors."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from konductor_like import cli
from konductor_like.cli import help as help_
from konductor_like.cli.app import build, display_name, execute
from konductor_like.cli.errors import CommandError
from konductor_like.cluster.api.errors import KubeForbidden
from konductor_like.controller import launch
from konductor_like.exits import MEANINGS, Exit
from konductor_like.loki.query.errors import LokiUnreachable
from konductor_like.settings import Settings
from tests.cli.transcripts import forget_settings

SLOW = ("kubernetes", "httpx", "rich", "pydantic_settings", "tenacity", "prometheus_client", "yaml")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


def imported(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return those of these packages that a fresh process has imported at the command's end."""
    script = (
        "import sys; from konductor_like.cli.app import execute; "
        f"execute({list(arguments)!r}, 'konductor-like'); "
        f"print(*(name for name in {list(names)!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--help"], SLOW),
        (["--version"], SLOW),
        (["reset", "--help"], SLOW),
        (["scan", "-"], tuple(name for name in SLOW if name != "yaml")),  # the rules are in YAML
        (["check-config"], ("kubernetes", "re2")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_slow_is_imported_before_it_is_needed(
    arguments: list[str], not_needed: Sequence[str]
) -> None:
    assert imported(arguments, not_needed) == []


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/local/bin/konductor-like", "konductor-like"),
        ("/home/kim/bin/kubectl-konductor_like", "kubectl konductor-like"),
        ("/src/konductor_like/cli/__main__.py", "konductor-like"),
    ],
)
def test_help_shows_the_name_it_was_called_by(
    program: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert display_name(program) == name
    assert execute(["--help"], program) == Exit.OK
    assert f"Usage: {name} " in capsys.readouterr().out


def test_the_entry_point_of_the_console_scripts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["konductor-like", "--version"])

    assert cli.main() == 0
    assert capsys.readouterr().out.startswith("konductor-like ")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KubeForbidden("no", hint="ask"), Exit.FAILED, "error: no\nhint: ask\n"),
        (LokiUnreachable("no", "ask"), Exit.FAILED, "error: no\nhint: ask\n"),
        (CommandError("no", status=Exit.USAGE), Exit.USAGE, "error: no\n"),
        (PermissionError(13, "Permission denied", "/etc/shadow"), Exit.FAILED, "error: /etc/shadow: Per"),
        (OSError("odd"), Exit.FAILED, "error: odd\n"),
        (KeyboardInterrupt(), Exit.INTERRUPTED, ""),
    ],
    ids=["cluster", "Loki", "usage", "file", "system", "Ctrl-C"],
)
def test_an_expected_error_is_a_message_and_a_status(
    error: BaseException,
    status: Exit,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raising(monkeypatch, error)

    assert execute(["run"], "konductor-like") == status
    printed = capsys.readouterr().err
    assert printed.startswith(said)
    assert "Traceback" not in printed


AT_AN_IMPORT = """
import signal, sys
from konductor_like import cli
from konductor_like.cli import help as help_

class Stop:
    def find_spec(self, name, *_):
        if name == "konductor_like.cli.app":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Stop())
sys.argv = ["konductor-like", "--version"]
sys.exit(cli.main())
"""


@pytest.mark.parametrize(
    ("handler", "code"),
    [("default_int_handler", -signal.SIGINT), ("SIG_IGN", Exit.OK)],
    ids=["ends it", "is ignored, if the caller asked for that"],
)
def test_ctrl_c_while_the_program_loads_shows_no_traceback(handler: str, code: int) -> None:
    script = AT_AN_IMPORT.replace("{handler}", handler)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (code, "")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("a bug"))

    with pytest.raises(ZeroDivisionError):
        execute(["run"], "konductor-like")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the controller fail with this error."""

    def fail(*_arguments: Any, **_options: Any) -> int:
        raise error

    monkeypatch.setattr(launch, "run", fail)


@pytest.mark.parametrize("arguments", [["-v", "status"], ["status", "-v"]], ids=["before", "behind"])
def test_verbose_shows_the_traceback(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "konductor_like.cli", *arguments, "--kubeconfig", str(tmp_path / "nowhere")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == Exit.USAGE
    assert "Traceback" in done.stderr
    assert "error: there is no kubeconfig" in done.stderr


def test_a_locale_without_the_characters_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "dmesg"
    path.write_text("[1.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=trainör, DBE ECC Error\n")
    done = subprocess.run(
        [sys.executable, "-m", "konductor_like.cli", "scan", "-o", "yaml", str(path)],
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"},
    )

    assert b"train\\xf6r" in done.stdout


def test_run_is_the_controller_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run(settings: Settings, **options: Any) -> int:
        seen.update(options, level=settings.log_level)
        return 0

    monkeypatch.setattr(launch, "run", run)
    status = execute(
        ["run", "--once", "--dry-run", "--context", "prod", "--kubeconfig", "k", "-v"], "konductor-like"
    )

    assert status == 0
    assert seen == {
        "once": True,
        "dry_run": True,
        "context": "prod",
        "kubeconfig": "k",
        "level": "debug",
    }


@pytest.mark.parametrize(("done", "failed", "status"), [(0, 0, 0), (3, 0, 0), (2, 1, 3), (0, 1, 1)])
def test_the_exit_status_shows_whether_all_some_or_nothing_worked(
    done: int, failed: int, status: int
) -> None:
    assert Exit.of(done, failed) == status


def commands() -> dict[str, Any]:
    """Return every command by its full name: ``rules list``."""

    def under(prefix: str, group: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, command in group.commands.items():
            full = f"{prefix} {name}".strip()
            found |= under(full, command) if hasattr(command, "commands") else {full: command}
        return found

    return under("", typer.main.get_command(build()))


COMMANDS = commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_can_be_copied(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*name.split(), "-h"], "konductor-like") == Exit.OK

    lines = capsys.readouterr().out.split("Examples:\n")[1].splitlines()
    assert len(lines) >= 2
    for line in lines:
        assert line.strip().startswith(f"konductor-like {name}")
        COMMANDS[name].make_context(name, shlex.split(line)[1 + len(name.split()) :])  # parses it


@pytest.mark.parametrize("arguments", [[], ["brake"], ["rules"]], ids=["alone", "brake", "rules"])
def test_without_a_command_the_help_is_printed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments, "konductor-like") == Exit.OK

    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(f"Usage: {' '.join(['konductor-like', *arguments])} [OPTIONS] COMMAND")


def test_the_help_lists_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    execute(["--help"], "konductor-like")

    shown = " ".join(capsys.readouterr().out.split())
    assert set(MEANINGS) == set(Exit)
    assert all(f"{status} {meaning}" in shown for status, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("breaker", "brake"), ("untaint", "reset"), ("uncordon", "reset"), ("statsu", "status")],
)
def test_a_command_that_does_not_exist_names_the_one_that_was_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute([typed], "konductor-like") == Exit.USAGE
    assert f"error: no such command '{typed}'. Did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("gone gpu-01", "error: this version has no command 'gone'; use `reset NODE`"),
        ("incident gone", "error: this version has no command 'incident gone'; use a tool"),
        ("reset gpu-01 --gone=xid.79", "error: reset has no option --gone in this version; use `reset NODE`"),
        ("incident save --gone", "error: incident save has no option --gone in this version; leave it out"),
    ],
)
def test_a_command_or_option_of_an_earlier_version_names_what_to_use(
    typed: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        help_, "REMOVED_COMMANDS", {"gone": "use `reset NODE`", "incident gone": "use a tool"}
    )
    options = {"reset --gone": "use `reset NODE`", "incident save --gone": "leave it out"}
    monkeypatch.setattr(help_, "REMOVED_OPTIONS", options)

    assert execute(typed.split(), "kubectl-konductor_like") == Exit.USAGE
    assert capsys.readouterr().err.splitlines()[0] == said


@pytest.mark.parametrize("removed", [*help_.REMOVED_COMMANDS, *help_.REMOVED_OPTIONS])
def test_what_was_removed_is_no_command_and_no_option(
    removed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(removed.split(), "konductor-like") == Exit.USAGE
    assert "this version" in capsys.readouterr().err


def test_an_option_of_a_command_before_the_command_is_told_where_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["--context", "nope", "status"], "konductor-like") == Exit.USAGE
    assert capsys.readouterr().err == (
        "error: no such option: --context\n"
        "hint: options stand behind the command: `konductor-like COMMAND --context`\n"
        "hint: see `konductor-like --help`\n"
    )


def test_a_wrong_choice_is_told_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check-config", "-o", "csv"], "konductor-like") == Exit.USAGE
    assert capsys.readouterr().err == (
        "error: invalid value for '-o' / '--output': 'csv' is not one of table, json, yaml, name\n"
        "hint: see `konductor-like check-config --help`\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["rules", "list"], Exit.OK), (["taint", "gpu-1", "--reason", "x"], Exit.PARTLY)],
)
def test_a_closed_pipe_fails_only_a_command_that_has_not_written_everything(
    arguments: list[str], status: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any, **_options: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("konductor_like.cli.rules.load", broken)
    monkeypatch.setattr("konductor_like.cli.nodes.writes.connected", broken)

    assert execute(arguments, "konductor-like") == status
