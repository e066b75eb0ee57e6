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
    """The reader's source."""
    return Path(konductor_like.kmsg.__file__).read_text(encoding="utf-8")


def script_hash() -> str:
    """Its SHA-256, in hexadecimal."""
    return hashlib.sha256(script().encode()).hexdigest()


def embedded(manifest: str) -> str:
    """The manifest with the script in it, and with nothing else changed."""
    block = textwrap.indent(script(), "    ")
    manifest = re.sub(r"(?m)(?<=^  kmsg\.py: \|\n)(?:    .*\n|\n)*", lambda _: block, manifest, count=1)
    return re.sub(rf"(?m)(?<=^        {re.escape(HASH)}: ).*$", f'"{script_hash()}"', manifest, count=1)


if __name__ == "__main__":
    MANIFEST.write_text(embedded(MANIFEST.read_text(encoding="utf-8")), encoding="utf-8")
