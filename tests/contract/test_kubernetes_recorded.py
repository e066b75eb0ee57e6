"""The stand-in answers recorded requests as the real API server did.

``KONDUCTOR_TEST_RESPONSES`` names the folder of ``kubernetes.jsonl``: exchanges with kube-apiserver
1.36.2, one a line, in the order in which they happened.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.contract.kubernetes_target import Answer, Target

VARIABLE = "KONDUCTOR_TEST_RESPONSES"
AGENT = "Python-urllib/3.11"
POWERLESS = ("known user without rights", "patch without rights", "SelfSubjectAccessReview: denied")
"""Exchanges of a user who may do nothing; most others are the administrator's."""
SKIPPED = {
    "version": "the stand-in says that it is one",
    "eviction of a pod that does not exist": "nobody here evicts a pod",
    "list, malformed selector": "refused, in words of the stand-in's own",
    "events.k8s.io/v1 event on a node": "we send Events of the older kind",
    "create a lease": "the recorded body was altered after it was received",
}
"""Why an exchange is left out. Watches are left out too: their events depend on other requests."""

Exchange = dict[str, Any]


class Replay:
    """Sends recorded requests, with the stand-in's own uids and versions in place of the recorded ones."""

    def __init__(self, server: KubernetesServer) -> None:
        self._server = server
        self._target = Target(server.url, {}, server=server)
        self._now: dict[str, str] = {}
        powerless = server.access.add_user("system:serviceaccount:konductor-like:konductor-like", ())
        self._tokens = dict.fromkeys(POWERLESS, powerless)
        self._tokens |= {"no token (anonymous)": "", "bad token": "nobody-has-this"}

    def create_node(self, name: str, labels: dict[str, str]) -> None:
        """Create a Node as the administrator."""
        body = {"metadata": {"name": name, "labels": labels}}
        headers = {"User-Agent": AGENT, **self._credentials("")}
        self._target.send("POST", "/api/v1/nodes", body, headers=headers)

    def send(self, exchange: Exchange) -> Answer:
        """Return the stand-in's answer."""
        request = self._translated(exchange["request"])
        body = request["body"]
        if isinstance(body, str):  # "<300040 bytes>": recorded by its size only
            body = {"metadata": {"annotations": {"big": "x" * 300_000}}}
        headers = {"User-Agent": AGENT, **request["headers"], **self._credentials(exchange["note"])}
        content_type = headers.pop("Content-Type", "application/json")
        address = urlsplit(request["path"])
        params = dict(parse_qsl(address.query))
        answer = self._target.send(request["method"], address.path, body, content_type, headers, params)
        self._learn(exchange["response"]["body"], answer.body)
        return answer

    def _credentials(self, note: str) -> dict[str, str]:
        token = self._tokens.get(note, self._server.access.admin_token)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _learn(self, recorded: Any, answered: Any) -> None:
        if not (isinstance(recorded, dict) and isinstance(answered, dict)):
            return
        for ours, theirs in zip(_versioned(answered), _versioned(recorded), strict=False):
            for field in ("uid", "resourceVersion", "continue"):
                if field in ours and field in theirs:
                    self._now[theirs[field]] = ours[field]

    def _translated(self, request: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(request)
        for field in ("uid", "resourceVersion"):
            text = re.sub(rf'("{field}": |/{field}", "value": )"([^"]+)"', self._replace, text)
        text = re.sub(r'(continue=)([^"&]+)', lambda m: f"{m[1]}{self._now.get(m[2], m[2])}", text)
        result: dict[str, Any] = json.loads(text)
        return result

    def _replace(self, match: re.Match[str]) -> str:
        return f'{match[1]}"{self._now.get(match[2], match[2])}"'


def _versioned(body: dict[str, Any]) -> list[dict[str, Any]]:
    items = [item["metadata"] for item in body.get("items", [])]
    return [body.get("metadata", {}), *items]


def essence(body: Any) -> Any:
    """Return the part to compare: a whole refusal, or an object without uids, versions and times."""
    if body.get("kind") == "Status":
        details = dict(body.get("details", {}))
        details.pop("uid", None)
        causes = {json.dumps(cause, sort_keys=True) for cause in details.pop("causes", [])}
        return (body["status"], body.get("reason"), body.get("code"), _message(body), details, causes)
    if "items" in body:
        told = {name: value for name, value in body["metadata"].items() if name == "remainingItemCount"}
        return told, "continue" in body["metadata"], [essence(item) for item in body["items"]]
    unlike = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    meta = {name: value for name, value in body.get("metadata", {}).items() if name not in unlike}
    shown = {**body, "metadata": meta}
    for name in ("involvedObject", "regarding"):
        if name in shown:
            shown[name] = {**shown[name], "uid": ""}
    if (
        body.get("kind") == "SelfSubjectAccessReview"
    ):  # is not stored, so that its managedFields do not matter
        return shown
    entries = body.get("metadata", {}).get("managedFields", [])
    return shown, [{name: value for name, value in entry.items() if name != "time"} for entry in entries]


def _message(body: dict[str, Any]) -> str:
    message: str = body.get("message", "")
    return message.partition("continue key is not valid")[0]  # the rest comes from Go's JSON parser


def exchanges() -> list[Exchange]:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} does not name a folder with kubernetes.jsonl")
    return [json.loads(line) for line in (Path(folder) / "kubernetes.jsonl").read_text().splitlines()]


def compare(exchange: Exchange, answer: Answer) -> str:
    """Return how the answer differs from the recorded one; empty if they are equal."""
    status, body = exchange["response"]["status"], exchange["response"]["body"]
    if answer.status != status:
        return f"{answer.status} in place of {status}: {answer.body}"
    given, recorded = essence(answer.body), essence(body)
    return "" if given == recorded else f"{given} in place of {recorded}"


def test_recorded_requests_get_the_recorded_answers() -> None:
    recorded = exchanges()
    labels = {"nvidia.com/gpu.present": "true"}
    differences = {}
    with KubernetesServer(require_token=True) as server:
        server.create_namespace("konductor-like")
        replay = Replay(server)
        for number in range(2, 8):  # created without a record
            replay.create_node(f"n{number}", labels)
        for exchange in recorded:
            if "stream" not in exchange["response"]:
                difference = compare(exchange, replay.send(exchange))
                if difference and exchange["note"] not in SKIPPED:
                    differences[exchange["note"]] = difference

    assert differences == {}
