"""Requests over the official client's configuration and connections, in raw mode: JSON in, JSON out.

No typed models anywhere: one odd field in one Node must not make a whole list unreadable. Nothing is
retried here, with one exception: after a 401 the credentials are loaded again and the request is sent once
more, because tokens get rotated under a running process. No write is sent once its time is over: a login
may take as long as its command likes, and by then another may be the writer (rule 24).
"""

# The official client is annotated in part only.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import logging
import math
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from pydantic_core import from_json

from konductor_like import __version__
from konductor_like.cluster.errors import (
    KubeBadAnswer,
    KubeConfigError,
    KubeError,
    KubeTimeout,
    KubeUnreachable,
    cut,
    error_of,
)
from konductor_like.model.time import seconds_ahead

JsonObject = dict[str, Any]
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
FIELD_MANAGER = "konductor-like"
"""The name that every write of ours carries."""
USER_AGENT = f"konductor-like/{__version__}"
_CONNECT_SECONDS = 5.0
_LOG_IN_AGAIN_SECONDS = 30.0
_RENEW_SECONDS = 1.0
"""A token may be about to expire: checked this often, since that takes as long as the rest of a request."""
ANSWER_BYTES_MOST = 64 << 20
"""A page of Nodes has 10 MiB at most where they are large; nothing that is answered at once has more."""
_TLS_HINT = "the certificates do not fit; check certificate-authority and server in the kubeconfig"


