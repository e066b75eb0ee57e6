"""``GET …/pods/NAME/exec``: a command in a container over a websocket, with the protocols of remotecommand.

The first byte of each message is its channel: 1 standard output, 2 standard error, 3 the ``Status`` at the
end. Sources: staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go,
apiserver/pkg/util/proxy/streamtranslator.go, pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from konductor_like_sandbox import websocket
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.errors import ApiError
from konductor_like_sandbox.kubernetes.store import Key, Store
from konductor_like_sandbox.websocket import Opcode

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, STATUS = b"\1", b"\2", b"\3"
_END = websocket.close_payload(1000, "")


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a client wants to run."""

    namespace: str
    pod: str
    container: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a command."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    messages: Sequence[bytes] | None = None
    """Sent in place of output and status, for tests of a hostile container."""
    hangs_up: bool = False
    """Whether the connection breaks before the status is sent."""


class Exec:
    """Commands in containers. ``run`` runs one; without it no kubelet answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.protocols: Sequence[str] = PROTOCOLS
        """The protocols that the server knows; a server before Kubernetes 1.29 knows only the second."""
        self.run: Callable[[Command], Outcome] | None = None

    def reply(self, request: Request, key: Key) -> Reply:
        """Return the upgrade to a websocket. Raises ``ApiError``."""
        stored = self._store.get("pods", key)
        if stored is None:
            raise errors.not_found("", "pods", key.name)
        container = container_named(stored.load(), key.name, request.param("container"))
        accepted = request.headers.get("sec-websocket-key")
        if request.headers.get("upgrade", "").lower() != "websocket" or not accepted:
            raise errors.bad_request("Upgrade request required")
        offered = [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",")]
        protocol = next((each for each in offered if each in self.protocols), None)
        if protocol is None:
            return Reply(403)
        if not stored.load().get("spec", {}).get("nodeName"):
            raise errors.bad_request(f"pod {key.name} does not have a host assigned")
        command = Command(key.namespace, key.name, container, request.params.get("command", []))
        problem = self._problem(stored.load(), container)
        if problem is not None and protocol != PROTOCOLS[0]:
            raise problem  # the kubelet answers the upgrade; v5 ends at the API server, which has upgraded

        def take_over(reader: BinaryIO, writer: BinaryIO) -> None:
            for message in self._messages(command, problem):
                websocket.write_frame(writer, Opcode.BINARY, message)
            websocket.write_frame(writer, Opcode.CLOSE, _END)
            websocket.read_frame(reader)  # the client's close

        headers = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": websocket.accept_key(accepted),
            "Sec-WebSocket-Protocol": protocol,
        }
        return Reply(101, headers=headers, takeover=take_over)

    def _problem(self, pod: dict[str, Any], container: str) -> ApiError | None:
        statuses = pod.get("status", {}).get("containerStatuses", ())
        running = [each["name"] for each in statuses if "running" in each.get("state", {})]
        if container not in running:
            return _internal(f'unable to upgrade connection: container not found ("{container}")')
        if self.run is None:
            return _internal("error dialing backend: dial tcp 127.0.0.1:10250: connect: connection refused")
        return None

    def _messages(self, command: Command, problem: ApiError | None) -> Sequence[bytes]:
        if problem is not None or self.run is None:
            return (STATUS + json.dumps(problem.status() if problem else {}).encode(),)
        outcome = self.run(command)
        if outcome.messages is not None:
            return outcome.messages
        output = [STDOUT]  # an empty message tells the client that the connection is established
        output += [STDOUT + outcome.stdout] if outcome.stdout else []
        output += [STDERR + outcome.stderr] if outcome.stderr else []
        return output if outcome.hangs_up else [*output, STATUS + json.dumps(_status(outcome)).encode()]


def container_named(pod: dict[str, Any], name: str, asked: str) -> str:
    """Return the container that is meant. Raises ``ApiError`` as the API server's validation does."""
    there = [str(each["name"]) for each in pod.get("spec", {}).get("containers", ())]
    if not asked and len(there) > 1:
        choices = f"choose one of: [{' '.join(there)}]"
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choices}")
    container = asked or "".join(there)
    if container not in there:
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
    return container


def _internal(message: str) -> ApiError:
    causes = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes)


def _status(outcome: Outcome) -> dict[str, Any]:
    if outcome.exit_code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {outcome.exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(outcome.exit_code)}]},
    }
