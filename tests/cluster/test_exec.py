"""A command in a container: its output, its exit code, and what may have happened if no answer comes."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import socketserver
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import yaml

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeRejected,
    KubeTimeout,
    KubeUnavailable,
    KubeUnreachable,
)
from konductor_like.cluster.api.exec import OUTPUT_CHARS, Executed, execute
from konductor_like_sandbox import websocket
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, matching
from konductor_like_sandbox.kubernetes.exec import PROTOCOLS, Command, Outcome
from konductor_like_sandbox.kubernetes.fleet import make_reader_pod
from konductor_like_sandbox.websocket import Opcode

POD = make_reader_pod("gpu-1")["metadata"]["name"]
WORDS = ("sh", "-c", "echo 'a b' > /dev/kmsg; echo \"é\"")


@pytest.fixture
def server(server: KubernetesServer) -> KubernetesServer:
    """An API server with a running pod."""
    server.put_pod(make_reader_pod("gpu-1"))
    return server


def run(client: KubeClient, pod: str = POD, container: str = "dmesg", seconds: float = 5.0) -> Executed:
    return execute(client, "dmesg-logging", pod, container, WORDS, seconds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_command_arrives_word_by_word_and_its_result_comes_back(
    protocol: str, server: KubernetesServer, client: KubeClient
) -> None:
    asked: list[Command] = []

    def ran(command: Command) -> Outcome:
        asked.append(command)
        return Outcome(3, b"out\n", "é".encode())

    server.exec.run = ran
    server.exec.protocols = (protocol,)

    assert run(client) == Executed(3, "out\né")
    assert asked == [Command("dmesg-logging", POD, "dmesg", list(WORDS))]


def test_a_command_without_output_succeeds(server: KubernetesServer, client: KubeClient) -> None:
    server.exec.run = lambda _: Outcome()

    assert run(client) == Executed(0, "")


@pytest.mark.parametrize("verb", ["get", "create"])
def test_both_rights_are_needed(verb: str, server: KubernetesServer, client: KubeClient) -> None:
    """The upgrade is a GET; since Kubernetes 1.35 the API server asks for `create` as well."""
    server.exec.run = lambda _: Outcome()
    server.access.deny(verb, "pods/exec")

    with pytest.raises(KubeForbidden, match=f'cannot {verb} resource "pods/exec"') as caught:
        run(client)

    assert f"kubectl auth can-i -n dmesg-logging {verb} pods/exec" in caught.value.hint
    assert not caught.value.outcome_unknown


def pending(server: KubernetesServer) -> None:
    server.put_pod(make_reader_pod("gpu-1", "Pending"))


def gone(server: KubernetesServer) -> None:
    server.delete_pod("dmesg-logging", POD)


def unscheduled(server: KubernetesServer) -> None:
    server.put_pod(make_reader_pod(""))
    pod = make_reader_pod("gpu-1")
    del pod["spec"]["nodeName"]
    server.put_pod(pod)


def other_container(server: KubernetesServer) -> None:
    pod = make_reader_pod("gpu-1")
    pod["spec"]["containers"][0]["name"] = "other"
    server.put_pod(pod)


def no_kubelet(server: KubernetesServer) -> None:
    server.exec.run = None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (gone, KubeNotFound, f'pods "{POD}" not found'),
        (pending, KubeUnavailable, 'container not found ("dmesg")'),
        (unscheduled, KubeRejected, "does not have a host assigned"),
        (other_container, KubeRejected, f"container dmesg is not valid for pod {POD}"),
        (no_kubelet, KubeUnavailable, "error dialing backend"),
    ],
)
def test_a_command_that_cannot_run_was_certainly_not_run(
    spoil: Callable[[KubernetesServer], None],
    kind: type[KubeError],
    says: str,
    protocol: str,
    server: KubernetesServer,
    client: KubeClient,
) -> None:
    server.exec.protocols = (protocol,)
    server.exec.run = lambda _: Outcome()
    spoil(server)

    with pytest.raises(kind) as caught:
        run(client)

    assert says in str(caught.value)
    assert not caught.value.outcome_unknown
    assert ("kubelet of the pod's node" in caught.value.hint) == (kind is KubeUnavailable)


OUT, STATUS = b"\1", b"\3"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome(hangs_up=True), KubeUnreachable),
        (Outcome(messages=()), KubeUnreachable),
        (Outcome(messages=[STATUS + b"{"]), KubeBadAnswer),
        (Outcome(messages=[STATUS + b"[" * 10_000]), KubeBadAnswer),
        (Outcome(messages=[STATUS + b'{"status": "Failure"}']), KubeBadAnswer),
        (Outcome(messages=[STATUS + b'{"status": "Failure", "reason": "NonZeroExitCode"}']), KubeBadAnswer),
        (Outcome(messages=[STATUS + b'{"status": "Failure", "message": "broken"}']), KubeUnavailable),
        (Outcome(messages=[STATUS + b"\xff"]), KubeBadAnswer),
    ],
)
def test_without_a_readable_result_the_command_may_have_run(
    outcome: Outcome, kind: type[KubeError], server: KubernetesServer, client: KubeClient
) -> None:
    server.exec.run = lambda _: outcome

    with pytest.raises(kind) as caught:
        run(client)

    assert caught.value.outcome_unknown
    assert len(str(caught.value)) < 500


def test_only_the_beginning_of_a_long_output_is_kept(server: KubernetesServer, client: KubeClient) -> None:
    server.exec.run = lambda _: Outcome(0, b"a" * 100_000, b"\xff")

    assert run(client).output == "a" * OUTPUT_CHARS


def test_empty_and_unknown_messages_are_passed_over(server: KubernetesServer, client: KubeClient) -> None:
    messages = [b"", STATUS, b"\xff\1", b"\7what", OUT + b"yes", STATUS + b'{"status": "Success"}']
    server.exec.run = lambda _: Outcome(messages=messages)

    assert run(client) == Executed(0, "yes")


def test_a_server_that_does_not_answer_the_upgrade_may_have_run_the_command(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.mishaps.add(Mishap(drop=Drop.RESET), when=matching(path="/exec$"))

    with pytest.raises(KubeUnreachable) as caught:
        run(client)
    assert caught.value.outcome_unknown

    server.stop()
    with pytest.raises(KubeUnreachable) as caught:
        run(client)
    assert not caught.value.outcome_unknown


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_is_silent_at_the_upgrade_is_given_up(
    silent: str, server: KubernetesServer, tmp_path: Path
) -> None:
    config = server.kubeconfig(tmp_path / "c")
    config.write_text(config.read_text().replace(server.url, f"http://{silent}"))
    client = KubeClient.connect(str(config), None, 5.0)

    with pytest.raises(KubeTimeout) as caught:
        run(client, seconds=0.2)

    client.close()
    assert caught.value.outcome_unknown


def test_a_signal_ends_the_wait(silent: str, server: KubernetesServer, tmp_path: Path) -> None:
    config = server.kubeconfig(tmp_path / "c")
    config.write_text(config.read_text().replace(server.url, f"http://{silent}"))
    client = KubeClient.connect(str(config), None, 5.0)
    later = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    later.start()

    with pytest.raises(KeyboardInterrupt):
        run(client, seconds=60)

    later.join()
    client.close()


def test_the_result_counts_although_the_connection_breaks_after_it(
    server: KubernetesServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.exec.run = lambda _: Outcome(0, b"yes")
    write_frame = websocket.write_frame

    def write(writer: BinaryIO, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.CLOSE:
            raise ConnectionResetError
        write_frame(writer, opcode, payload)

    monkeypatch.setattr(websocket, "write_frame", write)

    assert run(client) == Executed(0, "yes")


CERTIFICATES = Path(__file__).parent.parent / "loki" / "certificates"


@pytest.fixture
def tls_server() -> Iterator[KubernetesServer]:
    """An API server over HTTPS that knows its users by client certificates, with a running pod."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    context.load_verify_locations(CERTIFICATES / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with KubernetesServer(ssl_context=context) as started:
        started.put_pod(make_reader_pod("gpu-1"))
        started.exec.run = lambda _: Outcome(0, b"yes")
        yield started


