"""What can be wrong with the catalogue.

ValueError
└── CatalogError    a file of the catalogue is broken: says which file, entry and field
"""

from __future__ import annotations


class CatalogError(ValueError):
    """A file of the catalogue is broken; nothing of it is used."""

    hint = "The catalogue is part of the package: reinstall konductor-like, or undo the change to the file."

    def __init__(self, file: str, entry: str, field: str, reason: str) -> None:
        super().__init__(f"{file}, {entry}, {field}: {reason}")
        self.file = file
        self.entry = entry
        self.field = field
        self.reason = reason
