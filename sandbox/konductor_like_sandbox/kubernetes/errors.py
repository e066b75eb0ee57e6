"""The API server's refusals. Each has the ``Status`` object that becomes the body of the answer.

``ApiError`` is the only class; each function below makes it for one reason, in the words of Kubernetes 1.36.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON, Request


class ApiError(Exception):
    """A request that is refused: HTTP status, reason, message and details."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """The ``Status`` object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return {**body, "code": self.code}


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that fails validation."""

    field: str
    reason: str
    message: str

    @classmethod
    def invalid(cls, field: str, value: str, why: str) -> Cause:
        """A value that breaks a rule; ``value`` as the server prints it, quotes included."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {value}: {why}")

    @classmethod
    def required(cls, field: str, why: str = "") -> Cause:
        """A value that must be there."""
        return cls(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")

    @classmethod
    def forbidden(cls, field: str, why: str) -> Cause:
        """A value that may not be set or changed."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")


def qualified(group: str, plural: str) -> str:
    """Return a resource's name as messages write it: ``nodes``, ``leases.coordination.k8s.io``."""
    return f"{plural}.{group}" if group else plural


def _about(group: str, kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    about = {"name": name, "group": group, "kind": kind}
    return {**{key: value for key, value in about.items() if value}, **more}


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404: no such object."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, _about(group, plural, name))


def no_such_resource() -> ApiError:
    """404: the server does not know this kind of object."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409 on create."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> ApiError:
    """409: the object has another version or UID than the request names."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _about(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the resulting object would be invalid. Equal causes are named once."""
    sentences = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    detail = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    message = f'{qualified(group, kind)} "{name}" is invalid: {detail}'
    return ApiError(422, "Invalid", message, _about(group, kind, name, causes=listed))


def unprocessable_patch() -> ApiError:
    """422: a JSON Patch that does not apply, a failed ``test`` included. The server gives no reason."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: unknown credentials."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(user: str, verb: str, group: str, resource: str, name: str, namespace: str) -> ApiError:
    """403. ``resource`` includes the subresource."""
    plural = resource.partition("/")[0]
    place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    thing = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    message = (
        f'{thing} is forbidden: User "{user}" cannot {verb} resource "{resource}"'
        f' in API group "{group}" {place}'
    )
    return ApiError(403, "Forbidden", message, _about(group, plural, name))


def denied(group: str, plural: str, name: str, why: str, *, reason: str = "Forbidden") -> ApiError:
    """403, or 422 if a policy has the default ``reason`` Invalid: denied by admission."""
    message = f'{qualified(group, plural)} "{name}" is forbidden: {why}'
    return ApiError(422 if reason == "Invalid" else 403, reason, message, _about(group, plural, name))


def expired(message: str, continue_token: str = "") -> ApiError:
    """410: the history since this resourceVersion or continue token is gone."""
    return ApiError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else {})


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    """504: the server has not reached this resourceVersion."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def method_not_allowed() -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def not_acceptable(media_types: str) -> ApiError:
    """406: the server can write no format in ``Accept``."""
    message = f"406: Not Acceptable\n\nAvailable representations: {media_types}"
    return ApiError(406, "NotAcceptable", message, {})


def unsupported_patch() -> ApiError:
    """415: an unknown kind of patch."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def unsupported_body(media_types: str) -> ApiError:
    """415: an object in a format that the server does not read."""
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {media_types}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit_bytes: int) -> ApiError:
    """413."""
    message = f"Request entity too large: limit is {limit_bytes}"
    return ApiError(413, "RequestEntityTooLarge", message, {})


_REFUSALS = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden by the test"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
    410: ("Expired", "The resourceVersion for the provided list is too old."),
    413: ("RequestEntityTooLarge", "etcdserver: request is too large"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    502: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


def refusal(code: int, retry_after_seconds: int | None = None, after: bool = False) -> Mishap:
    """Return a mishap that answers ``code``; with ``after`` the write takes effect first.

    Raises ``KeyError`` for a code that the API server does not send.
    """
    reason, message = _REFUSALS[code]
    details = {} if retry_after_seconds is None else {"retryAfterSeconds": retry_after_seconds}
    headers = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    body = json.dumps(ApiError(code, reason, message, details).status())
    return Mishap(status=code, body=body, content_type=JSON, headers=headers, after=after)


def expired_watch() -> Mishap:
    """Return a mishap that answers a watch with 200 and then one event, ERROR with 410."""
    error = expired("The resourceVersion for the provided watch is too old.").status()
    event = json.dumps({"type": "ERROR", "object": error})
    return Mishap(status=200, body=f"{event}\n", content_type=JSON)


def matching(method: str = "", path: str = "", having: str = "") -> Callable[[Request], bool]:
    """Return a test for requests with this method, a match of ``path`` in the path, and parameter ``having``.

    ``having="watch"`` picks watches, ``having="continue"`` later pages of a list.
    """
    pattern = re.compile(path)

    def meets(request: Request) -> bool:
        return (
            method in ("", request.method)
            and pattern.search(request.path) is not None
            and (not having or having in request.params)
        )

    return meets
