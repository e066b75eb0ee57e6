"""Which job a pod belongs to, by what the collector knows of it and by its name alone."""

from __future__ import annotations

import pytest

from konductor_like.jobs import by_name, job_of, stem


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("jobset_name", "JobSet"),
        ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
        ("k8s_pod_label_jobset_sigs_k8s_io_jobset_name", "JobSet"),
        ("kubeflow_job_name", "PyTorchJob"),
        ("training.kubeflow.org/job-name", "PyTorchJob"),
        ("ray_cluster_name", "RayCluster"),
        ("ray.io/cluster", "RayCluster"),
        ("kueue.x-k8s.io/pod-group-name", "Workload"),
        ("k8s_job_name", "Job"),
        ("batch.kubernetes.io/job-name", "Job"),
    ],
)
def test_a_label_names_the_job(label: str, kind: str) -> None:
    assert job_of({label: "llama", "app": "x"}, "ml", "any-pod") == f"ml/{kind}/llama"


def test_the_outermost_owner_is_the_job() -> None:
    labels = {"k8s_job_name": "llama-workers-0", "jobset_name": "llama"}

    assert job_of(labels, "ml", "llama-workers-0-3-x7z2b") == "ml/JobSet/llama"


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("llama-worker-3", "llama"),
        ("llama-master-0", "llama"),
        ("llama-launcher-x7z2b", "llama"),
        ("llama-70b-12", "llama-70b"),
        ("llama-workers-0-3-x7z2b", "llama"),
        ("chat-6d4cf56db6-x7z2b", "chat"),
        ("llama-x7z2b", "llama"),
        ("worker-0", "worker"),
        ("llama", "llama"),
        ("0-1-2", "0"),
    ],
)
def test_a_pods_name_gives_the_job_away(pod: str, job: str) -> None:
    assert stem(pod) == job
    assert job_of({}, "ml", pod) == f"ml/Pod/{job}"


@pytest.mark.parametrize("label", ["k8s_daemonset_name", "k8s.daemonset.name"])
def test_a_daemon_sets_pods_are_of_no_job(label: str) -> None:
    assert job_of({label: "exporter", "app": "x"}, "mon", "exporter-x7z2b") is None


def test_a_name_that_no_pod_can_have_brings_no_signs_along() -> None:
    assert job_of({}, "ml", "a/b\x1b[31m\nc-0") == "ml/Pod/a_b__31m_c"


def test_a_line_without_a_pod_is_of_no_job() -> None:
    assert job_of({"app": "x"}, "ml", None) is None


def test_a_job_known_by_name_alone_is_known_as_such() -> None:
    assert by_name("ml/Pod/llama")
    assert not by_name("ml/JobSet/Pod")
    assert not by_name(None)
