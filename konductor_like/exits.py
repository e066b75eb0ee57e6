"""Exit statuses of every command and of the controller (rule 28)."""

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
    """The command succeeded for some things and failed for others."""
    FOUND = 4
    """The user asked with ``--exit-code``, and the command found a fault."""
    UNKNOWN = 5
    """``status --exit-code``: no node is known to be faulty, and the state of at least one is unknown."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""

    @classmethod
    def of(cls, done: int, failed: int) -> "Exit":
        """Return the status of a command that did ``done`` things and failed at ``failed`` things."""
        if not failed:
            return cls.OK
        return cls.PARTLY if done else cls.FAILED
