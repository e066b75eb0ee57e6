"""The switches of the way back: settings, file, and what stays in force if the file is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from konductor_like.controller.loop.active_switches import ActiveSwitches
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like.switches import VALUES, Switches, SwitchesError, given_by_file, read_switches

IMAGE = "dcgm:4"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recovery.yaml"


def settings(file: Path | None, **given: str) -> Settings:
    return Settings.model_validate({"recovery_file": file, "validation_image": IMAGE, **given})


def write(file: Path, text: str) -> None:
    """Write the file, with a modification time that no earlier version had."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(before + 10**9, before + 10**9))


# The file


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("return: ask", ("ask", "on")),
        ("return: reboot", ("reboot", "on")),
        ("return: validated", ("validated", "on")),
        ("return: validated\nrecovery: rehearse", ("validated", "rehearse")),
        ("return: validated\nrecovery: on", ("validated", "on")),  # YAML takes this on for true
        ("recovery: 'on'", ("ask", "on")),
        ("", ("ask", "on")),
        ("# return: reboot", ("ask", "on")),
        ("{}", ("ask", "on")),
    ],
)
def test_each_value_of_the_file_counts(text: str, switches: tuple[str, str], file: Path) -> None:
    file.write_text(text, encoding="utf-8")

    assert read_switches(settings(file)) == Switches(*switches)


def test_the_file_wins_over_the_settings_key_by_key(file: Path) -> None:
    chosen = settings(file, return_by="validated", recovery="rehearse")

    assert read_switches(chosen) == Switches("validated", "rehearse")  # no file yet
    file.write_text("recovery: on", encoding="utf-8")
    assert read_switches(chosen) == Switches("validated", "on")
    assert given_by_file(chosen) == {"recovery": "on"}


def test_without_a_path_the_settings_count() -> None:
    assert read_switches(settings(None, return_by="reboot")) == Switches("reboot", "on")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("returns: ask", "'returns' is not a switch; these are: return, recovery"),
        ("1: ask", "1 is not a switch"),
        ("return: reebot", "return is 'reebot', and must be one of ask, reboot, validated"),
        ("return: on", "return is 'on', and must be"),
        ("recovery: off", "recovery is False, and must be one of on, rehearse"),
        ("return: [ask]", r"return is \['ask'\]"),
        ("return:", "return is None"),
        ("- return", "has no keys"),
        ("ask", "has no keys"),
        ("return: {", "is not YAML"),
        ("\x00", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("recovery: rehearse", "KONDUCTOR_RECOVERY=rehearse needs KONDUCTOR_RETURN=validated"),
        (
            "return: reboot\nrecovery: rehearse",
            "KONDUCTOR_RECOVERY=rehearse needs KONDUCTOR_RETURN=validated",
        ),
    ],
)
def test_a_file_that_is_wrong_in_any_way_is_refused_as_a_whole(text: str, why: str, file: Path) -> None:
    file.write_text(text, encoding="utf-8")

    with pytest.raises(SwitchesError, match=why) as refused:
        read_switches(settings(file))

    assert str(refused.value).startswith(str(file))


def test_returns_by_validation_need_an_image(file: Path) -> None:
    file.write_text("return: validated", encoding="utf-8")

    with pytest.raises(SwitchesError, match="needs KONDUCTOR_VALIDATION_IMAGE"):
        read_switches(Settings(recovery_file=file))


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"return: \xff\xfe")

    with pytest.raises(SwitchesError, match="is not YAML"):
        read_switches(settings(file))


def test_a_directory_is_refused(file: Path) -> None:
    file.mkdir()

    with pytest.raises(SwitchesError, match="directory"):
        read_switches(settings(file))


def test_a_file_that_may_not_be_read_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    file.write_text("return: ask", encoding="utf-8")
    monkeypatch.setattr(Path, "open", refuse)  # root may read any file

    with pytest.raises(SwitchesError, match="Permission denied"):
        read_switches(settings(file))


