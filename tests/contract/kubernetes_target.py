"""The API server that the contract suite tests: the stand-in, or the one that a kubeconfig names.

Set ``KONDUCTOR_TEST_KUBECONFIG`` to a kubeconfig of a cluster administrator (token or client certificate).
Every object that the suite creates has a random prefix and is removed again. A bare kube-apiserver or a test
cluster is best: controllers of a full cluster may taint the Nodes made here, which have no kubelet.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

from konductor_like_sandbox.kubernetes import KubernetesServer

KUBECONFIG_VARIABLE = "KONDUCTOR_TEST_KUBECONFIG"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
AGENT = "konductor-like-contract"
TIMEOUT_SECONDS = 20.0
OURS = {"key": "contract.example/faulty", "value": "true", "effect": "NoSchedule"}
OTHERS = {"key": "contract.example/team", "value": "a", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Answer:
    """One answer, its body decoded."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def meta(self) -> Any:
        """The metadata of the object in the body."""
        return self.body["metadata"]


class Watch:
    """One open watch; an iterator over its events, until the server ends it."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._response:
            yield json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._response.close()


@dataclass
class Target:
    """An API server, and the objects that a test created on it."""

    url: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None = None
    server: KubernetesServer | None = None
    """The stand-in; None for a real server."""
    prefix: str = field(default_factory=lambda: f"kl-contract-{secrets.token_hex(4)}")
    _made: list[str] = field(default_factory=list)
    _count: int = 0

    def name(self) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{self.prefix}-{self._count:03}"

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; return its answer, with any status."""
        try:
            sent = {"Content-Type": content_type, **(headers or {})}
            with self._open(method, path, body, sent, params or {}) as response:
                return _answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, dict(error.headers), error.read())

    def get(self, path: str, **params: str) -> Answer:
        """Send a GET."""
        return self.send("GET", path, params=params)

    def patch(self, path: str, body: Any, content_type: str = JSON_PATCH, **params: str) -> Answer:
        """Send a PATCH, by default a JSON Patch."""
        return self.send("PATCH", path, body, content_type, params=params)

    def watch(self, path: str, headers: Mapping[str, str] | None = None, **params: str) -> Watch:
        """Open a watch; use it in a ``with``."""
        return Watch(self._open("GET", path, None, headers or {}, {"watch": "1", **params}))

    def create(self, path: str, body: dict[str, Any], **params: str) -> Answer:
        """Send a POST; its object is removed at the end."""
        answer = self.send("POST", path, body, params=params)
        if answer.status == 201 and "name" in answer.meta and "dryRun" not in params:
            self._made.append(f"{path}/{answer.meta['name']}")
        return answer

    def create_node(self, **parts: Any) -> Answer:
        """Create a Node; return its present state, which may be later than its creation."""
        metadata = {"name": self.name(), **parts.pop("metadata", {})}
        made = self.create(
            "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": metadata, **parts}
        )
        assert made.status == 201, made.body
        path = node_path(made.meta["name"])
        wanted = parts.get("spec", {}).get("taints")
        if made.body["spec"].get("taints") != wanted:  # admission taints a Node that is not ready
            self.patch(path, {"spec": {"taints": wanted}}, MERGE_PATCH)
        return self.get(path)

    def tidy(self) -> None:
        """Remove the created objects."""
        for path in reversed(self._made):
            self.send("DELETE", path, params={"propagationPolicy": "Background"})
        self._made.clear()

    def _open(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], params: Mapping[str, str]
    ) -> Any:
        query = f"?{urlencode(params)}" if params else ""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        accept = {"Accept": "application/json", "User-Agent": f"{AGENT}/1"}
        request = urllib.request.Request(  # noqa: S310 -- the address is the test's own
            f"{self.url}{quote(path)}{query}", data, {**accept, **self.headers, **headers}, method=method
        )
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        if self.context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self.context))
        return urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS)


def node_path(name: str) -> str:
    """Return a Node's path."""
    return f"/api/v1/nodes/{name}"


def path_of(node: Answer) -> str:
    """Return the path of a Node object."""
    return node_path(node.meta["name"])


def names(answer: Answer) -> list[str]:
    """Return the names in a list."""
    return [item["metadata"]["name"] for item in answer.body["items"]]


def same(path: str, value: Any) -> dict[str, Any]:
    """Return a ``test`` of a JSON Patch."""
    return {"op": "test", "path": path, "value": value}


def put(path: str, value: Any) -> dict[str, Any]:
    """Return an ``add`` of a JSON Patch."""
    return {"op": "add", "path": path, "value": value}


def refused(answer: Answer, status: int, reason: str) -> bool:
    """Whether the answer is a failure ``Status`` with this code and reason."""
    body = answer.body
    told = (answer.status, body["kind"], body["status"], body["reason"], body["code"])
    return told == (status, "Status", "Failure", reason, status)


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    is_json = headers.get("Content-Type", "").startswith("application/json")
    return Answer(status, headers, json.loads(body) if is_json else body.decode())


@contextmanager
def open_target() -> Iterator[Target]:
    """Yield the API server to test; remove the created objects at the end."""
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if kubeconfig:
        target = _real(Path(kubeconfig))
        try:
            yield target
        finally:
            target.tidy()
        return
    with KubernetesServer(require_token=True, bookmark_seconds=0.5) as server:
        headers = {"Authorization": f"Bearer {server.access.admin_token}"}
        yield Target(server.url, headers, server=server)


def _real(kubeconfig: Path) -> Target:
    from kubernetes import client, config  # takes half a second

    loaded: Any = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=loaded)
    headers = {each["key"]: each["value"] for each in loaded.auth_settings().values() if each["value"]}
    context = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if loaded.cert_file:
        context.load_cert_chain(loaded.cert_file, loaded.key_file)
    return Target(loaded.host, headers, context)
