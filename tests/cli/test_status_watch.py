"""``status --watch``: a report after each change; without permission to watch the Nodes are polled."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from konductor_like.cli import session
from konductor_like.cli.output import Screen
from konductor_like.cli.status import watch
from konductor_like.cli.status.report import StatusReport
from konductor_like.cli.status.text import View
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeForbidden
from konductor_like.policy.node.health import Health
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import faulty

APPENDED = Screen()


@contextmanager
def watching(names: tuple[str, ...] = (), selector: str | None = None) -> Iterator[Iterator[StatusReport]]:
    with (
        session.connected(ReadOnlyKubeClient, None, None) as (client, settings),
        closing(watch.reports(client, settings, names, selector)) as found,  # type: ignore[type-var]  # a generator
    ):
        yield found


def taint(server: KubernetesServer, name: str) -> None:
    server.put_node(faulty(name))


def states_when(found: Iterator[StatusReport], name: str, health: Health) -> StatusReport:
    """Return the first report in which this node has this state."""
    return next(each for each in found if any(n.name == name and n.health is health for n in each.nodes))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GATHER_SECONDS", 0.0)


def test_a_changed_node_is_reported_by_a_watch_and_nothing_is_listed_again(cluster: Cluster) -> None:
    server = cluster("healthy")
    with watching() as found:
        assert [node.health for node in next(found).nodes] == [Health.HEALTHY, Health.HEALTHY]
        next(found)
        listed = len(server.calls("list", "nodes"))

        taint(server, "gpu-2")

        assert states_when(found, "gpu-2", Health.FAULTY).brake.out == 1
        assert len(server.calls("list", "nodes")) == listed
        assert server.calls("watch", "nodes")


def test_without_permission_to_watch_the_nodes_are_polled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    server = cluster("healthy")
    server.access.deny("watch", "nodes", "*")
    with watching() as found:
        next(found)
        taint(server, "gpu-2")

        assert states_when(found, "gpu-2", Health.FAULTY).stale == ""


def test_a_report_says_that_it_is_not_live_while_the_api_server_fails(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    server = cluster("healthy")
    with watching() as found:
        next(found)
        server.mishaps.add(refusal(500), times=None, when=matching("GET", "/api/v1/nodes"))

        report = next(each for each in found if each.stale)

    assert "cannot list nodes" in report.stale
    assert len(report.nodes) == 2


def test_the_first_report_fails_as_status_does(cluster: Cluster) -> None:
    cluster("healthy").access.deny("list", "nodes", "*")

    with watching() as found, pytest.raises(KubeForbidden):
        next(found)


def test_in_a_pipe_the_rows_that_changed_are_appended(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")

    def three() -> Iterator[StatusReport]:
        with watching() as found:
            yield next(found)
            yield next(found)  # nothing changed
            taint(server, "gpu-2")
            yield states_when(found, "gpu-2", Health.FAULTY)
            server.delete_node("gpu-1")
            yield next(each for each in found if len(each.nodes) == 1)

    watch.follow(three(), View(), APPENDED)
    rows = capsys.readouterr().out.split("NODE ")[1].splitlines()

    assert [row.split()[:2] for row in rows[1:]] == [
        ["gpu-1", "faulty"],
        ["gpu-2", "faulty"],
        ["gpu-1", "deleted"],
    ]


def two_reports() -> Iterator[StatusReport]:
    with watching() as found:
        yield next(found)
        yield next(found)


def test_a_terminal_is_drawn_again_and_keeps_the_numbers_in_sight(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("300 nodes")
    monkeypatch.setenv("LINES", "20")

    watch.follow(two_reports(), View(), Screen(width=200, colours=True))
    _, *screens = capsys.readouterr().out.split("\x1b[H\x1b[2J")

    assert len(screens) == 2
    for screen in screens:
        assert len(screen.splitlines()) == 19
        assert "300 GPU nodes:" in screen.splitlines()[0]
        assert screen.endswith("more lines; --state shows fewer nodes\n")


def test_on_a_small_terminal_the_nodes_come_before_the_advice(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("300 nodes")
    monkeypatch.setenv("LINES", "40")

    watch.follow(two_reports(), View(rows_first=True), Screen(width=80, colours=True))

    lines = capsys.readouterr().out.split("\x1b[H\x1b[2J")[1].splitlines()
    assert sum(line.startswith("ip-10-") for line in lines) >= 10
    assert not any("To do:" in line for line in lines)


def test_in_a_pipe_later_rows_stand_below_their_headers(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")

    def two() -> Iterator[StatusReport]:
        with watching() as found:
            yield next(found)
            taint(server, "gpu-2")
            yield states_when(found, "gpu-2", Health.FAULTY)

    watch.follow(two(), View(), APPENDED)

    head, *_, row = [line for line in capsys.readouterr().out.splitlines() if line[:3] in ("NOD", "gpu")]
    assert row.startswith("gpu-2   faulty ")
    starts = [head.index(header) for header in ("STATE", "AGE", "FAULT", "GPU", "COUNT")]
    assert [row[start - 1 : start + 1].strip() for start in starts] == [row[start] for start in starts]
    assert " " not in [row[start] for start in starts]


def test_it_ends_when_nobody_reads_its_output(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster("one faulty")
    reader = io.StringIO()
    monkeypatch.setattr("sys.stdout", reader)
    monkeypatch.setattr(reader, "flush", broken)

    watch.follow(two_reports(), View(), APPENDED)

    assert reader.getvalue().count("1 faulty, 1 healthy") == 1


def test_it_ends_within_a_second_after_the_reader_of_its_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    waits: list[float] = []

    class Quiet(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            if len(waits) == 3:
                os.close(reader)
            return len(waits) > 3

    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        goes_on = watch.wait_for_change(Quiet(), time.monotonic() + 3600)

    assert (goes_on, len(waits), max(waits) <= 1) == (False, 3, True)


def test_a_watch_whose_reader_has_ended_reports_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("healthy")
    reader, writer = os.pipe()
    with watching() as found, os.fdopen(writer, "w") as pipe:
        next(found)
        monkeypatch.setattr("sys.stdout", pipe)
        os.close(reader)

        assert next(found, None) is None


def broken() -> None:
    raise BrokenPipeError


@pytest.mark.parametrize("option", [("-o", "json"), ("--exit-code",)], ids=" ".join)
def test_what_cannot_be_watched_is_refused(option: tuple[str, ...], run: Run) -> None:
    done = run("status", "--watch", *option)

    assert done.code == 2
    assert done.err.startswith("error: --watch works with -o table and -o wide, without --exit-code")
