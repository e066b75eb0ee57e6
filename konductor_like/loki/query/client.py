"""A client of Loki's HTTP interface: it sends one query, reads one answer, and raises LokiErrors only."""

from __future__ import annotations

import base64
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import httpx
import tenacity

from konductor_like import __version__, backoff
from konductor_like.backoff import Backoff
from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiBadAnswer,
    LokiDropped,
    LokiMisconfigured,
    LokiStopped,
    LokiTimeout,
    from_exception,
    from_status,
    without_credentials,
)
from konductor_like.loki.query.logql import counting
from konductor_like.loki.query.response import (
    Count,
    NotLokisAnswerError,
    QueryResult,
    parse,
    parse_count,
    parse_names,
    parse_volume,
)
from konductor_like.loki.query.window_query import COUNTABLE_NS
from konductor_like.model.text import excerpt
from konductor_like.model.time import CLOCK_TRUSTED_SECONDS, CLOCKS_AGREE_SECONDS, seconds_ahead, span_ns
from konductor_like.settings import Settings

MAX_ANSWER_BYTES = 8 * 2**20
"""Bytes of an answer that the client accepts: it keeps the whole answer in memory, as text up to four
times as large. After a larger answer the reader asks for fewer entries."""
CONNECT_SECONDS = 5.0
LEAST_SILENCE_SECONDS = 5.0
"""Seconds for which the client waits for a silent Loki at least."""
_SILENCE_FACTOR = 4.0
"""The client waits for a silent Loki this number of times as long as for the slowest recent answer."""
_REMEMBERED_SHARE = 0.97
"""Factor by which each further answer shortens the remembered time of the slowest one."""

Answer = TypeVar("Answer")

ATTEMPTS = 4
TOTAL_SECONDS = 30.0
BACKOFF = Backoff(first_seconds=1.0, most_seconds=8.0)

Pause = Callable[[float], bool]
"""Waits a number of seconds; True at once when the process shall stop (``threading.Event().wait``)."""
_ERROR_BYTES = 4096
_VOLUMES_MOST = 1000
"""Values in the answer to a volume query: Loki's ``volume_max_series``."""
_LONG_QUERY_CHARS = 2000
"""Characters of a query above which it is sent in a form, because proxies cut long URLs."""


