"""The switches in force: the file is read again when it changes. If it is refused, the earlier ones stay."""

from __future__ import annotations

from konductor_like.controller import logs
from konductor_like.controller.loop.active_rules import version_of
from konductor_like.settings import Settings
from konductor_like.switches import SwitchesError, read_switches


class ActiveSwitches:
    """Keeps the switches in force. Only one thread calls ``reload``; any thread may read ``in_force``."""

    def __init__(self, settings: Settings) -> None:
        """Read the file. Raises SwitchesError, because there are no earlier switches that could stay."""
        self._settings = settings
        self._version = version_of(settings.recovery_file)
        self.in_force = read_switches(settings)

    def reload(self) -> bool:
        """Read the file again if it has changed. Return whether the switches changed."""
        version = version_of(self._settings.recovery_file)
        if version == self._version:
            return False
        self._version = version
        try:
            found = read_switches(self._settings)
        except SwitchesError as error:
            logs.error(f"Switches refused: {error}. Those in force stay ({self.in_force}). {error.hint}")
            return False
        if found == self.in_force:
            return False
        logs.info(f"Switches in force: {found} (before: {self.in_force}).")
        self.in_force = found
        return True
