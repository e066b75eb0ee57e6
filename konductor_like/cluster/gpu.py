"""Which Nodes have NVIDIA GPUs, by what stands on them (design rule 20)."""

from __future__ import annotations

from collections.abc import Mapping

Selector = tuple[tuple[str, str | None], ...]
"""Labels that must all be there; a value of None accepts any."""

_PRESENT = (
    "nvidia.com/gpu.present",  # NVIDIA's GPU operator and GPU feature discovery
    "feature.node.kubernetes.io/pci-10de.present",  # node feature discovery as the GPU operator sets it up
    "feature.node.kubernetes.io/pci-0302_10de.present",  # node feature discovery by itself: 3D controllers
    "feature.node.kubernetes.io/pci-0300_10de.present",  # and display controllers
)
"""Say ``true`` where there is an NVIDIA GPU, the last three also where its driver failed."""
_ACCELERATORS = (
    "cloud.google.com/gke-accelerator",  # GKE: nvidia-h100-80gb, …
    "k8s.amazonaws.com/accelerator",  # EKS with cluster-autoscaler: nvidia-tesla-v100, …
    "kubernetes.azure.com/accelerator",  # AKS: nvidia
    "accelerator",  # AKS of old: nvidia
    "karpenter.k8s.aws/instance-gpu-manufacturer",  # nvidia, amd, …
    "karpenter.azure.com/sku-gpu-manufacturer",
)
_COUNTS = {
    "karpenter.k8s.aws/instance-gpu-count": "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.azure.com/sku-gpu-count": "karpenter.azure.com/sku-gpu-manufacturer",
}
"""Labels that count GPUs, each with the one that names their maker."""
_OTHER_MAKERS = ("amd", "habana", "intel", "aws", "inferentia", "trainium", "neuron", "xilinx", "qualcomm")


def parse_selector(text: str) -> Selector:
    """Read ``key``, ``key=value``, separated by commas. Raises ValueError naming the offending part."""
    terms: list[tuple[str, str | None]] = []
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.strip().replace("==", "=").partition("="))
        if not key and not sign:
            continue
        if not key or set(key) & set("!<>() \t") or "=" in value:
            raise ValueError(f"{part.strip()!r} is neither key nor key=value")
        terms.append((key, value if sign else None))
    return tuple(terms)


def says_gpu(labels: Mapping[str, str], capacity: Mapping[str, object], selector: Selector) -> bool:
    """Whether labels, capacity keys or the user's own selector say that this is a GPU node.

    A capacity of 0 counts: dead GPUs vanish from the number, not from the key.
    """
    return (
        any(labels.get(name) == "true" for name in _PRESENT)
        or any(_of_nvidia(labels.get(name, "")) for name in _ACCELERATORS)
        or any(_counts_ours(labels, count, maker) for count, maker in _COUNTS.items())
        or any(_is_gpu_resource(name) for name in capacity)
        or (bool(selector) and matches(labels, selector))
    )


def _of_nvidia(value: str) -> bool:
    """The clouds write the product (``nvidia-l4``, ``a100``) or the maker; other makers are known by name."""
    return value not in ("", "none", "false") and not value.lower().startswith(_OTHER_MAKERS)


def _counts_ours(labels: Mapping[str, str], count: str, maker: str) -> bool:
    return labels.get(count, "0") != "0" and _of_nvidia(labels.get(maker, "nvidia"))


def _is_gpu_resource(name: str) -> bool:
    return name == "nvidia.com/gpu" or name.startswith(("nvidia.com/gpu.", "nvidia.com/mig-"))


def matches(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether all of the selector's labels are there."""
    return all(key in labels and value in (None, labels[key]) for key, value in selector)