def kubeconfig(path: Path, server: str, **cluster: object) -> str:
    user = {
        f"client-{kind}-data": base64.b64encode((CERTIFICATES / file).read_bytes()).decode()
        for kind, file in (("certificate", "client.pem"), ("key", "client.key"))
    }
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize(
    ("cluster", "of_machine"),
    [
        ({"certificate-authority": str(CERTIFICATES / "ca.pem")}, "client.pem"),
        ({}, "ca.pem"),
        ({"insecure-skip-tls-verify": True}, "client.pem"),
        (
            {"certificate-authority": str(CERTIFICATES / "ca.pem"), "tls-server-name": "localhost"},
            "client.pem",
        ),
    ],
)
def test_certificates_hold_for_the_websocket_and_leave_no_file_behind(
    cluster: dict[str, object],
    of_machine: str,
    tls_server: KubernetesServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / of_machine))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    client = KubeClient.connect(kubeconfig(tmp_path / "c", tls_server.url, **cluster), None, 5.0)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    assert run(client) == Executed(0, "yes")
    client.close()
    assert list(scratch.iterdir()) == []


def test_an_unknown_authority_is_refused_before_the_command_runs(
    tls_server: KubernetesServer, tmp_path: Path
) -> None:
    wrong = str(CERTIFICATES / "client.pem")
    path = kubeconfig(tmp_path / "c", tls_server.url, **{"certificate-authority": wrong})
    client = KubeClient.connect(path, None, 5.0)

    with pytest.raises(KubeUnreachable, match="certificate verify failed") as caught:
        run(client)

    client.close()
    assert not caught.value.outcome_unknown


