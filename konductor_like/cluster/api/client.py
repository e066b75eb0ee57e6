"""Clients of the API server: they take paths and return JSON objects, and raise the errors of ``errors``.

There are two classes instead of one with a flag: code that is given a ``ReadOnlyKubeClient`` cannot write.
Dry run and ``status`` use it (rule 26).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import quote

from konductor_like.cluster.api import auth
from konductor_like.cluster.api.errors import KubeBadAnswer, KubeGone, KubeUnreachable
from konductor_like.cluster.api.large_list import small_lists
from konductor_like.cluster.api.transport import (
    ANSWER_BYTES_MOST,
    FIELD_MANAGER,
    JSON,
    JSON_PATCH,
    Connection,
    JsonObject,
    Transport,
    json_object,
)
from konductor_like.cluster.api.watch import WatchStream

KUBE_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for one answer of the API server."""
PAGE_SIZE = 100
"""Objects in one page of a list. client-go asks for 500, but 500 GPU Nodes are 10 MB of JSON and about 80 MB
of memory after parsing, and Python does not return that memory to the system."""
NODES_PATH = "/api/v1/nodes"
NAMESPACES_PATH = "/api/v1/namespaces"
PODS_PATH = "/api/v1/pods"
"""The pods of all namespaces."""
RESOURCE_SLICES_PATHS = tuple(
    f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")
)
"""The paths in Kubernetes 1.34, 1.33 and 1.32, in this order."""
ACCESS_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
USER_REVIEWS_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_RESTARTS = 3
"""Times that a list is started again after its continue token expired."""
FRAME_BYTES_MOST = 1 << 20
"""Bytes before the first object of a list (kind and metadata), at most."""
_LIST_ITEMS = re.compile(r'\s*\{.*?"kind"\s*:\s*"\w*List".*?"items"\s*:\s*(\[|null)', re.DOTALL)
_JSON = json.JSONDecoder()
_PIECE_BYTES = 1 << 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a list, at one resourceVersion."""

    items: list[T]
    resource_version: str


class ReadOnlyKubeClient:
    """Reads from one cluster. Thread-safe; every request has a timeout."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None, timeout_seconds: float) -> Self:
        """Find the cluster by the explicit kubeconfig, KUBECONFIG, the default file or the service account.

        No request is sent. Raises KubeConfigError if none of these can be used.
        """
        return cls(Transport(partial(auth.load, kubeconfig, context), timeout_seconds))

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.connection.host

    @property
    def namespace(self) -> str | None:
        """The context's namespace, or in a pod the pod's own; None if none is set."""
        return self._transport.connection.namespace

    @property
    def in_cluster(self) -> bool:
        """Whether the client uses the pod's service account."""
        return self._transport.connection.in_cluster

    @property
    def clock_ahead_seconds(self) -> float:
        """Seconds by which the server's clock is ahead of ours, by its latest answer; 0 while they agree."""
        return self._transport.clock_ahead_seconds

    @property
    def answered(self) -> bool:
        """Whether the server has answered any request, if only with an error."""
        return self._transport.answered

    def give_up_early(self) -> None:
        """Let all requests fail at once after a first one without an answer: no person waits for more."""
        self._transport.gives_up = True

    def dry_run_as(self, user: str) -> ServerDryRunClient:
        """Return a client over the same connection for requests in the name of a user; it stores nothing.

        The server refuses its requests (403) unless we may impersonate the user.
        """
        return ServerDryRunClient(self._transport.acting_as(user))

    def close(self) -> None:
        """Close idle connections."""
        self._transport.connection.close()

    def get(self, path: str, timeout_seconds: float | None = None) -> JsonObject:
        """Read one object."""
        return self._transport.ask(f"get {path_words(path)}", "GET", path, timeout_seconds=timeout_seconds)

    def list(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        parse: Callable[[bytes], Any] | None = None,
    ) -> JsonObject:
        """Read one page. Raises KubeBadAnswer if the answer is not a list: it must not pass as empty."""
        what = f"list {path_words(path)}"
        return self._checked(what, self._transport.ask(what, "GET", path, params=params, parse=parse))

    def _checked(self, what: str, page: JsonObject) -> JsonObject:
        items = page.get("items")
        page["items"] = items = [] if items is None else items  # Go writes an empty list as null
        is_list = str(page.get("kind", "")).endswith("List") and isinstance(items, list)
        if not is_list or not isinstance(page.get("metadata"), dict):
            raise KubeBadAnswer(f"cannot {what}: {self.server} answered with something that is not a list")
        return page

    def get_bytes(self, path: str, params: Mapping[str, str], limit_bytes: int) -> bytes:
        """Read the first ``limit_bytes`` of an answer that is no JSON, such as a pod's log."""
        what = f"get {path_words(path)}"
        answer = self._transport.open(what, path, params, accept="*/*")
        with self._transport.reading(what):
            data: bytes = answer.read(limit_bytes)
        answer.close()  # the rest, if there is any, stays unread
        return data

    def names(self, path: str) -> Sequence[str]:
        """Return the names of all objects in a list; the server sends no objects, only a table's cells."""
        return [cells[0] for cells in self.table(path, "Name")]

    def table(self, path: str, *columns: str, annotation: str = "") -> Sequence[tuple[str, ...]]:
        """Return columns of a list, as ``kubectl get -o wide`` prints them; the server sends no objects.

        With ``annotation``, the server sends their metadata. Its value comes last; empty if there is none.
        Raises KubeBadAnswer if a column is missing.
        """
        what, objects = f"list {path_words(path)}", "Metadata" if annotation else "None"
        table = self._transport.ask(what, "GET", path, params={"includeObject": objects}, accept=_TABLE)
        try:
            places = [[each["name"] for each in table["columnDefinitions"]].index(name) for name in columns]
            rows = table["rows"] or ()
            cells = [tuple(str(row["cells"][place]) for place in places) for row in rows]
            if not annotation:
                return cells
            metadata = (json_object(json_object(row, "object"), "metadata") for row in rows)
            values = [str(json_object(each, "annotations").get(annotation) or "") for each in metadata]
            return [(*row, value) for row, value in zip(cells, values, strict=True)]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KubeBadAnswer(f"{self.server} answered with something that is not a table") from None

    def group_names(self) -> Sequence[str]:
        """Return the names of the API groups that the server has."""
        found = self._transport.ask("list the API groups", "GET", "/apis").get("groups")
        groups = found if isinstance(found, list) else ()
        return [str(each.get("name")) for each in groups if isinstance(each, dict)]

    def list_pages(
        self,
        path: str,
        each: Callable[[JsonObject], T],
        params: Mapping[str, str] | None = None,
        parse: Callable[[bytes], Any] | None = None,
    ) -> Listing[T]:
        """Read a whole list page by page, and return ``each(object)`` for every object.

        ``parse`` reads a page, and may leave out fields that ``each`` does not use. A continue token that
        expired meanwhile (410) starts the list again, ``_RESTARTS`` times at most.
        """
        restarts = 0
        while True:
            try:
                return self._all_pages(path, each, dict(params or {}), parse)
            except KubeGone:
                restarts += 1
                if restarts > _RESTARTS:
                    raise

    def _all_pages(
        self,
        path: str,
        each: Callable[[JsonObject], T],
        params: dict[str, str],
        parse: Callable[[bytes], Any] | None,
    ) -> Listing[T]:
        items: list[T] = []
        params.setdefault("limit", str(PAGE_SIZE))
        while True:
            page = self.list(path, params, parse)
            items.extend(each(item) for item in page["items"] if isinstance(item, dict))
            token = page["metadata"].get("continue")
            if not token:
                return Listing(items, str(page["metadata"].get("resourceVersion", "")))
            params["continue"] = token

    def list_cached(
        self,
        path: str,
        each: Callable[[JsonObject], T],
        params: Mapping[str, str],
        parse: Callable[[bytes], Any],
    ) -> Sequence[T]:
        """Read a whole list from the server's watch cache, and return ``each(object)`` for every object.

        The server has half of the work that it has with pages, which it reads from etcd; one answer needs one
        round trip, and is parsed while it arrives. It may lack the last writes: those of milliseconds, or of
        longer if the server has lost etcd. For objects that :func:`small_lists` can cut. If the answer breaks
        off, the list is read in pages: a server ends each answer after a minute, also one over a slow line.
        """
        what = f"list {path_words(path)}"
        answer = self._transport.open(what, path, {**params, "resourceVersion": "0"}, packed=True)
        items: list[T] = []
        try:
            for data in small_lists(self._pieces(what, answer), ANSWER_BYTES_MOST):
                found = parse(data)
                page = self._checked(what, found if isinstance(found, dict) else {})
                items.extend(each(item) for item in page["items"] if isinstance(item, dict))
        except (ValueError, RecursionError) as error:
            answer.close()
            raise KubeBadAnswer(f"cannot {what}: {self.server} answered with no list: {error}") from error
        except KubeUnreachable:
            answer.close()
            return self.list_pages(path, each, params, parse).items
        answer.release_conn()
        return items

    def scan(
        self,
        path: str,
        take: Callable[[JsonObject], object],
        params: Mapping[str, str],
        *,
        object_bytes: int,
        total_bytes: int,
    ) -> bool:
        """Pass each object of a list to ``take`` while the list is read; return whether all were read.

        Only one object is in memory at a time. Reading stops after an object larger than ``object_bytes``,
        and after ``total_bytes`` in all. ``take`` raises ValueError for a malformed object.
        """
        what = f"list {path_words(path)}"
        answer = self._transport.open(what, path, params)
        objects = Objects(self._pieces(what, answer), object_bytes=object_bytes, total_bytes=total_bytes)
        try:
            for each in objects:
                take(each)
        except (ValueError, RecursionError) as error:
            raise KubeBadAnswer(f"cannot {what}: {self.server} answered with no list: {error}") from error
        finally:
            if objects.complete:
                answer.release_conn()
            else:
                answer.close()
        return objects.complete

    def _pieces(self, what: str, answer: Any) -> Iterator[bytes]:
        while True:
            with self._transport.reading(what):
                piece: bytes = answer.read1(_PIECE_BYTES)
            if not piece:
                return
            yield piece

    def stream(self, path: str, params: Mapping[str, str], read_timeout_seconds: float) -> WatchStream:
        """Watch a list. The watch raises KubeTimeout after ``read_timeout_seconds`` of silence."""
        what = f"watch {path_words(path)}"
        watch = {"watch": "true", "allowWatchBookmarks": "true", **params}
        answer = self._transport.open(what, path, watch, read_timeout_seconds)
        return WatchStream(answer, what, self._transport.reading)

    def review_access(self, attributes: Mapping[str, str]) -> bool:
        """Return whether we have a permission (SelfSubjectAccessReview). The server stores nothing."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        what = "check the permissions of this account"
        answer = self._transport.ask(what, "POST", ACCESS_REVIEWS_PATH, body=review, content_type=JSON)
        status = answer.get("status")
        if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
            raise KubeBadAnswer(f"cannot {what}: the answer does not say whether it is allowed")
        return bool(status["allowed"])

    def user_name(self) -> str:
        """Return the user name by which the server knows us (SelfSubjectReview, Kubernetes 1.28 and up)."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        what = "ask for the name of the user"
        answer = self._transport.ask(what, "POST", USER_REVIEWS_PATH, body=review, content_type=JSON)
        match answer:
            case {"status": {"userInfo": {"username": str(name)}}} if name:
                return name
        raise KubeBadAnswer(f"cannot {what}: the answer has no user name")


