"""Send requests over the official client's configuration and connections: JSON in, JSON out.

The client's typed models are not used: one odd field in one Node must not make a whole list unreadable. Only
one error is retried here: after a 401 the credentials are loaded again and the request is sent again,
because tokens are rotated while the process runs. A write is not sent after its time is over: a login command
may take long, and another process may hold the Lease by then (rule 24).
"""

# The official client is annotated in part only.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import logging
import math
import ssl
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy, deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from pydantic_core import from_json

from konductor_like import __version__
from konductor_like.cluster.api.errors import (
    BY_CAUSE,
    KubeBadAnswer,
    KubeConfigError,
    KubeError,
    KubeTimeout,
    error_of,
)
from konductor_like.model.edge_errors import Cause, from_exception
from konductor_like.model.text import excerpt
from konductor_like.model.time import seconds_ahead

JsonObject = dict[str, Any]
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
FIELD_MANAGER = "konductor-like"
"""The field manager of all our writes."""
USER_AGENT = f"konductor-like/{__version__}"
_CONNECT_SECONDS = 5.0
_LOG_IN_AGAIN_SECONDS = 30.0
"""Seconds between two times that the credentials are loaded again after a 401, at least."""
_RENEW_SECONDS = 1.0
"""Seconds between two checks whether the token expires soon. A check takes as long as the rest of a request,
so not every request makes one."""
ANSWER_BYTES_MOST = 64 << 20
"""Bytes of one answer, unpacked, at most. The largest answers are pages of large Nodes, with 10 MiB."""
_PACKED = {"Accept-Encoding": "gzip"}
"""The server packs answers of more than 128 KiB: 5,000 Nodes are 87 MB, and 7 MB in gzip."""
_REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""The groups whose objects are questions in the form of a POST: the server answers and stores nothing."""


def suspend_aware_seconds() -> float:
    """Return seconds of a clock that nobody sets; if the system has one, of a clock that runs in suspend."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Connection:
    """The server of a cluster, one set of credentials, and connections that are kept open.

    ``namespace`` is the context's, or in a pod the pod's own.
    """

    def __init__(
        self,
        configuration: Any,
        namespace: str | None = None,
        *,
        in_cluster: bool = False,
        tls: ssl.SSLContext | None = None,
        certificates: Mapping[str, bytes] | None = None,
        renew: Callable[[], object] | None = None,
    ) -> None:
        """``certificates`` are the contents of the configuration's files, by the configuration's field.

        ``renew`` puts a new token into the configuration if the present token expires soon.

        It raises a KubeError.
        """
        from kubernetes.client import ApiClient

        self.host: str = configuration.host
        self.namespace = namespace
        self.in_cluster = in_cluster
        self._configuration = configuration
        self._tls, self._certificates = tls, certificates or {}
        self._renew = renew
        self._renewing = threading.Lock()
        self._renewed_at = -math.inf
        try:
            self._client = ApiClient(configuration)
        except (ImportError, ValueError) as error:
            raise KubeConfigError(
                f"the proxy for {self.host} cannot be used: {excerpt(str(error))}"
            ) from error
        if tls is not None:
            self._client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls

    def authorization(self) -> str | None:
        """Return the Authorization header, renewed if the token expires soon; None without a token."""
        with self._renewing:
            if self._renew is not None and time.monotonic() - self._renewed_at >= _RENEW_SECONDS:
                self._renew()
                self._renewed_at = time.monotonic()
            token = self._configuration.api_key.get("BearerToken")
        return token.strip() if isinstance(token, str) else None

    def send(
        self,
        method: str,
        target: str,
        body: object,
        content_type: str | None,
        remaining_seconds: Callable[[], float],
        accept: str = JSON,
        further: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request; return urllib3's answer, unread. ``remaining_seconds`` raises after the deadline.

        ``further`` are more headers.
        """
        headers = {"User-Agent": USER_AGENT, "Accept": accept, **(further or {})}
        if content_type is not None:
            headers["Content-Type"] = content_type
        authorization = self.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        timeout = remaining_seconds()  # called last, because the renewal of the login may have taken time
        timeouts = (min(timeout, _CONNECT_SECONDS), timeout)
        url = self.host + target
        return self._client.call_api(method, url, headers, body, _request_timeout=timeouts).response

    @contextmanager
    def with_files(self) -> Iterator[Any]:
        """Yield the configuration for a stream: certificates are files, and the token is renewed."""
        token, found = self.authorization(), deepcopy(self._configuration)
        found.api_key, found.refresh_api_key_hook = {"BearerToken": token} if token else {}, None
        # The stream has rules of its own for hosts without a proxy; those of the other requests hold.
        found.no_proxy = " " if getattr(self._client.rest_client.pool_manager, "proxy", None) else "*"
        with tempfile.TemporaryDirectory(prefix="konductor-like-") as folder:
            for name, content in self._contents().items():
                path = Path(folder, name)
                path.write_bytes(content)
                setattr(found, name, str(path))
            yield found

    def _contents(self) -> Mapping[str, bytes]:
        """Return the certificates; without a named authority this machine's, as far as it was used."""
        known = self._tls.get_ca_certs(binary_form=True) if self._tls else []
        authorities = "".join(map(ssl.DER_cert_to_PEM_cert, known)).encode()
        return {**({"ssl_ca_cert": authorities} if authorities else {}), **self._certificates}

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()


class Transport:
    """Sends requests with the newest credentials. Thread-safe."""

    def __init__(
        self,
        find: Callable[[], Connection],
        timeout_seconds: float,
        clock: Callable[[], float] = suspend_aware_seconds,
    ) -> None:
        """``find`` loads the credentials: now, and again after the server refuses them."""
        _silence_urllib3()
        self._find = find
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self.connection = find()
        self._logged_in_at = -math.inf
        self.clock_ahead_seconds = 0.0
        """Seconds by which the server's clock is ahead of ours, by its latest answer; 0 while they agree."""
        self.headers: Mapping[str, str] = {}
        """Further headers of all requests."""
        self.answered = False
        """Whether the server has answered any request, if only with an error."""
        self.gives_up = False
        """Whether all requests fail at once after a first one without an answer: right for a command whose
        person waits, wrong for a process that stays."""
        self._silent = False

    def acting_as(self, user: str) -> Transport:
        """Return a transport over the same connection whose requests the server treats as this user's."""
        other = copy(self)
        other.headers = {"Impersonate-User": user}
        return other

    def ask(
        self,
        what: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str | None = None,
        timeout_seconds: float | None = None,
        accept: str = JSON,
        parse: Callable[[bytes], Any] | None = None,
    ) -> JsonObject:
        """Send a request and return its answer, a JSON object. Raises a KubeError.

        ``parse`` reads the answer instead of :func:`parsed`.
        """
        write, server = _stores(method, path), self.connection.host
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        answer = self._send(what, method, path, params, body, content_type, timeout, accept, _PACKED)
        with self._mapped(what, write=write, sent=True):
            # With a known length urllib3 need not copy the answer through a buffer of its own.
            packed = "Content-Encoding" in answer.headers
            known = not packed and 0 <= (answer.length_remaining or -1) <= ANSWER_BYTES_MOST
            data: bytes = answer.read() if known else answer.read(ANSWER_BYTES_MOST + 1)
            if len(data) > ANSWER_BYTES_MOST:
                answer.close()
                raise KubeBadAnswer(
                    f"cannot {what}: {server} answered with more than {ANSWER_BYTES_MOST >> 20} MiB",
                    outcome_unknown=write,
                )
            answer.release_conn()
        ahead = seconds_ahead(answer.headers.get("Date"), time.time())
        self.clock_ahead_seconds = self.clock_ahead_seconds if ahead is None else ahead
        if not 200 <= answer.status < 300:
            raise error_of(
                what, answer.status, data, retry_after=answer.headers.get("Retry-After"), write=write
            )
        try:
            found = (parse or parsed)(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            kind = excerpt(answer.headers.get("Content-Type", "no content type"))
            raise KubeBadAnswer(
                f"cannot {what}: {server} answered {answer.status} with no JSON object ({kind})",
                outcome_unknown=write,
            )
        return found

    def open(
        self,
        what: str,
        path: str,
        params: Mapping[str, str],
        read_timeout_seconds: float | None = None,
        *,
        packed: bool = False,
        accept: str = JSON,
    ) -> Any:
        """Send a GET with a long or endless answer; return urllib3's answer, unread.

        A ``packed`` answer is in gzip if it is large; urllib3 unpacks it.
        """
        timeout = self._timeout_seconds if read_timeout_seconds is None else read_timeout_seconds
        further = _PACKED if packed else None
        answer = self._send(what, "GET", path, params, None, None, timeout, accept, further)
        if answer.status == 200:
            return answer
        with self.reading(what):
            data = answer.read(ANSWER_BYTES_MOST)
            answer.release_conn()
        raise error_of(what, answer.status, data, retry_after=answer.headers.get("Retry-After"))

    def reading(self, what: str) -> AbstractContextManager[None]:
        """Return a context that turns the exceptions of reading an opened answer into KubeErrors."""
        return self._mapped(what, write=False, sent=True)

    def _send(
        self,
        what: str,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        content_type: str | None,
        timeout: float,
        accept: str = JSON,
        further: Mapping[str, str] | None = None,
    ) -> Any:
        connection, end = self.connection, self._clock() + timeout
        if self._silent and self.gives_up:
            raise KubeTimeout(f"cannot {what} at {connection.host}: {Cause.LATE}")
        headers = {**self.headers, **(further or {})}
        write = _stores(method, path)
        target = f"{path}?{urlencode(params, quote_via=quote)}" if params else path

        def remaining_seconds() -> float:
            seconds = end - self._clock() if write else timeout
            if seconds <= 0:
                raise KubeTimeout(
                    f"cannot {what}: the deadline passed before the request was sent to {connection.host}"
                )
            return seconds

        with self._mapped(what, write=write, sent=False):
            answer = connection.send(method, target, body, content_type, remaining_seconds, accept, headers)
            if answer.status == 401 and self._log_in_again(connection):
                answer.drain_conn()
                answer = self.connection.send(
                    method, target, body, content_type, remaining_seconds, accept, headers
                )
        self.answered = True
        return answer

    def _log_in_again(self, refused: Connection) -> bool:
        """Load the credentials again. Return whether they differ from the refused ones."""
        with self._lock:
            if self.connection is not refused:
                return True
            if time.monotonic() - self._logged_in_at < _LOG_IN_AGAIN_SECONDS:
                return False
            self._logged_in_at = time.monotonic()
            try:
                fresh = self._find()
                old, new = refused.authorization(), fresh.authorization()
            except KubeError:
                return False  # the caller reports the 401, which is the better message
            if old is not None and old == new:
                return False
            self.connection = fresh
            refused.close()
            return True

    @contextmanager
    def _mapped(self, what: str, *, write: bool, sent: bool) -> Iterator[None]:
        """Turn the exceptions of the client and of urllib3 into KubeErrors."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except (ApiException, HTTPError) as error:  # the client makes an ApiException of a TLS failure
            place = f"cannot {what} at {self.connection.host}"
            found = from_exception(error, place, BY_CAUSE, write=write, sent=sent)
            self._silent = found.cause in (Cause.NO_CONNECTION, Cause.LATE) and not self.answered
            raise found from error
        except ValueError as error:
            if sent:
                raise
            # Not shown: the text of this error quotes the header.
            raise KubeConfigError("the token has characters that no HTTP header may have") from error


def _stores(method: str, path: str) -> bool:
    """Whether the server stores what a request with this method and path sends."""
    return method != "GET" and not path.startswith(_REVIEWS)


def _silence_urllib3() -> None:
    """Keep urllib3 from logging errors that we report as KubeErrors."""
    from urllib3.exceptions import DependencyWarning, InsecureRequestWarning

    logging.getLogger("urllib3").setLevel(logging.ERROR)
    for category in (DependencyWarning, InsecureRequestWarning):
        warnings.filterwarnings("ignore", category=category)


def parsed(data: bytes | bytearray) -> Any:
    """Parse JSON. Raises ValueError or RecursionError.

    pydantic's parser takes half of the time of the standard library's, and less memory, because it shares
    equal short strings. The standard library's parser is used for JSON that only it accepts, such as lone
    surrogates.
    """
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)


def json_object(parent: Mapping[str, Any], name: str) -> JsonObject:
    """Return the inner object with this name; an empty one if there is none."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}
