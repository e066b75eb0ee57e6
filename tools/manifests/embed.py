"""Writes ``konductor_like/kmsg.py`` and its hash (so that a new script rolls the pods) into the DaemonSet.

Writes the admission policies and their bindings from their manifests into the package, too.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from pathlib import Path

import konductor_like.cluster
import konductor_like.kmsg
from konductor_like.cluster.reader_pods import SCRIPT_HASH
from tools.manifests.manifests import MANIFESTS, documents, only

MANIFEST = MANIFESTS / "dmesg_daemonset.yaml"
ADMISSION = Path(konductor_like.cluster.__file__).with_name("admission.json")
POLICIES = ("controller_deployment.yaml", "node_condition.yaml", "job_events.yaml", "validation.yaml")
HASH = SCRIPT_HASH


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
    """Return the admission policies of the manifests, each with its binding, by name as JSON."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    found = ([only(documents(name), kind) for kind in kinds] for name in POLICIES)
    return (
        json.dumps({policy["metadata"]["name"]: [policy, binding] for policy, binding in found}, indent=1)
        + "\n"
    )


if __name__ == "__main__":
    MANIFEST.write_text(embedded(MANIFEST.read_text(encoding="utf-8")), encoding="utf-8")
    ADMISSION.write_text(admission(), encoding="utf-8")
