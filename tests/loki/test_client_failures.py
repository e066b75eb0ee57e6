"""What the client makes of answers that are none."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
import respx

from konductor_like.loki.errors import (
    LokiAnswerTooLarge,
    LokiBadAnswer,
    LokiDropped,
    LokiError,
    LokiMisconfigured,
    LokiOverloaded,
    LokiRefused,
    LokiTimeout,
    LokiUnauthorized,
    LokiUnavailable,
    LokiUnreachable,
)
from tests.loki.support import ENDPOINT, answer_bytes, ask, client_of

PATH = "/loki/api/v1/query_range"
EMPTY = answer_bytes()


@pytest.mark.parametrize(
    ("status", "body", "kind", "transient"),
    [
        pytest.param(
            400, "parse error at line 1, col 87: syntax error: unexpected $end", LokiRefused, False, id="400"
        ),
        pytest.param(401, "no org id\n", LokiUnauthorized, False, id="401"),
        pytest.param(403, "forbidden", LokiUnauthorized, False, id="403"),
        pytest.param(404, "404 page not found\n", LokiBadAnswer, False, id="404"),
        pytest.param(405, "method not allowed", LokiBadAnswer, False, id="405"),
        pytest.param(
            413,
            "response larger than the max message size (107486642 vs 104857600)",
            LokiAnswerTooLarge,
            False,
            id="413",
        ),
        pytest.param(413, "<h1>413 Request Entity Too Large</h1>", LokiRefused, False, id="413 of a proxy"),
        pytest.param(
            500,
            "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 4)",
            LokiAnswerTooLarge,
            False,
            id="500 of gRPC",
        ),
        pytest.param(429, "too many outstanding requests", LokiOverloaded, True, id="429"),
        pytest.param(499, "the request was cancelled by the client", LokiRefused, False, id="499"),
        pytest.param(500, "too many unhealthy instances in the ring", LokiUnavailable, True, id="500"),
        pytest.param(502, "<html><h1>502 Bad Gateway</h1></html>", LokiDropped, True, id="502"),
        pytest.param(
            503, "Ingester not ready: waiting for 15s after being ready", LokiUnavailable, True, id="503"
        ),
        pytest.param(
            504, "request timed out, decrease the duration of the request", LokiTimeout, True, id="504"
        ),
        pytest.param(204, "", LokiBadAnswer, False, id="204"),
    ],
)
def test_every_status_is_classified_and_quoted(
    loki: respx.MockRouter, status: int, body: str, kind: type[LokiError], transient: bool
) -> None:
    loki.route().mock(return_value=httpx.Response(status, text=body))

    with pytest.raises(LokiError) as caught:
        ask(client_of())

    assert type(caught.value) is kind
    assert caught.value.transient is transient
    assert str(caught.value).startswith(f"Loki at {ENDPOINT} answered {status}")
    assert body.strip() in str(caught.value)


_MONDAY = datetime(2026, 11, 23, 7, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({}, None, id="not given"),
        pytest.param({"Retry-After": "17"}, 17, id="seconds"),
        pytest.param({"Retry-After": "Fri, 24 Nov 2006 12:00:00 GMT"}, None, id="a date"),
        pytest.param({"Retry-After": "9" * 400}, 300, id="a wait without end"),
        pytest.param({"Retry-After": "soon"}, None, id="nonsense"),
        pytest.param({"Retry-After": "-5"}, None, id="negative"),
    ],
)
def test_the_wait_that_loki_asks_for_is_read(
    loki: respx.MockRouter, headers: dict[str, str], seconds: float | None
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    loki.route().mock(return_value=httpx.Response(429, headers=raw, text="busy"))

    with pytest.raises(LokiOverloaded) as caught:
        ask(client_of())

    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("response", "says"),
    [
        pytest.param(
            httpx.Response(200, html="<!DOCTYPE html><html><title>Grafana</title></html>"),
            "answered with HTML: <!DOCTYPE html><html><title>Grafana",
            id="HTML",
        ),
        pytest.param(
            httpx.Response(200, content=EMPTY[:-30]), "answered with JSON that breaks off: {", id="truncated"
        ),
        pytest.param(
            httpx.Response(200, text="OK"), "answered with text that is not JSON: OK", id="a gateway's OK"
        ),
        pytest.param(httpx.Response(200, content=b""), r"answered with an empty body$", id="nothing"),
        pytest.param(
            httpx.Response(302, headers={"Location": "https://grafana.test/login?token=abc"}),
            r"redirects \(302\) to https://grafana.test/login$",
            id="a redirect, without its query",
        ),
        pytest.param(
            httpx.Response(404, json={"message": "Not found"}), "no Loki at this path", id="Grafana's 404"
        ),
    ],
)
def test_another_programs_answer_is_recognised(
    loki: respx.MockRouter, response: httpx.Response, says: str
) -> None:
    loki.route().mock(return_value=response)

    with pytest.raises(LokiBadAnswer, match=says) as caught:
        ask(client_of())

    assert ENDPOINT in str(caught.value)
    assert "LOG_ENDPOINT may point at something else" in caught.value.hint


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        pytest.param(
            httpx.ConnectTimeout("slow"), LokiUnreachable, "no connection in time", id="connect time-out"
        ),
        pytest.param(httpx.PoolTimeout("busy"), LokiUnreachable, "no connection in time", id="pool time-out"),
        pytest.param(
            httpx.ReadTimeout("slow"), LokiTimeout, "no complete answer in time", id="read time-out"
        ),
        pytest.param(
            httpx.WriteTimeout("slow"), LokiTimeout, "no complete answer in time", id="write time-out"
        ),
        pytest.param(httpx.ReadError("reset"), LokiDropped, "dropped", id="read error"),
        pytest.param(httpx.RemoteProtocolError("odd"), LokiDropped, "dropped", id="no HTTP"),
        pytest.param(httpx.ProxyError("403 Forbidden"), LokiUnreachable, "proxy refused: 403", id="proxy"),
        pytest.param(
            httpx.LocalProtocolError("bad"), LokiMisconfigured, "no request can be made", id="our fault"
        ),
    ],
)
def test_every_way_to_fail_has_a_name(
    loki: respx.MockRouter, raised: Exception, kind: type[LokiError], says: str
) -> None:
    loki.route().mock(side_effect=raised)

    with pytest.raises(LokiError, match=says) as caught:
        ask(client_of())

    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"Loki at {ENDPOINT}: ")