def test_the_token_of_a_login_command_holds_and_the_command_is_not_run_again(
    server: KubernetesServer, tmp_path: Path
) -> None:
    server.exec.run = lambda _: Outcome(0, b"yes")
    count = tmp_path / "count"
    config = server.kubeconfig(tmp_path / "c")
    content = yaml.safe_load(config.read_text())
    token = server.access.add_user("kim")
    grant = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": "2999-01-01T00:00:00Z"},
    }
    command = ["-c", f"echo x >> {count}; echo '{json.dumps(grant)}'"]
    plugin = {"apiVersion": grant["apiVersion"], "command": "sh", "args": command, "interactiveMode": "Never"}
    content["users"][0]["user"] = {"exec": plugin}
    config.write_text(yaml.safe_dump(content))
    client = KubeClient.connect(str(config), None, 5.0)
    asked = len(count.read_text())

    assert run(client) == Executed(0, "yes")

    client.close()
    (call,) = server.calls("get", "pods/exec")
    assert call.request.headers["authorization"] == f"Bearer {token}"
    assert len(count.read_text()) == asked


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a proxy that refuses every tunnel, and the first lines of what it was asked."""
    asked: list[bytes] = []

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())
            self.wfile.write(b"HTTP/1.1 407 Log in\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{refusing.server_address[1]}", asked
        refusing.shutdown()


@pytest.mark.parametrize(("no_proxy", "is_asked"), [("", True), ("127.0.0.0/8", False), ("1", False)])
def test_the_proxy_of_the_other_requests_holds(
    no_proxy: str,
    is_asked: bool,
    proxy: tuple[str, list[bytes]],
    tls_server: KubernetesServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, asked = proxy
    monkeypatch.setenv("https_proxy", address)
    monkeypatch.setenv("no_proxy", no_proxy)
    path = kubeconfig(tmp_path / "c", tls_server.url, **{"insecure-skip-tls-verify": True})
    client = KubeClient.connect(path, None, 5.0)
    place = tls_server.url.removeprefix("https://").encode()

    if is_asked:
        with pytest.raises(KubeUnreachable, match="407") as caught:
            run(client)
        assert asked == [b"CONNECT " + place + b" HTTP/1.1\r\n"]
        assert not caught.value.outcome_unknown
    else:
        assert run(client) == Executed(0, "yes")
        assert asked == []
    client.close()


def test_a_command_that_does_not_end_is_given_up(server: KubernetesServer, client: KubeClient) -> None:
    over = threading.Event()

    def never(_: Command) -> Outcome:
        over.wait()
        return Outcome()

    server.exec.run = never

    with pytest.raises(KubeTimeout) as caught:
        run(client, seconds=0.2)

    over.set()
    assert caught.value.outcome_unknown
