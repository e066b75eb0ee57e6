"""A client of Prometheus' HTTP interface: one question, one answer, and AlertsErrors only."""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection

import httpx

from konductor_like import __version__
from konductor_like.model.edge_errors import Cause, EdgeError, from_exception
from konductor_like.model.text import excerpt
from konductor_like.prometheus.answer import NotPrometheusAnswerError, Parsed, parse, question
from konductor_like.selectors import parse_matchers
from konductor_like.settings import Settings

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 20.0
"""Seconds for an answer, however slowly its bytes come."""
ANSWER_BYTES = 4 * 2**20
"""Bytes of an answer that are read, at most; a series takes about 300. Memory takes ten times as much."""
_ERROR_BYTES = 4096


class AlertsError(EdgeError):
    """Prometheus did not answer as it should; the text says why, without its address."""

    edge = "Prometheus"


_BY_CAUSE = dict.fromkeys(Cause, AlertsError)


class PrometheusClient:
    """One Prometheus, one pool of connections. For one thread."""

    def __init__(self, settings: Settings) -> None:
        """Sends nothing, and opens no file: no mistake here may keep the controller from tainting."""
        self._settings = settings
        self._matchers = parse_matchers(settings.alerts_matchers)
        self._http: httpx.Client | None = None

    def check(self) -> None:
        """Read the files of the token and of the authority, as a question does. Raises AlertsError."""
        self._connected()
        self._authorization()

    def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            self._http.close()

    def ask(self, names: Collection[str], nodes: Collection[str]) -> Parsed:
        """Ask which of these alerts fire, and whether the exporters of these nodes are up.

        Raises AlertsError.
        """
        asked_ns = time.time_ns()
        body = self._fetch({"query": question(names, nodes, self._matchers)})
        try:
            return parse(body, asked_ns)
        except NotPrometheusAnswerError as error:
            raise AlertsError(f"the endpoint of the alerts answered with {error}") from None

    def _fetch(self, form: dict[str, str]) -> bytearray:
        started, url = time.monotonic(), f"{self._settings.alerts_endpoint}/api/v1/query"
        body = bytearray()
        try:
            with self._connected().stream("POST", url, data=form, headers=self._authorization()) as response:
                is_well = response.status_code == httpx.codes.OK
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise AlertsError("Prometheus packed its answer, which nobody asked for")
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > (ANSWER_BYTES if is_well else _ERROR_BYTES):
                        break
                    if time.monotonic() - started > TOTAL_SECONDS:
                        raise AlertsError(f"Prometheus did not answer in full within {TOTAL_SECONDS:.0f} s")
                if not is_well:
                    said = excerpt(body[:_ERROR_BYTES].decode("utf-8", "replace"))
                    words = f"Prometheus answered {response.status_code}: {said}"
                    raise AlertsError(words.removesuffix(": "))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise from_exception(error, AlertsError.edge, _BY_CAUSE, quotes=False) from None
        if len(body) > ANSWER_BYTES:
            raise AlertsError(f"Prometheus answered with more than {ANSWER_BYTES >> 20} MiB")
        return body

    def _connected(self) -> httpx.Client:
        if self._http is None:
            # A small packed answer may take gigabytes when it is unpacked.
            headers = {"User-Agent": f"konductor-like/{__version__}", "Accept-Encoding": "identity"}
            if self._settings.alerts_tenant:
                headers["X-Scope-OrgID"] = self._settings.alerts_tenant
            timeout = httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS)
            self._http = httpx.Client(headers=headers, verify=_tls_context(self._settings), timeout=timeout)
        return self._http

    def _authorization(self) -> dict[str, str]:
        """Return the header with the token. Its file is read every time, so a rotated token is picked up."""
        path = self._settings.alerts_bearer_token_file
        if path is None:
            return {}
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise AlertsError(f"KONDUCTOR_ALERTS_BEARER_TOKEN_FILE {path} cannot be read: {why}") from None
        if not token or not token.isascii() or not token.isprintable():
            raise AlertsError(f"KONDUCTOR_ALERTS_BEARER_TOKEN_FILE {path} has no usable token")
        return {"Authorization": f"Bearer {token}"}


def _tls_context(settings: Settings) -> ssl.SSLContext | bool:
    if not settings.alerts_endpoint.startswith("https://"):
        return False
    if settings.alerts_ca_file is None:
        try:
            return httpx.create_ssl_context()
        except (OSError, ValueError) as error:  # SSL_CERT_FILE names a file that cannot be used
            raise AlertsError(f"the trusted authorities cannot be read ({type(error).__name__})") from None
    try:
        return ssl.create_default_context(cafile=settings.alerts_ca_file)
    except OSError as error:
        why = error.strerror if not isinstance(error, ssl.SSLError) else "it is no PEM file"
        raise AlertsError(
            f"KONDUCTOR_ALERTS_CA_FILE {settings.alerts_ca_file} cannot be used: {why}",
            "The file must be readable PEM with at least one certificate.",
        ) from None
