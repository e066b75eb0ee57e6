"""Exit statuses of every command and of the controller (rule 28)."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """The meaning of a command's exit status."""

    OK = 0
    """The command succeeded, or there was nothing to do."""
    FAILED = 1
    """The command could do nothing of what it was given."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    PARTLY = 3
    """The command succeeded for some things and failed for others, as ``test`` if a stage did not come; with
    ``validate --wait`` the result is unknown."""
    FOUND = 4
    """``doctor`` found a broken link; with ``--exit-code`` ``status`` found a faulty or held node, ``scan`` a
    fault."""
    UNKNOWN = 5
    """``doctor`` found nothing broken, and could not check a link; with ``--exit-code`` ``status`` found an
    unknown node, ``scan`` no log lines."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""

    @classmethod
    def of(cls, done: int, failed: int) -> "Exit":
        """Return the status of a command that did ``done`` things and failed at ``failed`` things."""
        if not failed:
            return cls.OK
        return cls.PARTLY if done else cls.FAILED


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "failed",
    Exit.USAGE: "usage or configuration",
    Exit.PARTLY: "partly failed",
    Exit.FOUND: "asked and found",
    Exit.UNKNOWN: "unknown",
    Exit.INTERRUPTED: "interrupted",
}
"""The table of exit statuses in the help and in the documentation."""
