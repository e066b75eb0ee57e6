"""The start of a command: load the settings, connect to the cluster, read the controller's Lease."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError

from konductor_like.build import Program, this_program
from konductor_like.cli.errors import CommandError
from konductor_like.cli.output import warn
from konductor_like.cluster.api.client import KUBE_TIMEOUT_SECONDS, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.lease.election import read_lease
from konductor_like.cluster.published import LOKI_NAMES, Published
from konductor_like.exits import Exit
from konductor_like.model import Controls, Coverage, Source
from konductor_like.model.attempts import Attempts
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like.settings_report import explain_settings_error

Client = TypeVar("Client", bound=ReadOnlyKubeClient)
SILENT_SECONDS = 5.0
"""Seconds without any answer of the API server after which a command says so."""
_UNREADABLE = "the controller's settings are not known: the Lease that carries them cannot be read"
_NEVER = "the controller's settings are not known: no controller has ever run"
_NOT_PUBLISHED = (
    "the controller's settings are not known: the controller has not published them yet, or it is older than "
    "this command and does not publish them"
)
_STALE_SECONDS: float = Settings.model_fields["heartbeat_stale_seconds"].default


@dataclass(frozen=True, slots=True)
class ControllerReport:
    """The content of the Lease; ``holder`` is None if there is no Lease or no process holds it."""

    lease: str
    """The Lease's namespace and name, ``konductor-like/konductor-like``."""
    exists: bool = True
    holder: str | None = None
    renewed: datetime | None = None
    duration_seconds: float = 0.0
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """By source, the time up to which the controller has read its lines and acted upon them."""
    act_from_ns: int | None = None
    """The time that the first start fixed: older lines are never acted upon; None if it is not known."""
    coverage: Coverage | None = None
    """Which kernel logs arrive; None if no controller has published this yet."""
    settings: Published | None = None
    """The settings by which the controller decides; None if they are not known."""
    why_settings_unknown: str = ""
    """Why the settings are not known; empty if they are known."""
    program: Program | None = None
    """The controller's version and build; None if they are not known."""
    acquired: datetime | None = None
    """When the holder took the Lease."""
    attempts: Attempts = field(default_factory=Attempts)
    """How the holder's last queries and writes went; empty if it has not published them, or not yet."""
    controls: Controls = field(default_factory=Controls)
    """The acts of people on the controller: a pause, a reset of the brake."""
    problem: str | None = None
    """Why the Lease, or something in it, could not be read."""

    @property
    def namespace(self) -> str:
        """The Lease's namespace, which is the controller's."""
        return self.lease.partition("/")[0]

    @property
    def readable(self) -> bool:
        """Whether the command could read the Lease."""
        return self.problem is None or self.renewed is not None

    @property
    def ambiguous(self) -> frozenset[str]:
        """The names under which two machines report at once; empty if they are not known."""
        return self.coverage.ambiguous if self.coverage else frozenset()

    @property
    def policy(self) -> PolicyConfig:
        """Return the policy's settings of the controller; the defaults if they are not known."""
        return self.settings.policy if self.settings else PolicyConfig()

    @property
    def stale_seconds(self) -> float:
        """Seconds after which a node without a heartbeat, or whose log was not read, is unknown."""
        return self.settings.stale_seconds if self.settings else _STALE_SECONDS

    @property
    def reached_ns(self) -> Mapping[Source, int]:
        """Return, by source, the time up to which the controller has read it.

        The controller may not have acted upon the latest lines yet. An older controller does not publish
        these times; for it, return the times up to which it has acted.
        """
        return (self.coverage and self.coverage.read_ns) or self.read_ns

    def unread_since(self, now: datetime, source: Source = Source.KERNEL) -> datetime | None:
        """Return the time up to which the source was read, if it is older than ``stale_seconds``.

        Return None if the source was read later than that, and if the Lease has no such time.
        """
        known = [moment_of(self.reached_ns[source])] if source in self.reached_ns else []
        if source is Source.KERNEL and self.coverage is not None:
            known.append(self.coverage.at)
        since = min(known, default=now)
        return since if now - since > timedelta(seconds=self.stale_seconds) else None

    def alive(self, now: datetime) -> bool:
        """Whether the Lease has a holder that renewed it within the Lease's duration."""
        if self.holder is None or self.renewed is None:
            return False
        return now - self.renewed < timedelta(seconds=self.duration_seconds)

    def why_not_running(self, now: datetime) -> str:
        """Return that the controller does not run; empty if it runs, and if the Lease cannot be read."""
        if self.alive(now) or not self.readable:
            return ""
        if Source.KERNEL not in self.reached_ns:
            return "the controller does not run"
        reached = stamp(moment_of(self.reached_ns[Source.KERNEL]))
        return f"the controller does not run; kernel logs were read up to {reached}"

    def other_build(self, now: datetime) -> str:
        """Return both builds if a controller runs that is another build than this command; else ""."""
        this_command = this_program()
        is_other = self.program is not None and self.program != this_command and self.alive(now)
        return f"controller {self.program}, this command {this_command}" if is_other else ""

    def other_rules(self, own_digest: str) -> str:
        """Return a sentence if the controller's rules differ from this machine's; else an empty text.

        The text is empty, too, if either digest is not known.
        """
        if self.settings is None or not own_digest or self.settings.rules_digest == own_digest:
            return ""
        return (
            f"the controller runs other rules ({self.settings.rules_digest}) than this machine has: "
            "the output of `explain RULE` and `rules` here may not apply there"
        )


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that this block cleans up."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGHUP: they must not stop the clean-up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP in this block, so that its writes are whole."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    ignore_signals()
    raise SystemExit(128 + number)


