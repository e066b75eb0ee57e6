from __future__ import annotations

import pytest

from konductor_like.cluster.node_decoder import parse_selector, says_gpu


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
        {"accelerator": "nvidia"},
        {"karpenter.k8s.aws/instance-gpu-count": "8"},
        {
            "karpenter.k8s.aws/instance-gpu-count": "8",
            "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
        },
        {"karpenter.azure.com/sku-gpu-count": "4"},
    ],
    ids=lambda labels: next(iter(labels)),
)
def test_these_labels_mark_a_gpu_node(labels: dict[str, str]) -> None:
    assert says_gpu(labels, {}, ())


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"nvidia.com/gpu.present": "false"},
        {"kubernetes.io/hostname": "nvidia-1"},
        {"kubernetes.azure.com/accelerator": "none"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd", "karpenter.k8s.aws/instance-gpu-count": "1"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "habana"},
        {"karpenter.k8s.aws/instance-gpu-count": "0"},
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
    ],
    ids=str,
)
def test_these_do_not(labels: dict[str, str]) -> None:
    assert not says_gpu(labels, {"cpu": "96", "memory": "1Ti"}, ())


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
@pytest.mark.parametrize("amount", ["0", "8"])
def test_a_capacity_key_marks_one_even_when_all_gpus_are_gone(key: str, amount: str) -> None:
    assert says_gpu({}, {"cpu": "96", key: amount}, ())


@pytest.mark.parametrize("key", ["amd.com/gpu", "nvidia.com/gpus", "google.com/tpu"])
def test_other_resources_do_not(key: str) -> None:
    assert not says_gpu({}, {key: "8"}, ())


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("pool=h100", True),
        ("pool", True),
        ("pool, zone=a", True),
        ("pool==h100", True),
        ("pool=a100", False),
        ("pool,zone=b", False),
        ("missing", False),
        ("", False),
        (" , ", False),
    ],
)
def test_the_users_own_selector_marks_more(selector: str, matches: bool) -> None:
    assert says_gpu({"pool": "h100", "zone": "a"}, {}, parse_selector(selector)) is matches


@pytest.mark.parametrize("selector", ["=h100", "pool!=a", "!pool", "pool in (a,b)", "a=b=c", "two words"])
def test_what_is_no_selector_is_named(selector: str) -> None:
    with pytest.raises(ValueError, match="is neither key nor key=value"):
        parse_selector(selector)
