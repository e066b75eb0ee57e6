"""The settings of the way back, and the file that an earlier version read in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from konductor_like.settings import Settings

IMAGE = "dcgm:4"


@pytest.mark.parametrize(
    ("return_by", "recovery"),
    [("ask", "on"), ("reboot", "on"), ("validated", "on"), ("validated", "rehearse")],
)
def test_the_policy_gets_the_settings(return_by: str, recovery: str) -> None:
    given = {"return_by": return_by, "recovery": recovery, "validation_image": IMAGE}
    policy = Settings.model_validate(given).policy()

    assert (policy.returns_by_reboot, policy.returns_by_validation, policy.rehearses) == (
        return_by == "reboot",
        return_by == "validated",
        recovery == "rehearse",
    )
    assert (policy.recovery_by_file, policy.validates_on_wish) == (False, recovery == "on")


# The file


@pytest.mark.parametrize("text", ["return: ask", "return: validated", "recovery: rehearse", "", "return: {"])
@pytest.mark.parametrize("return_by", ["ask", "reboot", "validated"])
def test_while_the_file_is_there_nothing_returns_and_nothing_is_validated(
    return_by: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "recovery.yaml"
    given = {"recovery_file": file, "return_by": return_by, "validation_image": IMAGE}
    settings = Settings.model_validate(given)
    before = settings.policy()

    file.write_text(text)
    policy = settings.policy()
    off = (policy.returns_unasked, policy.validates_on_wish, policy.rehearses)
    assert (policy.recovery_by_file, *off) == (True, False, False, False)
    assert policy.validates, "a validation that runs is still watched, and its Job deleted"

    file.unlink()
    assert settings.policy() == before
    assert before.returns_unasked == (return_by != "ask")


def test_a_variable_without_a_file_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (None, tmp_path / "recovery.yaml", tmp_path / "file" / "recovery.yaml"):
        assert not Settings(recovery_file=path).policy().recovery_by_file


def test_a_file_that_may_not_be_seen_counts_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)  # root may look at any file

    assert Settings(recovery_file=Path("recovery.yaml")).policy().recovery_by_file


# What cannot stand


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
