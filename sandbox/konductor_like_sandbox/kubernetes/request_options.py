"""Read a request: its address, its body, its options and the format of its answer.

Every function raises ``ApiError`` if the server refuses the request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from konductor_like_sandbox.http import JSON, Request
from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.access import Attempt, User
from konductor_like_sandbox.kubernetes.errors import Cause
from konductor_like_sandbox.kubernetes.resources import GROUPS, NAMESPACES, Resource, find_resource
from konductor_like_sandbox.kubernetes.store import Key
from konductor_like_sandbox.kubernetes.writes import APPLY_PATCH, Target, Writer

BODY_BYTES = 3 * 1024 * 1024
_MEDIA_TYPES = ("application/json", "application/*", "*/*")
_OPTIONS = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}


def content_type(request: Request) -> str:
    """Return the body's media type, without its parameters."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip()


def object_in(request: Request, resource: Resource) -> dict[str, Any]:
    """Return the object in the body of a POST or PUT."""
    media_type = content_type(request)
    if media_type == JSON:
        prefix = f"the object provided is unrecognized (must be of type {resource.kind}): "
        content = json_in(request, prefix)
        if isinstance(content, dict):
            return content
        raise errors.bad_request(f"{prefix}couldn't get version/kind; json parse error: not an object")
    raise errors.unsupported_body(JSON)


def json_in(request: Request, prefix: str = "") -> Any:
    """Return the body, decoded."""
    if len(request.body) > BODY_BYTES:
        raise errors.too_large(BODY_BYTES)
    try:
        return json.loads(request.body)
    except ValueError as error:
        raise errors.bad_request(f"{prefix}couldn't get version/kind; json parse error: {error}") from error


def delete_options_in(request: Request) -> dict[str, Any]:
    """Return the ``DeleteOptions`` of a DELETE: in its body, or without a body in its query."""
    if not request.body:  # only then the server reads the query
        return {name: request.param(name) for name in ("propagationPolicy",) if name in request.params}
    options = json_in(request)
    if not isinstance(options, dict):
        raise errors.bad_request("the delete options are not an object")
    return options


def applied_in(request: Request, resource: Resource) -> dict[str, Any]:
    """Return the object in the body of an apply. Only JSON, a subset of YAML, is supported."""
    content = json_in(request)
    head = ("", "")
    if isinstance(content, dict):
        head = (content.get("apiVersion", ""), content.get("kind", ""))
    if head != (resource.api_version, resource.kind):
        raise errors.bad_request(f"invalid object type: {head[0] or '/'}, Kind={head[1]}")
    return dict(content)


def writer_of(request: Request, verb: str, user: User) -> Writer:
    """Return who writes and how, and whether it is a dry run."""
    dry_run = request.params.get("dryRun", [])
    if verb == "delete" and request.body:
        dry_run = delete_options_in(request).get("dryRun") or []
    if any(value != "All" for value in dry_run):
        detail = f'Unsupported value: {json.dumps(dry_run)}: supported values: "All"'
        raise _bad_options(_OPTIONS[verb], Cause("dryRun", "FieldValueNotSupported", detail))
    agent = request.headers.get("user-agent", "unknown").partition("/")[0]
    applies = content_type(request) == APPLY_PATCH
    if applies and not request.param("fieldManager"):
        raise _bad_options("PatchOptions", Cause.required("fieldManager", "is required for apply patch"))
    manager = request.param("fieldManager") or agent
    strict = request.param("fieldValidation") == "Strict"
    return Writer(manager, bool(dry_run), user.name, "Apply" if applies else "Update", strict)


def wants_table(request: Request) -> bool:
    """Whether the answer is to be a ``Table``."""
    for clause in request.headers.get("accept", "*/*").split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in _MEDIA_TYPES:
            shape = next((p.removeprefix("as=") for p in parameters if p.startswith("as=")), None)
            if shape in (None, "Table"):
                return shape == "Table"
    raise errors.not_acceptable(JSON)


def check_list_options(request: Request) -> None:
    """Refuse options that our clients never send. The server accepts some combinations of them."""
    for option in ("resourceVersionMatch", "sendInitialEvents"):
        if option in request.params:
            cause = Cause.forbidden(option, f"the stand-in does not know {option}")
            raise _bad_options("ListOptions", cause)


def _bad_options(kind: str, cause: Cause) -> errors.ApiError:
    return errors.invalid("meta.k8s.io", kind, "", [cause])


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Route:
    """One request, parsed."""

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
        # RBAC treats a Namespace as part of itself, so that a Role in it can grant access to it.
        namespace = key.name if target.resource is NAMESPACES else key.namespace
        return Attempt(self.verb, "/".join(parts), target.resource.group, namespace, key.name)


def route(request: Request) -> Route | None:
    """Parse the address; None if it names no resource that the stand-in serves.

    Raises ``ApiError`` (404) for an unknown address below a served group.
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
    """Whether a flag of the query is set: present, and neither 0 nor false."""
    return name in request.params and request.param(name).lower() not in ("0", "false")
