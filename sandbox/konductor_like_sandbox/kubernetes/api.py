"""The API: one request in, one answer out."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from konductor_like_sandbox.http import JSON, Reply, Request
from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.access import ANONYMOUS, Access, Attempt, User
from konductor_like_sandbox.kubernetes.errors import ApiError
from konductor_like_sandbox.kubernetes.exec import Exec
from konductor_like_sandbox.kubernetes.jobs import Jobs, check_policy
from konductor_like_sandbox.kubernetes.kubectl import as_table, document
from konductor_like_sandbox.kubernetes.lists import Lists, Selection, version_of, whole_number
from konductor_like_sandbox.kubernetes.patches import as_sent
from konductor_like_sandbox.kubernetes.request_options import (
    Route,
    applied_in,
    check_list_options,
    content_type,
    delete_options_in,
    is_true,
    json_in,
    object_in,
    route,
    wants_table,
    writer_of,
)
from konductor_like_sandbox.kubernetes.resources import (
    ACCESS_REVIEWS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    USER_REVIEWS,
    Resource,
)
from konductor_like_sandbox.kubernetes.store import Store, Stored, dump
from konductor_like_sandbox.kubernetes.watches import Watches, WatchRequest
from konductor_like_sandbox.kubernetes.writes import Target, Writer, Writes

_GZIP_BYTES = 128 * 1024
"""Objects and lists above this size are compressed if the client accepts gzip: ``defaultGzipThresholdBytes``
in pkg/endpoints/handlers/responsewriters/writers.go of k8s.io/apiserver."""


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
        self.exec = Exec(store)
        self.jobs = Jobs(store, clock)

    def __call__(self, request: Request) -> Reply:
        """Return the answer to a request; a refusal is an answer too."""
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
        if asked.resource in (ACCESS_REVIEWS, USER_REVIEWS) and user.name != ANONYMOUS:
            return self._review(asked.resource, user, request)  # every known user may ask about themselves
        self._access.check(user, asked.attempt)
        if not asked.resource.allows(asked.verb, asked.target.subresource):
            raise errors.method_not_allowed()
        if asked.resource in (JOBS, PODS, EVENTS):
            self.jobs.look()
        if asked.target.subresource == "log":
            return self.jobs.log(request, asked.target.key)
        if asked.target.subresource == "exec":
            self._access.check(user, replace(asked.attempt, verb="create"))  # too, since Kubernetes 1.35
            return self.exec.reply(request, asked.target.key)
        if asked.verb in ("get", "list", "watch"):
            return self._read(asked, request)
        return self._write(asked, request, user)

    def _read(self, asked: Route, request: Request) -> Reply:
        resource, key = asked.resource, asked.target.key
        if asked.verb == "get":
            stored = self._store.get(resource.plural, key)
            if stored is None:
                raise errors.not_found(resource.group, resource.plural, key.name)
            return _perhaps_compressed(_whole(resource, stored), request)
        check_list_options(request)
        selection = Selection(resource, key.namespace, request, key.name)
        if asked.verb == "watch":
            watch = _watch_request(resource, selection, request)
            return _stream(self._watches.stream(watch, lambda item: _whole(resource, item)))
        page = self._lists.page(resource, selection, request)
        if wants_table(request):
            table = as_table(resource, [item.load() for item in page.items], page.metadata())
            return _perhaps_compressed(dump(table), request)
        head = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": page.metadata(),
        }
        items = b",".join(item.json for item in page.items)
        return _perhaps_compressed(b'%s,"items":[%s]}' % (dump(head)[:-1], items), request)

    def _write(self, asked: Route, request: Request, user: User) -> Reply:
        target, resource = asked.target, asked.resource
        is_collection = asked.verb == "create"
        if is_collection == bool(target.key.name) or resource.namespaced > bool(target.key.namespace):
            raise errors.method_not_allowed()
        writer = writer_of(request, asked.verb, user)
        if asked.verb == "delete":
            return self._delete(target, delete_options_in(request), writer)
        if asked.verb == "create":
            return Reply.of_json(self._writes.create(target, object_in(request, resource), writer), 201)
        if asked.verb == "update":
            return Reply.of_json(self._writes.update(target, object_in(request, resource), writer))
        if writer.operation == "Apply" and (resource.configured or resource is NAMESPACES):
            body = applied_in(request, resource)
            item, created = self._writes.apply(target, body, writer)
            return Reply.of_json(item, 201 if created else 200)
        patch = as_sent(json_in(request), request.body)
        return Reply.of_json(self._writes.patch(target, content_type(request), patch, writer))

    def _delete(self, target: Target, options: dict[str, Any], writer: Writer) -> Reply:
        check_policy(options)
        answer = self._writes.delete(target, options, writer)
        if target.resource is not JOBS or writer.dry_run:
            return Reply.of_json(answer)
        return replace(Reply.of_json(answer), headers=self.jobs.deleted(answer["details"]["uid"], options))

    def _review(self, resource: Resource, user: User, request: Request) -> Reply:
        if request.method != "POST":
            raise errors.method_not_allowed()
        spec = object_in(request, resource).get("spec") or {}
        if resource is USER_REVIEWS:
            head = {"kind": resource.kind, "apiVersion": resource.api_version}
            meta = {"creationTimestamp": self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")}
            who = {"username": user.name, "groups": ["system:authenticated"]}
            return Reply.of_json({**head, "metadata": meta, "status": {"userInfo": who}}, 201)
        asked = spec.get("resourceAttributes")
        allowed = True  # paths that are not resources are open to everybody
        if asked is not None:
            allowed = self._access.permits(user, _attempt(asked))
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        return Reply.of_json({**head, "metadata": {}, "spec": spec, "status": {"allowed": allowed}}, 201)


def _attempt(attributes: dict[str, Any]) -> Attempt:
    parameters = {name: attributes.get(name) or "" for name in ("verb", "group", "namespace", "name")}
    parts = (attributes.get(name) for name in ("resource", "subresource"))
    return Attempt(resource="/".join(filter(None, parts)), **parameters)


def _stream(chunks: Iterator[bytes]) -> Reply:
    return Reply(content_type=JSON, headers={"Connection": "close"}, chunks=chunks)


def _whole(resource: Resource, item: Stored) -> bytes:
    head = dump({"kind": resource.kind, "apiVersion": resource.api_version})
    return head[:-1] + b"," + item.json[1:]


def _watch_request(resource: Resource, selection: Selection, request: Request) -> WatchRequest:
    return WatchRequest(
        resource,
        selection,
        version=version_of(request),
        timeout_seconds=whole_number(request, "timeoutSeconds") or random.uniform(1800, 3600),
        bookmarks=is_true(request, "allowWatchBookmarks"),
    )


def _perhaps_compressed(body: bytes, request: Request) -> Reply:
    if len(body) <= _GZIP_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
        return Reply(body=body, content_type=JSON)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Reply(body=gzip.compress(body, compresslevel=1), content_type=JSON, headers=headers)
