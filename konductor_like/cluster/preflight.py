"""Before the first write: may we do what we will have to do? (Rule 27.)

Only a definite denial counts. A server that cannot be asked is not a denial, and neither is one that does not
answer this question: then the work itself will show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from konductor_like.cluster.client import NAMESPACES_PATH, KubeClient, ReadOnlyKubeClient, namespace_path
from konductor_like.cluster.errors import KubeConfigError, KubeConflict, KubeForbidden, KubeNotFound
from konductor_like.cluster.events import NAMESPACE as EVENTS_NAMESPACE

_LEASES = "coordination.k8s.io"


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource, as RBAC knows it."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """As a SelfSubjectAccessReview asks for it."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def rule(self) -> str:
        """The RBAC rule that grants it, as one line of YAML."""
        names = f", resourceNames: [{self.name}]" if self.name else ""
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}]{names}, verbs: [{self.verb}]}}'

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


def controller_permissions(namespace: str, lease_name: str) -> tuple[Permission, ...]:
    """All that the controller needs, its namespace aside."""
    return (
        *(Permission(verb, "nodes") for verb in ("list", "watch", "get", "patch")),
        *(Permission("create", "events", namespace=each) for each in (EVENTS_NAMESPACE, namespace)),
        Permission("create", "leases", _LEASES, namespace),
        *(Permission(verb, "leases", _LEASES, namespace, lease_name) for verb in ("get", "update")),
    )


def missing_permissions(client: ReadOnlyKubeClient, needed: Iterable[Permission]) -> list[Permission]:
    """Those that the server definitely denies us. Raises a KubeError when it cannot be asked now."""
    missing: list[Permission] = []
    for permission in needed:
        try:
            allowed = client.review_access(permission.attributes)
        except (KubeForbidden, KubeNotFound):
            return []  # nobody may ask here
        if not allowed:
            missing.append(permission)
    return missing


def ready_to_write(client: KubeClient, namespace: str, lease_name: str = "konductor-like") -> list[str]:
    """Make sure of the namespace, then name each missing permission in a sentence; none means ready.

    Raises KubeConfigError when the namespace is missing and may not be created, or the KubeError that kept us
    from finding out.
    """
    ensure_namespace(client, namespace)
    return [
        f"konductor-like may not {permission}: add to its {_role(permission)} {permission.rule}"
        for permission in missing_permissions(client, controller_permissions(namespace, lease_name))
    ]


def _role(permission: Permission) -> str:
    return f"Role in namespace {permission.namespace}" if permission.namespace else "ClusterRole"


def ensure_namespace(client: KubeClient, name: str) -> None:
    """See to it that the namespace exists, creating it if that is allowed.

    Raises KubeConfigError with the command to run when it is missing and may not be created. Where
    Namespaces may not be read, as in a pod, it is taken to exist: taking the Lease will show it.
    """
    try:
        client.get(namespace_path(name))
    except KubeForbidden:
        return
    except KubeNotFound:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            client.create(NAMESPACES_PATH, body)
        except KubeConflict:
            return  # another process just did
        except KubeForbidden as error:
            raise namespace_missing(name) from error


def namespace_missing(name: str) -> KubeConfigError:
    """The error to raise when a namespace turns out not to exist."""
    return KubeConfigError(
        f"namespace {name} does not exist, and creating it is not allowed",
        hint=f"create it with: kubectl create namespace {name}",
    )
