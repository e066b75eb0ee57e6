"""A release: one version, a dated changelog, an inventory from the lock file, archives with equal bytes."""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

import pytest
import yaml

from konductor_like import __version__
from tools.release.check import OWNERS, ROOT, missing, problems, section
from tools.release.dist import chart_archive, checksums, with_registry
from tools.release.sbom import Pinned, licence, pinned, sbom
from tools.release.version import cut, places, with_version

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.1.0] - 2026-12-01\n\n- first\n"
FILLED = "[tool.konductor-like]\n" + "".join(f'{name} = "x"\n' for name in OWNERS)
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


def test_every_file_that_names_the_version_names_the_same() -> None:
    ours = r'konductor-like:|newTag: |__version__ = "|^version: |^appVersion: |^konductor-like '
    named = {
        (path.relative_to(ROOT).as_posix(), version)
        for path in places()
        for version in re.findall(rf"(?m)(?:{ours})(\d+\.\d+\.\d+)", path.read_text("utf-8"))
    }

    assert {name for name, _ in named} >= {
        "konductor_like/__init__.py",
        "Dockerfile",
        "docs/start/cluster.md",
    }
    assert {version for _, version in named} == {__version__}


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("konductor-like:0.1.0", "konductor-like:0.2.0"),
        ("version: 0.1.0     # both", "version: 0.2.0     # both"),
        ("release 0.1.0.", "release 0.2.0."),
        ('"v0.1.0"', '"v0.1.0"'),
        ("manifests?ref=v0.1.0", "manifests?ref=v0.2.0"),
        ("10.1.0 0.1.0.5 0.1.0-rc1 0.1.01", "10.1.0 0.1.0.5 0.1.0-rc1 0.1.01"),
    ],
)
def test_a_new_version_replaces_the_old_one_and_no_other_number(text: str, then: str) -> None:
    assert with_version(text, "0.1.0", "0.2.0") == then


def test_the_changelog_of_a_new_version_is_what_was_unreleased() -> None:
    after = cut(CHANGELOG, "0.2.0", "2027-01-02")

    assert section(after, "0.2.0") == ("2027-01-02", "- new")
    assert section(after, "Unreleased") == ("", "")
    assert section(after, "0.1.0") == ("2026-12-01", "- first")


def test_a_version_that_has_a_section_gets_its_date() -> None:
    after = cut(CHANGELOG.replace("2026-12-01", "not released yet"), "0.1.0", "2027-01-02")

    assert after == CHANGELOG.replace("2026-12-01", "2027-01-02")


def test_the_changelog_has_the_version_of_the_code_and_keeps_its_form() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    _, text = section(changelog, __version__) or ("", "")

    assert text
    assert headings[0] == "[Unreleased]"
    assert [each for each in headings[1:] if not re.match(r"\[\d+\.\d+\.\d+\] - \S", each)] == []
    kinds = set(re.findall(r"^### (.*)$", changelog, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_a_release_waits_for_what_only_the_owner_knows() -> None:
    assert missing(FILLED) == []
    assert missing(FILLED.replace('"x"', '" "')) == list(OWNERS)
    assert missing(FILLED.replace('"x"', '"registry.example.com/x"')) == list(OWNERS)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"pyproject": FILLED.replace("registry", "r")}, "the owner's value registry is empty"),
        ({"changelog": "## [Unreleased]\n"}, r"has no section \[0.1.0\]"),
        ({"changelog": "## [0.1.0] - not released yet\n"}, r"the section \[0.1.0\] has no date"),
        ({"changelog": "## [0.1.0]\n"}, r"the section \[0.1.0\] has no date"),
        ({"changed": " M Makefile\n"}, "changes that are not committed"),
        ({"tags": "v0.1.0-rc1 v0.1.1"}, "does not have the tag v0.1.0"),
    ],
    ids=["nothing", "owner", "section", "date", "heading", "dirty", "tag"],
)
def test_a_release_is_refused_for_one_reason_each(change: dict[str, str], problem: str) -> None:
    right = {"pyproject": FILLED, "changelog": CHANGELOG, "version": "0.1.0", "changed": "", "tags": "v0.1.0"}

    found = list(problems(**{**right, **change}))

    assert len(found) == bool(problem)
    assert all(re.search(problem, each) for each in found)


