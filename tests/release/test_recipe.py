"""``.ci/release`` with programs in the place of docker and helm that refuse what the real ones refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.release.check import ROOT

DIGEST = f"sha256:{'4e' * 32}"
BASE = "docker.io/library/python:3.13-slim"
DOCKER = """#!/usr/bin/env bash
# Docker with buildx, a reachable registry and no image of ours; what is in $BROKEN does not work.
echo "docker $*" >>"$CALLS"
unknown() { echo "ERROR: $1: not found" >&2; exit 1; }
case "$*" in
  "buildx version") [[ $BROKEN != buildx ]] || unknown "docker buildx" ;;
  "buildx imagetools inspect --format {{.Manifest.Digest}} docker.io/library/python:3.13-slim")
    [[ $BROKEN != base ]] || unknown python
    [[ $BROKEN == digest ]] && echo "<no value>" || echo "$DIGEST" ;;
  "buildx imagetools inspect --format {{.Manifest.Digest}} registry.test/group/konductor-like:1.2.3")
    [[ $BROKEN != login ]] || { echo "ERROR: failed to authorize: 401 Unauthorized" >&2; exit 1; }
    [[ -e $CALLS.pushed ]] || unknown registry.test/group/konductor-like:1.2.3
    echo "$DIGEST" ;;
  "buildx inspect konductor-like") echo 'ERROR: no builder "konductor-like" found' >&2; exit 1 ;;
  "buildx create --name konductor-like --driver docker-container") echo konductor-like ;;
  "buildx build "*)
    echo "epoch $SOURCE_DATE_EPOCH, Makefile: $(cat "${@: -1}/Makefile")" >>"$CALLS"
    [[ $BROKEN != build ]] || { echo "ERROR: failed to solve" >&2; exit 1; }
    [[ $* != *push=true* ]] || touch "$CALLS.pushed" ;;
  *) echo "unknown: $*" >&2; exit 125 ;;