class KubeClient(ReadOnlyKubeClient):
    """Reads and writes."""

    write_params: ClassVar[Mapping[str, str]] = {"fieldManager": FIELD_MANAGER}
    """Query parameters of every write."""

    def create(self, path: str, body: JsonObject, timeout_seconds: float | None = None) -> JsonObject:
        """Create ``body`` in the list at ``path``."""
        name = body.get("metadata", {}).get("name", "")
        return self._write("create", "POST", path, body, JSON, timeout_seconds, f"{path}/{name}")

    def patch(
        self, path: str, body: object, timeout_seconds: float | None = None, content_type: str = JSON_PATCH
    ) -> JsonObject:
        """Apply a patch to one object, by default a JSON Patch."""
        return self._write("patch", "PATCH", path, body, content_type, timeout_seconds)

    def try_patch(self, path: str, body: object, timeout_seconds: float | None = None) -> None:
        """Ask the server whether it would apply a JSON Patch; nothing is stored."""
        more = {"dryRun": "All"}
        self._write("patch", "PATCH", path, body, JSON_PATCH, timeout_seconds, more=more)

    def replace(self, path: str, body: JsonObject, timeout_seconds: float | None = None) -> JsonObject:
        """Replace one object. The server refuses if its resourceVersion is not the one in ``body``."""
        return self._write("update", "PUT", path, body, JSON, timeout_seconds)

    def delete(self, path: str, options: JsonObject, timeout_seconds: float | None = None) -> JsonObject:
        """Delete one object with these ``DeleteOptions``, such as ``preconditions``."""
        # The server heeds dryRun in the query only if the request has no body.
        dry_run = {"dryRun": ["All"]} if "dryRun" in self.write_params else {}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options, **dry_run}
        return self._write("delete", "DELETE", path, body, JSON, timeout_seconds)

    @property
    def connection(self) -> Connection:
        """The server and the credentials, for a request that is no JSON."""
        return self._transport.connection

    def _write(
        self,
        verb: str,
        method: str,
        path: str,
        body: object,
        content_type: str,
        timeout_seconds: float | None,
        object_path: str = "",
        more: Mapping[str, str] | None = None,
    ) -> JsonObject:
        return self._transport.ask(
            f"{verb} {path_words(object_path or path)}",
            method,
            path,
            params={**self.write_params, **(more or {})},
            body=body,
            content_type=content_type,
            timeout_seconds=timeout_seconds,
        )