class LokiClient:
    """One Loki, one pool of connections. Threads may share it."""

    def __init__(self, settings: Settings, retry: tenacity.Retrying | None = None) -> None:
        """``retry`` repeats a query after an error (:func:`konductor_like.loki.query.client.retrying`).

        Raises LokiMisconfigured when the address, a certificate or a header's value cannot be used. The
        constructor sends nothing.
        """
        self.clock_ahead_seconds = 0.0
        """Seconds by which Loki's clock is ahead of ours at its latest answer; 0 while the two nearly
        agree."""
        self._wall_at_zero_seconds: float | None = None
        """Our wall clock minus the monotonic clock at the latest answer; it changes when somebody sets
        ours."""
        self._settings = settings
        self._retry = retry or retrying()
        self._clock = time.monotonic
        self._unanswered_since_seconds: float | None = None
        """When the first request began since which Loki has answered none; by ``_clock``."""
        self._slowest_seconds = 0.0
        self._note_silence(0.0)
        try:
            self._endpoint = httpx.URL(settings.log_endpoint)
        except httpx.InvalidURL:  # its message quotes the address, which may contain a password
            raise LokiMisconfigured(
                "LOG_ENDPOINT is not a usable address",
                "It must be an http:// or https:// URL, such as http://localhost:3100.",
            ) from None
        self._base = without_credentials(self._endpoint).rstrip("/")
        self._http = httpx.Client(headers=fixed_headers(settings), verify=tls_context(settings))

    def check(self) -> None:
        """Read the token and its file, as each request does. Raises LokiMisconfigured."""
        authorization(self._settings, self._endpoint)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def silent_seconds(self) -> float:
        """Return for how many seconds requests were sent and none was answered; 0 after any answer."""
        since = self._unanswered_since_seconds
        return 0.0 if since is None else self._clock() - since

    def now_ns(self) -> int:
        """Return the present by which windows are placed: our clock, corrected by Loki's where they differ.

        Entries carry the nodes' time. A window placed by a wrong clock of ours would miss lines, and Loki's
        clock is nearer to the nodes. Where the two clocks are too far apart to trust either, the earlier one
        counts: a cursor that followed the later one could skip lines.
        """
        ours_ns, theirs_ns = self._clocks_ns()
        too_far_apart = abs(self.clock_ahead_seconds) > CLOCK_TRUSTED_SECONDS
        return min(ours_ns, theirs_ns) if too_far_apart else theirs_ns

    def other_clock_ns(self) -> int | None:
        """Return the later of two clocks that are too far apart; its lines must be read as well."""
        if abs(self.clock_ahead_seconds) <= CLOCK_TRUSTED_SECONDS:
            return None
        return max(self._clocks_ns())

    def _clocks_ns(self) -> tuple[int, int]:
        """Return our time and Loki's.

        When somebody has set our clock since Loki's latest answer, the change does not count before the next
        answer: a cursor that followed such a clock, and came back, would have skipped lines.
        """
        ours_ns = time.time_ns()
        if self._wall_at_zero_seconds is not None:
            set_by_seconds = time.time() - time.monotonic() - self._wall_at_zero_seconds
            if abs(set_by_seconds) >= CLOCKS_AGREE_SECONDS:
                ours_ns -= span_ns(set_by_seconds)
        return ours_ns, ours_ns + span_ns(self.clock_ahead_seconds)

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        """Return the matching lines of ``[start_ns, end_ns)``, at most ``limit``.

        Repeats the query as ``retry`` decides. Raises a LokiError. The answer may be incomplete (rule 7):
        :func:`window_query.is_complete` decides.
        """
        fields = {
            "query": query,
            # Nineteen digits: Loki would read a shorter number as seconds.
            "start": f"{start_ns:019d}",
            "end": f"{end_ns:019d}",
            "limit": str(limit),
            "direction": "forward",
        }
        result: QueryResult = self._retry(
            self._fetch_and_parse, "/loki/api/v1/query_range", fields, lambda body: parse(body, limit)
        )
        return result

    def count(self, query: str, start_ns: int, end_ns: int) -> Count:
        """Count the matching lines of ``[start_ns, end_ns)``, a span of whole milliseconds.

        Loki reads as many bytes to count the lines as to return them: a count only saves us the transfer.
        Raises a LokiError.
        """
        # Loki's range excludes its start and includes its end, so it ends a nanosecond earlier.
        width_ms = (end_ns - start_ns) // COUNTABLE_NS
        fields = {"query": counting(query, width_ms), "time": f"{end_ns - 1:019d}"}
        count: Count = self._retry(self._fetch_and_parse, "/loki/api/v1/query", fields, parse_count)
        return count

    def volume(self, streams: str, label: str, start_ns: int, end_ns: int) -> dict[str, int]:
        """Return the bytes of the lines of ``[start_ns, end_ns)`` by the values of a label, the most first.

        ``streams`` is a selector. Loki answers from its index and reads no line. Raises a LokiError.
        """
        fields = {
            "query": streams,
            "start": f"{start_ns:019d}",
            "end": f"{end_ns:019d}",
            "targetLabels": label,
            "limit": str(_VOLUMES_MOST),
        }
        found: dict[str, int] = self._retry(
            self._fetch_and_parse, "/loki/api/v1/index/volume", fields, lambda body: parse_volume(body, label)
        )
        return found

    def label_names(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        """Return the names of the index labels of all streams with lines in a span. Raises a LokiError."""
        return self._names("/loki/api/v1/labels", start_ns, end_ns)

    def label_values(self, label: str, streams: str, start_ns: int, end_ns: int) -> tuple[str, ...]:
        """Return the values of one index label of the selected streams in a span. Raises a LokiError."""
        return self._names(f"/loki/api/v1/label/{label}/values", start_ns, end_ns, query=streams)

    def configuration(self) -> str:
        """Return Loki's configuration as YAML; a gateway may not serve it. Raises a LokiError."""
        text: str = self._retry(self._fetch_and_parse, "/config", {}, lambda body: body.decode())
        return text

    def _names(self, path: str, start_ns: int, end_ns: int, **more: str) -> tuple[str, ...]:
        fields = {"start": f"{start_ns:019d}", "end": f"{end_ns:019d}", **more}
        names: tuple[str, ...] = self._retry(self._fetch_and_parse, path, fields, parse_names)
        return names

    def _fetch_and_parse(
        self, path: str, fields: Mapping[str, str], parse_body: Callable[[bytearray], Answer]
    ) -> Answer:
        body = self._fetch(path, fields)
        try:
            return parse_body(body)
        except NotLokisAnswerError as error:
            start = excerpt(body[:2048].decode("utf-8", "replace"))
            message = f"Loki at {self._base} answered with {error}: {start}".removesuffix(": ")
            raise LokiBadAnswer(message) from error

    def _fetch(self, path: str, fields: Mapping[str, str]) -> bytearray:
        """Return the body of an answer that has the status 200."""
        place = f"Loki at {self._base}"
        long = len(fields.get("query", "")) > _LONG_QUERY_CHARS
        started = self._clock()
        silence_seconds = self._silence_seconds
        if self._unanswered_since_seconds is None:
            self._unanswered_since_seconds = started
        try:
            with self._http.stream(
                "POST" if long else "GET",
                self._base + path,
                params=None if long else fields,
                data=fields if long else None,
                headers=authorization(self._settings, self._endpoint),
                timeout=httpx.Timeout(silence_seconds, connect=CONNECT_SECONDS),
            ) as response:
                self._note_silence(self._clock() - started)
                self._unanswered_since_seconds = None
                if response.status_code != httpx.codes.OK:
                    raise from_status(response, self._body(response, started, _ERROR_BYTES), place)
                self._wall_at_zero_seconds = time.time() - time.monotonic()
                ahead_seconds = seconds_ahead(response.headers.get("Date"), time.time())
                if ahead_seconds is not None:
                    self.clock_ahead_seconds = ahead_seconds
                body = self._body(response, started, MAX_ANSWER_BYTES)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            if isinstance(error, httpx.ReadTimeout):
                self._note_silence(silence_seconds)
            raise from_exception(error, place) from error
        if len(body) > MAX_ANSWER_BYTES:
            raise LokiAnswerTooLarge(
                f"{place} answered with more than {MAX_ANSWER_BYTES} bytes",
                "The reader then requests fewer lines. If the error remains, single lines are very large.",
            )
        return body

    def _note_silence(self, seconds: float) -> None:
        """Set how long the client waits for a silent Loki: several times its slowest recent answer.

        A Loki that cannot hand over a large answer is silent for 30 to 60 s, and other nodes' lines wait
        meanwhile. For example, the client waits 5 s for a Loki that answers within 1 s; after 5 s of silence
        it waits 20 s, then KONDUCTOR_LOKI_TIMEOUT_SECONDS. After some hundred faster answers, a slow answer
        no longer counts.
        """
        self._slowest_seconds = max(seconds, _REMEMBERED_SHARE * self._slowest_seconds)
        wanted_seconds = max(LEAST_SILENCE_SECONDS, _SILENCE_FACTOR * self._slowest_seconds)
        self._silence_seconds = min(self._settings.loki_timeout_seconds, wanted_seconds)

    def _body(self, response: httpx.Response, started: float, enough: int) -> bytearray:
        """Return the body, or its beginning as soon as that is longer than ``enough`` bytes."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > enough:
                break
            # httpx's time-out is per read, so a server that drips could keep us waiting for ever.
            if self._clock() - started > self._settings.loki_timeout_seconds:
                raise LokiTimeout(f"Loki at {self._base}: the answer was still not complete in time")
        return body


def retrying(
    pause: Pause | None = None, *, attempts: int = ATTEMPTS, total_seconds: float = TOTAL_SECONDS
) -> tenacity.Retrying:
    """Return a callable that runs a function and repeats it after transient errors.

    :attr:`LokiError.transient` says which errors are. A time-out is not repeated: the reader then asks for
    less, which helps more. The callable raises LokiStopped when ``pause`` returns True. For the rest see
    :func:`konductor_like.backoff.retrying`.
    """
    wait_for = pause or threading.Event().wait

    def wait(seconds: float) -> None:
        if wait_for(seconds):
            raise LokiStopped("Stopped while waiting to ask Loki again")

    return backoff.retrying(
        BACKOFF, wait, attempts=attempts, total_seconds=total_seconds, repeat_after=_repeat_after
    )


def _repeat_after(error: BaseException) -> bool:
    silent = isinstance(error, LokiTimeout) and not isinstance(error, LokiDropped)
    return backoff.may_pass(error) and not silent


def tls_context(settings: Settings) -> ssl.SSLContext | bool:
    """Return httpx's ``verify``: what to trust and what to show. Raises LokiMisconfigured naming the file."""
    if not settings.log_endpoint.startswith("https://"):
        return False
    if settings.loki_insecure_skip_verify or settings.loki_ca_file is None:
        context = httpx.create_ssl_context(verify=not settings.loki_insecure_skip_verify)
    else:
        try:
            context = ssl.create_default_context(cafile=settings.loki_ca_file)
        except OSError as error:
            raise LokiMisconfigured(
                f"KONDUCTOR_LOKI_CA_FILE {settings.loki_ca_file} cannot be used: {_why(error)}",
                "The file must be readable PEM with at least one certificate.",
            ) from error
    certificate, key = settings.loki_client_cert_file, settings.loki_client_key_file
    if certificate is not None and key is not None:
        try:
            # An empty password, because a prompt in a pod would hang for ever.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            raise LokiMisconfigured(
                f"KONDUCTOR_LOKI_CLIENT_CERT_FILE {certificate} with KONDUCTOR_LOKI_CLIENT_KEY_FILE {key} "
                f"cannot be used: {_why(error)}",
                "Both must be readable PEM files that match, with an unencrypted key.",
            ) from error
    return context


