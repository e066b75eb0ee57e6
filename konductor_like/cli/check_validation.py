"""The part of ``check-config`` about validations and the switches of the way back."""

from __future__ import annotations

from collections.abc import Iterator

from konductor_like.settings import Settings
from konductor_like.settings_report import Effective
from konductor_like.switches import given_by_file, read_switches

_FIELDS = {"return": "return_by", "recovery": "recovery"}
"""The switches by their keys in the file, each with its setting."""


def switches_in_effect(settings: Settings) -> list[Effective]:
    """Return each switch with its value and its origin: ``file``, ``environment`` or ``default``.

    Raises SwitchesError if the file is refused.
    """
    found, given = read_switches(settings), given_by_file(settings)
    return [
        Effective(
            name,
            found.return_by if name == "return" else found.recovery,
            "file" if name in given else "environment" if setting in settings.model_fields_set else "default",
        )
        for name, setting in _FIELDS.items()
    ]


def validation_warnings(settings: Settings) -> Iterator[str]:
    """Yield what a person should know about the settings of validations; nothing if there are none."""
    file, image = settings.recovery_file, settings.validation_image
    if file is not None and not file.exists():
        yield f"KONDUCTOR_RECOVERY_FILE={file}: no such file; KONDUCTOR_RETURN and KONDUCTOR_RECOVERY count."
    if image and "@sha256:" not in image:
        yield (
            f"KONDUCTOR_VALIDATION_IMAGE={image} names no digest (@sha256:…): anybody who may push this "
            "tag can replace the program that tests your nodes."
        )
