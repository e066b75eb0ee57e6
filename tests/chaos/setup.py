"""The setup of a schedule, and the controller's settings that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from konductor_like.settings import Settings
from konductor_like_sandbox.loki.limits import BigAnswer

ENDPOINT = "http://loki.test:3100"
POOL_LABEL, DOMAIN_LABEL, MANAGED = "example.org/pool", "example.org/rack", "example.org/managed"
RECOVERABLE = "example.org/recoverable"
PERSON = "kubectl-taint"
"""The field manager of a person who edits Nodes by hand."""
CLAIM = "karpenter.sh/disrupted"
"""The taint with which another tool claims a node."""
RATE_SECONDS = 100.0
IMAGE = "registry.test/dcgm@sha256:" + "0" * 64
"""The image of validations."""
SPACE = "konductor-like-validation"
"""The namespace of their Jobs."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a schedule; ``plain`` has for each node whether it ships plain ``dmesg -w``."""

    plain: tuple[bool, ...] = (False, False, False)
    brake_percent: float = 100.0
    loki_limit: int = 5000
    loki_cuts: bool = False
    """Whether answers that Loki cuts have holes as well (grafana/loki#19133)."""
    message_bytes: int = 4 * 2**20
    """Bytes of the largest answer that Loki can send; the next three say how a larger one fails."""
    big_answer: BigAnswer = BigAnswer.SILENCE
    query_timeout_seconds: float = 60.0
    write_timeout_seconds: float = 30.0
    slow_writes: bool = False
    """Whether the answers of some writes come later than the writer waits."""
    overlap_seconds: float = 20.0
    """Seconds before its cursor from which every poll reads again."""
    lateness_seconds: float = 20.0
    """Seconds that a line may arrive late; a sweep finds lines that are later than the overlap."""
    pool_percent: float | None = None
    """Percent of a pool that may be tainted; the nodes alternate between two pools."""
    rate_nodes: int | None = None
    """Number of nodes that may be tainted within :data:`RATE_SECONDS`."""
    cooldown_seconds: float = 0.0
    rack: bool = False
    """Whether all nodes are in one NVLink domain."""
    suspect_taints: bool = False
    """Whether the nodes have the suspect taint of an earlier version at first."""
    validated: bool = False
    """Whether nodes return by themselves after a validation (``KONDUCTOR_RETURN=validated``)."""
    image: bool = False
    """Whether there is an image for validations that people ask for; with ``validated`` there is one."""
    rehearses: bool = False
    recovery_selector: str = ""
    """The label that a node needs for its validation and return by the controller itself."""
    returns: bool = False
    """Whether nodes return by themselves after a reboot (``KONDUCTOR_RETURN=reboot``)."""
    quiet_seconds: float = 120.0
    """Seconds for which the new boot must be heard before a node returns by itself."""
    probation_seconds: float = 1000.0
    returns_per_hour: int = 10
    hold_seconds: float = 1800.0
    """Seconds of the hold at the second failure of a node."""
    repeat_count: int = 3
    """Number of failures that mark a node for replacement; 0 for never."""
    test_seconds: float = 3600.0
    """Seconds after which a test (Xid 14) ends."""
    suspect_days: float = 7.0
    gpu_seconds: float = 1800.0
    """Seconds for which GPUs must be missing until the node is suspect; 0 for never."""

    @property
    def spans(self) -> dict[str, float]:
        """Constants of the readers, by name."""
        overlaps = dict.fromkeys(("KERNEL_OVERLAP_SECONDS", "POD_OVERLAP_SECONDS"), self.overlap_seconds)
        return {**overlaps, "POD_LATENESS_SECONDS": self.lateness_seconds}


@cache
def settings_of(setup: Setup) -> Settings:
    """Return settings with short spans, so that a sweep over an hour does not hide a cursor too far ahead."""
    return Settings(
        log_endpoint=ENDPOINT,
        brake_max_percent=setup.brake_percent,
        brake_pool_max_percent=setup.pool_percent,
        brake_rate_nodes=setup.rate_nodes,
        brake_rate_window_seconds=RATE_SECONDS,
        brake_cooldown_seconds=setup.cooldown_seconds,
        pool_label=POOL_LABEL,
        domain_label=DOMAIN_LABEL,
        node_selector=MANAGED,
        lateness_seconds=setup.lateness_seconds,
        return_by="validated" if setup.validated else "reboot" if setup.returns else "ask",
        recovery="rehearse" if setup.rehearses else "on",
        recovery_node_selector=setup.recovery_selector,
        validation_image=IMAGE if setup.validated or setup.image else "",
        return_quiet_seconds=setup.quiet_seconds,
        probation_seconds=setup.probation_seconds,
        returns_per_hour=setup.returns_per_hour,
        hold_base_seconds=setup.hold_seconds,
        repeat_count=setup.repeat_count,
        test_seconds=setup.test_seconds,
        suspect_days=setup.suspect_days,
        gpu_count_seconds=setup.gpu_seconds,
        tail=False,  # the world wakes the poller itself
    )
