"""The lines that ``demo xid`` writes are detected like the driver's own."""

from __future__ import annotations

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.cli.app import execute
from konductor_like.demo.kept import KeptDemo, findable
from konductor_like.demo.xids import xid_message
from konductor_like.detection import find
from konductor_like.model import Source


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
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    gone = KeptDemo(
        4_194_304, "/nowhere/kubeconfig", "http://127.0.0.1:9", {"gpu-01": 0}
    )  # no pid is so high

    assert execute(["demo", "xid", "gpu-01", "79"], "konductor-like") == 1
    with findable(gone):
        assert execute(["demo", "xid", "gpu-01", "79"], "konductor-like") == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == 2 * (
        "error: no demo is running that was started with --keep\n"
        "hint: start one in another terminal: konductor-like demo --keep\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["gpu-01", "0"], ["gpu-01", "xid79"], ["", "79"], ["gpu-01"], ["gpu-01", "79", "--gpu", "1b"]],
    ids=" ".join,
)
def test_a_wrong_xid_is_a_usage_error(arguments: list[str]) -> None:
    assert execute(["demo", "xid", *arguments], "konductor-like") == 2


def test_a_bus_id_may_be_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept = KeptDemo(1, "/nowhere/kubeconfig", "http://127.0.0.1:9", {"gpu-01": 0})
    monkeypatch.setattr("konductor_like.demo.kept.find", lambda: kept)
    monkeypatch.setattr(KeptDemo, "write_line", lambda _self, _node, text: text)

    assert execute(["demo", "xid", "gpu-01", "79", "--gpu", "9A:00"], "konductor-like") == 0

    assert "NVRM: Xid (PCI:0000:9a:00): 79, " in capsys.readouterr().out
