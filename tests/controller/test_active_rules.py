"""The rules in force are those of the start; another valid file starts the process again."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from konductor_like.catalog import RulesError
from konductor_like.controller import logs
from konductor_like.controller.loop import active_rules
from konductor_like.controller.loop.active_rules import AGAIN_SECONDS, ActiveRules, RulesWatch
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection.validate_rules import load_rules
from konductor_like.model import Source
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
        self.metrics, self.seconds = Metrics(), 0.0
        self.rules = ActiveRules(self.file, self.metrics, lambda: self.seconds)
        self.seconds = AGAIN_SECONDS

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
    digest = scene.rules.in_force.digest
    assert f"Rules in force ({digest}): site.nic_down, xid.13.severity, xid.63.mode." in said
    assert "a bug in a job can cause this Xid" in said
    assert scene.gauge("rules_info", hash=load_rules(scene.file).digest) == 1
    assert scene.gauge("rules_rejected") == 0


def test_a_file_that_names_removed_rules_is_in_force_from_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL + "  amd.ras.mode: enforce\n  neuron.mode: shadow\n" + OWN_RULE)

    assert scene.finds() == "fatal"
    said = scene.said()
    assert ": site.nic_down, xid.63.severity." in said
    assert said.count("this version has no amd.ras; ") == said.count("this version has no neuron; ") == 1
    assert scene.gauge("rules_rejected") == 0


def test_a_bad_file_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"^rules\.yaml:2, overrides, xid\.63\.severity: 'worse'"):
        Scene(tmp_path, BAD)


@pytest.mark.parametrize("path", [None, Path("nowhere.yaml")])
def test_without_a_file_the_built_in_rules_are_in_force(path: Path | None) -> None:
    metrics = Metrics()
    rules = ActiveRules(path, metrics)

    assert not rules.changed()
    assert not rules.changed(asked=True)
    assert rules.in_force.detector.find(XID_63, Source.KERNEL) is not None
    assert metrics.registry.get_sample_value("konductor_like_rules_info", {"hash": "built-in"}) == 1


def test_another_valid_file_starts_the_process_again_and_changes_nothing_in_this_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF)
    before = scene.rules.in_force
    scene.said()
    assert not scene.rules.changed()

    scene.mount(FATAL)

    assert scene.rules.changed()
    change = f"The rules have changed ({before.digest} to {load_rules(scene.file).digest})."
    assert change in scene.said()
    assert scene.rules.in_force is before
    assert scene.finds() is None


def test_a_process_starts_again_only_after_it_ran_for_some_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF)
    scene.said()
    for text, seconds in ((FATAL, 1), (OFF, 6), (FATAL, 11), (FATAL, AGAIN_SECONDS - 1)):
        scene.mount(text)
        scene.seconds = seconds
        assert not scene.rules.changed(asked=text == OFF)
    assert "The rules have changed" not in scene.said()

    scene.seconds = AGAIN_SECONDS
    assert scene.rules.changed()


def test_a_file_that_changes_and_comes_back_in_that_time_changes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OFF)
    scene.seconds = 1
    scene.mount(FATAL)
    assert not scene.rules.changed()

    scene.mount(OFF)
    scene.seconds = AGAIN_SECONDS
    assert not scene.rules.changed()


def test_a_bad_version_is_refused_at_once_and_logged_once_and_the_old_rules_stay(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    before = load_rules(scene.file).digest
    scene.said()

    for scene.seconds in (1, AGAIN_SECONDS):
        scene.mount(BAD)
        assert not scene.rules.changed()
    said = scene.said()

    assert said.count("Rules file refused: rules.yaml:2, overrides, xid.63.severity: 'worse'") == 1
    assert f"The earlier rules stay in force ({before})." in said
    assert scene.finds() == "fatal"
    assert scene.gauge("rules_rejected") == 1
    assert scene.gauge("rules_info", hash=before) == 1


def test_a_file_that_is_mended_counts_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    scene.mount(BAD)
    scene.rules.changed()
    scene.said()

    scene.mount(FATAL)
    assert not scene.rules.changed()
    assert "The rules have not changed" in scene.said()
    assert scene.gauge("rules_rejected") == 0

    scene.mount(BAD)
    scene.rules.changed()
    scene.mount(OFF)
    assert scene.rules.changed()
    assert scene.gauge("rules_rejected") == 0


@pytest.mark.parametrize(("text", "how"), [(None, "is gone"), ("", "is empty"), (" \n", "is empty")])
def test_a_deleted_file_changes_nothing_until_it_is_back(tmp_path: Path, text: str | None, how: str) -> None:
    scene = Scene(tmp_path, OFF)
    scene.said()

    said = ""
    for _ in range(2):
        scene.mount(text)
        assert not scene.rules.changed(asked=True)
        said += scene.said()

    assert scene.finds() is None
    assert said.count(f"rules.yaml: {how}; ") == 1
    assert scene.gauge("rules_rejected") == 1

    scene.mount(OFF)
    assert not scene.rules.changed()
    assert scene.gauge("rules_rejected") == 0

    scene.mount("rules: []\n")
    assert scene.rules.changed()


@pytest.mark.parametrize("text", ["rules: []\n", None])
def test_no_rules_of_ones_own_need_no_file(tmp_path: Path, text: str | None) -> None:
    scene = Scene(tmp_path, text)

    scene.mount(None)
    assert not scene.rules.changed()
    assert not scene.rules.changed(asked=True)
    assert scene.gauge("rules_rejected") == 0

    scene.mount(FATAL)
    assert scene.rules.changed()


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, OFF)
    scene.mount(FATAL)

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)  # root may read any file
        assert not scene.rules.changed()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        assert not scene.rules.changed()
    assert scene.said().count("Rules file refused") == 1
    assert scene.gauge("rules_rejected") == 1

    assert scene.rules.changed(asked=True)


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
    assert scene.rules.changed()


def test_only_the_place_of_the_manifest_may_be_empty_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Path(__file__).parents[2] / "manifests" / "controller_deployment.yaml"
    assert f"value: {active_rules.MOUNTED} " in manifest.read_text("utf-8")
    nowhere = tmp_path / "rules.yaml"

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


def test_asking_reads_the_file_even_where_it_looks_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FATAL)
    scene.said()
    assert not scene.rules.changed(asked=True)
    assert "The rules have not changed" in scene.said()

    seen = scene.file.stat()
    scene.file.write_text(FATAL.replace("fatal", "info "), "utf-8")
    os.utime(scene.file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert not scene.rules.changed()

    assert scene.rules.changed(asked=True)


# The thread that looks


def test_the_thread_says_once_that_the_process_should_start_again_and_ends(tmp_path: Path) -> None:
    scene, asked, again = Scene(tmp_path, OFF), threading.Event(), threading.Semaphore(0)
    watch = RulesWatch(rules=scene.rules, asked=asked, again=again.release)
    watch.start()
    scene.mount(BAD)
    asked.set()
    assert not again.acquire(timeout=0.2)

    scene.mount(FATAL)
    asked.set()
    assert again.acquire(timeout=10)
    watch.join(10)
    assert not watch._threads[0].is_alive()
    assert not again.acquire(blocking=False)


def test_the_thread_looks_unasked_and_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_rules, "LOOK_SECONDS", 0.01)
    scene, again = Scene(tmp_path, OFF), threading.Semaphore(0)
    watch = RulesWatch(rules=scene.rules, asked=threading.Event(), again=again.release)
    watch.start()
    scene.mount(FATAL)
    assert again.acquire(timeout=10)

    monkeypatch.setattr(active_rules, "LOOK_SECONDS", 60.0)
    late = RulesWatch(rules=scene.rules, asked=threading.Event(), again=again.release)
    late.start()
    late.close()
    late.join(10)
    assert not late._threads[0].is_alive()
    assert not again.acquire(blocking=False)
