"""The stand-in API server as one object: start it, add objects, inject mishaps, read its requests."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from konductor_like_sandbox.fault_injection import Mishaps
from konductor_like_sandbox.http import Request
from konductor_like_sandbox.kubernetes.access import Access, Admission, admit_all
from konductor_like_sandbox.kubernetes.api import Api
from konductor_like_sandbox.kubernetes.errors import ApiError
from konductor_like_sandbox.kubernetes.kubelets import Kubelets
from konductor_like_sandbox.kubernetes.lists import Lists
from konductor_like_sandbox.kubernetes.managed_fields import record_write
from konductor_like_sandbox.kubernetes.request_options import route
from konductor_like_sandbox.kubernetes.resources import NAMESPACES, NODES
from konductor_like_sandbox.kubernetes.schema import Schema, canonical, no_schema
from konductor_like_sandbox.kubernetes.store import Backup, Key, Store
from konductor_like_sandbox.kubernetes.watches import Watches
from konductor_like_sandbox.kubernetes.writes import Target, Writer, Writes
from konductor_like_sandbox.server import Exchange, LoopbackServer


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource, and how it was answered."""

    verb: str
    """RBAC's: get, list, watch, create, update, patch, delete."""
    group: str
    resource: str
    """With its subresource: ``nodes/status``."""
    namespace: str
    name: str
    status: int
    """The HTTP status; 0 if the connection was closed without an answer."""
    user_agent: str
    request: Request

    @property
    def rbac(self) -> tuple[str, str, str]:
        """Verb, group and resource, which a rule must allow."""
        return (self.verb, self.group, self.resource)

    @property
    def body(self) -> Any:
        """The request's body, decoded; None if it had no body."""
        return json.loads(self.request.body) if self.request.body else None


def read_journal(journal: Iterable[Exchange]) -> Iterator[Call]:
    """Return the requests for resources; requests for discovery and health and invalid ones are left out."""
    for exchange in journal:
        try:
            asked = route(exchange.request)
        except ApiError:
            continue
        if asked is None:
            continue
        attempt = asked.attempt
        yield Call(
            attempt.verb,
            attempt.group,
            attempt.resource,
            attempt.namespace,
            attempt.name,
            exchange.status,
            exchange.request.headers.get("user-agent", ""),
            exchange.request,
        )


FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


