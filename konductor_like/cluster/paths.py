"""Where things are in the Kubernetes API."""

from __future__ import annotations

from urllib.parse import quote

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
"""Of all namespaces."""
RESOURCE_SLICES = tuple(
    f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")
)
"""Of Kubernetes 1.34, 1.33 and 1.32; the newest first."""
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def node(name: str) -> str:
    """One Node."""
    return f"{NODES}/{_segment(name)}"


def namespace(name: str) -> str:
    """One Namespace."""
    return f"{NAMESPACES}/{_segment(name)}"


def events(namespace: str) -> str:
    """The core/v1 Events of a namespace."""
    return f"{NAMESPACES}/{_segment(namespace)}/events"


def leases(namespace: str) -> str:
    """The Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases"


def lease(namespace: str, name: str) -> str:
    """One Lease."""
    return f"{leases(namespace)}/{_segment(name)}"


def spoken(path: str) -> str:
    """A path as people say it: ``nodes/gpu-7``, ``leases`` of a namespace as ``leases in NAME``."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        return f"{'/'.join(rest[2:])} in namespace {rest[1]}"
    return "/".join(rest)


def _segment(name: str) -> str:
    """A name that cannot leave its place in the path, whatever a person typed."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if name in (".", "..") else quoted
