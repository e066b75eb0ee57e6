"""The rules in force follow the user's file; a bad file changes nothing."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from konductor_like.catalog import RulesError
from konductor_like.controller import logs
from konductor_like.controller.loop import active_rules
from konductor_like.controller.loop.active_rules import ActiveRules
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection.validate_rules import load_rules
from konductor_like.model import Source
from konductor_like.policy.config import PolicyConfig
from tests.catalog.user_files import OWN_RULE

XID_63 = "NVRM: Xid (PCI:0000:3d:00): 63, pid=1, Row Remapper"
OFF, FATAL = "overrides:\n  xid.63.mode: 'off'\n", "overrides:\n  xid.63.severity: fatal\n"
BAD = "overrides:\n  xid.63.severity: worse\n"


class Scene:
    """Rules from a mounted ConfigMap: a link to a folder, which is replaced."""

    def __init__(self, folder: Path, text: str | None) -> None:
        self.log = io.StringIO()
        logs.set_up("text", "info", stream=self.log)
        self.folder, self.number = folder, 0
        self.file = folder / "rules.yaml"
        self.file.symlink_to("data/rules.yaml")
        self.mount(text)
        self.metrics, self.asked = Metrics(), threading.Event()
        self.rules = ActiveRules(self.file, self.metrics, self.asked)

    def mount(self, text: str | None) -> None:
        """Replace the file as the kubelet does for a new version of a ConfigMap."""
        self.number += 1
        version = self.folder / f"v{self.number}"
        version.mkdir()
        if text is not None:
            (version / "rules.yaml").write_text(text, "utf-8")
        (self.folder / "next").symlink_to(version.name)
        (self.folder / "next").replace(self.folder / "data")

    def finds(self) -> str | None:
        finding = self.rules.in_force.detector.find(XID_63, Source.KERNEL)
        return None if finding is None else finding.severity.value

    def said(self) -> str:
        text = self.log.getvalue()
        self.log.truncate(0)
        self.log.seek(0)
        return text

    def gauge(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"konductor_like_{name}", labels)


def test_the_file_is_in_force_from_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF + "  xid.13.severity: fatal\n" + OWN_RULE)

    assert scene.finds() is None
    said = scene.said()
    assert "new: site.nic_down, xid.13.severity, xid.63.mode." in said
    assert "a bug in a job can cause this Xid" in said
    assert scene.gauge("rules_info", hash=load_rules(scene.file).digest) == 1
    assert scene.gauge("rules_rejected") == 0


def test_a_bad_file_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"^rules\.yaml:2, overrides, xid\.63\.severity: 'worse'"):
        Scene(tmp_path, BAD)


@pytest.mark.parametrize("path", [None, Path("nowhere.yaml")])
def test_without_a_file_the_built_in_rules_are_in_force(path: Path | None) -> None:
    metrics = Metrics()
    rules = ActiveRules(path, metrics)

    assert rules.reload() is False
    assert rules.in_force.detector.find(XID_63, Source.KERNEL) is not None
    assert metrics.registry.get_sample_value("konductor_like_rules_info", {"hash": "built-in"}) == 1


def test_a_new_version_is_read_once_and_its_changes_are_logged(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF)
    scene.said()
    assert scene.rules.reload() is False

    scene.mount(FATAL)

    assert scene.rules.reload() is True
    assert scene.finds() == "fatal"
    assert "new: xid.63.severity; gone: xid.63.mode." in scene.said()
    assert scene.rules.reload() is False
    assert scene.said() == ""


def test_a_bad_version_is_refused_and_logged_once_and_the_old_rules_stay(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    before = load_rules(scene.file).digest
    scene.said()

    for _ in range(2):
        scene.mount(BAD)
        assert scene.rules.reload() is False
    said = scene.said()

    assert said.count("Rules file refused: rules.yaml:2, overrides, xid.63.severity: 'worse'") == 1
    assert f"The earlier rules stay in force ({before})." in said
    assert scene.finds() == "fatal"
    assert scene.gauge("rules_rejected") == 1
    assert scene.gauge("rules_info", hash=before) == 1


def test_a_file_that_is_mended_is_in_force_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    scene.mount(BAD)
    scene.rules.reload()
    scene.said()

    scene.mount(FATAL)
    assert scene.rules.reload() is False
    assert "The rules have not changed" in scene.said()
    assert scene.gauge("rules_rejected") == 0

    scene.mount(BAD)
    scene.rules.reload()
    scene.mount(OFF)
    assert scene.rules.reload() is True
    assert scene.finds() is None
    assert scene.gauge("rules_info", hash=load_rules(scene.file).digest) == 1
    assert scene.gauge("rules_rejected") == 0


@pytest.mark.parametrize(("text", "how"), [(None, "is gone"), ("", "is empty"), (" \n", "is empty")])
def test_a_deleted_file_changes_nothing_until_it_is_back(tmp_path: Path, text: str | None, how: str) -> None:
    scene = Scene(tmp_path, OFF)
    scene.said()

    said = ""
    for _ in range(2):
        scene.mount(text)
        scene.asked.set()
        assert scene.rules.reload() is False
        said += scene.said()

    assert scene.finds() is None
    assert said.count(f"rules.yaml: {how}; ") == 1
    assert scene.gauge("rules_rejected") == 1

    scene.mount(OFF)
    assert scene.rules.reload() is False
    assert scene.gauge("rules_rejected") == 0

    scene.mount("rules: []\n")
    assert scene.rules.reload() is True
    assert scene.finds() == "suspect"
    scene.mount(None)
    assert scene.rules.reload() is True
    assert scene.gauge("rules_rejected") == 0


def test_rules_that_a_task_has_read_do_not_change_when_others_come_into_force(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF)
    taken, digest = scene.rules.in_force, scene.rules.in_force.digest
    scene.mount(FATAL)

    assert scene.rules.reload() is True
    assert taken.detector.find(XID_63, Source.KERNEL) is None
    assert (taken.digest, taken.complete(PolicyConfig()).version) == (digest, digest)
    assert scene.rules.in_force.digest != digest


@pytest.mark.parametrize("swapped", [True, False], ids=["a ConfigMap is swapped", "edited in place"])
def test_a_file_of_the_same_size_is_read_where_anything_else_changed(tmp_path: Path, swapped: bool) -> None:
    scene = Scene(tmp_path, FATAL)
    before = scene.file.stat()
    changed = FATAL.replace("fatal", "info ")

    if swapped:
        scene.mount(changed)
    else:
        scene.file.write_text(changed, "utf-8")
    os.utime(scene.file, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if swapped else 1_000_000)))

    now = scene.file.stat()
    assert now.st_size == before.st_size
    assert (now.st_ino == before.st_ino) is not swapped
    assert (now.st_mtime_ns == before.st_mtime_ns) is swapped
    assert scene.rules.reload() is True
    assert scene.finds() == "info"


def test_only_the_place_of_the_manifest_may_be_empty_without_a_warning_and_a_file_may_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Path(__file__).parents[2] / "manifests" / "controller_deployment.yaml"
    assert f"value: {active_rules.MOUNTED} " in manifest.read_text("utf-8")
    nowhere = tmp_path / "rules.yaml"
    (tmp_path / "mounted").mkdir()

    said = {}
    for mounted in (nowhere, tmp_path / "elsewhere.yaml"):
        monkeypatch.setattr(active_rules, "MOUNTED", mounted)
        logs.set_up("text", "warning", stream=(log := io.StringIO()))
        ActiveRules(nowhere, Metrics())
        said[mounted] = log.getvalue()

    assert said[nowhere] == ""
    assert (
        f"No rules file at {nowhere}: only the built-in rules are in force."
        in said[tmp_path / "elsewhere.yaml"]
    )
    scene = Scene(tmp_path / "mounted", None)
    scene.mount(FATAL)
    assert scene.rules.reload() is True
    assert scene.finds() == "fatal"


def test_asking_reads_the_file_even_where_it_looks_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    scene.said()
    seen = scene.file.stat()
    scene.file.write_text(FATAL.replace("fatal", "suspe").replace("suspe", "info "), "utf-8")
    os.utime(scene.file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert scene.rules.reload() is False

    scene.asked.set()
    assert scene.rules.reload() is True
    assert scene.finds() == "info"

    scene.said()
    scene.asked.set()
    assert scene.rules.reload() is False
    assert "The rules have not changed" in scene.said()