@pytest.mark.parametrize("return_by", VALUES["return"])
@pytest.mark.parametrize("recovery", VALUES["recovery"])
def test_the_policy_gets_the_switches_and_keeps_the_rest(return_by: str, recovery: str) -> None:
    before = PolicyConfig(returns_by_reboot=True, rehearses=True, repeat_count=7)

    after = Switches(return_by, recovery).complete(before)

    assert (after.returns_by_reboot, after.returns_by_validation, after.rehearses) == (
        return_by == "reboot",
        return_by == "validated",
        recovery == "rehearse",
    )
    assert after.repeat_count == 7


# In the running controller


def test_a_change_of_the_file_takes_effect(file: Path) -> None:
    active = ActiveSwitches(settings(file))
    assert active.in_force == Switches("ask", "on")
    assert not active.reload()

    write(file, "return: validated")
    assert active.reload()
    assert active.in_force == Switches("validated", "on")
    write(file, "return: validated  # the same")
    assert not active.reload()

    file.unlink()
    assert active.reload()
    assert active.in_force == Switches("ask", "on")


@pytest.mark.parametrize("text", ["return: oops", "recovery: rehearse", "return: {"])
def test_a_refused_file_changes_nothing_until_it_is_right(
    text: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(file, "return: validated")
    active = ActiveSwitches(settings(file))

    write(file, text)
    assert not active.reload()
    assert not active.reload()
    assert active.in_force == Switches("validated", "on")
    refusals = [each.getMessage() for each in caplog.records if "Switches refused" in each.getMessage()]
    assert len(refusals) == 1  # once, and not in each round
    assert "Those in force stay (return validated, recovery on)" in refusals[0]

    write(file, "return: reboot")
    assert active.reload()
    assert active.in_force == Switches("reboot", "on")


def test_a_file_that_becomes_a_directory_changes_nothing(file: Path) -> None:
    write(file, "return: reboot")
    active = ActiveSwitches(settings(file))

    file.unlink()
    file.mkdir()

    assert not active.reload()
    assert active.in_force == Switches("reboot", "on")


def test_a_controller_does_not_start_with_a_refused_file(file: Path) -> None:
    file.write_text("return: oops", encoding="utf-8")

    with pytest.raises(SwitchesError):
        ActiveSwitches(settings(file))


# The settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"return_by": "validated"}, "KONDUCTOR_RETURN=validated needs KONDUCTOR_VALIDATION_IMAGE"),
        ({"recovery": "rehearse"}, "KONDUCTOR_RECOVERY=rehearse needs KONDUCTOR_RETURN=validated"),
        (
            {"recovery": "rehearse", "return_by": "reboot", "validation_image": IMAGE},
            "KONDUCTOR_RECOVERY=rehearse needs KONDUCTOR_RETURN=validated",
        ),
        (
            {"validation_image": IMAGE, "validation_namespace": "konductor-like"},
            "must not be the controller's own namespace",
        ),
        (
            {"validation_image": IMAGE, "validation_namespace": "gpu-ops", "namespace": "gpu-ops"},
            "must not be the controller's own namespace",
        ),
        (
            {"validation_image": IMAGE, "validation_namespace": "dmesg-logging"},
            "must not be the namespace of the kernel-log reader",
        ),
        (
            {"validation_image": IMAGE, "validation_namespace": "ml", "watched_namespaces": "default,ml"},
            "must not be in WATCHED_NAMESPACES",
        ),
        ({"validation_level": "1"}, "greater than or equal to 2"),
        ({"validation_level": "5"}, "less than or equal to 4"),
        ({"validation_namespace": "Tests"}, "is not a namespace name"),
    ],
)
def test_settings_that_cannot_stand_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Settings.model_validate(given)


@pytest.mark.parametrize(
    ("text", "keys"),
    [("", ()), ("team", ("team",)), (" team , dedicated/gpu ,", ("team", "dedicated/gpu"))],
)
def test_tolerations_are_a_list(text: str, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONDUCTOR_VALIDATION_TOLERATIONS", text)

    assert Settings().validation_tolerations == keys


def test_the_namespace_of_validations_is_read_for_faults_only_without_an_image() -> None:
    watched = Settings(watched_namespaces=("*",))
    tested = Settings(watched_namespaces=("*",), validation_image=IMAGE)

    assert "konductor-like-validation" not in watched.namespaces()[1]
    assert "konductor-like-validation" in tested.namespaces()[1]
