"""What the client sends and returns."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
import respx

from konductor_like import __version__
from konductor_like.loki.query.errors import (
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
from tests.loki.support import ENDPOINT, NOW, QUERY, answer_bytes, ask, client_of

PATH = "/loki/api/v1/query_range"
EMPTY = answer_bytes()


def _sent(
    loki: respx.MockRouter, endpoint: str = ENDPOINT, query: str = QUERY, **values: Any
) -> httpx.Request:
    """Return the request that one query sends."""
    route = loki.route().mock(return_value=httpx.Response(200, content=EMPTY))
    ask(client_of(endpoint, **values), query)
    assert route.call_count == 1
    request: httpx.Request = route.calls.last.request
    return request


def test_a_query_is_exactly_this_request(loki: respx.MockRouter) -> None:
    request = _sent(loki)

    assert request.method == "GET"
    assert str(request.url).startswith(f"{ENDPOINT}{PATH}?")
    assert dict(request.url.params) == {
        "query": QUERY,
        "start": "1795240000000000000",
        "end": "1795240001000000000",
        "limit": "5000",
        "direction": "forward",
    }
    assert request.headers["cache-control"] == "no-cache"
    assert request.headers["user-agent"] == f"konductor-like/{__version__}"
    assert not {"x-scope-orgid", "authorization", "x-loki-response-encoding-flags"} & set(request.headers)


def test_a_short_timestamp_is_padded_because_loki_would_take_it_for_seconds(loki: respx.MockRouter) -> None:
    route = loki.route().mock(return_value=httpx.Response(200, content=EMPTY))
    with closing(client_of()) as client:
        client.query_range(QUERY, 0, NOW, 100)

    assert route.calls.last.request.url.params["start"] == "0" * 19


def test_a_long_query_goes_into_a_form(loki: respx.MockRouter) -> None:
    query = QUERY + ' or "x"' * 400

    request = _sent(loki, query=query)

    assert request.method == "POST"
    assert str(request.url) == ENDPOINT + PATH
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(request.content.decode())["query"] == [query]
    assert request.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        pytest.param("https://host/loki-prod", "https://host/loki-prod" + PATH, id="base path"),
        pytest.param("https://host/a/b/", "https://host/a/b" + PATH, id="slash at the end"),
        pytest.param("http://[::1]:3100", "http://[::1]:3100" + PATH, id="IPv6"),
    ],
)
def test_the_endpoints_base_path_is_kept(loki: respx.MockRouter, endpoint: str, url: str) -> None:
    assert str(_sent(loki, endpoint).url).partition("?")[0] == url


@pytest.mark.parametrize(
    ("values", "header", "value"),
    [
        pytest.param({"loki_tenant": "team-a"}, "x-scope-orgid", "team-a", id="tenant"),
        pytest.param({"loki_bearer_token": "s3cret\n"}, "authorization", "Bearer s3cret", id="bearer token"),
        pytest.param(
            {"loki_username": "me", "loki_password": "pässword"},
            "authorization",
            "Basic bWU6cMOkc3N3b3Jk",
            id="basic authentication",
        ),
    ],
)
def test_we_present_ourselves_as_configured(
    loki: respx.MockRouter, values: dict[str, str], header: str, value: str
) -> None:
    assert _sent(loki, **values).headers[header] == value


def test_credentials_in_the_endpoint_are_used_and_never_shown(loki: respx.MockRouter) -> None:
    request = _sent(loki, "http://me:pass%40word@loki.test:3100")

    assert request.headers["authorization"] == "Basic bWU6cGFzc0B3b3Jk"
    assert "@" not in str(request.url)

    loki.route().mock(return_value=httpx.Response(500, text="broken"))
    with pytest.raises(LokiUnavailable) as caught:
        ask(client_of("http://me:pass%40word@loki.test:3100"))
    assert str(caught.value) == "Loki at http://loki.test:3100 answered 500: broken"


def test_the_silence_of_loki_begins_with_the_first_request_without_an_answer(loki: respx.MockRouter) -> None:
    steps: list[tuple[float, Exception | httpx.Response]] = [
        (10.0, httpx.ConnectError("refused")),
        (25.0, httpx.ReadTimeout("silent")),
        (40.0, httpx.Response(500, text="broken")),
        (50.0, httpx.Response(200, content=EMPTY)),
    ]
    now = [0.0]
    found = []
    with closing(client_of()) as client:
        client._clock = lambda: now[0]
        for now[0], happens in steps:
            loki.route().mock(side_effect=[happens])
            with suppress(LokiError):
                client.query_range(QUERY, NOW, NOW + 1, 100)
            now[0] += 5
            found.append(client.silent_seconds())

    assert found == [5.0, 20.0, 0.0, 0.0]


def test_a_rotated_token_is_picked_up(loki: respx.MockRouter, tmp_path: Path) -> None:
    route = loki.route().mock(return_value=httpx.Response(200, content=EMPTY))
    token = tmp_path / "token"
    with closing(client_of(loki_bearer_token_file=token)) as client:
        for value in ("first\n", "second\n"):
            token.write_text(value)
            client.query_range(QUERY, NOW, NOW + 1, 100)

    assert [call.request.headers["authorization"] for call in route.calls] == [
        "Bearer first",
        "Bearer second",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"two\nlines", "an HTTP header cannot carry", id="two lines"),
        pytest.param(b"\xff\xfe", "utf-8", id="not text"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_named(
    loki: respx.MockRouter, tmp_path: Path, content: bytes | None, says: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)

    with pytest.raises(LokiMisconfigured, match=says) as caught:
        ask(client_of(loki_bearer_token_file=token))
    assert f"KONDUCTOR_LOKI_BEARER_TOKEN_FILE {token}" in str(caught.value)
    assert not loki.calls


def test_a_secret_that_no_header_can_carry_is_named_but_not_shown() -> None:
    with pytest.raises(LokiMisconfigured, match="KONDUCTOR_LOKI_BEARER_TOKEN") as caught:
        ask(client_of(loki_bearer_token="geheimä"))
    assert "geheim" not in str(caught.value)
    with pytest.raises(LokiMisconfigured, match="KONDUCTOR_LOKI_TENANT"):
        client_of(loki_tenant="team\na")


def test_a_setting_with_invalid_bytes_is_refused_without_a_traceback(loki: respx.MockRouter) -> None:
    with pytest.raises(LokiMisconfigured):
        ask(client_of(), query='{a="\udcff"}')
    assert not loki.calls


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "parse error at line 1, col 87: syntax error: unexpected $end", LokiRefused),
        (401, "no org id\n", LokiUnauthorized),
        (403, "forbidden", LokiUnauthorized),
        (404, "404 page not found\n", LokiBadAnswer),
        (405, "method not allowed", LokiBadAnswer),
        (501, "<title>Error response</title>", LokiBadAnswer),
        (413, "response larger than the max message size (107486642 vs 104857600)", LokiAnswerTooLarge),
        (413, "<h1>413 Request Entity Too Large</h1>", LokiRefused),
        (500, "code = ResourceExhausted desc = grpc: received message larger than max", LokiAnswerTooLarge),
        (500, "desc = trying to send message larger than max (6049258 vs. 4194304)", LokiAnswerTooLarge),
        (429, "too many outstanding requests", LokiOverloaded),
        (499, "the request was cancelled by the client", LokiRefused),
        (500, "too many unhealthy instances in the ring", LokiUnavailable),
        (502, "<html><h1>502 Bad Gateway</h1></html>", LokiDropped),
        (503, "Ingester not ready: waiting for 15s after being ready", LokiUnavailable),
        (504, "request timed out, decrease the duration of the request", LokiTimeout),
        (204, "", LokiBadAnswer),
    ],
)
def test_every_status_is_classified_and_quoted(
    loki: respx.MockRouter, status: int, body: str, kind: type[LokiError]
) -> None:
    loki.route().mock(return_value=httpx.Response(status, text=body))

    with pytest.raises(LokiError) as caught:
        ask(client_of())

    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"Loki at {ENDPOINT} answered {status}")
    assert body.strip() in str(caught.value)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("17", 17),
        ("Fri, 24 Nov 2006 12:00:00 GMT", None),
        ("9" * 400, 300),
        ("soon", None),
        ("-5", None),
    ],
)
def test_the_wait_that_loki_asks_for_is_read(
    loki: respx.MockRouter, header: str | None, seconds: float | None, status: int
) -> None:
    headers = {} if header is None else {"Retry-After": header}
    loki.route().mock(return_value=httpx.Response(status, headers=headers, text="busy"))

    with pytest.raises(LokiError) as caught:
        ask(client_of())

    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (httpx.Response(200, html="<html><title>Grafana"), "answered with HTML: <html><title>Grafana"),
        (httpx.Response(200, content=EMPTY[:-30]), "answered with truncated JSON: {"),
        (httpx.Response(200, text="OK"), "answered with text that is not JSON: OK"),
        (httpx.Response(200, content=b""), r"answered with an empty body$"),
        (
            httpx.Response(302, headers={"Location": "https://grafana.test/login?token=abc"}),
            r"redirects \(302\) to https://grafana.test/login$",
        ),
        (httpx.Response(404, json={"message": "Not found"}), "no Loki at this path"),
    ],
)
def test_another_programs_answer_is_recognised(
    loki: respx.MockRouter, response: httpx.Response, says: str
) -> None:
    loki.route().mock(return_value=response)

    with pytest.raises(LokiBadAnswer, match=says) as caught:
        ask(client_of())

    assert ENDPOINT in str(caught.value)
    assert "LOG_ENDPOINT may point at another server" in caught.value.hint


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (httpx.ConnectTimeout("slow"), LokiUnreachable, "no connection in time"),
        (httpx.PoolTimeout("busy"), LokiUnreachable, "no connection in time"),
        (httpx.ReadTimeout("slow"), LokiTimeout, "no complete answer in time"),
        (httpx.WriteTimeout("slow"), LokiTimeout, "no complete answer in time"),
        (httpx.ProxyError("403 Forbidden"), LokiUnreachable, "proxy refused: 403"),
        (httpx.LocalProtocolError("bad"), LokiMisconfigured, "the settings give no valid request"),
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
