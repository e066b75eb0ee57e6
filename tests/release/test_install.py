"""Packages are installed with uv from where pip would take them, or else with pip."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tools.release import install
from tools.release.install import UV_LOCK, locked, uv_variables

STRATEGY = {"UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ([], {}),
        (["global.index-url='https://a.test/simple'"], {"UV_DEFAULT_INDEX": "https://a.test/simple"}),
        (["global.extra-index-url='file:///a file:///b'"], {"UV_INDEX": "file:///a file:///b"}),
        (
            ["global.find-links='\\n/a\\n/b'", "global.no-index='1'"],
            {"UV_FIND_LINKS": "/a,/b", "UV_NO_INDEX": "1"},
        ),
        ([":env:.cert='/e'", "global.cert='/g'", "install.cert='/i'"], {"SSL_CERT_FILE": "/e"}),
        (["global.constraint='/c'", "global.timeout='9'", "download.no-binary=':all:'"], {}),
    ],
)
def test_uv_takes_packages_from_where_pip_would(configured: list[str], expected: dict[str, str]) -> None:
    assert uv_variables(configured) == {**STRATEGY, **expected}


@pytest.mark.parametrize(
    "option", ["global.client-cert='/c'", ":env:.no-binary=':all:'", "install.proxy='p'"]
)
def test_with_an_option_that_uv_may_not_follow_pip_installs(option: str) -> None:
    assert uv_variables(["global.index-url='https://a.test/simple'", option]) is None


def test_the_lock_has_uv_with_its_hashes_alone() -> None:
    lines = locked("uv", UV_LOCK.read_text("utf-8")).splitlines()

    assert lines[0].startswith("uv==")
    assert "--hash=sha256:" in lines[1]
    assert not [line for line in lines[1:] if not line.startswith(" ")]
    with pytest.raises(LookupError, match="make lock"):
        locked("no-such-package", "uv==1 \\\n")


@pytest.mark.parametrize(
    ("configured", "uv_code", "programs"),
    [("", 0, ["pip", "uv"]), ("", 2, ["pip", "uv", "pip"]), ("global.proxy='p'", 0, ["pip"])],
)
def test_pip_installs_what_uv_does_not(
    configured: str, uv_code: int, programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[str] = []

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        is_uv = command[0].endswith("uv")
        if "install" in command:
            assert "--require-hashes" in command
            installs.append("uv" if is_uv else "pip")
        return subprocess.CompletedProcess(command, uv_code if is_uv else 0, configured)

    monkeypatch.setattr(subprocess, "run", run)

    assert install.main(["requirements.lock"]) == 0
    assert installs == programs
