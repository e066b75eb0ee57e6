"""Run a command in a container, with the caller's own rights: ``pods/exec``, by the official client's stream.

The upgrade is a GET, so RBAC asks for ``get`` on ``pods/exec``, and since Kubernetes 1.35 for ``create`` too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from ssl import SSLError
from threading import Thread
from typing import Any, NamedTuple

from websocket import (
    WebSocketAddressException,
    WebSocketBadStatusException,
    WebSocketException,
    WebSocketProxyException,
)

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeError,
    KubeTimeout,
    KubeUnreachable,
    error_of,
)
from konductor_like.model.text import excerpt

OUTPUT_CHARS = 4096
"""Characters of the command's output that are kept."""
_ERROR_CHANNEL = 3
"""The channel of the ``Status`` at the end."""
_NEVER_SENT = (ConnectionRefusedError, SSLError, WebSocketAddressException, WebSocketProxyException)
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
    from kubernetes.client import ApiClient, ApiException, CoreV1Api  # slow, so not in the time of the thread
    from kubernetes.stream import stream

    what = f"run a command in pods/{pod} in namespace {namespace}"
    options = {"container": container, "command": [*command], "stdout": True, "stderr": True}
    ended: Future[tuple[str, str]] = Future()

    def run() -> None:
        # In a thread: the stream has no time-out while it opens, and takes a Ctrl-C for an error.
        try:
            with client.connection.with_files() as configuration:
                asked = CoreV1Api(ApiClient(configuration)).connect_get_namespaced_pod_exec
                running = stream(asked, pod, namespace, **options, _preload_content=False)
            ended.set_result(_result(running, timeout_seconds))
        except Exception as error:  # noqa: BLE001  # `result` raises it again
            ended.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        result, output = ended.result(timeout_seconds)
    except TimeoutError as error:
        raise KubeTimeout(f"cannot {what}: it did not end in time", outcome_unknown=True) from error
    except ApiException as error:
        raise _not_opened(what, error.__context__ or error) from error
    if not result:
        message = f"cannot {what}: the connection ended before the result came"
        raise KubeUnreachable(message, outcome_unknown=True)
    return Executed(_exit_code(what, result), output[:OUTPUT_CHARS])


def _result(running: Any, seconds: float) -> tuple[str, str]:
    """Return the result and the output; an empty result if the connection ends first."""
    try:
        with suppress(OSError, WebSocketException):  # the result may have come before the connection broke
            while running.is_open() and not running.peek_channel(_ERROR_CHANNEL, seconds):
                pass
        return running.read_channel(_ERROR_CHANNEL), running.read_all()
    finally:
        running.sock.shutdown()  # `close` leaves the socket open if the server closed first


def _not_opened(what: str, error: BaseException) -> KubeError:
    """Return the error for a websocket that did not open."""
    if isinstance(error, WebSocketBadStatusException):
        return _refusal(what, error.status_code, error.resp_body or b"")
    may_have_run = not isinstance(error, _NEVER_SENT)
    return KubeUnreachable(
        f"cannot {what}: {excerpt(str(error)) or 'no answer'}", outcome_unknown=may_have_run
    )


def _exit_code(what: str, data: str) -> int:
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
