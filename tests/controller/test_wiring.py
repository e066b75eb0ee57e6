"""The parts of a leadership, and the checkpoint from which it reads."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.controller import launch, wiring
from konductor_like.controller.leaderships import starting_checkpoint
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.job_events import JobOwners
from konductor_like.controller.wiring import Options, open_controller
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.errors import LokiTimeout
from konductor_like.loki.readers.backfill import NodeBackfill
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Checkpoint, Machine, NodeRecord, Release, ReleaseHow, Source
from konductor_like.model.attempts import Doing
from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer

SECOND = 1_000_000_000
NOW = 1_795_240_000 * SECOND
DAY = 86_400 * SECOND
SAVED = Checkpoint({Source.KERNEL: NOW - 60 * SECOND, Source.POD: NOW - 70 * SECOND}, NOW - 30 * DAY)


@pytest.mark.parametrize("kernel_ns", [NOW - 60 * SECOND, NOW + 20 * SECOND], ids=["", "a little ahead"])
def test_a_leadership_reads_on_from_the_saved_cursors(kernel_ns: int) -> None:
    saved = replace(SAVED, read_ns={**SAVED.read_ns, Source.KERNEL: kernel_ns})

    assert starting_checkpoint(saved, Settings(), NOW) == saved


def test_the_very_first_leadership_reads_as_the_settings_say() -> None:
    act_from_ns = NOW - 900 * SECOND
    expected = Checkpoint({Source.KERNEL: NOW - DAY, Source.POD: act_from_ns}, act_from_ns)

    assert starting_checkpoint(None, Settings(), NOW) == expected


@pytest.mark.parametrize(
    "read_ns",
    [
        {Source.POD: NOW - 70 * SECOND},
        {Source.POD: NOW - 70 * SECOND, Source.KERNEL: NOW + DAY},
    ],
    ids=["missing", "from the future"],
)
def test_an_unusable_cursor_counts_as_none_and_act_from_never_moves_forward(
    read_ns: dict[Source, int],
) -> None:
    start = starting_checkpoint(Checkpoint(read_ns, SAVED.act_from_ns), Settings(), NOW)

    assert start.read_ns == {Source.KERNEL: NOW - DAY, Source.POD: NOW - 70 * SECOND}
    assert start.act_from_ns == SAVED.act_from_ns


def test_the_releases_are_taken_over_with_the_cursors() -> None:
    mark = Release(datetime(2026, 3, 4, tzinfo=UTC), "ann", "", ReleaseHow.RESET)
    released = (NodeRecord(Machine("uid", "system", "boot"), releases=(mark,)),)

    assert starting_checkpoint(replace(SAVED, released=released), Settings(), NOW).released == released


def test_all_readers_share_one_budget_which_the_metric_shows(tmp_path: Path) -> None:
    kubeconfig, metrics = str(KubernetesServer().kubeconfig(tmp_path / "config")), Metrics()
    settings = Settings(loki_budget_mib_per_minute=1, watched_namespaces="default")

    with open_controller(settings, Options(kubeconfig=kubeconfig), metrics, threading.Event()) as controller:
        leadership = controller._make_leadership(SAVED, None, threading.Event())

    budgets = {name: vars(reader)["_budget"] for name, reader in leadership._readers.items()}
    assert budgets.keys() == {"kernel", "pod", "heartbeat", "backfill", "warmup"}
    assert len(set(map(id, budgets.values()))) == 1
    budgets["heartbeat"].spend(2**19)
    assert metrics.registry.get_sample_value("konductor_like_loki_budget_used_ratio") == 0.5


def test_the_silence_of_loki_is_among_the_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LokiClient, "silent_seconds", lambda _: 20.0)
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))

    with open_controller(
        Settings(), Options(kubeconfig=kubeconfig), Metrics(), threading.Event()
    ) as controller:
        tried = controller._make_leadership(SAVED, None, threading.Event()).lease_content().attempts

    assert tried is not None
    assert tried.of(Doing.KERNEL).error == "Loki has not answered yet"


def test_the_recovery_file_of_an_earlier_version_is_told_as_long_as_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    metrics, file = Metrics(), tmp_path / "recovery.yaml"
    file.write_text("return: ask")
    settings = Settings(recovery_file=file, return_by="reboot")

    with open_controller(settings, Options(kubeconfig=kubeconfig), metrics, threading.Event()) as controller:
        leadership = controller._make_leadership(SAVED, None, threading.Event())
        for there in (True, False):
            leadership._act_on([])
            value = metrics.registry.get_sample_value("konductor_like_recovery_by_file")
            assert (value, leadership._reconciler.policy.returns_by_reboot) == (there, not there)
            file.unlink(missing_ok=True)

    assert f"KONDUCTOR_RECOVERY_FILE={file}: {BY_FILE}" in caplog.messages


@pytest.mark.parametrize("once", [True, False])
def test_only_a_controller_that_runs_on_watches_the_rules_file(
    once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    def opened(*parts: object) -> None:
        found.append(parts[-1])
        raise OSError("enough")

    monkeypatch.setattr(launch, "open_controller", opened)
    launch._serve(Settings(), Options(once=once), threading.Event(), threading.Event())

    assert [each is None for each in found] == [once]


def test_no_thread_starts_before_all_parts_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig, before = str(KubernetesServer().kubeconfig(tmp_path / "config")), {*threading.enumerate()}
    monkeypatch.setattr(wiring, "Controller", {}.pop)

    with (
        pytest.raises(TypeError),
        open_controller(
            Settings(job_events=True), Options(kubeconfig=kubeconfig), Metrics(), threading.Event()
        ),
    ):
        pass

    assert {*threading.enumerate()} == before


def test_a_changed_node_and_an_answer_about_jobs_wake_the_controller(tmp_path: Path) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))

    with open_controller(Settings(), Options(kubeconfig=kubeconfig), Metrics(), threading.Event()) as made:
        leadership = made._make_leadership(None, None, threading.Event())

    jobs = leadership._reconciler._observer._jobs
    assert jobs is not None
    assert made._store.on_change == jobs.answered == made.nodes_changed


def test_a_node_whose_older_lines_cannot_be_read_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig, metrics = str(KubernetesServer().kubeconfig(tmp_path / "config")), Metrics()

    with open_controller(Settings(), Options(kubeconfig=kubeconfig), metrics, threading.Event()) as made:
        backfill = made._make_leadership(SAVED, None, threading.Event())._readers["backfill"]
        assert isinstance(backfill, NodeBackfill)
        backfill.request("gpu-7", 0)
        assert backfill.waiting() == {"gpu-7"}
        backfill._gave_up("gpu-7", LokiTimeout("Loki was silent."))

    assert "node gpu-7: the Node registered again" in caplog.text


@pytest.mark.parametrize(
    ("kind", "dry_run"), [("TrainyGPUFaulty", False), ("", False), ("TrainyGPUFaulty", True)]
)
def test_a_leadership_writes_node_conditions_and_a_dry_run_has_nothing_that_could(
    kind: str, dry_run: bool, tmp_path: Path
) -> None:
    """Without a name the real one removes conditions of before."""
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    settings, options = Settings(node_condition=kind), Options(dry_run=dry_run, kubeconfig=kubeconfig)

    with open_controller(settings, options, Metrics(), threading.Event()) as controller:
        leadership = controller._make_leadership(None, None, threading.Event())

    assert (leadership._conditions is None) is dry_run


def test_no_pattern_selects_the_namespace_in_which_the_controller_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    monkeypatch.setattr(ReadOnlyKubeClient, "in_cluster", property(lambda _: True))
    monkeypatch.setattr(ReadOnlyKubeClient, "namespace", property(lambda _: "kl-system"))
    settings = Settings(watched_namespaces="*", excluded_namespaces="")

    with open_controller(
        settings, Options(dry_run=True, kubeconfig=kubeconfig), Metrics(), threading.Event()
    ) as controller:
        leadership = controller._make_leadership(None, None, threading.Event())

    reader = leadership._readers["pod"]
    assert isinstance(reader, SourceReader)
    assert 'k8s_namespace_name!~"kube-system|kl-system|dmesg-logging"' in reader._query.text


def test_no_validation_runs_in_the_namespace_of_the_controllers_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    monkeypatch.setattr(ReadOnlyKubeClient, "in_cluster", property(lambda _: True))
    monkeypatch.setattr(ReadOnlyKubeClient, "namespace", property(lambda _: "gpu-ops"))
    settings, options = (
        Settings(validation_image="dcgm:4", validation_namespace="gpu-ops"),
        Options(kubeconfig=kubeconfig),
    )
    opened = open_controller(settings, options, Metrics(), threading.Event())

    with pytest.raises(ValueError, match="must not be the controller's own namespace"), opened:
        pass


@pytest.mark.parametrize(("wanted", "dry_run"), [(True, False), (False, False), (True, True)])
def test_only_a_real_run_that_is_asked_to_sends_events_to_jobs(
    wanted: bool, dry_run: bool, tmp_path: Path
) -> None:
    kubeconfig = str(KubernetesServer().kubeconfig(tmp_path / "config"))
    settings, options = Settings(job_events=wanted), Options(dry_run=dry_run, kubeconfig=kubeconfig)

    with open_controller(settings, options, Metrics(), threading.Event()) as controller:
        reconciler = controller._make_leadership(None, None, threading.Event())._reconciler

    assert isinstance(reconciler._events, JobOwners) is (wanted and not dry_run)


def test_events_to_jobs_need_the_list_of_pods() -> None:
    with pytest.raises(ValidationError, match="KONDUCTOR_JOB_EVENTS needs KONDUCTOR_ASK_FOR_PODS=true"):
        Settings(job_events=True, ask_for_pods=False)
