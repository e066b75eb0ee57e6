"""Delays are measured if they can be known."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.controller.reporting.metrics import OBSERVED_MOST, Latency, Metrics
from konductor_like.model import Fault, Source
from tests.policy.scenes import fault, ns


class Scene:
    """A latency over metrics that a test can read; boot-a began 1,000 s before noon."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.now = 10.0
        self.latency = Latency(
            self.metrics,
            lambda _, boot_id: ns(-1000) if boot_id == "boot-a" else None,
            lambda: ns(self.now),
        )

    def read(self, *found: Fault, at: float) -> None:
        self.latency.read(found, {Source.KERNEL: ns(at)})

    def measured(self, name: str, **labels: str) -> tuple[float, float]:
        sample = self.metrics.registry.get_sample_value
        prefix = f"konductor_like_{name}_seconds"
        return sample(f"{prefix}_count", labels) or 0, round(sample(f"{prefix}_sum", labels) or 0, 3)


def test_the_delay_to_loki_follows_from_the_kernels_stamp_and_the_start_of_the_boot() -> None:
    scene = Scene()
    replayed = fault(boot="boot-a", stamp=100)
    scene.read(replayed, fault(boot="boot-x", stamp=999), fault(boot="boot-a", stamp=None), at=1)
    assert scene.measured("kernel_to_entry") == (0, 0)

    scene.read(fault(boot="boot-a", stamp=998.5, seconds=0), at=2)

    assert scene.measured("kernel_to_entry") == (1, 1.5)
    assert scene.measured("entry_to_read", source="kernel") == (4, 5.0)


def test_the_lines_from_before_the_install_have_no_delay() -> None:
    scene = Scene()

    scene.read(replace(fault(boot="boot-a"), before_install=True), at=3600)

    assert scene.measured("entry_to_read", source="kernel") == (0, 0)


def test_from_reading_to_the_taint_is_measured_once_per_fault() -> None:
    scene = Scene()
    found = fault(boot="boot-a")
    scene.read(found, at=4)
    scene.now = 4.25

    scene.latency.tainted(found)
    scene.latency.tainted(found)

    assert scene.measured("read_to_taint") == (1, 0.25)


def test_only_a_sample_of_a_flood_is_measured_and_no_line_of_a_backfill() -> None:
    scene = Scene()

    scene.latency.read([fault()], {})
    scene.latency.tainted(fault())
    scene.latency.tainted(replace(fault(), node=None))
    assert scene.measured("entry_to_read", source="kernel") == scene.measured("read_to_taint") == (0, 0)
    scene.read(*[fault()] * 1000, at=2)

    assert scene.measured("entry_to_read", source="kernel")[0] == OBSERVED_MOST
