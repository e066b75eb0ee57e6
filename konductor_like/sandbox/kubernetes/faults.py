"""Faults for ``KubernetesServer.mishaps``: the API server's refusals, and which requests they meet."""

from __future__ import annotations

import re
from collections.abc import Callable

from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import JSON, Request
from konductor_like.sandbox.kubernetes.errors import ApiError, expired
from konductor_like.sandbox.kubernetes.store import dump

_REFUSALS = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden by the test"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
    410: ("Expired", "The resourceVersion for the provided list is too old."),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    502: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


def refusal(code: int, retry_after_seconds: int | None = None, after: bool = False) -> Mishap:
    """An answer of ``code`` with its ``Status``; ``after`` lets the write take effect first.

    Raises ``KeyError`` for a code that the API server does not send.
    """
    reason, message = _REFUSALS[code]
    details = {} if retry_after_seconds is None else {"retryAfterSeconds": retry_after_seconds}
    headers = {} if retry_after_seconds is None else {"Retry-After": str(retry_after_seconds)}
    body = dump(ApiError(code, reason, message, details).status()).decode()
    return Mishap(status=code, body=body, content_type=JSON, headers=headers, after=after)


def expired_watch() -> Mishap:
    """A watch that is answered with 200 and then, as its only event, ERROR with 410."""
    error = expired("The resourceVersion for the provided watch is too old.").status()
    event = dump({"type": "ERROR", "object": error}).decode()
    return Mishap(status=200, body=f"{event}\n", content_type=JSON)


def matching(method: str = "", path: str = "", having: str = "") -> Callable[[Request], bool]:
    """Requests of this method, with the regular expression ``path`` in their path and parameter ``having``.

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
