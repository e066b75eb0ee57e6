"""The errors of requests to the API server, with messages for people.

::

    KubeError
    ├── KubeConfigError     no usable kubeconfig, context, credentials or namespace: exit code 2
    ├── KubeUnreachable     no connection, or it broke
    ├── KubeTimeout         no answer in time
    ├── KubeUnauthorized    401: the server does not know who we are
    ├── KubeForbidden       403: the server knows us, and refuses
    ├── KubeNotFound        404
    ├── KubeConflict        409: somebody else wrote first, or the name is taken
    ├── KubeGone            410: the resourceVersion or the continue token is too old
    ├── KubeInvalid         422: a JSON Patch test failed, or the object is invalid
    ├── KubeOverloaded      429: too many requests, try later
    ├── KubeRejected        any other 4xx: a bug of ours
    │   ├── KubeTooLarge         413: the object, or the request, has too many bytes
    │   └── KubeSelectorInvalid  400 to a label selector: exit code 2
    ├── KubeUnavailable     5xx
    ├── KubeBadAnswer       an answer that no API server gives
    └── LeadershipLost      from this program: no write may start now

A message quotes only the ``message`` of a ``Status`` object, cut at 256 characters. Any other body is not
shown, because it may be the HTML of a login page.
"""

# ruff: noqa: N818 -- the names say what happened; the base class says that they are errors
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

from konductor_like.model.edge_errors import Cause, EdgeError, kind_of
from konductor_like.model.text import excerpt

_TLS_HINT = "the TLS certificates do not match; check certificate-authority and server in the kubeconfig"
_BY_ADMISSION = ("ValidatingAdmissionPolicy", "admission webhook")
_ANNOTATIONS = "metadata.annotations"
"""The field that the server names if all annotations of an object together have too many bytes."""
_MISSING_VERB = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[\w./-]+)" in API group "(?P<group>[\w.-]*)"'
    r'(?: in the namespace "(?P<namespace>[\w.-]+)")?'
)


class KubeError(EdgeError):
    """A request to the API server that failed."""

    edge = "the API server"
    by_admission = False
    """Whether a policy or a webhook of the server denied the request."""
    no_room = False
    """Whether the object has no room for the annotations that the request wrote."""


class KubeConfigError(KubeError):
    """No usable way to the cluster is configured."""

    hint = "name a kubeconfig with --kubeconfig or KUBECONFIG, and one of its contexts with --context"


class KubeUnreachable(KubeError):
    """The server could not be reached, or the connection broke."""

    transient = True
    hint = "check that the server runs and that its address is right: kubectl cluster-info"


class KubeTimeout(KubeError):
    """No answer came in time."""

    transient = True
    hint = "check the load of the API server, the network and any proxy"


class KubeUnauthorized(KubeError):
    """401: the server does not know who we are."""

    transient = True  # tokens get rotated under a running process
    hint = "the credentials are wrong or expired; log in again, or check the ServiceAccount's token"


class KubeForbidden(KubeError):
    """403: the server knows who we are, and refuses the request."""

    hint = (
        "grant it with RBAC: manifests/people_rbac.yaml has a person's permissions, "
        "manifests/controller_deployment.yaml the controller's"
    )


class KubeNotFound(KubeError):
    """404: there is no such object."""


class KubeConflict(KubeError):
    """409: somebody else wrote first (``Conflict``), or the name is taken (``AlreadyExists``)."""


class KubeGone(KubeError):
    """410: the resourceVersion or the continue token is too old; list again."""

    transient = True


class KubeInvalid(KubeError):
    """422: a test in the JSON Patch failed, or the object would be invalid; the server answers both alike."""


class KubeOverloaded(KubeError):
    """429: the server limits the number of requests."""

    transient = True
    hint = "the API server limits the number of requests; run fewer at a time"


class KubeRejected(KubeError):
    """Another 4xx: the request itself is wrong."""

    hint = "check the selector or the name"


class KubeTooLarge(KubeRejected):
    """413: the object, or the request, has too many bytes."""

    hint = "make the object smaller: kubectl get --output yaml shows which annotations are large"


class KubeSelectorInvalid(KubeRejected):
    """400: the server cannot parse the label selector."""

    hint = "examples of a selector: pool=a, pool!=a, 'pool in (a,b)'"


class KubeUnavailable(KubeError):
    """5xx: the server, or something in front of it, does not work."""

    transient = True
    hint = "the API server does not work at the moment; check its pods and its log"


class KubeBadAnswer(KubeError):
    """An answer that no API server gives: HTML, truncated JSON, the JSON of another program."""

    transient = True
    hint = "another program answers at this address; check the server's URL and any proxy"


class LeadershipLost(KubeError):
    """No write may start: the Lease is not ours, or was not renewed in time."""

    transient = True
    hint = "another controller may write now; this one tries to take the Lease again"


BY_CAUSE: Mapping[Cause, Callable[..., KubeError]] = {
    **dict.fromkeys(Cause, KubeUnreachable),
    Cause.UNTRUSTED: partial(KubeUnreachable, hint=_TLS_HINT),
    Cause.TLS: partial(KubeUnreachable, hint=_TLS_HINT),
    Cause.LATE: KubeTimeout,
    Cause.REQUEST: KubeConfigError,
}
_BY_STATUS: Mapping[int, type[KubeError]] = {
    401: KubeUnauthorized,
    403: KubeForbidden,
    404: KubeNotFound,
    409: KubeConflict,
    410: KubeGone,
    413: KubeTooLarge,
    422: KubeInvalid,
    429: KubeOverloaded,
    4: KubeRejected,
    5: KubeUnavailable,
    0: KubeBadAnswer,
}


def error_of(
    what: str, status: int, body: bytes, *, retry_after: str | None = None, write: bool = False
) -> KubeError:
    """Return the error for an answer. ``what`` names the request, such as ``get nodes/gpu-7``."""
    message = _status_message(body)
    # A web page is no answer of an API server: its 404 does not mean that the object is missing.
    kind = KubeBadAnswer if status == 404 and body.lstrip().startswith(b"<") else kind_of(status, _BY_STATUS)
    hint = _forbidden_hint(message) if kind is KubeForbidden else None
    error = kind(
        f"cannot {what}: {excerpt(message) if message else f'HTTP status {status}'}",
        hint=hint,
        outcome_unknown=write and kind in (KubeUnavailable, KubeBadAnswer),
        retry_after=retry_after,
    )
    error.by_admission = 400 <= status < 500 and any(word in message for word in _BY_ADMISSION)
    too_long = kind is KubeInvalid and _ANNOTATIONS in message and not error.by_admission
    error.no_room = too_long or kind is KubeTooLarge
    return error


def refused_right(error: KubeForbidden) -> str:
    """Return the right that is missing, such as ``list daemonsets.apps``; empty if the server did not say."""
    found = _MISSING_VERB.search(str(error))
    if found is None:
        return ""
    group = f".{found['group']}" if found["group"] else ""
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    return f"{found['verb']} {found['resource']}{group}{where}"


def _status_message(body: bytes) -> str:
    """Return the message of a ``Status`` object; an empty text for any other body."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    is_status = isinstance(status, dict) and status.get("kind") == "Status"
    message = status.get("message") if is_status else None
    return message if isinstance(message, str) else ""


def _forbidden_hint(message: str) -> str | None:
    missing = _MISSING_VERB.search(message)
    if missing is None:
        return None
    where = f" -n {missing['namespace']}" if missing["namespace"] else ""
    can_i = f"kubectl auth can-i{where} {missing['verb']} {missing['resource']}"
    return f"{KubeForbidden.hint}; to check: {can_i}"
