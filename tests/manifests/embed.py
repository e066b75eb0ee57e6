"""Writes ``konductor_like/kmsg.py`` and its hash (so that a new script rolls the pods) into the DaemonSet."""

from __future__ import annotations

import hashlib
import re
import textwrap
from pathlib import Path

import konductor_like.kmsg
from tests.manifests.manifests import MANIFESTS

MANIFEST = MANIFESTS / "dmesg_daemonset.yaml"
HASH = "trainy.konduktor.ai/kmsg-sha256"


def script() -> str:
    """Return the reader's source."""
    return Path(konductor_like.kmsg.__file__).read_text(encoding="utf-8")


def script_hash() -> str:
    """Return the SHA-256 of the script, in hexadecimal."""
    return hashlib.sha256(script().encode()).hexdigest()


def embedded(manifest: str) -> str:
    """Return the manifest with the current script and hash, and no other change."""
    block = textwrap.indent(script(), "    ")
    manifest = re.sub(r"(?m)(?<=^  kmsg\.py: \|\n)(?:    .*\n|\n)*", lambda _: block, manifest, count=1)
    return re.sub(rf"(?m)(?<=^        {re.escape(HASH)}: ).*$", f'"{script_hash()}"', manifest, count=1)


if __name__ == "__main__":
    MANIFEST.write_text(embedded(MANIFEST.read_text(encoding="utf-8")), encoding="utf-8")
