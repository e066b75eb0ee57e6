"""``status --watch``: a report every ten seconds, drawn again or as the rows that changed."""

from __future__ import annotations

import io
import os
import re
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
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)


def test_a_changed_node_is_reported(cluster: Cluster) -> None:
    server = cluster("healthy")
    with watching() as found:
        assert [node.health for node in next(found).nodes] == [Health.HEALTHY, Health.HEALTHY]

        taint(server, "gpu-2")

        report = states_when(found, "gpu-2", Health.FAULTY)
        assert (report.brake.out, report.stale) == (1, "")


def test_a_report_says_that_it_is_not_live_while_the_api_server_fails(cluster: Cluster) -> None:
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


def test_a_terminal_is_drawn_again_as_far_as_it_reaches_and_the_last_report_stays_whole(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("300 nodes")
    monkeypatch.setenv("LINES", "20")

    watch.follow(two_reports(), View(rows_first=True), Screen(width=200, colours=True))
    first, second, last = re.split(r"(?=\x1b\[1m300 GPU nodes:)", capsys.readouterr().out)[1:]

    for screen in (first, second):
        assert 15 < screen.count("\n") <= 20
        assert "To do:" not in screen
    assert "To do:" in last


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


def test_a_watch_whose_reader_has_ended_reports_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("healthy")
    monkeypatch.setattr(watch, "POLL_SECONDS", 3600.0)
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