class ServerDryRunClient(KubeClient):
    """A client whose writes the server checks but does not store."""

    write_params = {**KubeClient.write_params, "dryRun": "All"}  # noqa: RUF012 -- the base declares it


def node_path(name: str) -> str:
    """Return the path of a Node."""
    return f"{NODES_PATH}/{_segment(name)}"


def namespace_path(name: str) -> str:
    """Return the path of a Namespace."""
    return f"{NAMESPACES_PATH}/{_segment(name)}"


def pods_path(namespace: str, name: str = "") -> str:
    """Return the path of a namespace's pods, or of one of them."""
    return f"{namespace_path(namespace)}/pods" + (f"/{_segment(name)}" if name else "")


def jobs_path(namespace: str, name: str = "") -> str:
    """Return the path of a namespace's Jobs, or of one of them."""
    return f"/apis/batch/v1/namespaces/{_segment(namespace)}/jobs" + (f"/{_segment(name)}" if name else "")


def events_path(namespace: str) -> str:
    """Return the path of a namespace's core/v1 Events."""
    return f"{NAMESPACES_PATH}/{_segment(namespace)}/events"


def leases_path(namespace: str) -> str:
    """Return the path of a namespace's Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases"


def lease_path(namespace: str, name: str) -> str:
    """Return the path of a Lease."""
    return f"{leases_path(namespace)}/{_segment(name)}"


def path_words(path: str) -> str:
    """Return a path in words for messages, such as ``nodes/gpu-7`` or ``leases in namespace gpu-ops``."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        return f"{'/'.join(rest[2:])} in namespace {rest[1]}"
    return "/".join(rest)


