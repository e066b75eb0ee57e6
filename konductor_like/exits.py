"""Exit statuses of every command and of the controller (rule 28)."""

from enum import IntEnum


class Exit(IntEnum):
    """The meaning of a command's exit status."""

    OK = 0
    """Done; nothing to do counts as done."""
    FAILED = 1
    """Nothing of what was asked could be done; also ``status --exit-code`` with a faulty node."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    PARTLY = 3
    """Some of what was asked was done, some could not be."""
    UNKNOWN = 5
    """``status --exit-code``: no node is faulty as far as is known, and of some it is not known."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""

    @classmethod
    def of(cls, done: int, failed: int) -> "Exit":
        """The status of a command over several things."""
        if not failed:
            return cls.OK
        return cls.PARTLY if done else cls.FAILED
