"""A command in a container: its output, its exit code, and what may have happened if no answer comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
from konductor_like.cluster.api.exec import MESSAGE_BYTES, OUTPUT_BYTES, READ_BYTES, Executed, execute
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, matching
from konductor_like_sandbox.kubernetes.exec import PROTOCOLS, Command, Outcome
from konductor_like_sandbox.kubernetes.fleet import make_reader_pod

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
    protocol: str, server: KubernetesServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Command] = []

    def ran(command: Command) -> Outcome:
        asked.append(command)
        return Outcome(3, b"out\n", "é".encode())

    server.exec.run = ran
    monkeypatch.setattr("konductor_like.cluster.api.exec.PROTOCOLS", (protocol,))

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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("konductor_like.cluster.api.exec.PROTOCOLS", (protocol,))
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
        (Outcome(messages=[OUT + bytes(MESSAGE_BYTES)]), KubeUnreachable),
        (Outcome(messages=[OUT + bytes(1 << 16)] * (READ_BYTES // (1 << 16) + 1)), KubeBadAnswer),
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

    assert run(client).output == "a" * OUTPUT_BYTES


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


def test_a_command_that_does_not_end_is_given_up(server: KubernetesServer, client: KubeClient) -> None:
    from threading import Event

    over = Event()

    def never(_: Command) -> Outcome:
        over.wait()
        return Outcome()

    server.exec.run = never

    with pytest.raises(KubeTimeout) as caught:
        run(client, seconds=0.2)

    over.set()
    assert caught.value.outcome_unknown
