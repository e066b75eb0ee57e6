"""The lines that ``demo xid`` writes are detected like the driver's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from konductor_like.catalog import load_catalog
from konductor_like.cli.app import execute
from konductor_like.detection import find
from konductor_like.model import Source
from konductor_like_sandbox.demo import command as demo
from konductor_like_sandbox.demo.kept import KeptDemo, NoDemoError, findable
from konductor_like_sandbox.demo.kept import find as find_demo
from konductor_like_sandbox.demo.xids import xid_message


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache directory."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def demo_of(pid: int, kubeconfig: str) -> KeptDemo:
    return KeptDemo(pid, kubeconfig, "http://127.0.0.1:9", {"gpu-01": 0})


def test_every_xid_is_detected_on_its_gpu() -> None:
    for code in load_catalog().xids:
        found = find(f"[1236963.703423] {xid_message(code, '0000:1b:00')}", Source.KERNEL)

        assert found is not None
        assert (found.code, found.gpu) == (code, "0000:1b:00")


@pytest.mark.parametrize("code", [13, 31, 48, 63, 64, 79, 95, 119])
def test_a_line_with_the_drivers_text_has_the_severity_of_the_catalogue(code: int) -> None:
    found = find(f"[1236963.703423] {xid_message(code, '0000:1b:00')}", Source.KERNEL)

    assert found is not None
    assert found.severity is load_catalog().xids[code].severity


@pytest.mark.parametrize("code", ["abc", "0", "1000", "7.9", "9" * 5000])
def test_a_code_that_is_no_xid_is_one_clear_error(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["demo", "xid", "gpu-01", code], "konductor-like") == 2
    [error, hint] = capsys.readouterr().err.splitlines()

    assert error.startswith("error: invalid value for 'CODE': an Xid is a number from 1 to 999, not '")
    assert (len(error) < 120, hint) == (True, "hint: see `konductor-like demo xid --help`")


def test_without_a_kept_demo_an_xid_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    gone = demo_of(4_194_304, "/nowhere/kubeconfig")  # no pid is so high

    assert execute(["demo", "xid", "gpu-01", "79"], "konductor-like") == 1
    with findable(gone):
        (cache / "konductor-like" / "demo-1.json").write_text('{"another": "version"}')
        assert execute(["demo", "xid", "gpu-01", "79"], "konductor-like") == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == 2 * (
        "error: no demo is running that was started with --keep\n"
        "hint: start one in another terminal: konductor-like demo --keep\n"
    )


def test_two_demos_of_a_user_do_not_meet(
    capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """KUBECONFIG chooses the demo. The user's own kubeconfig chooses none, and neither does no kubeconfig."""
    own = tmp_path / "config"
    own.touch()
    first, second = demo_of(os.getpid(), "/demo/1/kubeconfig"), demo_of(os.getppid(), "/demo/2/kubeconfig")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    with findable(first):
        assert find_demo() == first
        with findable(second):
            for chosen, kubeconfig in ((first, first.kubeconfig), (second, f"{own}:{second.kubeconfig}")):
                monkeypatch.setenv("KUBECONFIG", kubeconfig)
                assert find_demo() == chosen

            for kubeconfig in ("", str(own)):
                monkeypatch.setenv("KUBECONFIG", kubeconfig)
                assert execute(["demo", "xid", "gpu-01", "79"], "konductor-like") == 1
                shown = capsys.readouterr().err
                assert shown.startswith(
                    "error: 2 demos are running\nhint: choose one: export KUBECONFIG=/demo/"
                )
                assert f"KUBECONFIG={first.kubeconfig}" in shown
                assert f"KUBECONFIG={second.kubeconfig}" in shown
        assert find_demo() == first
        monkeypatch.setenv("KUBECONFIG", second.kubeconfig)
        with pytest.raises(NoDemoError, match=f"has the KUBECONFIG {second.kubeconfig}"):
            find_demo()
    assert list(cache.rglob("demo-*.json")) == []


def test_ctrl_c_is_the_end_of_a_kept_demo_and_no_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_event: object, _timeout: float | None = None) -> bool:
        assert list(cache.rglob("demo-*.json"))
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_commands", lambda _stage: ["a command"])
    monkeypatch.setattr("threading.Event.wait", interrupt)

    try:
        demo._keep(Console(), SimpleNamespace(kept=demo_of(os.getpid(), "/demo/kubeconfig")))  # type: ignore[arg-type]  # all that it reads
    except KeyboardInterrupt:
        pytest.fail("it was not the end")

    assert capsys.readouterr().out.endswith("  a command\n\nStopping the demo.\n")
    assert list(cache.rglob("demo-*.json")) == []


@pytest.mark.parametrize(
    ("assignment", "error"),
    [
        ("KONDUCTOR_RETURN", "expected NAME=VALUE, got 'KONDUCTOR_RETURN'"),
        ("LOG_ENDPOINT=http://localhost", "expected KONDUCTOR_… or WATCHED_NAMESPACES, not LOG_ENDPOINT"),
    ],
)
def test_the_demo_takes_settings_of_the_controller_only(
    assignment: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["demo", "--set", assignment], "konductor-like") == 2
    assert error in capsys.readouterr().err


def test_watched_namespaces_can_be_set_for_the_demo() -> None:
    assert demo._settings(["WATCHED_NAMESPACES=team-a,!team-b", "KONDUCTOR_RETURN=reboot"])


def test_settings_of_the_shell_are_named_because_the_demo_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("KONDUCTOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KONDUCTOR_RETURN", "reboot")
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_NODES", "3")

    demo._warn_of_unused({"KONDUCTOR_BRAKE_MAX_NODES": "3"})

    shown = capsys.readouterr().err
    assert shown == (
        "warning: KONDUCTOR_RETURN of your shell is not used here; "
        "--set KONDUCTOR_RETURN=… sets it for the demo\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["gpu-01", "0"], ["gpu-01", "xid79"], ["", "79"], ["gpu-01"], ["gpu-01", "79", "--gpu", "1b"]],
    ids=" ".join,
)
def test_a_wrong_xid_is_a_usage_error(arguments: list[str]) -> None:
    assert execute(["demo", "xid", *arguments], "konductor-like") == 2


def test_a_bus_id_may_be_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept = demo_of(1, "/nowhere/kubeconfig")
    monkeypatch.setattr("konductor_like_sandbox.demo.kept.find", lambda: kept)
    monkeypatch.setattr(KeptDemo, "write_line", lambda _self, _node, text: text)

    assert execute(["demo", "xid", "gpu-01", "79", "--gpu", "9A:00"], "konductor-like") == 0

    assert "NVRM: Xid (PCI:0000:9a:00): 79, " in capsys.readouterr().out