class KubernetesServer:
    """A Kubernetes API server on 127.0.0.1 with Nodes, Namespaces, Events, Leases and the manifests' kinds.

    Usable as a context manager. A port of 0 picks a free one; stopping and starting again keeps the port and
    every object, like a restart of a real server. ``mishaps`` are the injected failures (see
    ``fault_injection``); ``access`` has the users and their permissions; ``exec.run`` runs the commands of
    ``pods/exec``; ``jobs`` runs the pods of Jobs. ``schema`` checks the fields of objects; ``admission``
    may deny further writes.
    """

    def __init__(
        self,
        port: int = 0,
        nodes: Iterable[Mapping[str, Any]] = (),
        *,
        require_token: bool = False,
        bookmark_seconds: float = 10.0,
        history_limit: int = 4096,
        clock: Callable[[], datetime] = utc_now,
        ssl_context: ssl.SSLContext | None = None,
        schema: Schema = no_schema,
        admission: Admission = admit_all,
    ) -> None:
        self._clock = clock
        self._store = Store(history_limit)
        self._lists = Lists(self._store)
        self._writes = Writes(self._store, clock, schema, admission)
        self.watches = Watches(self._store, bookmark_seconds)
        self.access = Access(require_token)
        self.kubelets = Kubelets(self._store, self._writes, clock)
        api = Api(self._store, self._lists, self._writes, self.watches, self.access, clock)
        self.exec = api.exec
        self.jobs = api.jobs
        self._http = LoopbackServer(api, port, ssl_context)
        for name in FIRST_NAMESPACES:
            self.create_namespace(name)
        for node in nodes:
            self.put_node(node)

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        return self._http.url

    @property
    def mishaps(self) -> Mishaps:
        """The injected failures."""
        return self._http.mishaps

    def start(self) -> Self:
        """Listen. Raises ``OSError`` if the port is taken."""
        self.watches.set_closed(False)
        self._http.start()
        return self

    def stop(self) -> None:
        """End every request and watch, and the kubelets. Harmless if not started."""
        self.kubelets.stop()
        self.watches.set_closed(True)
        self._http.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def kubeconfig(self, path: Path, token: str | None = None, ca_file: Path | None = None) -> Path:
        """Write a kubeconfig for ``token`` (the admin's by default) to ``path``, and return ``path``.

        The file is JSON, a subset of YAML. Over HTTPS without a ``ca_file``, clients do not check the
        certificate.
        """
        cluster: dict[str, Any] = {"server": self.url}
        if ca_file is not None:
            cluster["certificate-authority"] = str(ca_file)
        elif self.url.startswith("https"):
            cluster["insecure-skip-tls-verify"] = True
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": {"token": token or self.access.admin_token}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "current-context": "sandbox",
        }
        path.write_text(json.dumps(config, indent=2) + "\n")
        path.chmod(0o600)
        return path

    def put_node(self, node: Mapping[str, Any]) -> None:
        """Store a Node, new or in place of the present one, without validation; watches see it.

        Types are checked and unknown fields are dropped. A Node without a uid gets the present Node's or a
        new one; a Node without managedFields gets the kubelet's.
        """
        item = canonical(NODES, json.loads(json.dumps(node)))
        meta = item["metadata"]
        with self._store.lock:
            old = self._store.get("nodes", Key("", meta["name"]))
            meta.setdefault("uid", old.uid if old else str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
            if "managedFields" not in meta:
                record_write(canonical(NODES, {}), item, "kubelet", "", meta["creationTimestamp"])
            self._store.put("nodes", item)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Remove the Pod. Raises ``KeyError`` if there is none."""
        self._store.delete("pods", Key(namespace, name))

    def put_pod(self, pod: Mapping[str, Any]) -> None:
        """Store a Pod, new or in place of the present one. Nothing runs it."""
        self.put("pods", pod)

    def put(self, table: str, thing: Mapping[str, Any]) -> None:
        """Store an object of a table, such as ``daemonsets``, with its status and without validation."""
        item = json.loads(json.dumps(thing))
        meta = item["metadata"]
        with self._store.lock:
            old = self._store.get(table, Key(meta.get("namespace", ""), meta["name"]))
            meta.setdefault("uid", old.uid if old else str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
            self._store.put(table, item)

    def node(self, name: str) -> dict[str, Any]:
        """Return a copy of the Node. Raises ``KeyError`` if there is none."""
        stored = self._store.get("nodes", Key("", name))
        if stored is None:
            raise KeyError(name)
        return {"kind": "Node", "apiVersion": "v1", **stored.load()}

    def edit_node(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Let ``change`` alter a copy of the Node and store it, as one step. Raises ``KeyError``."""
        with self._store.lock:
            node = self.node(name)
            change(node)
            self.put_node(node)

    def delete_node(self, name: str) -> None:
        """Remove the Node. Raises ``KeyError`` if there is none."""
        self._store.delete("nodes", Key("", name))

    def objects(self, table: str, namespace: str = "") -> list[dict[str, Any]]:
        """Return copies of all objects in a table, such as ``nodes`` or ``deployments``, in order."""
        return [item.load() for item in self._store.objects(table, namespace)[1]]

    def create_namespace(self, name: str) -> None:
        """Create a Namespace, if it does not exist."""
        try:
            self._writes.create(
                Target(NAMESPACES, Key("", "")), {"metadata": {"name": name}}, Writer("sandbox")
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def calls(self, verb: str = "", resource: str = "", name: str = "") -> list[Call]:
        """Return the requests for resources until now that match the arguments, by default all."""
        return [
            call
            for call in read_journal(self._http.journal)
            if verb in ("", call.verb) and resource in ("", call.resource) and name in ("", call.name)
        ]

    def clear_calls(self) -> None:
        """Forget the requests until now."""
        self._http.clear_journal()

    def backup(self) -> Backup:
        """Return the content of etcd, for ``restore``."""
        return self._store.backup()

    def restore(self, backup: Backup) -> None:
        """Go back to a backup, as etcd does: resourceVersions become lower, and the API server restarts."""
        self._store.restore(backup)
        self._lists.expire_tokens()
        self.watches.cut()

    def forget_history(self) -> None:
        """Make every resourceVersion and continue token until now too old: their next use is a 410."""
        self._store.compact()
        self._lists.expire_tokens()
