"""Loading the settings for a command: errors are told by the variable's name and end with status 2."""

from __future__ import annotations

import os

from pydantic import ValidationError

from konductor_like.cli.failures import CommandError
from konductor_like.cli.streams import tell
from konductor_like.exits import Exit
from konductor_like.settings import Settings
from konductor_like.settings_report import explain_settings_error


def load_settings() -> Settings:
    """The settings from the environment. Raises CommandError, the other problems told before it."""
    try:
        return Settings()
    except ValidationError as error:
        lines = explain_settings_error(error, os.environ)
        for line in lines[:-1]:
            tell(f"error: {line}")
        raise CommandError(
            lines[-1], hint="`konductor-like check-config` checks all of it", status=Exit.USAGE
        ) from error