def suspend_aware_seconds() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Connection:
    """The way to a cluster: its server, one set of credentials, and connections that are kept open.

    ``namespace`` is the context's, or in a pod the pod's own.
    """

    def __init__(
        self,
        configuration: Any,
        namespace: str | None = None,
        *,
        in_cluster: bool = False,
        tls: ssl.SSLContext | None = None,
        renew: Callable[[], object] | None = None,
    ) -> None:
        """``renew`` puts a new token into the configuration if the present one is about to expire.

        It raises a KubeError.
        """
        from kubernetes.client import ApiClient

        self.host: str = configuration.host
        self.namespace = namespace
        self.in_cluster = in_cluster
        self._configuration = configuration
        self._renew = renew
        self._renewing = threading.Lock()
        self._renewed_at = -math.inf
        try:
            self._client = ApiClient(configuration)
        except (ImportError, ValueError) as error:
            raise KubeConfigError(f"the proxy for {self.host} cannot be used: {cut(str(error))}") from error
        if tls is not None:
            self._client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls

    def authorization(self) -> str | None:
        """The value of the Authorization header, renewed if it is about to expire; None without a token."""
        with self._renewing:
            if self._renew is not None and time.monotonic() - self._renewed_at >= _RENEW_SECONDS:
                self._renew()
                self._renewed_at = time.monotonic()
            token = self._configuration.api_key.get("BearerToken")
        return token.strip() if isinstance(token, str) else None

    def send(
        self, method: str, target: str, body: object, content_type: str | None, left: Callable[[], float]
    ) -> Any:
        """Send one request; the answer is urllib3's, unread. ``left`` raises when it is too late to send."""
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        authorization = self.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        timeout = left()  # asked last: renewing the login may have run a command, or waited for another's
        timeouts = (min(timeout, _CONNECT_SECONDS), timeout)
        url = self.host + target
        return self._client.call_api(method, url, headers, body, _request_timeout=timeouts).response

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
        """``find`` loads the credentials: now, and again when the server stops accepting them."""
        _silence_urllib3()
        self._find = find
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self.connection = find()
        self._logged_in_at = -math.inf
        self.clock_ahead_seconds = 0.0
        """How far the server's clock is ahead of ours, by its latest answer; 0 while the two agree."""

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
    ) -> JsonObject:
        """Send a request and read its answer, a JSON object. Raises a KubeError."""
        write, server = method != "GET", self.connection.host
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        answer = self._send(what, method, path, params, body, content_type, timeout)
        with self._mapped(what, write=write, sent=True):
            data: bytes = answer.read(ANSWER_BYTES_MOST + 1)
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
            found = parsed(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            kind = cut(answer.headers.get("Content-Type", "no content type"))
            raise KubeBadAnswer(
                f"cannot {what}: {server} answered {answer.status} with no JSON object ({kind})",
                outcome_unknown=write,
            )
        return found

    def open(
        self, what: str, path: str, params: Mapping[str, str], read_timeout_seconds: float | None = None
    ) -> Any:
        """Send a GET whose answer may be long, or go on and on; it is returned unread, as urllib3 has it."""
        timeout = self._timeout_seconds if read_timeout_seconds is None else read_timeout_seconds
        answer = self._send(what, "GET", path, params, None, None, timeout)
        if answer.status == 200:
            return answer
        with self.reading(what):
            data = answer.read(ANSWER_BYTES_MOST)
            answer.release_conn()
        raise error_of(what, answer.status, data, retry_after=answer.headers.get("Retry-After"))

    def reading(self, what: str) -> AbstractContextManager[None]:
        """Translates what goes wrong while an opened answer is read."""
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
    ) -> Any:
        connection, end = self.connection, self._clock() + timeout
        write = method != "GET"
        target = f"{path}?{urlencode(params, quote_via=quote)}" if params else path

        def left() -> float:
            seconds = end - self._clock() if write else timeout
            if seconds <= 0:
                raise KubeTimeout(f"cannot {what}: it was too late to send it to {connection.host}")
            return seconds

        with self._mapped(what, write=write, sent=False):
            answer = connection.send(method, target, body, content_type, left)
            if answer.status == 401 and self._log_in_again(connection):
                answer.drain_conn()
                answer = self.connection.send(method, target, body, content_type, left)
        return answer

    def _log_in_again(self, refused: Connection) -> bool:
        """Load the credentials anew; whether there is anything new to try."""
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
                return False  # the 401 itself is the better thing to report
            if old is not None and old == new:
                return False
            self.connection = fresh
            refused.close()
            return True

    @contextmanager
    def _mapped(self, what: str, *, write: bool, sent: bool) -> Iterator[None]:
        """Translate the client's and urllib3's exceptions into ours."""
        from kubernetes.client import ApiException
        from urllib3 import exceptions as http

        failed = f"cannot {what}: {self.connection.host}"
        try:
            yield
        except ApiException as error:  # TLS failures, which the client wraps in this with status 0
            raise KubeUnreachable(f"{failed}: {cut(str(error.reason))}", hint=_TLS_HINT) from error
        except (http.NewConnectionError, http.ConnectTimeoutError, http.ProxyError) as error:
            raise KubeUnreachable(f"{failed} cannot be reached: {_cause(error)}") from error
        except http.ReadTimeoutError as error:
            raise KubeTimeout(f"{failed} gave no answer in time", outcome_unknown=write) from error
        except (http.LocationValueError, http.URLSchemeUnknown) as error:
            raise KubeConfigError(f"{failed} is no usable address: {cut(str(error))}") from error
        except http.HTTPError as error:
            message = f"{failed} broke the connection: {_cause(error)}"
            raise KubeUnreachable(message, outcome_unknown=write) from error
        except ValueError as error:
            if sent:
                raise
            # Not shown: the text of this error quotes the header.
            raise KubeConfigError("the token has characters that no HTTP header may have") from error


def _silence_urllib3() -> None:
    """What goes wrong is reported once, as an error of ours; urllib3 would log it as well."""
    from urllib3.exceptions import DependencyWarning, InsecureRequestWarning

    logging.getLogger("urllib3").setLevel(logging.ERROR)
    for category in (DependencyWarning, InsecureRequestWarning):
        warnings.filterwarnings("ignore", category=category)


def _cause(error: Exception) -> str:
    """urllib3's words without the object that they start with."""
    text = str(error.args[-1]) if error.args else type(error).__name__
    return cut(text.rsplit(">: ", 1)[-1])


def parsed(data: bytes | bytearray) -> Any:
    """What the JSON says. Raises ValueError or RecursionError for anything else.

    The parser that comes with pydantic takes half of the time and, because it makes equal short strings one,
    less memory. What only the standard library's takes (lone surrogates, say) is left to that.
    """
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)


def json_object(parent: Mapping[str, Any], name: str) -> JsonObject:
    """An object within an object; an empty one where there is none."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}
