"""Run a command in a container, with the caller's own rights: ``pods/exec`` over a websocket.

The first byte of a message is its channel: 1 standard output, 2 standard error, 3 the result as a ``Status``.
The upgrade is a GET, so RBAC asks for ``get`` on ``pods/exec``, and since Kubernetes 1.35 for ``create`` too.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from websockets import Subprotocol
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from konductor_like.cluster.api.client import KubeClient, pods_path
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeError,
    KubeTimeout,
    KubeUnreachable,
    error_of,
)
from konductor_like.cluster.api.transport import USER_AGENT, Connection
from konductor_like.model.text import excerpt

PROTOCOLS = (Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io"))
MESSAGE_BYTES = 1 << 17
"""Bytes of one message, at most; a kubelet sends pieces of 32 KiB."""
OUTPUT_BYTES = 4096
"""Bytes of the command's output that are kept."""
READ_BYTES = 1 << 20
"""Bytes that are read, at most."""
_NEVER_SENT = (ConnectionRefusedError, socket.gaierror, ssl.SSLError)
_NEVER_RUN = ("unable to upgrade connection", "error dialing backend")
"""What the API server says if it did not reach the container."""
_ABOUT_THE_KUBELET = (
    "the kubelet of the pod's node did not do it: check that kubectl get nodes shows the node as Ready"
)


class Executed(NamedTuple):
    """The end of a command."""

    exit_code: int
    output: str


def execute(
    client: KubeClient,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    timeout_seconds: float,
) -> Executed:
    """Run the command and wait for its end. Raises a KubeError; its ``outcome_unknown``: it may have run."""
    what = f"run a command in pods/{pod} in namespace {namespace}"
    options = {"container": container, "command": list(command), "stdout": "true", "stderr": "true"}
    target = f"{pods_path(namespace, pod)}/exec?{urlencode(options, doseq=True, quote_via=quote)}"
    end = time.monotonic() + timeout_seconds
    try:
        connection = _connected(client.connection, target, timeout_seconds)
    except InvalidStatus as error:
        answer = error.response
        raise _refusal(what, answer.status_code, bytes(answer.body or b"")) from error
    except (OSError, EOFError, WebSocketException) as error:
        kind = KubeTimeout if isinstance(error, TimeoutError) else KubeUnreachable
        may_have_run = not isinstance(error, _NEVER_SENT)
        message = f"cannot {what}: {excerpt(str(error)) or 'no answer'}"
        raise kind(message, outcome_unknown=may_have_run) from error
    with connection:
        try:
            return _follow(connection, what, end)
        except TimeoutError as error:
            raise KubeTimeout(f"cannot {what}: it did not end in time", outcome_unknown=True) from error
        except ConnectionClosed as error:
            message = f"cannot {what}: the connection ended before the result came"
            raise KubeUnreachable(message, outcome_unknown=True) from error


def _connected(server: Connection, target: str, timeout_seconds: float) -> ClientConnection:
    """Open a websocket with the credentials and the proxy of other requests."""
    authorization = server.authorization()
    return connect(
        f"ws{server.host.removeprefix('http')}{target}",
        ssl=server.tls,
        subprotocols=PROTOCOLS,
        additional_headers={"Authorization": authorization} if authorization else {},
        user_agent_header=USER_AGENT,
        compression=None,
        proxy=server.proxy,
        open_timeout=timeout_seconds,
        close_timeout=1,
        max_size=MESSAGE_BYTES,
    )


def _follow(connection: ClientConnection, what: str, end: float) -> Executed:
    output, read = b"", 0
    while read <= READ_BYTES:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        message = connection.recv(timeout=left, decode=False)
        channel, data = message[:1], message[1:]
        read += len(message)
        if channel == b"\3" and data:  # an empty message only says that the connection is established
            return Executed(_exit_code(what, data), output.decode("utf-8", "replace"))
        if channel in (b"\1", b"\2"):
            output = (output + data)[:OUTPUT_BYTES]
    raise KubeBadAnswer(f"cannot {what}: it printed more than {READ_BYTES} bytes", outcome_unknown=True)


def _exit_code(what: str, data: bytes) -> int:
    """Return the exit code in the ``Status`` at the end. Raises a KubeError."""
    try:
        status: Any = json.loads(data)
        if status["status"] == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            causes = status["details"]["causes"]
            return next(int(each["message"]) for each in causes if each["reason"] == "ExitCode")
        message, code = str(status["message"]), int(status.get("code") or 500)
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise KubeBadAnswer(f"cannot {what}: the result is not readable", outcome_unknown=True) from error
    body = json.dumps({"kind": "Status", "message": message}).encode()
    raise _refusal(what, code, body, write=not any(words in message for words in _NEVER_RUN))


def _refusal(what: str, status: int, body: bytes, *, write: bool = False) -> KubeError:
    """Return the error for an answer: 500 means that the API server had no success with the kubelet."""
    error = error_of(what, status, body, write=write)
    if status == 500:
        error.hint = _ABOUT_THE_KUBELET
    return error
