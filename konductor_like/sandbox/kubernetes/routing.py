"""From a request's address to what it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from konductor_like.sandbox.http import Request
from konductor_like.sandbox.kubernetes import errors
from konductor_like.sandbox.kubernetes.access import Attempt
from konductor_like.sandbox.kubernetes.resources import GROUPS, NAMESPACES, Resource, find_resource
from konductor_like.sandbox.kubernetes.store import Key
from konductor_like.sandbox.kubernetes.writes import Target

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Route:
    """One request, understood."""

    verb: str
    """RBAC's verb."""
    target: Target

    @property
    def resource(self) -> Resource:
        """The kind of object."""
        return self.target.resource

    @property
    def attempt(self) -> Attempt:
        """The same as RBAC sees it."""
        target = self.target
        parts = filter(None, (target.resource.plural, target.subresource))
        key = target.key
        # RBAC takes a Namespace to be inside itself, so that a Role there can grant it.
        namespace = key.name if target.resource is NAMESPACES else key.namespace
        return Attempt(self.verb, "/".join(parts), target.resource.group, namespace, key.name)


def route(request: Request) -> Route | None:
    """What the request is about; None if its address names no resource that is served here.

    Raises ``ApiError`` (404) for an address below a served group that leads nowhere.
    """
    parts = request.path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if group not in GROUPS:
        return None
    resource = find_resource(group, version, rest[0])
    if resource is None:
        raise errors.no_such_resource()
    name, subresource = (*rest[1:], "", "")[:2]
    if len(rest) > 3 or (subresource and subresource not in resource.subresources):
        raise errors.no_such_resource()
    if bool(namespace) > resource.namespaced:
        raise errors.no_such_resource()
    return Route(_verb(request, name), Target(resource, Key(namespace, name), subresource))


def _verb(request: Request, name: str) -> str:
    if request.method in ("GET", "HEAD"):
        if is_true(request, "watch"):
            return "watch"
        return "get" if name else "list"
    if request.method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(request.method, request.method.lower())


def is_true(request: Request, name: str) -> bool:
    """A query parameter that is a flag: there, and neither 0 nor false."""
    return name in request.params and request.param(name).lower() not in ("0", "false")
