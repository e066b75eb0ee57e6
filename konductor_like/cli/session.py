"""What a command works with: the settings, a client, and what the controller's Lease says."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError

from konductor_like.cli.errors import CommandError
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeError
from konductor_like.cluster.lease import read_lease
from konductor_like.cluster.published import Published
from konductor_like.exits import Exit
from konductor_like.model import Controls, Coverage, Source
from konductor_like.model.time import moment_of
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like.settings_report import explain_settings_error

Client = TypeVar("Client", bound=ReadOnlyKubeClient)
_UNREADABLE = "the controller's settings are not known: the Lease that carries them cannot be read"
_NEVER = "the controller's settings are not known: no controller has ever run"
_OLDER = "the controller's settings are not known: it is older than this command, and does not publish them"
_STALE_SECONDS: float = Settings.model_fields["heartbeat_stale_seconds"].default


@dataclass(frozen=True, slots=True)
class ControllerReport:
    """What the Lease says; ``holder`` is None where there is no Lease or nobody holds it."""

    lease: str
    """Its namespace and name, ``konductor-like/konductor-like``."""
    exists: bool = True
    holder: str | None = None
    renewed: datetime | None = None
    duration_seconds: float = 0.0
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source was read and acted upon."""
    coverage: Coverage | None = None
    """None where no controller has said yet which kernel logs arrive."""
    settings: Published | None = None
    """What it decides by; None where that is not known."""
    why_unset: str = ""
    """Why the settings are not known."""
    controls: Controls = field(default_factory=Controls)
    """What people told it."""
    problem: str | None = None
    """Why the Lease, or something in it, could not be read."""

    @property
    def readable(self) -> bool:
        """Whether anything is known at all."""
        return self.problem is None or self.renewed is not None

    @property
    def policy(self) -> PolicyConfig:
        """The bounds and spans that it decides by; where they are not known, the defaults."""
        return self.settings.policy if self.settings else PolicyConfig()

    @property
    def stale_seconds(self) -> float:
        """What was not heard or not read for so long is unknown; without settings, their default."""
        return self.settings.stale_seconds if self.settings else _STALE_SECONDS

    @property
    def reached_ns(self) -> Mapping[Source, int]:
        """Up to where each source was read; what was read may wait to be acted upon.

        An older controller does not say so in its coverage.
        """
        return (self.coverage and self.coverage.read_ns) or self.read_ns

    def unread_since(self, now: datetime, source: Source = Source.KERNEL) -> datetime | None:
        """Up to where the source was read, if that is longer ago than the stale span.

        None where it was read since then, and where nothing tells that it was ever read.
        """
        known = [moment_of(self.reached_ns[source])] if source in self.reached_ns else []
        if source is Source.KERNEL and self.coverage is not None:
            known.append(self.coverage.at)
        since = min(known, default=now)
        return since if now - since > timedelta(seconds=self.stale_seconds) else None

    def alive(self, now: datetime) -> bool:
        """Whether the holder renewed recently enough to be taken for running."""
        if self.holder is None or self.renewed is None:
            return False
        return now - self.renewed < timedelta(seconds=self.duration_seconds)

    def other_rules(self, own_digest: str) -> str:
        """A sentence where it runs other rules than this machine has; empty where that is not known."""
        if self.settings is None or not own_digest or self.settings.rules_digest == own_digest:
            return ""
        return (
            f"the controller runs other rules ({self.settings.rules_digest}) than this machine has: "
            "what `explain RULE` and `rules` say here may not hold there"
        )


def now() -> datetime:
    """The present moment, aware: the one place where the command line reads the time."""
    return datetime.now(UTC)


def cluster_now(client: ReadOnlyKubeClient) -> datetime:
    """The time by the cluster's clock, as its last answer told it; a laptop's clock may be wrong."""
    return now() + timedelta(seconds=client.clock_ahead_seconds)


def who() -> str:
    """Who runs this, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a pod's uid need not be in its /etc/passwd
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def load_settings() -> Settings:
    """The settings from the environment. Raises CommandError with all problems."""
    try:
        return Settings()
    except ValidationError as error:
        problems = explain_settings_error(error, os.environ)
        hint = "`konductor-like check-config` checks all of it"
        raise CommandError(*problems, hint=hint, status=Exit.USAGE) from error


@contextmanager
def connected(
    kind: type[Client], kubeconfig: str | None, context: str | None
) -> Iterator[tuple[Client, Settings]]:
    """A client of this kind, and the settings. Raises CommandError or KubeConfigError."""
    settings = load_settings()
    with closing(kind.connect(kubeconfig, context, settings.kube_timeout_seconds)) as client:
        yield client, settings


def lease_namespace(client: ReadOnlyKubeClient, settings: Settings) -> str:
    """Where the controller's Lease is."""
    return settings.lease_namespace(client.namespace if client.in_cluster else None)


def read_controller(client: ReadOnlyKubeClient, settings: Settings) -> ControllerReport:
    """What the Lease says. A Lease that cannot be read is a problem in the report, not an error."""
    try:
        namespace = lease_namespace(client, settings)
        seen = read_lease(client, namespace, settings.lease_name)
    except KubeError as error:
        return ControllerReport(settings.lease_name, problem=str(error), why_unset=_UNREADABLE)
    name = f"{namespace}/{settings.lease_name}"
    if seen is None:
        return ControllerReport(name, exists=False, why_unset=_NEVER)
    known = seen.settings is not None and seen.holder in ("", seen.settings.by)
    return ControllerReport(
        name,
        holder=seen.holder or None,
        renewed=seen.renewed,
        duration_seconds=seen.duration_seconds or 0,
        read_ns=seen.checkpoint.read_ns if seen.checkpoint else {},
        coverage=seen.coverage,
        settings=seen.settings if known else None,
        why_unset="" if known else _OLDER,
        problem=seen.problem,
        controls=seen.controls,
    )
