"""A file that a command writes: never over another one unless asked, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.output import tell
from konductor_like.exits import Exit

Target = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, before the work begins. Raises CommandError."""
    if str(path) == "-":
        raise CommandError("the file needs a name", hint="such as `-o ./file`", status=Exit.USAGE)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise CommandError(f"{path}: {what}", status=Exit.USAGE)
    if not force and (path.exists() or path.is_symlink()):
        raise CommandError(
            f"{path} exists", hint="--force replaces it; or choose another name", status=Exit.USAGE
        )


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file that only its owner may read, and name it. Raises CommandError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            if force:
                part.replace(path)
            else:
                path.hardlink_to(part)  # fails if somebody made the file meanwhile
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{path} was not written: {describe(error)}") from error
    tell(f"written: {path} ({_size(len(content))}; only you can read it)")


def _size(size: int) -> str:
    return f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB"
