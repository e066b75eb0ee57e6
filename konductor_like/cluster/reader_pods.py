"""The kernel-log reader's pod on a node, and how it writes a line into the node's kernel log."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient, pods_path
from konductor_like.cluster.api.exec import Executed, execute
from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.selectors import parse_matchers
from konductor_like.settings import Settings

NAMESPACE, CONTAINER = "dmesg-logging", "dmesg"
"""The names in ``manifests/dmesg_daemonset.yaml``."""
SCRIPT_HASH = "trainy.konduktor.ai/kmsg-sha256"
"""The annotation of the reader's pods with the SHA-256 of their script, in hexadecimal."""
DEVICE = "/dev/kmsg"
_SCRIPT = f"import os, sys; os.write(os.open({DEVICE!r}, os.O_WRONLY), sys.argv[1].encode() + b'\\n')"
WRITE = ("python3", "-I", "-c", _SCRIPT)
"""The command that writes its last word as one record: the reader needs Python, and may have no shell.

Without the newline nobody could read the record before the kernel's next message (Linux 5.10 and newer).
"""


def own_script() -> str:
    """Return the SHA-256 of this build's reader script, in hexadecimal."""
    return sha256((files("konductor_like") / "kmsg.py").read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class ReaderPod:
    """The reader's pod on one node."""

    namespace: str
    name: str
    container: str
    problem: str = ""
    """Why no command can run in it, after its name; empty if one can."""


def reader_place(settings: Settings) -> tuple[str, str]:
    """Return the reader's namespace and container, which the selector of its stream names."""
    exact = {each.name: each.value for each in parse_matchers(settings.kernel_selector) if each.op == "="}
    namespace, container = exact.get(settings.namespace_label), exact.get(settings.container_label)
    return namespace or NAMESPACE, container or CONTAINER


def reader_on(client: ReadOnlyKubeClient, settings: Settings, node: str) -> ReaderPod | None:
    """Return the reader's pod on the node, a running one first; None without one. Raises a KubeError."""
    namespace, container = reader_place(settings)
    pods = client.list_pages(pods_path(namespace), dict, {"fieldSelector": f"spec.nodeName={node}"}).items
    found = [_reader(pod, namespace, container) for pod in pods if container in _containers(pod)]
    return min(found, key=lambda each: each.problem, default=None)


def write_line(client: KubeClient, reader: ReaderPod, line: str, timeout_seconds: float) -> Executed:
    """Write a line into the kernel log of the reader's node. Raises a KubeError, as :func:`execute` does."""
    return execute(client, reader.namespace, reader.name, reader.container, (*WRITE, line), timeout_seconds)


def _containers(pod: JsonObject) -> list[str]:
    return [str(each.get("name")) for each in json_object(pod, "spec").get("containers") or ()]


def _reader(pod: JsonObject, namespace: str, container: str) -> ReaderPod:
    metadata, status = json_object(pod, "metadata"), json_object(pod, "status")
    name = str(metadata.get("name"))
    if metadata.get("deletionTimestamp"):
        return ReaderPod(namespace, name, container, "is being deleted")
    states = {
        str(each.get("name")): json_object(each, "state") for each in status.get("containerStatuses") or ()
    }
    state = states.get(container, {})
    if "running" in state:
        return ReaderPod(namespace, name, container)
    why = next((str(each.get("reason")) for each in state.values() if each and each.get("reason")), "")
    is_in = f"is {status.get('phase') or 'not running'}"
    return ReaderPod(namespace, name, container, f"{is_in} ({why})" if why else is_in)
