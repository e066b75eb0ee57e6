"""What a request says beside its address: body, options and the format it wants its answer in.

Every function raises ``ApiError`` for what the server refuses.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from konductor_like.sandbox.http import JSON, Request
from konductor_like.sandbox.kubernetes import errors, protobuf
from konductor_like.sandbox.kubernetes.access import User
from konductor_like.sandbox.kubernetes.errors import Cause
from konductor_like.sandbox.kubernetes.resources import Resource
from konductor_like.sandbox.kubernetes.routing import is_true
from konductor_like.sandbox.kubernetes.writes import APPLY_PATCH, Writer

BODY_BYTES = 3 * 1024 * 1024
_MEDIA_TYPES = ("application/json", "application/*", "*/*")
_OPTIONS = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}
_MATCH = "resourceVersionMatch"


def content_type(request: Request) -> str:
    """The body's media type, without its parameters."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip()


def object_in(request: Request, resource: Resource) -> dict[str, Any]:
    """The object in the body of a POST or PUT."""
    media_type = content_type(request)
    if media_type == protobuf.CONTENT_TYPE:
        with contextlib.suppress(protobuf.UnknownMessageError):
            return protobuf.decode(request.body)
    elif media_type == JSON:
        prefix = f"the object provided is unrecognized (must be of type {resource.kind}): "
        content = json_in(request, prefix)
        if isinstance(content, dict):
            return content
        raise errors.bad_request(f"{prefix}couldn't get version/kind; json parse error: not an object")
    raise errors.unsupported_body(JSON)


def json_in(request: Request, prefix: str = "") -> Any:
    """The body, decoded."""
    if len(request.body) > BODY_BYTES:
        raise errors.too_large(BODY_BYTES)
    try:
        return json.loads(request.body)
    except ValueError as error:
        raise errors.bad_request(f"{prefix}couldn't get version/kind; json parse error: {error}") from error


def delete_options_in(request: Request) -> dict[str, Any]:
    """The ``DeleteOptions`` in the body of a DELETE, if there are any."""
    options = json_in(request) if request.body else {}
    if not isinstance(options, dict):
        raise errors.bad_request("the delete options are not an object")
    return options


def applied_in(request: Request, resource: Resource) -> dict[str, Any]:
    """The object in the body of an apply; JSON, which is YAML too, is all that is read here."""
    content = json_in(request)
    head = ("", "")
    if isinstance(content, dict):
        head = (content.get("apiVersion", ""), content.get("kind", ""))
    if head != (resource.api_version, resource.kind):
        raise errors.bad_request(f"invalid object type: {head[0] or '/'}, Kind={head[1]}")
    return dict(content)


def writer_of(request: Request, verb: str, user: User) -> Writer:
    """Who writes, how, and whether for real."""
    dry_run = request.params.get("dryRun", [])
    if any(value != "All" for value in dry_run):
        said = f'Unsupported value: {json.dumps(dry_run)}: supported values: "All"'
        raise _bad_options(_OPTIONS[verb], Cause("dryRun", "FieldValueNotSupported", said))
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
    """That ``resourceVersionMatch`` and ``sendInitialEvents`` are used as they may be."""
    watches, match = is_true(request, "watch"), request.param(_MATCH)
    problem = ""
    if "sendInitialEvents" in request.params:
        if not watches:
            raise _bad_list(Cause.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if match != "NotOlderThan":
            problem = f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"
    elif match and watches:
        problem = f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"
    elif match and not request.param("resourceVersion"):
        problem = f"{_MATCH} is forbidden unless resourceVersion is provided"
    if problem:
        raise _bad_list(Cause.forbidden(_MATCH, problem))


def _bad_list(cause: Cause) -> errors.ApiError:
    return _bad_options("ListOptions", cause)


def _bad_options(kind: str, cause: Cause) -> errors.ApiError:
    return errors.invalid("meta.k8s.io", kind, "", [cause])
