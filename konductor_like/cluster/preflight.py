"""All permissions that this program needs, and the check of them before the first write (rule 27).

The controller asks for its own at its start and while it runs; ``doctor`` and ``test`` ask for a person's.
Only a definite denial stops the controller. If the server cannot be asked, or does not answer this question,
the controller goes on, and a missing permission shows as the error of a later request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files

from konductor_like.cluster.api.client import NAMESPACES_PATH, KubeClient, ReadOnlyKubeClient, namespace_path
from konductor_like.cluster.api.errors import KubeConfigError, KubeConflict, KubeForbidden, KubeNotFound
from konductor_like.cluster.api.transport import JsonObject
from konductor_like.cluster.events import NAMESPACE as EVENTS_NAMESPACE
from konductor_like.cluster.published import Published
from konductor_like.cluster.validation_jobs import PRIORITY_CLASS
from konductor_like.settings import Settings

LEASES = "coordination.k8s.io"
ACCOUNT = "konductor-like"
"""The name of the controller's ServiceAccount, and of its namespace in the manifests."""
VALIDATION_POLICY = "konductor-like-validation"
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label with a Namespace's name, which the API server writes."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource, in RBAC's terms."""

    verb: str
    resource: str
    """``nodes``, or with a subresource ``pods/exec``."""
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """The permission as the attributes of a SelfSubjectAccessReview."""
        resource = dict(zip(("resource", "subresource"), self.resource.split("/"), strict=False))
        return {name: value for name, value in {**asdict(self), **resource}.items() if value}

    @property
    def rule(self) -> str:
        """The RBAC rule that grants the permission, as one line of YAML."""
        names = f", resourceNames: [{self.name}]" if self.name else ""
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}]{names}, verbs: [{self.verb}]}}'

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


def controller_permissions(namespace: str, lease_name: str) -> tuple[Permission, ...]:
    """Return what the controller needs, except the right to create its namespace."""
    return (
        *(Permission(verb, "nodes") for verb in ("list", "watch", "get", "patch")),
        *(Permission("create", "events", namespace=each) for each in (EVENTS_NAMESPACE, namespace)),
        Permission("create", "leases", LEASES, namespace),
        *(Permission(verb, "leases", LEASES, namespace, lease_name) for verb in ("get", "update")),
    )


def optional_permissions(settings: Settings | Published | None) -> tuple[Permission, ...]:
    """Return what the controller can do without: jobs of pods, GPUs in slices, parts that are off by default.

    None stands for settings that are not known.
    """
    tests = settings is not None and _validates(settings)
    optional = {
        # A validation begins only if no pod uses the node's GPUs.
        Permission("list", "pods"): settings is None or settings.ask_for_pods or tests,
        Permission("list", "resourceslices", "resource.k8s.io"): True,
        Permission("patch", "nodes/status"): settings is not None and settings.node_condition,
        Permission("create", "events"): settings is not None and settings.job_events,
    }
    found = tuple(each for each, is_on in optional.items() if is_on)
    return (*found, *validation_permissions(settings)) if settings and tests else found


def _validates(settings: Settings | Published) -> bool:
    return bool(settings.policy.validates if isinstance(settings, Published) else settings.validation_image)


def validation_permissions(settings: Settings | Published) -> tuple[Permission, ...]:
    """Return what validations need in the namespace of their Jobs."""
    namespace = settings.validation_namespace
    return (
        *(Permission(verb, "jobs", "batch", namespace) for verb in ("create", "get", "list", "delete")),
        Permission("list", "pods", namespace=namespace),
        Permission("get", "pods/log", namespace=namespace),
        Permission("list", "events", namespace=namespace),
    )


def validation_lacks(client: ReadOnlyKubeClient, settings: Settings | Published | None) -> Iterator[str]:
    """Yield what validations lack besides rights, in words; nothing if there are no validations.

    An object that the caller may not read is not known to be missing. Raises a KubeError if the server cannot
    be asked.
    """
    if settings is None or not _validates(settings):
        return
    namespace = settings.validation_namespace
    if _read(client, namespace_path(namespace)) is None:
        yield f"the namespace {namespace} does not exist"
    found = _read(client, f"/apis/scheduling.k8s.io/v1/priorityclasses/{PRIORITY_CLASS}")
    if found is None:
        yield f"the PriorityClass {PRIORITY_CLASS} does not exist"
    elif found and found.get("preemptionPolicy") != "Never":
        yield f"the PriorityClass {PRIORITY_CLASS} may preempt, so the API server refuses the tests' pods"


def _read(client: ReadOnlyKubeClient, path: str) -> JsonObject | None:
    """Return the object; None if it does not exist, and an empty one if the caller may not read it."""
    try:
        return client.get(path)
    except KubeNotFound:
        return None
    except KubeForbidden:
        return {}


def all_permissions(
    namespace: str, lease_name: str, settings: Settings | Published | None
) -> tuple[Permission, ...]:
    """Return what the controller needs, then what it can do without."""
    return (*controller_permissions(namespace, lease_name), *optional_permissions(settings))


def people_permissions(namespace: str, lease_name: str) -> dict[str, tuple[Permission, ...]]:
    """Return what a person needs, by the commands that need it."""
    lease = (LEASES, namespace, lease_name)
    return {
        "status, explain NODE": (
            Permission("list", "nodes"),
            Permission("get", "nodes"),
            Permission("get", "leases", *lease),
        ),
        "reset, taint": (
            Permission("patch", "nodes"),
            Permission("create", "events", namespace=EVENTS_NAMESPACE),
        ),
        "pause, resume, brake reset": (Permission("update", "leases", *lease),),
    }


def chain_test_permissions(reader_namespace: str) -> tuple[Permission, ...]:
    """Return what ``test`` needs: to write a line through the reader's pod, and to release the node."""
    by_exec = (Permission(verb, "pods/exec", namespace=reader_namespace) for verb in ("get", "create"))
    return (*by_exec, Permission("patch", "nodes"))


