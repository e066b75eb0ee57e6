"""What a schedule starts with, and the controller's settings that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from konductor_like.sandbox.loki.limits import MIB, BigAnswer
from konductor_like.settings import Settings

ENDPOINT = "http://loki.test:3100"
POOL_LABEL, DOMAIN_LABEL = "example.org/pool", "example.org/rack"
RATE_SECONDS = 100.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What a schedule starts with: for each node whether it ships plain ``dmesg -w``; brake; Loki's limit."""

    plain: tuple[bool, ...] = (False, False, False)
    brake_percent: float = 100.0
    loki_limit: int = 5000
    loki_cuts: bool = False
    """Answers that must be cut have holes as well (grafana/loki#19133)."""
    loki_message_bytes: int = 4 * MIB
    """The largest message between Loki's parts; a kernel line is about 1 KiB of one."""
    loki_big_answer: BigAnswer = BigAnswer.SILENCE
    """What comes of an answer above that."""
    slow_writes: bool = False
    """The API server is slow with some writes: they are under way longer than anybody waits."""
    overlap_seconds: float = 20.0
    """How far every poll looks back."""
    lateness_seconds: float = 20.0
    """How late a line may arrive; beyond the overlap it is found by a sweep."""
    pool_percent: float | None = None
    """The brake of each of two pools, which the nodes are in by turns."""
    rate_nodes: int | None = None
    """So many taints within :data:`RATE_SECONDS` at most."""
    cooldown_seconds: float = 0.0
    rack: bool = False
    """All nodes are of one NVLink domain."""
    suspect_taint: bool = False
    common_jobs: int = 4
    """A node that alone is common to so many failed jobs is to be tainted."""


@cache
def settings_of(setup: Setup) -> Settings:
    """Short spans, so that a cursor that ran ahead is not made good by a sweep over an hour."""
    return Settings(
        log_endpoint=ENDPOINT,
        brake_max_percent=setup.brake_percent,
        brake_pool_max_percent=setup.pool_percent,
        brake_rate_nodes=setup.rate_nodes,
        brake_rate_window_seconds=RATE_SECONDS,
        brake_cooldown_seconds=setup.cooldown_seconds,
        pool_label=POOL_LABEL,
        domain_label=DOMAIN_LABEL,
        suspect_taint="PreferNoSchedule" if setup.suspect_taint else "none",
        common_node_jobs=setup.common_jobs,
        kernel_overlap_seconds=setup.overlap_seconds,
        pod_overlap_seconds=setup.overlap_seconds,
        lateness_seconds=setup.lateness_seconds,
        pod_lateness_seconds=setup.lateness_seconds,
        first_start_history_seconds=3600.0,  # a day is read in as many queries as it has hours
        tail=False,  # the world nudges by itself
    )
