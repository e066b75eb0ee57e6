"""The part of ``check-config`` about validations and the way back."""

from __future__ import annotations

from collections.abc import Iterator

from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.settings import Settings


def validation_warnings(settings: Settings) -> Iterator[str]:
    """Yield what a person should know about the settings of returns and validations."""
    image = settings.validation_image
    if settings.has_recovery_file():
        yield f"KONDUCTOR_RECOVERY_FILE={settings.recovery_file}: {BY_FILE}"
    if image and "@sha256:" not in image:
        yield (
            f"KONDUCTOR_VALIDATION_IMAGE={image} names no digest (@sha256:…): anybody who may push this "
            "tag can replace the program that tests your nodes."
        )
