"""Writes ``konductor_like/kmsg.py`` and its hash (so that a new script rolls the pods) into the DaemonSet.

Writes the admission policy and its binding from their manifest into the package, too.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from pathlib import Path

import konductor_like.cluster
import konductor_like.kmsg
from tests.manifests.manifests import MANIFESTS, documents, only

MANIFEST = MANIFESTS / "dmesg_daemonset.yaml"
ADMISSION = Path(konductor_like.cluster.__file__).with_name("admission.json")
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


def admission() -> str:
    """Return the admission policy and its binding of the manifest as JSON."""
    found = documents("controller_deployment.yaml")
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return json.dumps([only(found, kind) for kind in kinds], indent=1) + "\n"


if __name__ == "__main__":
    MANIFEST.write_text(embedded(MANIFEST.read_text(encoding="utf-8")), encoding="utf-8")
    ADMISSION.write_text(admission(), encoding="utf-8")
