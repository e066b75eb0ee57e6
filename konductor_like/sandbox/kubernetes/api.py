"""The API: one request in, one answer out."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from konductor_like.sandbox.kubernetes import errors, protobuf
from konductor_like.sandbox.kubernetes.access import ANONYMOUS, Access, Attempt, User
from konductor_like.sandbox.kubernetes.discovery import document
from konductor_like.sandbox.kubernetes.errors import ApiError
from konductor_like.sandbox.kubernetes.lists import Lists, Selection, whole_number
from konductor_like.sandbox.kubernetes.resources import ACCESS_REVIEWS, NEW_EVENTS, PODS, Resource
from konductor_like.sandbox.kubernetes.routing import Route, is_true, route
from konductor_like.sandbox.kubernetes.store import Store, Stored, dump
from konductor_like.sandbox.kubernetes.tables import as_table
from konductor_like.sandbox.kubernetes.watches import Encode, Watches, WatchRequest
from konductor_like.sandbox.kubernetes.writes import Writer, Writes, view
from konductor_like.sandbox.wire import JSON, Reply, Request

BODY_BYTES = 3 * 1024 * 1024
_MEDIA_TYPES = ("application/json", "application/*", "*/*")


class Api:
    """Answers requests to one store."""

    def __init__(
        self,
        store: Store,
        lists: Lists,
        writes: Writes,
        watches: Watches,
        access: Access,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._lists = lists
        self._writes = writes
        self._watches = watches
        self._access = access
        self._clock = clock

    def __call__(self, request: Request) -> Reply:
        """The answer; a refusal is one too."""
        try:
            return self._answer(request)
        except ApiError as error:
            seconds = (error.details or {}).get("retryAfterSeconds")
            headers = {"Retry-After": str(seconds)} if seconds else {}
            return Reply(error.code, dump(error.status()), JSON, headers)

    def _answer(self, request: Request) -> Reply:
        user = self._access.who(request.headers)
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Reply.of_text("ok")
        found = document(request.path)
        if found is not None:
            return Reply.of_json(found)
        asked = route(request)
        if asked is None:
            return Reply.of_text("404 page not found\n", 404)
        if asked.resource is ACCESS_REVIEWS and user.name != ANONYMOUS:
            return self._review(user, request)  # everybody known may ask what they may do
        self._access.check(user, asked.attempt)
        if asked.resource is PODS and asked.target.subresource:
            raise errors.not_found("", "pods", asked.target.key.name)
        if asked.verb not in asked.resource.verbs:
            raise errors.method_not_allowed()
        if asked.verb in ("get", "list", "watch"):
            return self._read(asked, request)
        return self._write(asked, request)

    def _read(self, asked: Route, request: Request) -> Reply:
        resource, key = asked.resource, asked.target.key
        tabular = _wants_table(request)
        if asked.verb == "get":
            stored = self._store.get(resource.table, key)
            if stored is None:
                raise errors.not_found(resource.group, resource.plural, key.name)
            meta = {"resourceVersion": str(stored.version)}
            body = self._table(resource, [stored], meta) if tabular else _whole(resource, stored)
            return Reply(body=body, content_type=JSON)
        selection = Selection(resource, key.namespace, request, key.name)
        if asked.verb == "watch":
            watch = _watch_request(resource, selection, request)
            encode = self._row_encoder(resource) if tabular else lambda item: _whole(resource, item)
            return _stream(self._watches.stream(watch, encode))
        page = self._lists.page(resource, selection, request)
        if tabular:
            return Reply(body=self._table(resource, list(page.items), page.metadata()), content_type=JSON)
        head = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": page.metadata(),
        }
        items = b",".join(_inside_list(resource, item) for item in page.items)
        return Reply(body=b'%s,"items":[%s]}' % (dump(head)[:-1], items), content_type=JSON)

    def _write(self, asked: Route, request: Request) -> Reply:
        target = asked.target
        writer = Writer(_manager(request), _is_dry_run(request))
        if asked.verb == "delete":
            options = _body(request) if request.body else {}
            return Reply.of_json(self._writes.delete(target, options, writer))
        if asked.verb == "create":
            if target.key.name or (asked.resource.namespaced and not target.key.namespace):
                raise errors.method_not_allowed()
            return Reply.of_json(self._writes.create(target, _object(request), writer), 201)
        if asked.verb == "update":
            item, created = self._writes.update(target, _object(request), writer)
            return Reply.of_json(item, 201 if created else 200)
        return Reply.of_json(self._writes.patch(target, _content_type(request), _patch(request), writer))

    def _review(self, user: User, request: Request) -> Reply:
        if request.method != "POST":
            raise errors.method_not_allowed()
        review = _object(request)
        spec = review.get("spec") or {}
        asked = spec.get("resourceAttributes")
        allowed = True  # of paths that are no resource, nothing is kept from anybody
        if asked is not None:
            parts = (asked.get("resource", ""), asked.get("subresource", ""))
            attempt = Attempt(
                asked.get("verb", ""),
                "/".join(filter(None, parts)),
                asked.get("group", ""),
                asked.get("namespace", ""),
                asked.get("name", ""),
            )
            allowed = self._access.permits(user, attempt)
        head = {"kind": ACCESS_REVIEWS.kind, "apiVersion": ACCESS_REVIEWS.api_version, "metadata": {}}
        return Reply.of_json({**head, "spec": spec, "status": {"allowed": allowed}}, 201)

    def _table(self, resource: Resource, stored: list[Stored], meta: dict[str, Any]) -> bytes:
        return dump(as_table(resource, [item.load() for item in stored], meta, self._clock()))

    def _row_encoder(self, resource: Resource) -> Encode:
        first = True

        def encode(item: Stored) -> bytes:
            nonlocal first
            meta = {"resourceVersion": str(item.version)}
            table = as_table(resource, [item.load()], meta, self._clock())
            if not first:
                table["columnDefinitions"] = None
            first = False
            return dump(table)

        return encode


def _stream(chunks: Iterator[bytes]) -> Reply:
    return Reply(content_type=JSON, headers={"Connection": "close"}, chunks=chunks)


def _inside_list(resource: Resource, item: Stored) -> bytes:
    if resource is NEW_EVENTS:
        return dump({k: v for k, v in view(resource, item).items() if k not in ("kind", "apiVersion")})
    return item.json


def _whole(resource: Resource, item: Stored) -> bytes:
    head = dump({"kind": resource.kind, "apiVersion": resource.api_version})
    return head[:-1] + b"," + _inside_list(resource, item)[1:]


def _wants_table(request: Request) -> bool:
    accepted = request.headers.get("accept", "*/*").split(",")
    for clause in accepted:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in _MEDIA_TYPES:
            as_ = next((p.removeprefix("as=") for p in parameters if p.startswith("as=")), None)
            if as_ in (None, "Table"):
                return as_ == "Table"
    raise errors.not_acceptable("application/json")


def _watch_request(resource: Resource, selection: Selection, request: Request) -> WatchRequest:
    initial_events = is_true(request, "sendInitialEvents")
    return WatchRequest(
        resource,
        selection,
        version=0 if initial_events else whole_number(request, "resourceVersion"),
        timeout_seconds=whole_number(request, "timeoutSeconds") or random.uniform(1800, 3600),
        bookmarks=is_true(request, "allowWatchBookmarks"),
        initial_events=initial_events,
    )


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", JSON).partition(";")[0].strip()


def _object(request: Request) -> dict[str, Any]:
    content_type = _content_type(request)
    if content_type == protobuf.CONTENT_TYPE:
        with contextlib.suppress(protobuf.UnknownMessageError):
            return protobuf.decode(request.body)
    elif content_type in (JSON, ""):
        return _body(request)
    raise errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {JSON}"
    )


def _body(request: Request) -> dict[str, Any]:
    content = _json(request)
    if not isinstance(content, dict):
        raise errors.bad_request("couldn't get version/kind; json parse error: not an object")
    return content


def _patch(request: Request) -> Any:
    return _json(request)


def _json(request: Request) -> Any:
    if len(request.body) > BODY_BYTES:
        raise errors.too_large(BODY_BYTES)
    try:
        return json.loads(request.body)
    except ValueError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def _manager(request: Request) -> str:
    return request.param("fieldManager") or request.headers.get("user-agent", "unknown").partition("/")[0]


def _is_dry_run(request: Request) -> bool:
    asked = request.params.get("dryRun", [])
    if any(value != "All" for value in asked):
        said = f'Unsupported value: "{asked[0]}": supported values: "All"'
        cause = errors.Cause("dryRun", "FieldValueNotSupported", said)
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [cause])
    return bool(asked)
