"""The one place where the command line reads the time."""

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, aware."""
    return datetime.now(UTC)