def _segment(name: str) -> str:
    """Quote a name that a person typed, so that it stays one segment of the path."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if name in (".", "..") else quoted


class Objects:
    """An iterator over the objects of one list answer of any size.

    With ``resourceVersion=0`` the server answers from its cache and ignores ``limit``; without it the server
    reads every pod of the cluster from etcd. So this class reads the one large answer in small pieces, and
    keeps one object (1.5 MiB at most) in memory. It raises ValueError or RecursionError if the answer is not
    a list.
    """

    def __init__(self, pieces: Iterable[bytes], *, object_bytes: int, total_bytes: int) -> None:
        """Reading stops after an object larger than ``object_bytes``, and after ``total_bytes`` in all."""
        self.complete = False
        """Whether the answer was read to its end."""
        self._pieces = pieces
        self._object_bytes = object_bytes
        self._total_bytes = total_bytes

    def __iter__(self) -> Iterator[JsonObject]:
        text, read, in_items = "", 0, False
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for piece in self._pieces:
            read += len(piece)
            if self.complete:
                continue  # the rest of the answer after the objects
            text += decode(piece)
            if not in_items:
                # The API server writes kind and metadata first.
                found = _LIST_ITEMS.match(text)
                if found is None and len(text) > FRAME_BYTES_MOST:
                    raise ValueError("it is not a list")
                if found is None:
                    continue
                in_items, self.complete, text = True, found[1] == "null", text[found.end() :]
            while not self.complete:
                text = text.lstrip(" \t\r\n,")
                self.complete = text.startswith("]")
                try:
                    each, end = _JSON.raw_decode(text)
                except ValueError:
                    break  # the object continues in the next piece
                text = text[end:]
                if isinstance(each, dict):
                    yield each
            if len(text) > self._object_bytes or read > self._total_bytes:
                return
        if not self.complete:
            raise ValueError("it is cut off, or it is not a list")
