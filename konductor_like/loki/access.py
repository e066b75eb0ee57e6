"""How we present ourselves to Loki: TLS, tenant, token, password."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from urllib.parse import unquote

import httpx

from konductor_like import __version__
from konductor_like.loki.errors import LokiMisconfigured
from konductor_like.settings import Settings


def address_of(settings: Settings) -> httpx.URL:
    """Where Loki is. Raises LokiMisconfigured; the address may hold a password, so it is not quoted."""
    try:
        return httpx.URL(settings.log_endpoint)
    except httpx.InvalidURL:
        raise LokiMisconfigured(
            "LOG_ENDPOINT is no address that can be asked",
            "It must be an http:// or https:// URL, such as http://localhost:3100.",
        ) from None


def tls_context(settings: Settings) -> ssl.SSLContext | bool:
    """What to trust and what to show, for httpx's ``verify``. Raises LokiMisconfigured naming the file."""
    if not settings.log_endpoint.startswith("https://"):
        return False
    context = _trust(settings)
    certificate, key = settings.loki_client_cert_file, settings.loki_client_key_file
    if certificate is not None and key is not None:
        try:
            # An empty password, because a prompt in a pod would hang for ever.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            raise LokiMisconfigured(
                f"KONDUCTOR_LOKI_CLIENT_CERT_FILE {certificate} with KONDUCTOR_LOKI_CLIENT_KEY_FILE {key} "
                f"cannot be used: {_why(error)}",
                "Both must be readable PEM files that belong together; the key must not be encrypted.",
            ) from error
    return context


def _trust(settings: Settings) -> ssl.SSLContext:
    if settings.loki_insecure_skip_verify:
        return httpx.create_ssl_context(verify=False)
    if settings.loki_ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=settings.loki_ca_file)
    except OSError as error:
        raise LokiMisconfigured(
            f"KONDUCTOR_LOKI_CA_FILE {settings.loki_ca_file} cannot be used: {_why(error)}",
            "It must be a readable PEM file with at least one certificate.",
        ) from error


def fixed_headers(settings: Settings) -> dict[str, str]:
    """The headers that every request carries. Raises LokiMisconfigured."""
    headers = {
        "User-Agent": f"konductor-like/{__version__}",
        # Exactly this value: with any other Loki may answer from its cache of empty results (design rule 6).
        "Cache-Control": "no-cache",
    }
    if settings.loki_tenant is not None:
        headers["X-Scope-OrgID"] = _header_value(settings.loki_tenant, "KONDUCTOR_LOKI_TENANT")
    return headers


def authorization(settings: Settings, url: httpx.URL) -> dict[str, str]:
    """The header that proves who we are, or none; credentials in the URL count where no setting is given.

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
            "Mount the token there and let this process read it; it is read again for every request.",
        ) from error
    return _header_value(token, f"KONDUCTOR_LOKI_BEARER_TOKEN_FILE {path}")


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def _header_value(value: str, setting: str) -> str:
    """The value unless HTTP could not carry it; it may be a secret, so it is not quoted."""
    if not value or not value.isascii() or not value.isprintable():
        raise LokiMisconfigured(f"{setting} is empty or holds characters that cannot stand in an HTTP header")
    return value


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return str(error)
