"""The Dockerfile agrees with what it is built from and with the manifests that run it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from konductor_like import __version__
from konductor_like.settings import Settings
from tools.manifests.manifests import MANIFESTS, documents, only

ROOT = MANIFESTS.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BASE = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)


def instructions(name: str) -> list[str]:
    """The arguments of every such instruction, in order, with continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.+)$", joined, re.MULTILINE)


def ignored() -> tuple[list[str], list[str]]:
    """The patterns of .dockerignore that leave out, and those that keep."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    return [p for p in patterns if not p.startswith("!")], [p[1:] for p in patterns if p.startswith("!")]


def test_both_stages_start_from_one_slim_base_image() -> None:
    assert len(BASE) == 1
    assert [source.split()[0] for source in instructions("FROM")] == ["${PYTHON}", "${PYTHON}"]

    version = re.fullmatch(r"docker\.io/library/python:3\.(\d+)-slim", BASE[0])
    assert version
    assert int(version[1]) >= int(PROJECT["project"]["requires-python"].removeprefix(">=3."))


def test_the_privileged_reader_runs_the_image_of_the_controller_and_none_of_others() -> None:
    reader = only(documents("dmesg_daemonset.yaml"), "DaemonSet")["spec"]["template"]["spec"]
    controller = only(documents("controller_deployment.yaml"), "Deployment")["spec"]["template"]["spec"]

    assert {each["image"] for each in (*reader["containers"], *controller["containers"])} == {
        f"konductor-like:{__version__}"
    }


def test_every_copied_path_exists_and_docker_gets_no_other() -> None:
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    left_out, kept = ignored()

    assert left_out == ["*", "**/__pycache__"]
    assert sorted(copied) == sorted(kept)
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock"])
def test_every_dependency_is_installed_by_its_hash(lock: str) -> None:
    [install] = [line for line in instructions("RUN") if lock in line]
    pins = re.findall(
        r"^[a-zA-Z][^\n]*==[^\n]*(?:\n    --hash[^\n]*)*", (ROOT / lock).read_text(), re.MULTILINE
    )

    assert "--require-hashes" in install
    assert pins
    assert all("--hash=sha256:" in pin for pin in pins)


def test_the_image_runs_the_controller_as_an_unprivileged_user_on_its_port() -> None:
    assert instructions("USER") == ["65532:65532"]
    assert instructions("ENTRYPOINT") == ['["konductor-like"]']
    assert instructions("CMD") == ['["run"]']
    assert "konductor-like" in PROJECT["project"]["scripts"]
    assert instructions("EXPOSE") == [Settings.model_fields["listen"].default.removeprefix(":")]
    assert f"konductor-like:{__version__}" in DOCKERFILE
