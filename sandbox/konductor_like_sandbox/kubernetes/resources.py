"""The kinds of objects that the stand-in serves, and how each differs from the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object under one group and version."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    version: str = "v1"
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = READ + WRITE
    unconditional_update: bool = True
    """Whether a PUT without a resourceVersion is taken."""
    cached: bool = True
    """Whether the server has a watch cache of the objects, which sends bookmarks; Events have none."""
    configured: bool = False
    """Whether objects of this kind are only stored: nothing acts on them."""
    skeleton: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the server always writes, because its Go types cannot leave them out."""

    def allows(self, verb: str, subresource: str) -> bool:
        """Whether the server has this verb; a subresource is read and written with its object only."""
        return verb in self.verbs and (not subresource or verb in ("get", "update", "patch"))

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


_NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)

NODES = Resource(
    "",
    "nodes",
    "Node",
    namespaced=False,
    subresources=("status",),
    skeleton={
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(_NODE_INFO, ""),
        },
    },
)
NAMESPACES = Resource(
    "",
    "namespaces",
    "Namespace",
    namespaced=False,
    subresources=("status",),
    skeleton={"spec": {}, "status": {}},
)
EVENTS = Resource(
    "",
    "events",
    "Event",
    namespaced=True,
    cached=False,
    skeleton={
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
)
LEASES = Resource(
    "coordination.k8s.io",
    "leases",
    "Lease",
    namespaced=True,
    unconditional_update=False,
    skeleton={"spec": {}},
)
PODS = Resource("", "pods", "Pod", namespaced=True, subresources=("exec", "log"), verbs=READ)
"""Clients cannot create pods here; ``kubectl describe node`` needs only the list."""
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
    verbs=("create",),
)
USER_REVIEWS = Resource(
    "authentication.k8s.io",
    "selfsubjectreviews",
    "SelfSubjectReview",
    namespaced=False,
    verbs=("create",),
)


def _configured(group: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(group, plural, kind, namespaced, configured=True)


_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_POLICY = "ValidatingAdmissionPolicy"

JOBS = replace(_configured("batch", "jobs", "Job"), subresources=("status",))
CONFIGURATION = (
    JOBS,
    _configured("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False),
    _configured("", "serviceaccounts", "ServiceAccount"),
    _configured("", "configmaps", "ConfigMap"),
    _configured("", "services", "Service"),
    _configured("", "resourcequotas", "ResourceQuota"),
    _configured("resource.k8s.io", "resourceslices", "ResourceSlice", namespaced=False),
    _configured("apps", "deployments", "Deployment"),
    _configured("apps", "daemonsets", "DaemonSet"),
    _configured("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
    _configured(_RBAC, "roles", "Role"),
    _configured(_RBAC, "rolebindings", "RoleBinding"),
    _configured(_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    _configured(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _configured(_ADMISSION, "validatingadmissionpolicies", _POLICY, namespaced=False),
    _configured(_ADMISSION, "validatingadmissionpolicybindings", f"{_POLICY}Binding", namespaced=False),
)
"""The other kinds that the manifests contain."""

RESOURCES = (NODES, NAMESPACES, EVENTS, PODS, LEASES, ACCESS_REVIEWS, USER_REVIEWS, *CONFIGURATION)
GROUPS = frozenset(resource.group for resource in RESOURCES)
NAMESPACED_TABLES = tuple(sorted({resource.plural for resource in RESOURCES if resource.namespaced}))


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource at this address, if the stand-in serves it."""
    wanted = (group, version, plural)
    return next((r for r in RESOURCES if (r.group, r.version, r.plural) == wanted), None)


COMMON_FIELDS = ("metadata.name", "metadata.namespace")
SELECTABLE_FIELDS: dict[str, tuple[str, ...]] = {
    "nodes": ("metadata.name", "spec.unschedulable"),
    "namespaces": ("metadata.name", "status.phase"),
    "leases": ("metadata.name", "metadata.namespace"),
    "resourceslices": ("metadata.name", "spec.nodeName", "spec.driver"),
    "pods": (
        *COMMON_FIELDS,
        *(f"spec.{name}" for name in ("nodeName", "restartPolicy", "schedulerName")),
        *("spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs"),
        "status.nominatedNodeName",
    ),
    "events": (
        *COMMON_FIELDS,
        *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")),
        *("involvedObject.resourceVersion", "involvedObject.fieldPath"),
        *("reason", "reportingComponent", "source", "type"),
    ),
}
"""The fields by which the objects of each table can be selected."""


def selectable_fields(table: str, item: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of ``item`` by which it can be selected."""
    return {field: _field_text(item, field) for field in SELECTABLE_FIELDS.get(table, COMMON_FIELDS)}


def _field_text(item: Mapping[str, Any], field: str) -> str:
    value: Any = item
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if field == "source":
        value = (value or {}).get("component") or item.get("reportingComponent")
    if field == "spec.unschedulable":
        return "true" if value else "false"
    return str(value or "")
