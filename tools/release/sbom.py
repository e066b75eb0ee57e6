"""The software bill of materials in CycloneDX JSON, from ``requirements.lock`` and the installed packages.

The lock file has every package that the wheel and the image install, with its version, the hashes of its
files, and the packages that need it. Licences come from the metadata of the same versions in ``.venv``. The
base image has an inventory of its own, which ``docker buildx build --sbom`` attaches to the image.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from tools.release.check import owners_values

_PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; ([^\\\n]+?))?(?: \\)?\n((?:    .*\n?)*)", re.MULTILINE)
_LICENCE_CHARS = 60
"""A longer text in the field ``License`` is the licence itself and not its name."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package of the lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file of this version that pip may install."""
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, which also names the package within the document."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pinned(lock: str) -> Iterator[Pinned]:
    """Yield the packages of a lock file; not those for Windows only, which the product does not support."""
    for name, version, marker, below in _PIN.findall(lock):
        if "sys_platform == 'win32'" not in marker:
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", below)
            needed_by = re.findall(r"#(?: via)? +([\w.-]+)(?: \(.*\))?$", below, re.MULTILINE)
            yield Pinned(name, version, tuple(hashes), tuple(each for each in needed_by if each != "via"))


def licence(name: str, version: str) -> list[dict[str, Any]]:
    """Return the licence that the installed package states. Raises LookupError without that version."""
    try:
        found = metadata(name)
    except PackageNotFoundError as error:
        raise LookupError(f"{name} is not installed: run make setup") from error
    if found["Version"] != version:
        raise LookupError(f"{name} {found['Version']} is installed, the lock has {version}: run make setup")
    for expression in found.get_all("License-Expression", []):
        return [{"expression": expression}]
    names = [each for each in found.get_all("License", []) if 0 < len(each) <= _LICENCE_CHARS]
    classes = [each for each in found.get_all("Classifier", []) if each.startswith("License ::")]
    return [{"license": {"name": each}} for each in names or [each.split(" :: ")[-1] for each in classes]]


def sbom(lock: str, pyproject: str, version: str, epoch: int) -> dict[str, Any]:
    """Return the document for a release made from a commit of this Unix time."""
    packages = list(pinned(lock))
    product = Pinned("konductor-like", version, (), ())
    source = owners_values(pyproject)["project-url"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{product.purl} {epoch} {lock}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "component": {
                "type": "application",
                "bom-ref": product.purl,
                "name": product.name,
                "version": version,
                "purl": product.purl,
                "licenses": [{"expression": "Apache-2.0"}],
                **({"externalReferences": [{"type": "vcs", "url": source}]} if source else {}),
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": package.purl,
                "name": package.name,
                "version": package.version,
                "purl": package.purl,
                "licenses": licence(package.name, package.version),
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": package.purl,
                        "comment": "the files of this version that pip may install",
                        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
                    }
                ],
            }
            for package in packages
        ],
        "dependencies": [
            {
                "ref": one.purl,
                "dependsOn": sorted(other.purl for other in packages if one.name in other.needed_by),
            }
            for one in (product, *packages)
        ],
    }