def denied_permissions(client: ReadOnlyKubeClient, needed: Iterable[Permission]) -> list[Permission]:
    """Return the permissions that the server denies us. Raises a KubeError if it cannot be asked."""
    return [each for each in needed if not client.review_access(each.attributes)]


def missing_permissions(client: ReadOnlyKubeClient, needed: Iterable[Permission]) -> list[Permission] | None:
    """Return the permissions that the server denies us; None if it does not let us ask.

    Raises a KubeError if the server cannot be asked.
    """
    try:
        return denied_permissions(client, needed)
    except (KubeForbidden, KubeNotFound):
        return None


def account_of(namespace: str) -> str:
    """Return the user name of the controller's account in this namespace."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


def admission_objects(
    namespace: str = ACCOUNT, settings: Published | None = None
) -> dict[str, tuple[JsonObject, JsonObject]]:
    """Return the admission policies for the account in this namespace, each with its binding, by name.

    They are those of the manifests; ``python -m tools.manifests.embed`` copies them. With ``settings``, the
    policy of validations is about the namespace of their Jobs.
    """
    text = (files(__package__) / "admission.json").read_text("utf-8")
    found = json.loads(text.replace(account_of(ACCOUNT), account_of(namespace)))
    if settings is not None:
        constraints = found[VALIDATION_POLICY][0]["spec"]["matchConstraints"]
        constraints["namespaceSelector"]["matchLabels"] = {NAME_LABEL: settings.validation_namespace}
    return {name: (policy, binding) for name, (policy, binding) in found.items()}


def policy_names(settings: Published | None) -> tuple[str, ...]:
    """Return the names of the admission policies that the controller needs with these settings."""
    optional = {
        "konductor-like-node-condition": settings is not None and settings.node_condition,
        "konductor-like-job-events": settings is not None and settings.job_events,
        VALIDATION_POLICY: settings is not None and _validates(settings),
    }
    return (ACCOUNT, *(name for name, is_on in optional.items() if is_on))


def ready_to_write(client: KubeClient, namespace: str, lease_name: str = "konductor-like") -> list[str]:
    """Ensure the namespace, then return a sentence for each missing permission; an empty list means ready.

    Raises KubeConfigError if the namespace is missing and may not be created, or another KubeError if the
    server cannot be asked.
    """
    ensure_namespace(client, namespace)
    return [
        f"konductor-like may not {permission}: add to its {_role(permission)} {permission.rule}"
        for permission in missing_permissions(client, controller_permissions(namespace, lease_name)) or ()
    ]


def _role(permission: Permission) -> str:
    return f"Role in namespace {permission.namespace}" if permission.namespace else "ClusterRole"


def ensure_namespace(client: KubeClient, name: str) -> None:
    """Create the namespace if it does not exist.

    Raises KubeConfigError, with the command to run, if it is missing and may not be created. If we may not
    read Namespaces, as in a pod, the function assumes that it exists; taking the Lease will fail otherwise.
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
            return  # another process has just created it
        except KubeForbidden as error:
            raise namespace_missing(name) from error


def namespace_missing(name: str) -> KubeConfigError:
    """Return the error for a namespace that does not exist."""
    return KubeConfigError(
        f"namespace {name} does not exist, and creating it is not allowed",
        hint=f"create it with: kubectl create namespace {name}",
    )