def fixed_headers(settings: Settings) -> dict[str, str]:
    """Return the headers that every request carries. Raises LokiMisconfigured."""
    headers = {
        "User-Agent": f"konductor-like/{__version__}",
        # With any other value Loki may answer from its cache of empty results (rule 6).
        "Cache-Control": "no-cache",
    }
    if settings.loki_tenant is not None:
        headers["X-Scope-OrgID"] = _header_value(settings.loki_tenant, "KONDUCTOR_LOKI_TENANT")
    return headers


def authorization(settings: Settings, url: httpx.URL) -> dict[str, str]:
    """Return the header with our credentials, or none. Without a setting, those in the URL count.

    The token's file is read every time, so that a rotated token is picked up. Raises LokiMisconfigured.
    """
    if settings.loki_bearer_token_file is not None:
        return {"Authorization": f"Bearer {_token_in(settings.loki_bearer_token_file)}"}
    if settings.loki_bearer_token is not None:
        token = settings.loki_bearer_token.get_secret_value().strip()
        return {"Authorization": f"Bearer {_header_value(token, 'KONDUCTOR_LOKI_BEARER_TOKEN')}"}
    if settings.loki_username is not None and settings.loki_password is not None:
        return _basic(settings.loki_username, settings.loki_password.get_secret_value())
    if url.userinfo:
        user, _, password = url.userinfo.decode("ascii").partition(":")
        return _basic(unquote(user), unquote(password))
    return {}


def _token_in(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LokiMisconfigured(
            f"KONDUCTOR_LOKI_BEARER_TOKEN_FILE {path} cannot be read: {_why(error)}",
            "Mount the token there, readable by this process. The process reads it for every request.",
        ) from error
    return _header_value(token, f"KONDUCTOR_LOKI_BEARER_TOKEN_FILE {path}")


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def _header_value(value: str, setting: str) -> str:
    """Return the value. Raises LokiMisconfigured, without quoting it, where HTTP cannot carry it."""
    if not value or not value.isascii() or not value.isprintable():
        raise LokiMisconfigured(f"{setting} is empty or has characters that an HTTP header cannot carry")
    return value


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return str(error)