def now() -> datetime:
    """Return the present time in UTC; the command line reads the clock only here."""
    return datetime.now(UTC)


def cluster_now(client: ReadOnlyKubeClient) -> datetime:
    """Return the time by the API server's clock, from its last answer; a laptop's clock may be wrong."""
    return now() + timedelta(seconds=client.clock_ahead_seconds)


def who(client: ReadOnlyKubeClient, claimed: str | None = None) -> str:
    """Return the person for the record: the user name by which the API server knows the client.

    Nobody checks ``claimed``, the name after ``--by``, so the record marks it:
    ``alice (claimed, as system:serviceaccount:konductor-like:konductor-like)``. If the server does not tell
    the user name (it is older than Kubernetes 1.28, or refuses), the name of this process is a claim, too.
    """
    try:
        user = client.user_name()
    except KubeError:
        return f"{claimed or local_user()} (claimed)"
    return user if claimed in (None, user) else f"{claimed} (claimed, as {user})"


def local_user() -> str:
    """Return the user of this process, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a pod's uid may be missing in its /etc/passwd
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def load_settings() -> Settings:
    """Load the settings from the environment. Raises CommandError with all problems."""
    try:
        return Settings()
    except ValidationError as error:
        problems = explain_settings_error(error, os.environ)
        hint = "`konductor-like check-config` checks the whole configuration"
        raise CommandError(*problems, hint=hint, status=Exit.USAGE) from error


@contextmanager
def connected(
    kind: type[Client], kubeconfig: str | None, context: str | None
) -> Iterator[tuple[Client, Settings]]:
    """Connect a client of this kind, and load the settings. Raises CommandError or KubeConfigError."""
    settings = load_settings()
    with closing(kind.connect(kubeconfig, context, KUBE_TIMEOUT_SECONDS)) as client:
        client.give_up_early()
        with _told_of_silence(client):
            yield client, settings


@contextmanager
def _told_of_silence(client: ReadOnlyKubeClient) -> Iterator[None]:
    """Tell the person once if the server has answered nothing for some seconds."""

    def tell() -> None:
        if not client.answered:
            warn(f"no answer yet from {client.server} after {SILENT_SECONDS:g} s")

    timer = threading.Timer(SILENT_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def lease_namespace(client: ReadOnlyKubeClient, settings: Settings) -> str:
    """Return the namespace of the controller's Lease."""
    return settings.lease_namespace(client.namespace if client.in_cluster else None)


def read_controller(client: ReadOnlyKubeClient, settings: Settings) -> ControllerReport:
    """Read the Lease. If this fails, the report names the problem and no error is raised."""
    try:
        return known_controller(client, settings)
    except KubeError as error:
        return ControllerReport(settings.lease_name, problem=str(error), why_settings_unknown=_UNREADABLE)


def like_the_controller(settings: Settings, published: Published | None) -> Settings:
    """Return the settings with which the controller asks Loki, as far as this shell does not set others."""
    if published is None:
        return settings
    names = set(LOKI_NAMES if published.kernel_selector else ()) - settings.model_fields_set
    theirs = {name: getattr(published, name) for name in names}
    return settings.model_copy(update={**theirs, "watched_namespaces": published.namespaces})


def known_controller(client: ReadOnlyKubeClient, settings: Settings) -> ControllerReport:
    """Read the Lease. Raises a KubeError."""
    namespace = lease_namespace(client, settings)
    seen = read_lease(client, namespace, settings.lease_name)
    name = f"{namespace}/{settings.lease_name}"
    if seen is None:
        return ControllerReport(name, exists=False, why_settings_unknown=_NEVER)
    known = seen.settings is not None and seen.holder in ("", seen.settings.by)
    return ControllerReport(
        name,
        holder=seen.holder or None,
        renewed=seen.renewed,
        duration_seconds=seen.duration_seconds or 0,
        read_ns=seen.checkpoint.read_ns if seen.checkpoint else {},
        act_from_ns=seen.checkpoint.act_from_ns if seen.checkpoint else None,
        coverage=seen.coverage,
        settings=seen.settings if known else None,
        why_settings_unknown="" if known else _NOT_PUBLISHED,
        problem=seen.problem,
        program=seen.program,
        controls=seen.controls,
        acquired=seen.acquired_at,
        attempts=seen.attempts or Attempts(),
    )
