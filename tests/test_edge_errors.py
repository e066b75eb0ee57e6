"""One table says why a request had no answer, for the errors of httpx, urllib3 and the standard library."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import httpx
import pytest
from urllib3 import exceptions as urllib3

from konductor_like.model.edge_errors import Cause, EdgeError, from_exception

KINDS = dict.fromkeys(Cause, EdgeError)
ADDRESS = "https://kim:xyzzy@host"


def caused(error: Exception, *causes: BaseException) -> Exception:
    """Return the error with the causes behind it, the deepest last."""
    above: BaseException = error
    for cause in causes:
        above.__cause__ = cause
        above = cause
    return error


UNTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")
UNTRUSTED.verify_message = "self-signed certificate"
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
POOL, CONNECTION = object(), object()


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (caused(httpx.ConnectError(ADDRESS), UNTRUSTED), Cause.UNTRUSTED, ": self-signed certificate"),
        (caused(urllib3.SSLError(ADDRESS), UNTRUSTED), Cause.UNTRUSTED, ": self-signed certificate"),
        (caused(httpx.ConnectError(ADDRESS), ssl.SSLError(1, "[SSL] odd")), Cause.TLS, ": "),
        (caused(httpx.ConnectError(ADDRESS), UNKNOWN), Cause.NAME, ""),
        (caused(httpx.ConnectError(ADDRESS), REFUSED), Cause.UNREACHABLE, ": Connection refused"),
        (
            caused(urllib3.NewConnectionError(CONNECTION, ADDRESS), REFUSED),  # type: ignore[arg-type]  # only shown
            Cause.UNREACHABLE,
            ": Connection refused",
        ),
        (httpx.ConnectTimeout(ADDRESS), Cause.NO_CONNECTION, ""),
        (urllib3.ConnectTimeoutError(CONNECTION, ADDRESS), Cause.NO_CONNECTION, ""),
        (httpx.WriteTimeout(ADDRESS), Cause.LATE, ""),
        (urllib3.ReadTimeoutError(POOL, "/", "late"), Cause.LATE, ""),  # type: ignore[arg-type]  # only shown
        (httpx.ProxyError("403 Forbidden"), Cause.PROXY, ": 403 Forbidden"),
        (urllib3.DecodeError("bad gzip"), Cause.PACKED, ": bad gzip"),
        (httpx.UnsupportedProtocol("no scheme"), Cause.REQUEST, ": no scheme"),
        (httpx.RemoteProtocolError(ADDRESS), Cause.DROPPED, ""),
        (urllib3.ProtocolError(ADDRESS, ConnectionResetError()), Cause.DROPPED, ""),
    ],
    ids=lambda value: type(value).__module__ + type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_library_s_exception_has_its_cause_and_its_words(
    error: Exception, cause: Cause, words: str
) -> None:
    found = from_exception(error, "Loki", KINDS)

    assert found.cause is cause
    assert str(found).startswith(f"Loki: {cause}{words}")
    assert "xyzzy" not in str(from_exception(error, "Loki", KINDS, quotes=False))


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (httpx.ConnectTimeout("late"), False, True),
        (caused(urllib3.SSLError("x"), ssl.SSLError(1, "x")), False, True),
        (httpx.ReadTimeout("late"), True, True),
        (httpx.RemoteProtocolError("x"), True, True),
    ],
    ids=["connecting", "TLS", "late", "dropped"],
)
def test_the_outcome_of_a_write_is_unknown_as_soon_as_it_may_have_been_sent(
    error: Exception, before: bool, after: bool
) -> None:
    assert from_exception(error, "x", KINDS, write=True).outcome_unknown is before
    assert from_exception(error, "x", KINDS, write=True, sent=True).outcome_unknown is after
    assert not from_exception(error, "x", KINDS, sent=True).outcome_unknown
