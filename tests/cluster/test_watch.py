from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path

import pytest

from konductor_like.cluster.api.client import NODES_PATH, KubeClient
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeError,
    KubeGone,
    KubeUnavailable,
    KubeUnreachable,
)
from konductor_like.cluster.api.watch import WatchStream
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer, expired_watch
from tests.cluster.scenes import raw_node

CERTIFICATES = Path(__file__).parent.parent / "loki" / "certificates"


def stream(client: KubeClient, silence_seconds: float = 5.0, **params: str) -> WatchStream:
    """Return a watch on Nodes from the beginning."""
    return client.stream(NODES_PATH, {"resourceVersion": "0", **params}, silence_seconds)


def test_events_come_in_order(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(raw_node("a"))
    with stream(client) as events:
        told = (
            (event.kind, event.object["metadata"]["name"]) for event in events if event.kind != "BOOKMARK"
        )
        first = next(told)
        server.put_node({**raw_node("a"), "spec": {"unschedulable": True}})
        server.delete_node("a")

        assert [first, next(told), next(told)] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_version_that_is_too_old_is_gone(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(expired_watch())

    with pytest.raises(KubeGone), stream(client) as events:
        list(events)


@pytest.mark.parametrize(
    ("mishap", "error"),
    [
        (Mishap(503, "", JSON), KubeUnavailable),
        (Mishap(200, "<html>\n", JSON), KubeBadAnswer),
        (Mishap(200, '{"type":"ADDED"}\n', JSON), KubeBadAnswer),
        (Mishap(200, '{"type":"ADDED","object":[]}\n', JSON), KubeBadAnswer),
        (Mishap(200, '{"type":"ERROR","object":{"code":"?"}}\n', JSON), KubeUnavailable),
        (Mishap(drop=Drop.RESET), KubeUnreachable),
    ],
    ids=["5xx", "HTML", "no object", "an odd object", "an odd error", "reset"],
)
def test_a_watch_that_breaks_raises_the_cause(
    server: KubernetesServer, client: KubeClient, mishap: Mishap, error: type[KubeError]
) -> None:
    server.mishaps.add(mishap)

    with pytest.raises(error, match="watch nodes"), stream(client) as events:
        list(events)


def test_a_last_line_that_was_cut_off_is_left_to_the_next_watch(
    server: KubernetesServer, client: KubeClient
) -> None:
    whole = '{"type":"DELETED","object":{"metadata":{"name":"a"}}}\n'
    server.mishaps.add(Mishap(200, whole + "\n" + whole[:20], JSON))

    with stream(client) as events:
        assert [event.object["metadata"]["name"] for event in events] == ["a"]


def test_an_event_larger_than_one_read_is_put_together(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(raw_node("a", annotations={"long": "x" * 200_000}))

    with stream(client) as events:
        assert len(next(iter(events)).object["metadata"]["annotations"]["long"]) == 200_000


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_another_thread_can_close_it(tls: bool, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    with KubernetesServer(nodes=[raw_node()], ssl_context=context if tls else None) as server:
        client = KubeClient.connect(str(server.kubeconfig(tmp_path / "c")), None, 5.0)
        seen: list[str] = []
        opened = stream(client, silence_seconds=60)

        def wait() -> None:
            with opened as events:
                seen.extend(event.kind for event in events)
            seen.append("end")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)  # by now it most likely waits for the next event
        opened.close()
        thread.join(5.0)
        client.close()

    assert not thread.is_alive()
    assert seen[-1] == "end"


def test_closing_it_before_it_is_read_ends_it_too(client: KubeClient) -> None:
    with stream(client) as events:
        events.close()

        assert list(events) == []