esac
"""
HELM = """#!/usr/bin/env bash
echo "helm $*" >>"$CALLS"
[[ $BROKEN != helm ]] || exit 127
case "$*" in
  version) ;;
  "push dist/konductor-like-1.2.3.tgz oci://registry.test/group/charts") [[ $BROKEN != push ]] ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Repository:
    """A commit with the recipe, beside docker and helm."""

    folder: Path

    def run(self, what: str, broken: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the recipe."""
        known = {
            "PATH": f"{self.folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(self.folder.parent / "calls"),
            "TMPDIR": str(self.folder.parent / "tmp"),
            "BROKEN": broken,
            "DIGEST": DIGEST,
            "VERSION": "1.2.3",
            "REGISTRY": "registry.test/group",
            "PROJECT_URL": "https://host.test/konductor-like",
        }
        return subprocess.run(
            [self.folder / ".ci" / "release", what], env=known | environment, capture_output=True, text=True
        )

    @property
    def calls(self) -> list[str]:
        """The calls of docker and helm, in order."""
        return (self.folder.parent / "calls").read_text("utf-8").splitlines()

    def has_called(self, command: str) -> bool:
        """Whether a call began with this command."""
        return any(call.startswith(command) for call in self.calls)

    def written(self, name: str) -> str | None:
        """The content of a file in dist; None if it is not there."""
        path = self.folder / "dist" / name
        return path.read_text("utf-8") if path.exists() else None


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "tree"
    for name in ("bin", "tmp", "tree/.ci", "tree/dist"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in {"docker": DOCKER, "helm": HELM}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    shutil.copy(ROOT / ".ci" / "release", folder / ".ci")
    shutil.copy(ROOT / "Dockerfile", folder)
    (folder / "Makefile").write_text("committed")
    (folder / ".gitignore").write_text("dist/\n")
    author = ("-c", "user.name=x", "-c", "user.email=x@x.test", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "x")):
        subprocess.run(
            ["git", *words],
            cwd=folder,
            check=True,
            env=os.environ | {"GIT_COMMITTER_DATE": "1700000000 +0000"},
        )
    (folder / "Makefile").write_text("edited since")
    (folder / "dist" / "konductor-like-1.2.3.tgz").write_text("a chart")
    return Repository(folder)


def test_the_image_is_built_for_both_machines_on_a_base_that_is_recorded(repository: Repository) -> None:
    done = repository.run("image")

    assert (done.returncode, done.stderr) == (0, "")
    assert repository.written("base-image.txt") == f"{BASE}@{DIGEST}\n"
    [build] = [call for call in repository.calls if call.startswith("docker buildx build ")]
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repository.folder, text=True).strip()
    labels = {
        "version": "1.2.3",
        "revision": commit,
        "source": "https://host.test/konductor-like",
        "base.name": BASE,
        "base.digest": DIGEST,
    }
    for words in (
        "--platform linux/amd64,linux/arm64 ",
        f"--build-arg PYTHON={BASE}@{DIGEST} ",
        "--tag registry.test/group/konductor-like:1.2.3 ",
        "--output type=oci,dest=dist/konductor-like-1.2.3-image.tar,rewrite-timestamp=true ",
        *(f"--label org.opencontainers.image.{name}={value} " for name, value in labels.items()),
    ):
        assert words in build
    assert repository.calls[-1] == "epoch 1700000000, Makefile: committed"
    assert list((repository.folder.parent / "tmp").iterdir()) == []
    assert not repository.has_called("helm push")


@pytest.mark.parametrize(
    ("broken", "status", "message"),
    [
        ("buildx", 2, "error: `docker buildx version` failed\nhint: install it; docs/"),
        ("base", 1, f"error: the base image {BASE} could not be resolved\n"),
        ("digest", 1, f"error: the base image {BASE} has no digest: docker printed '<no value>'\n"),
        ("build", 1, "error: the image registry.test/group/konductor-like:1.2.3 could not be built\n"),
    ],
)
def test_an_image_that_cannot_be_built_records_no_base(
    broken: str, status: int, message: str, repository: Repository
) -> None:
    done = repository.run("image", broken)

    assert done.returncode == status
    assert message in done.stderr
    assert repository.written("base-image.txt") is None
    assert repository.has_called("docker buildx build") == (broken == "build")


def test_publishing_pushes_the_image_on_the_recorded_base_and_the_chart(repository: Repository) -> None:
    recorded = f"{BASE}@sha256:{'5f' * 32}"
    (repository.folder / "dist" / "base-image.txt").write_text(f"{recorded}\n")

    done = repository.run("publish")

    assert (done.returncode, done.stderr) == (0, "")
    [build] = [call for call in repository.calls if call.startswith("docker buildx build ")]
    assert f"--build-arg PYTHON={recorded} " in build
    assert "--output type=image,push=true,rewrite-timestamp=true " in build
    assert repository.written("image.txt") == f"registry.test/group/konductor-like:1.2.3@{DIGEST}\n"
    assert repository.calls[-1] == "helm push dist/konductor-like-1.2.3.tgz oci://registry.test/group/charts"


@pytest.mark.parametrize(
    ("broken", "environment", "missing", "message"),
    [
        ("", {"REGISTRY": ""}, "", "error: there is no registry\n"),
        ("helm", {}, "", "error: `helm version` failed\n"),
        ("", {}, "base-image.txt", "hint: run make image first\n"),
        ("", {}, "konductor-like-1.2.3.tgz", "hint: run make dist first\n"),
        ("pushed", {}, "", "konductor-like:1.2.3 exists; a released version is never replaced\n"),
        ("login", {}, "", "konductor-like:1.2.3 exists: ERROR: failed to authorize: 401 Unauthorized\n"),
    ],
    ids=["no registry", "no helm", "no image", "no chart", "released before", "no login"],
)
def test_nothing_is_pushed_if_anything_is_missing_or_was_released(
    broken: str, environment: dict[str, str], missing: str, message: str, repository: Repository
) -> None:
    (repository.folder / "dist" / "base-image.txt").write_text(f"{BASE}@{DIGEST}\n")
    (repository.folder.parent / "calls").touch()
    if missing:
        (repository.folder / "dist" / missing).unlink()
    if broken == "pushed":
        (repository.folder.parent / "calls.pushed").touch()

    done = repository.run("publish", broken, **environment)

    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not repository.has_called("docker buildx build")
    assert not repository.has_called("helm push")


def test_a_chart_that_is_not_pushed_is_reported(repository: Repository) -> None:
    (repository.folder / "dist" / "base-image.txt").write_text(f"{BASE}@{DIGEST}\n")

    done = repository.run("publish", "push")

    assert done.returncode == 1
    assert "was not pushed; the image was\n" in done.stderr
