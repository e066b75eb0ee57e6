"""The switches of the way back, from one file that the running controller reads again (rule 36).

``return`` and ``recovery`` in the file replace ``KONDUCTOR_RETURN`` and ``KONDUCTOR_RECOVERY``. A file that
is wrong in any way is refused as a whole. Without a file the settings count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings, refused_together

VALUES = {"return": ("ask", "reboot", "validated"), "recovery": ("on", "rehearse")}
"""The keys of the file, each with its values; the first is the default."""
_BYTES_MOST = 64 * 1024


class SwitchesError(ValueError):
    """The file of the switches is refused; the message says why."""

    hint = "Correct the file and check it with `konductor-like check-config`."


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches in force."""

    return_by: str
    recovery: str

    def complete(self, policy: PolicyConfig) -> PolicyConfig:
        """Return the policy with these switches."""
        return replace(
            policy,
            returns_by_reboot=self.return_by == "reboot",
            returns_by_validation=self.return_by == "validated",
            rehearses=self.recovery == "rehearse",
        )

    def __str__(self) -> str:
        return f"return {self.return_by}, recovery {self.recovery}"


def read_switches(settings: Settings) -> Switches:
    """Return the switches by the file that the settings name, or by the settings if there is no file.

    Raises SwitchesError if the file cannot be read or is wrong.
    """
    path, given = settings.recovery_file, given_by_file(settings)
    found = Switches(given.get("return", settings.return_by), given.get("recovery", settings.recovery))
    if problem := refused_together(found.return_by, found.recovery, settings.validation_image):
        raise SwitchesError(f"{path}: {problem}")
    return found


def given_by_file(settings: Settings) -> dict[str, str]:
    """Return the switches that the file gives, by key; nothing without a file. Raises SwitchesError."""
    path = settings.recovery_file
    return _read(path) if path is not None and path.exists() else {}


def _read(path: Path) -> dict[str, str]:
    import yaml  # slow

    try:
        with path.open("rb") as file:
            found: Any = yaml.safe_load(file.read(_BYTES_MOST + 1)[:_BYTES_MOST])
    except OSError as error:
        raise SwitchesError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SwitchesError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SwitchesError(f"{path} has no keys; write `return: validated`")
    given = dict[str, str]()
    for key, value in found.items():
        values = VALUES.get(key) if isinstance(key, str) else None
        if values is None:
            raise SwitchesError(f"{path}: {key!r} is not a switch; these are: {', '.join(VALUES)}")
        value = "on" if value is True else value  # YAML takes the word on for true
        if value not in values:
            raise SwitchesError(f"{path}: {key} is {value!r}, and must be one of {', '.join(values)}")
        given[key] = value
    return given
