"""All settings, in one model.

The docstring under each field is its text in ``docs/configuration.md``. Values come from the environment:
``KONDUCTOR_`` plus the field's name in upper case. Two settings also have the names that Konduktor's users
already have in their manifests: ``LOG_ENDPOINT`` and ``WATCHED_NAMESPACES``.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from konductor_like.policy.config import PolicyConfig

PREFIX = "KONDUCTOR_"
_POLICY = PolicyConfig()
"""Contains the defaults of the settings that the policy has under the same name."""

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MATCHER = re.compile(
    r'\s*(?P<name>[a-zA-Z_]\w*)\s*(?P<op>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|`[^`]*`)\s*'
)

EVERYDAY: tuple[str, ...] = (
    "log_endpoint",
    "watched_namespaces",
    "loki_tenant",
    "kernel_selector",
    "node_label",
    "brake_max_percent",
    "brake_max_nodes",
    "gpu_node_selector",
    "pool_label",
    "rules_file",
)
"""The settings that most installations change; the reference page lists them first, in this order."""


class Settings(BaseSettings):
    """The configuration of one process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    # Loki: where and how.
    log_endpoint: str = Field(
        "http://loki.loki.svc.cluster.local:3100",
        validation_alias=AliasChoices("log_endpoint", "LOG_ENDPOINT", "KONDUCTOR_LOG_ENDPOINT"),
    )
    """Loki's base URL, `http` or `https`; a base path (`https://host/loki-prod`) is kept."""
    watched_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        ("default",),
        validation_alias=AliasChoices(
            "watched_namespaces", "WATCHED_NAMESPACES", "KONDUCTOR_WATCHED_NAMESPACES"
        ),
    )
    """Namespaces whose pod logs are read for CUDA and NCCL errors, separated by commas."""
    loki_tenant: str | None = None
    """Sent as `X-Scope-OrgID`; needed if Loki runs with `auth_enabled: true`."""
    loki_bearer_token: SecretStr | None = None
    """Bearer token for Loki."""
    loki_bearer_token_file: Path | None = None
    """File that holds the bearer token; read again for every request, so a rotated token is picked up."""
    loki_username: str | None = None
    """User name for basic authentication."""
    loki_password: SecretStr | None = None
    """Password for basic authentication."""
    loki_ca_file: Path | None = None
    """PEM file with the authority that signed Loki's certificate."""
    loki_client_cert_file: Path | None = None
    """PEM client certificate, together with `KONDUCTOR_LOKI_CLIENT_KEY_FILE`."""
    loki_client_key_file: Path | None = None
    """Private key of the client certificate."""
    loki_insecure_skip_verify: bool = False
    """Do not verify Loki's certificate. For a test only."""
    loki_connect_timeout_seconds: float = Field(5.0, gt=0)
    """Timeout for a connection to Loki."""
    loki_timeout_seconds: float = Field(75.0, gt=0)
    """Timeout for one answer of Loki; keep it above Loki's own `query_timeout` (1 min by default)."""
    loki_limit: int = Field(5000, ge=2, le=1_000_000)
    """Most entries in one query, as Loki's `max_entries_limit_per_query`. If the tenant's limit is lower, the
    controller uses that; it asks for fewer entries if an answer would be larger than 2 MiB."""

    # Loki: which lines.
    kernel_selector: str = '{k8s_namespace_name="dmesg-logging", k8s_container_name="dmesg"}'
    """Stream selector of the kernel-log reader's pods; expressions are RE2. Checked again on every line."""
    extra_matchers: str = ""
    """Matchers added to every query, such as `k8s_cluster_name="prod"` if clusters share a Loki."""
    node_label: str = "k8s_node_name"
    """Label, or structured metadata, that names the node."""
    namespace_label: str = "k8s_namespace_name"
    """Label that names the namespace."""
    pod_label: str = "k8s_pod_name"
    """Label that names the pod."""
    container_label: str = "k8s_container_name"
    """Label that names the container."""
    excluded_namespaces: Annotated[tuple[str, ...], NoDecode] = ("konductor-like",)
    """Namespaces never read as pod logs (our own: our log quotes fault lines)."""

    # Reading.
    poll_interval_seconds: float = Field(5.0, ge=0.05, le=3600)
    """Time between two polls of kernel lines; a nudge from Loki's tail brings a poll forward."""
    pod_poll_interval_seconds: float = Field(15.0, ge=0.05, le=3600)
    """Time between two polls of pod lines."""
    tail: bool = True
    """Follow the kernel log (`/loki/api/v1/tail`, one connection), so that a new line is read at once."""
    kernel_overlap_seconds: float = Field(180.0, ge=0)
    """Span before the cursor that each poll of kernel lines reads again, for lines that arrive late."""
    pod_overlap_seconds: float = Field(15.0, ge=0)
    """Span before the cursor that each poll of pod lines reads again."""
    lateness_seconds: float = Field(3600.0, ge=0)
    """Longest delay with which a kernel line is still found: by the next sweep, or after a restart.

    Keep it above KONDUCTOR_RECORD_INTERVAL_SECONDS: after a crash the controller restores the counts that it
    had not written yet from the lines of this span.
    """
    sweep_interval_seconds: float = Field(120.0, ge=1)
    """Time between two sweeps; each reads the kernel lines of `KONDUCTOR_LATENESS_SECONDS` again."""
    pod_lateness_seconds: float = Field(900.0, ge=0)
    """Longest delay with which a pod line is still found."""
    pod_sweep_interval_seconds: float = Field(1200.0, ge=1)
    """Time between two sweeps over pod lines."""
    gap_revisit_seconds: float = Field(600.0, ge=1)
    """Time between two readings of a gap, a span without a node's heartbeats, for lines that arrive late."""
    loki_budget_mib_per_minute: int = Field(6144, ge=1)
    """MiB that Loki may process for us per minute; above it polls of pods, then sweeps, then polls of kernel
    lines slow down."""
    future_skew_seconds: float = Field(600.0, ge=0, le=600)
    """Time by which a node's clock may run ahead of ours; Loki accepts lines up to 10 minutes ahead."""
    first_start_act_seconds: float = Field(900.0, ge=0)
    """On the very first start, faults in this last span can taint."""
    first_start_history_seconds: float = Field(86_400.0, ge=0)
    """On the very first start, older kernel faults in this last span are recorded as suspect."""
    heartbeat_stale_seconds: float = Field(300.0, gt=0)
    """Age of the last kernel-log heartbeat from which a node is unknown.

    If the controller has not read the kernel logs completely for this time, every node without a recorded
    fault is unknown.
    """
    gap_max_age_seconds: float = Field(86_400.0, ge=600, le=604_800)
    """Time for which a span without heartbeats is kept as a gap and is searched for late lines."""

    # Deciding.
    rules_file: Path | None = None
    """A rules file of your own ([rules](rules.md)); read again when it changes and on SIGHUP."""
    brake_max_percent: float = Field(_POLICY.brake_max_percent, ge=0, le=100)
    """The brake's bound: largest share of the GPU nodes that may be out of service (one node always may)."""
    brake_max_nodes: int | None = Field(_POLICY.brake_max_nodes, ge=0)
    """The brake's bound as a number of nodes; the lower bound applies. `0` holds every taint back."""
    brake_pool_max_percent: float | None = Field(_POLICY.brake_pool_max_percent, ge=0, le=100)
    """The brake's bound in each pool (`KONDUCTOR_POOL_LABEL`): share of its GPU nodes; one always may."""
    brake_rate_nodes: int | None = Field(_POLICY.brake_rate_nodes, ge=0)
    """The brake's rate: most taints within `KONDUCTOR_BRAKE_RATE_WINDOW_SECONDS`; unset for no limit."""
    brake_rate_window_seconds: float = Field(_POLICY.brake_rate_window_seconds, gt=0, le=604_800)
    """Span of time for `KONDUCTOR_BRAKE_RATE_NODES`."""
    brake_count_unavailable: bool = _POLICY.brake_count_unavailable
    """Also count nodes as out of service that are cordoned or not Ready, except in their first half hour."""
    brake_cooldown_seconds: float = Field(_POLICY.brake_cooldown_seconds, ge=0)
    """The brake's cool-down: once it has engaged, released nodes count as out until this time after the last
    release."""
    hold_base_seconds: float = Field(_POLICY.hold_base_seconds, ge=0)
    """Time for which a node that fails a second time should stay out; doubled with each further failure.

    Only a person removes the taint; before this time `reset` warns.
    """
    hold_max_seconds: float = Field(_POLICY.hold_max_seconds, ge=0)
    """Upper limit of that time."""
    repeat_days: float = Field(_POLICY.repeat_days, gt=0, le=365)
    """Days for which an earlier time out of service counts against a node."""
    repeat_count: int = Field(_POLICY.repeat_count, ge=0)
    """Times out within `KONDUCTOR_REPEAT_DAYS` that mark a node for replacement; `0` for never."""
    correlation_seconds: float = Field(_POLICY.correlation_seconds, gt=0, le=300)
    """Most time between faults of nodes that share a job or an NVLink domain, to count as one failure."""
    common_node_jobs: int = Field(_POLICY.common_node_jobs, ge=0, le=16)
    """A node is suspect if it alone is common to this number of failed jobs of a day; `0` for never."""
    record_interval_seconds: float = Field(_POLICY.record_interval_seconds, ge=0)
    """Shortest time between two writes of growing counts to a node."""
    suspect_taint: Literal["none", "PreferNoSchedule"] = "none"
    """`PreferNoSchedule`: suspects get the taint `trainy.konduktor.ai/suspect=true:PreferNoSchedule`."""
    unknown_node_seconds: float = Field(600.0, ge=0)
    """Time for which a fault of a node without a Node object is kept, in case the node registers."""

    # The cluster.
    namespace: str = "konductor-like"
    """Namespace of the Lease; in a pod, its own namespace unless set."""
    lease_name: str = "konductor-like"
    """Name of the Lease that elects the one writer and stores the cursor."""
    lease_duration_seconds: int = Field(30, ge=3)
    """Time after the last renewal at which another process may take the Lease."""
    lease_renew_deadline_seconds: float = Field(20.0, gt=0)
    """Time after the last renewal at which the holder stops writing."""
    lease_renew_interval_seconds: float = Field(10.0, gt=0)
    """Time between two renewals, each of which also saves the cursor."""
    kube_timeout_seconds: float = Field(10.0, gt=0)
    """Timeout for one request to the API server."""
    write_concurrency: int = Field(8, ge=1, le=64)
    """Number of nodes written at the same time."""
    gpu_node_selector: str = ""
    """A further label selector (`key`, `key=value`, separated by commas) that marks GPU nodes."""
    node_selector: str = ""
    """Only nodes with these labels (`key`, `key=value`, separated by commas) are tainted; empty for all."""
    pool_label: str = ""
    """Label that names a node's pool, such as `cloud.google.com/gke-nodepool`; empty for none."""
    domain_label: str = "nvidia.com/gpu.clique"
    """Label that names a node's multi-node NVLink domain."""

    ask_for_pods: bool = True
    """Ask the API server for the pods of a node with a fault, to know which jobs run there."""

    # The process.
    listen: str = ":8080"
    """Address of `/healthz`, `/readyz` and `/metrics` (`[::]:8080` for IPv6 alone); `off` for none."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: text on a terminal, JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that the controller logs."""
    user_written: Literal["count", "ignore"] = "count"
    """`ignore`: a kernel-log record written from user space (`echo … > /dev/kmsg`) is never a fault."""

    @field_validator("watched_namespaces", "excluded_namespaces", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("watched_namespaces", "excluded_namespaces", "namespace")
    @classmethod
    def _namespaces(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (value,) if isinstance(value, str) else value:
            if not _NAMESPACE.fullmatch(name):
                raise ValueError(f"{name!r} is not a namespace name")
        return value

    @field_validator("log_endpoint")
    @classmethod
    def _endpoint(cls, value: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value):
            raise ValueError(
                "must be an http:// or https:// URL without a query, such as http://localhost:3100"
            )
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:  # its message quotes the address, which may contain a password
            raise ValueError("has no valid host and port, as in http://localhost:3100") from None
        if not host:
            raise ValueError("names no host, as in http://localhost:3100")
        if "@" in parts.path:
            raise ValueError("has an @ behind a /; in a user name or password write / as %2F and @ as %40")
        return value.rstrip("/")

    @field_validator("node_label", "namespace_label", "pod_label", "container_label")
    @classmethod
    def _label(cls, value: str) -> str:
        if not _LABEL_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a Loki label name")
        return value

    @field_validator("kernel_selector", "extra_matchers")
    @classmethod
    def _selector(cls, value: str) -> str:
        parse_matchers(value)
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.loki_client_cert_file is None) != (self.loki_client_key_file is None):
            raise ValueError("a client certificate needs both KONDUCTOR_LOKI_CLIENT_CERT_FILE and …_KEY_FILE")
        if (self.loki_username is None) != (self.loki_password is None):
            raise ValueError(
                "basic authentication needs both KONDUCTOR_LOKI_USERNAME and KONDUCTOR_LOKI_PASSWORD"
            )
        if self.loki_username is not None and (self.loki_bearer_token or self.loki_bearer_token_file):
            raise ValueError("choose one of bearer token and basic authentication")
        if not any(matcher.op == "=" for matcher in parse_matchers(self.kernel_selector)):
            raise ValueError("KONDUCTOR_KERNEL_SELECTOR needs at least one matcher with =")
        if (
            not self.lease_renew_interval_seconds
            < self.lease_renew_deadline_seconds
            < self.lease_duration_seconds
        ):
            raise ValueError("the Lease needs renew interval < renew deadline < duration")
        return self

    def policy(self) -> PolicyConfig:
        """Return the policy's settings: every setting that the policy has under the same name."""
        shared = {field.name for field in fields(PolicyConfig)} & type(self).model_fields.keys()
        numbers: dict[str, Any] = {name: getattr(self, name) for name in shared}
        numbers["suspect_taint"] = self.suspect_taint != "none"
        return PolicyConfig(**numbers, count_user_written=self.user_written == "count")

    def lease_namespace(self, pods_own: str | None) -> str:
        """Return the Lease's namespace: ``KONDUCTOR_NAMESPACE`` if set, else the pod's own, else the default.

        ``pods_own`` is None outside a pod.
        """
        return pods_own if pods_own and "namespace" not in self.model_fields_set else self.namespace


class Matcher(NamedTuple):
    """A LogQL label matcher; ``op`` is ``=``, ``!=``, ``=~`` or ``!~``, ``value`` is unquoted."""

    name: str
    op: str
    value: str


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Read ``{a="b", c=~"d"}`` or the same without braces. Raises ValueError with the wrong part."""
    inner = text.strip()
    if inner.startswith("{"):
        if not inner.endswith("}"):
            raise ValueError(f"{text!r} has no closing brace")
        inner = inner[1:-1]
    matchers: list[Matcher] = []
    position = 0
    while inner[position:].strip():
        match = _MATCHER.match(inner, position)
        if match is None:
            raise ValueError(f'{inner[position:].strip()!r} is not a matcher such as name="value"')
        raw = match["value"]
        value = raw[1:-1] if raw[0] == "`" else _unquoted(raw)
        if match["op"] in ("=~", "!~"):
            from konductor_like.catalog.patterns import fits_whole  # slow, and seldom needed

            try:
                fits_whole(value)
            except ValueError as error:
                raise ValueError(
                    f"{value!r} is not a regular expression of RE2, which Loki uses: {error}"
                ) from error
        matchers.append(Matcher(match["name"], match["op"], value))
        position = match.end()
        if position < len(inner):
            if inner[position] != ",":
                raise ValueError(f"expected a comma before {inner[position:]!r}")
            position += 1
    return tuple(matchers)


def _unquoted(quoted: str) -> str:
    """The content of a string in double quotes. Raises ValueError for a backslash that escapes nothing."""
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise ValueError(
            f"{quoted} has a backslash that escapes nothing; write it twice, or use `backticks`"
        ) from error


def parse_listen(listen: str) -> tuple[str, int]:
    """Return ``:8080`` or ``host:8080`` as (host, port). Raises ValueError with an example."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{listen!r} is not an address such as :8080 or 127.0.0.1:8080 (or off for none)")
    # Every interface by default: the kubelet and Prometheus connect from outside the pod.
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  # see above