def test_the_workflow_only_calls_the_targets_of_the_makefile() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    [job] = workflow["jobs"].values()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = [step["run"] for step in job["steps"] if "run" in step]
    targets = re.findall(r"\bmake (?:-s )?([\w-]+)", "\n".join(commands))

    assert targets[0] == "release-check"
    assert [target for target in targets if f"\n.PHONY: {target}\n" not in makefile] == []
    assert [each for each in commands if not each.startswith(("make ", "docker login "))] == []
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)
    assert workflow["permissions"] == {}
    assert job["permissions"] == {"contents": "write", "packages": "write"}


# The inventory.


def test_a_pin_has_the_hashes_of_its_files_and_the_packages_that_need_it() -> None:
    first, second = "a" * 64, "b" * 64
    lock = (
        f"anyio==4.1.0 \\\n    --hash=sha256:{first} \\\n    --hash=sha256:{second}\n    # via httpx\n"
        f"idna==3.2 ; python_version < '3.12' \\\n    --hash=sha256:{first}\n"
        "    # via\n    #   anyio\n    #   konductor-like (pyproject.toml)\n"
        f"colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:{first}\n    # via click\n"
    )

    assert list(pinned(lock)) == [
        Pinned("anyio", "4.1.0", (first, second), ("httpx",)),
        Pinned("idna", "3.2", (first,), ("anyio", "konductor-like")),
    ]


def test_the_inventory_has_every_package_of_the_lock_with_hashes_and_licence() -> None:
    document = sbom(LOCK, PYPROJECT, __version__, 0)
    names = set(re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE))
    needs = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    reached, new = set(), {document["metadata"]["component"]["bom-ref"]}
    while new:
        reached |= new
        new = {other for one in new for other in needs[one]} - reached

    assert {each["name"] for each in document["components"]} == names - {"colorama"}  # Windows only
    assert reached == set(needs)
    for component in document["components"]:
        assert component["licenses"], component["name"]
        assert component["externalReferences"][0]["hashes"], component["name"]
    assert document == sbom(LOCK, PYPROJECT, __version__, 0)


def test_the_licence_of_another_version_than_the_locked_one_is_not_used() -> None:
    with pytest.raises(LookupError, match=r"the lock has 0\.0\.1: run make setup"):
        licence("httpx", "0.0.1")
    with pytest.raises(LookupError, match="no-such-package is not installed"):
        licence("no-such-package", "1")


# Archives.


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A small chart in a folder."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: konductor-like\nversion: 1.2.3\n")
    (tmp_path / "values.yaml").write_text("image:\n  repository: konductor-like  # yours\n")
    (tmp_path / "templates" / "one.yaml").write_text("{{ .Values.image.repository }}\n")
    return tmp_path


def test_a_charts_archive_has_the_same_bytes_whenever_it_is_made(chart: Path) -> None:
    first = chart_archive(chart, "", 1_700_000_000)
    for path in chart.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)

    assert chart_archive(chart, "", 1_700_000_000) == first
    assert first[0] == "konductor-like-1.2.3.tgz"


def test_a_charts_archive_names_the_registry_of_the_owner(chart: Path) -> None:
    _, content = chart_archive(chart, "registry.test/group", 0)

    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = archive.getnames()
        values = archive.extractfile("konductor-like/values.yaml")
        assert values is not None
        assert b"  repository: registry.test/group/konductor-like  # yours\n" in values.read()
    assert names == [f"konductor-like/{name}" for name in ("Chart.yaml", "templates/one.yaml", "values.yaml")]


def test_a_chart_whose_image_is_not_found_gets_no_registry() -> None:
    with pytest.raises(ValueError, match="one was expected"):
        with_registry("image:\n  name: konductor-like\n", "registry.test/group")


def test_the_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    assert list(checksums(tmp_path)) == [f"{empty}  a\n", f"{empty}  b\n"]
