from __future__ import annotations

import json

import pytest

from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeOverloaded,
    KubeRejected,
    KubeUnauthorized,
    KubeUnavailable,
    error_of,
)


def status(message: str, reason: str = "") -> bytes:
    """Return a Status object as the API server sends it."""
    return json.dumps({"kind": "Status", "status": "Failure", "message": message, "reason": reason}).encode()


@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        (400, KubeRejected, False),
        (401, KubeUnauthorized, True),
        (403, KubeForbidden, False),
        (404, KubeNotFound, False),
        (405, KubeRejected, False),
        (409, KubeConflict, False),
        (410, KubeGone, True),
        (415, KubeRejected, False),
        (422, KubeInvalid, False),
        (429, KubeOverloaded, True),
        (500, KubeUnavailable, True),
        (503, KubeUnavailable, True),
        (302, KubeBadAnswer, True),
    ],
)
def test_each_status_has_its_error(code: int, kind: type[KubeError], transient: bool) -> None:
    error = error_of("get nodes/gpu-1", code, status("no"))

    assert type(error) is kind
    assert error.transient is transient
    assert str(error) == "cannot get nodes/gpu-1: no"


@pytest.mark.parametrize(
    ("what", "where", "check"),
    [
        ('patch resource "nodes" in API group ""', " at the cluster scope", "patch nodes"),
        (
            'update resource "leases" in API group "coordination.k8s.io"',
            ' in the namespace "gpu-ops"',
            "-n gpu-ops update leases",
        ),
    ],
)
def test_a_refusal_shows_the_servers_sentence_and_how_to_check_it(what: str, where: str, check: str) -> None:
    sentence = f'"x" is forbidden: User "system:serviceaccount:a:b" cannot {what}{where}'

    error = error_of("patch x", 403, status(sentence))

    assert sentence in str(error)
    assert error.hint.endswith(f"kubectl auth can-i {check}")


@pytest.mark.parametrize(
    "body",
    [
        b"<html><h1>Log in</h1></html>",
        b"",
        b'{"message":"secret"}',
        b"[1]",
        b"[" * 9999,
        b'{"kind":"Status"}',
    ],
    ids=["html", "nothing", "another JSON", "a list", "deep", "no message"],
)
def test_a_body_that_is_no_status_stays_unseen(body: bytes) -> None:
    assert str(error_of("list nodes", 500, body)) == "cannot list nodes: HTTP status 500"


def test_a_long_message_is_cut_and_made_one_line() -> None:
    error = error_of("list nodes", 422, status("a\nb " + "x" * 400))

    assert str(error).startswith("cannot list nodes: a b xxx")
    assert len(str(error)) == len("cannot list nodes: ") + 256


@pytest.mark.parametrize(
    ("code", "unknown"), [(500, True), (504, True), (429, False), (409, False), (403, False)]
)
def test_after_a_servers_failure_nobody_knows_whether_a_write_was_made(code: int, unknown: bool) -> None:
    assert error_of("patch nodes/gpu-1", code, b"", write=True).outcome_unknown is unknown
    assert error_of("get nodes/gpu-1", code, b"").outcome_unknown is False


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (None, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None),
        ("nan", None),
        ("3600", 300.0),
        ("inf", 300.0),
    ],
)
def test_the_servers_wish_for_patience_is_understood(header: str | None, seconds: float | None) -> None:
    assert error_of("list nodes", 429, b"", retry_after=header).retry_after_seconds == seconds


def test_a_web_page_does_not_say_that_an_object_is_missing() -> None:
    page = error_of("get nodes/gpu-1", 404, b"\n<!DOCTYPE html><title>Not Found</title>")

    assert isinstance(page, KubeBadAnswer)
    assert "another program answers" in str(page.hint)
    assert isinstance(error_of("list slices", 404, b"404 page not found\n"), KubeNotFound)
