"""The command writes one file, refuses to overwrite one, and says when it could not read everything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from konductor_like.model.time import unix_ns
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.loki.limits import LokiLimits
from tests.cli.conftest import Run
from tests.cli.report.reading import Page
from tests.cli.transcripts import forget_settings
from tests.history.fleet_month import POOL_LABEL, RACK_LABEL, Month, simulated

OURS = {"k8s_namespace_name": "konductor-like", "k8s_container_name": "konductor-like"}


@pytest.fixture(scope="module")
def month() -> Month:
    return simulated(24, end=datetime.now(UTC).replace(microsecond=0))


@pytest.fixture(scope="module")
def loki(month: Month) -> Iterator[LokiServer]:
    with LokiServer(limits=LokiLimits(reject_old_samples_max_age_seconds=60 * 86_400)) as server:
        lines = [(unix_ns(at), text) for at, text in month.lines() if at < month.end]
        server.push(OURS, lines)
        yield server


@pytest.fixture(scope="module")
def kubeconfig(month: Month, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KubernetesServer(nodes=month.objects()) as server:
        yield str(server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig"))


@pytest.fixture
def place(loki: LokiServer, kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the commands know Loki and the cluster."""
    forget_settings(monkeypatch)
    for name, value in {
        "LOG_ENDPOINT": loki.url,
        "KUBECONFIG": kubeconfig,
        "KONDUCTOR_RACK_LABEL": RACK_LABEL,
        "KONDUCTOR_POOL_LABEL": POOL_LABEL,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_has_every_outage_of_trail_and_records(run: Run, place: Path, month: Month) -> None:
    done = run("report", "--since", "30d", "-o", "report.html")

    assert done.code == 0
    assert "written: report.html (" in done.err
    page = Page((place / "report.html").read_text("utf-8"))
    shown = {row.all("th")[0].text for row in page.rows}
    assert shown == {each.node for each in month.in_span}
    assert len(page.rows) == pytest.approx(len(month.in_span), abs=1)  # one may end as the span begins
    assert "By rack" in page.text


def test_a_file_must_be_named(run: Run, place: Path) -> None:
    assert run("report").code == 2
    assert list(place.iterdir()) == []


def test_a_file_is_overwritten_with_force_alone(run: Run, place: Path, loki: LokiServer) -> None:
    file = place / "report.html"
    file.write_text("mine")
    loki.clear_journal()

    refused = run("report", "-o", "report.html")
    assert (refused.code, file.read_text()) == (2, "mine")
    assert refused.err.startswith("error: report.html exists\nhint: --force replaces it")
    assert list(loki.journal) == []  # refused at once, not after a minute
    assert run("report", "-o", "report.html", "--force").code == 0
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_file_that_appears_meanwhile_is_left_alone(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konductor_like.cli.report.command.check_target", lambda *_, **__: None)
    (place / "report.html").write_text("mine")

    assert run("report", "-o", "report.html").code == 1
    assert (place / "report.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "says"), [(".", "is a folder"), ("no/such/report.html", "there is no folder no/such")]
)
def test_a_place_that_takes_no_file_is_refused_before_loki_is_read(
    run: Run, place: Path, loki: LokiServer, name: str, says: str
) -> None:
    loki.clear_journal()
    done = run("report", "-o", name)

    assert done.code == 2
    assert says in done.err
    assert list(loki.journal) == []
    assert list(place.iterdir()) == []


def test_without_jinja2_the_command_says_how_to_install_it(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = run("report", "-o", "report.html")

    assert done.code == 2
    assert done.err == (
        "error: report needs Jinja2, which is not installed: pip install 'konductor-like[report]', or "
        "pip install '.[report]' in a copy of the repository\n"
    )
    assert list(place.iterdir()) == []


def test_the_other_commands_run_without_jinja2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    assert run("report", "--help").code == 0


def test_a_loki_that_refuses_to_answer_makes_the_page_incomplete(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LokiServer(auth_enabled=True) as refusing:
        monkeypatch.setenv("LOG_ENDPOINT", refusing.url)
        done = run("report", "-o", "report.html")

    assert done.code == 3
    assert "warning: the audit trail cannot be read" in done.err
    page = Page((place / "report.html").read_text("utf-8"))
    assert "This report is incomplete" in page.text
    assert page.rows  # of the records


def test_a_cluster_that_does_not_answer_makes_the_page_incomplete(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "kubeconfig").write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(place / "kubeconfig"))
    done = run("report", "-o", "report.html")

    assert done.code == 3
    assert "warning: the Nodes cannot be read" in done.err
    assert "This report is incomplete" in Page((place / "report.html").read_text("utf-8")).text
