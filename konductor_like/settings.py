"""All settings, in one model.

The docstring under each field is its text in ``docs/reference/settings.md``. Values come from the
environment: ``KONDUCTOR_`` plus the field's name in upper case. Two settings also have the names that
Konduktor's users already have in their manifests: ``LOG_ENDPOINT`` and ``WATCHED_NAMESPACES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from konductor_like.policy.config import PolicyConfig
from konductor_like.selectors import parse_matchers, parse_selector

PREFIX = "KONDUCTOR_"
_POLICY = PolicyConfig()
"""Contains the defaults of the settings that the policy has under the same name."""

POD_POLL_SECONDS = 15.0
_MONTH_SECONDS = 31 * 86_400

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WILDCARD = re.compile(r"[*?]")
NEVER_WATCHED = "kube-system"
"""The namespace whose pods are never read: they run no jobs, and some quote faults."""
_NAMESPACES_CHARS = 65_536
"""Characters of all watched and excluded namespaces, at most: Loki takes queries of up to 128 KiB."""
_CONDITION = re.compile(r"(?=.*[a-z])(?!.*(Ready|Pressure|NetworkUnavailable)$)[A-Z][A-Za-z0-9]{1,62}")
"""A type in CamelCase that no kubelet and no network plugin writes, and in which True is not healthy."""

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


def parse_listen(listen: str) -> tuple[str, int]:
    """Return ``:8080`` or ``host:8080`` as (host, port). Raises ValueError with an example."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{listen!r} is not an address such as :8080 or 127.0.0.1:8080 (or off for none)")
    # Every interface by default: the kubelet and Prometheus connect from outside the pod.
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  # see above


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that refuses a text that ``parse`` refuses."""

    def checked(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(checked)


_NodeLabels = Annotated[str, _read_by(parse_selector)]
_Matchers = Annotated[str, _read_by(parse_matchers)]
_Address = Annotated[str, _read_by(lambda listen: listen == "off" or parse_listen(listen))]


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
    """Namespaces whose pod logs are read for CUDA and NCCL errors, separated by commas: names, patterns
    (`team-*`; `?` is one character), `*` for all, and exclusions (`!team-b`, `!ci-*`), which win. Example:
    `*,!ci-*`. Patterns never select the controller's namespace, and the kernel-log reader's if
    `KONDUCTOR_KERNEL_SELECTOR` names it with `=`. `kube-system` is left out even if it is named."""
    loki_tenant: str | None = None
    """Tenant, sent as `X-Scope-OrgID`. Needed if Loki runs with `auth_enabled: true`."""
    loki_bearer_token: SecretStr | None = None
    """Bearer token for Loki."""
    loki_bearer_token_file: Path | None = None
    """File with the bearer token, read for every request. A rotated token needs no restart."""
    loki_username: str | None = None
    """User name for basic authentication."""
    loki_password: SecretStr | None = None
    """Password for basic authentication."""
    loki_ca_file: Path | None = None
    """PEM file with the authority that signed Loki's certificate."""
    loki_client_cert_file: Path | None = None
    """PEM file with the client certificate. Needs `KONDUCTOR_LOKI_CLIENT_KEY_FILE` too."""
    loki_client_key_file: Path | None = None
    """PEM file with the private key of the client certificate, unencrypted."""
    loki_insecure_skip_verify: bool = False
    """`true`: accept any certificate of Loki. For tests only."""
    loki_timeout_seconds: float = Field(75.0, gt=0)
    """Seconds to wait for one answer of Loki. Keep it above Loki's `query_timeout` (1 minute by default)."""
    loki_limit: int = Field(5000, ge=2, le=1_000_000)
    """Maximum number of lines in one query. The controller uses less if Loki's `max_entries_limit_per_query`
    is lower, or if an answer would be larger than 2 MiB."""

    # Loki: which lines.
    kernel_selector: _Matchers = '{k8s_namespace_name="dmesg-logging", k8s_container_name="dmesg"}'
    """Loki stream selector of the kernel-log reader's pods. Regular expressions are RE2."""
    extra_matchers: _Matchers = ""
    """Matchers added to every query. Example, for clusters that share a Loki: `k8s_cluster_name="prod"`."""
    node_label: str = "k8s_node_name"
    """Loki label, or structured metadata, with the node name."""
    namespace_label: str = "k8s_namespace_name"
    """Loki label with the namespace."""
    pod_label: str = "k8s_pod_name"
    """Loki label with the pod name."""
    container_label: str = "k8s_container_name"
    """Loki label with the container name."""
    excluded_namespaces: Annotated[tuple[str, ...], NoDecode] = ("konductor-like",)
    """Namespaces whose pod logs are never read, separated by commas: names and patterns, as with `!` in
    `WATCHED_NAMESPACES`. The controller's own log quotes faults."""

    # Reading.
    poll_interval_seconds: float = Field(5.0, ge=0.05, le=3600)
    """Seconds between two polls of kernel lines. A message of Loki's tail starts a poll earlier. Pod lines
    are polled every 15 seconds."""
    tail: bool = True
    """Follow Loki's tail (`/loki/api/v1/tail`, one connection) to read new kernel lines at once."""
    lateness_seconds: float = Field(3600.0, ge=0)
    """Maximum delay in seconds of a kernel line that a sweep, or a restart, still finds. Keep it above 600:
    after a crash the controller counts the lines of this span again. A sweep reads the whole span every 120
    seconds, or every 30th of the span if that is longer."""
    loki_budget_mib_per_minute: int = Field(6144, ge=1)
    """MiB a minute that Loki may process for the controller. Above it, pod polls slow down first, then
    sweeps, then kernel polls."""
    first_start_act_seconds: float = Field(900.0, ge=0)
    """First start only: maximum age in seconds of a fault that can taint."""
    heartbeat_stale_seconds: float = Field(300.0, gt=0)
    """Seconds without a kernel-log heartbeat after which a node is unknown.

    If the controller falls behind by this time in reading kernel lines, every node without a recorded fault
    is unknown.
    """
    gap_max_age_seconds: float = Field(86_400.0, ge=600, le=604_800)
    """Seconds for which the controller searches a gap (a span without heartbeats) for late lines."""

    # Deciding.
    rules_file: Path | None = None
    """Path of your own rules file ([own rules](../use/own-rules.md)). When it changes, and is valid, the
    controller starts again in place."""
    brake_max_percent: float = Field(_POLICY.brake_max_percent, ge=0, le=100)
    """Brake: maximum percentage of GPU nodes that the controller taints at a time; at least one node.
    Example: `20` allows 2 of 14 nodes."""
    brake_max_nodes: int | None = Field(_POLICY.brake_max_nodes, ge=0)
    """Brake: maximum number of GPU nodes that the controller taints at a time. The lower limit applies. `0`
    holds back every taint."""
    brake_pool_max_percent: float | None = Field(_POLICY.brake_pool_max_percent, ge=0, le=100)
    """Brake: maximum percentage of tainted GPU nodes in each pool (`KONDUCTOR_POOL_LABEL`); at least one."""
    brake_rate_nodes: int | None = Field(_POLICY.brake_rate_nodes, ge=0)
    """Brake: maximum number of nodes tainted within `KONDUCTOR_BRAKE_RATE_WINDOW_SECONDS`; unset for no rate
    limit."""
    brake_rate_window_seconds: float = Field(_POLICY.brake_rate_window_seconds, gt=0, le=604_800)
    """Brake: seconds of the rate limit `KONDUCTOR_BRAKE_RATE_NODES`."""
    brake_count_unavailable: bool = _POLICY.brake_count_unavailable
    """Brake: also count cordoned and NotReady nodes as tainted, except in their first half hour."""
    brake_cooldown_seconds: float = Field(_POLICY.brake_cooldown_seconds, ge=0)
    """Brake: cool-down in seconds. After the brake has held a node back, released nodes count as out of
    service until this time after the last release."""
    hold_base_seconds: float = Field(_POLICY.hold_base_seconds, ge=0)
    """Seconds that a node should stay out of service after its second failure; each further failure doubles
    them, up to a day. `reset` warns before this time."""
    repeat_days: float = Field(_POLICY.repeat_days, gt=0, le=365)
    """Days for which an earlier quarantine of a node counts as a failure."""
    repeat_count: int = Field(_POLICY.repeat_count, ge=0)
    """Failures within `KONDUCTOR_REPEAT_DAYS` after which a node is marked for replacement; `0` for never."""
    correlation_seconds: float = Field(_POLICY.correlation_seconds, gt=0, le=300)
    """Maximum seconds between faults of nodes with a common job or NVLink domain that count as one
    failure."""
    return_by: Literal["ask", "reboot", "validated"] = Field(
        "ask", validation_alias=AliasChoices("return_by", "KONDUCTOR_RETURN")
    )
    """`ask`: only a person removes a taint. `reboot`: after a reboot that meets the needs of all the node's
    faults, the controller removes it, too ([the way back](../use/return.md)). `validated`: after all needs
    are met, the controller runs a [validation](../use/validate.md) on the node, and removes the taint after a
    pass."""
    recovery: Literal["on", "rehearse"] = "on"
    """`rehearse`: with `KONDUCTOR_RETURN=validated` the controller only logs and shows which nodes it would
    validate."""
    recovery_file: Path | None = None
    """Path of the file that an earlier version read in place of `KONDUCTOR_RETURN` and `KONDUCTOR_RECOVERY`.
    While this file exists, the controller returns and validates no node
    ([the file of an earlier version](../use/validate.md#the-file-of-an-earlier-version))."""
    recovery_node_selector: _NodeLabels = ""
    """Labels of the nodes that the controller validates unasked with `KONDUCTOR_RETURN=validated` (`key` or
    `key=value`, separated by commas); empty for all."""
    validation_image: str = ""
    """Container image of validations, with `nvidia-smi`, `dcgmi` and a shell; empty for no validations.
    Needs `manifests/validation.yaml`. Example: `nvcr.io/nvidia/cloud-native/dcgm:4.2.3-1-ubuntu22.04`."""
    validation_command: str = ""
    """Command that a validation runs in place of `dcgmi diag` and NCCL, by the image's shell; its exit status
    0 is a pass, 1 a failure, and any other is unknown."""
    validation_level: int = Field(_POLICY.validation_level, ge=2, le=4)
    """Minimum level of `dcgmi diag` in a validation: 2 takes minutes, 3 half an hour, 4 up to two hours."""
    validation_namespace: str = "konductor-like-validation"
    """Namespace of the validations' Jobs, and of nothing else. Its pod logs are never read for faults."""
    validation_tolerations: Annotated[tuple[str, ...], NoDecode] = ()
    """Keys of further taints that a validation's pod tolerates, separated by commas."""
    return_quiet_seconds: float = Field(_POLICY.return_quiet_seconds, ge=0, le=_MONTH_SECONDS)
    """Return: seconds for which the kernel log of the new boot must be heard without a fault, and the node be
    Ready with all its GPUs without a break; `0` for one heartbeat. After the end of a validation the kernel
    log is read for 120 of them at most."""
    returns_per_hour: int = Field(_POLICY.returns_per_hour, ge=0, le=10)
    """Return: maximum number of nodes that return by themselves within an hour, 10 at most; `0` for none."""
    probation_seconds: float = Field(_POLICY.probation_seconds, ge=0, le=_MONTH_SECONDS)
    """Return: seconds of probation. A fault that taints the node on probation ends its automatic returns. `0`
    for no probation."""
    suspect_days: float = Field(_POLICY.suspect_days, ge=0, le=365)
    """Days after which a suspicion ends if the node's kernel log was heard without the fault; `0` for
    never."""
    test_seconds: float = Field(_POLICY.test_seconds, ge=0, le=_MONTH_SECONDS)
    """Seconds after which a test (Xid 14) ends and its taint is removed; `0` for never. A test by
    `konductor-like test` ends after 120 seconds at the latest, unless `--keep` is given."""
    gpu_count_seconds: float = Field(_POLICY.gpu_count_seconds, ge=0, le=_MONTH_SECONDS)
    """Seconds for which a node must have fewer GPUs than before until it is suspect; `0` for never."""
    persons: Annotated[tuple[str, ...], NoDecode] = _POLICY.persons
    """Field managers, separated by commas, of the tools with which people edit Nodes: their removal of the
    taint [is a release](../use/release-a-node.md#the-taint-disappears). Any other is put back. `*` stands for
    any characters."""

    # The cluster.
    namespace: str = "konductor-like"
    """Namespace of the Lease. In a pod, the default is the pod's namespace."""
    lease_name: str = "konductor-like"
    """Name of the Lease that elects the leader and stores the cursor."""
    lease_duration_seconds: int = Field(30, ge=3)
    """Seconds after the last renewal until another controller may take the Lease. The leader renews it three
    times as often, saves its cursor with it, and stops writing after two thirds."""
    write_concurrency: int = Field(8, ge=1, le=64)
    """Maximum number of Nodes that are written at the same time."""
    gpu_node_selector: _NodeLabels = ""
    """Labels that mark further GPU nodes (`key` or `key=value`, separated by commas)."""
    node_selector: _NodeLabels = ""
    """Labels of the nodes that may be tainted (`key` or `key=value`, separated by commas); empty for all."""
    pool_label: str = ""
    """Node label with the pool name; empty for no pools. Example: `cloud.google.com/gke-nodepool`."""
    domain_label: str = "nvidia.com/gpu.clique"
    """Node label with the name of the multi-node NVLink domain."""
    rack_label: str = ""
    """Node label with the rack; empty for no racks. Used in the audit trail and by `history` and `report`."""

    node_condition: str = ""
    """Type of a [Node condition](../use/node-condition.md) that the controller writes: `True` on a faulty
    node. Empty for none. Example: `TrainyGPUFaulty`. Needs `manifests/node_condition.yaml`."""

    ask_for_pods: bool = True
    """Read the pods of a node with a fault from the API server, to know its jobs."""

    job_events: bool = False
    """Send an [Event to the owners of the jobs](../use/tell-the-jobs-owner.md) on a node that the controller
    taints. Needs `manifests/job_events.yaml`."""

    # Notifications.
    notify_webhook_file: Path | None = None
    """File with the URL of a webhook that takes [notifications](../use/notifications.md) as CloudEvents. The
    file is read for every message; while it does not exist, nothing is sent."""
    notify_slack_file: Path | None = None
    """File with the URL of an incoming webhook of Slack, for notifications. It is read in the same way."""
    notify_cluster: str = Field("", max_length=63)
    """Name of the cluster in notifications. Example: `prod-eu`."""

    # Alerts of Prometheus.
    alerts_endpoint: str = ""
    """Base URL of Prometheus, or of what speaks its API, whose [alerts](../use/other-tools-alerts.md) about
    GPUs are read; empty for none. A base path is kept. Example: `http://prometheus.monitoring.svc:9090`.
    Needs `manifests/gpu_alerts.yaml`."""
    alerts_matchers: _Matchers = ""
    """Matchers added to the query for alerts. Example, for clusters that share a Prometheus:
    `cluster="prod"`."""
    alerts_tenant: str = ""
    """Tenant of the alerts, sent as `X-Scope-OrgID`."""
    alerts_bearer_token_file: Path | None = None
    """File with the bearer token for the alerts, read for every request."""
    alerts_ca_file: Path | None = None
    """PEM file with the authority that signed the certificate of the alerts' endpoint."""

    # The process.
    listen: _Address = ":8080"
    """Address of `/healthz`, `/readyz` and `/metrics`; `off` for none. Example for IPv6 only: `[::]:8080`."""
    node_metrics_most: int = Field(2000, ge=0, le=100_000)
    """Maximum number of series that each [metric of single nodes](../use/metrics-and-alerts.md) has; `0` for
    none. The gravest nodes come first."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: text on a terminal, JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of the log lines."""
    user_written: Literal["count", "ignore"] = "count"
    """`ignore`: kernel-log records from user space (`echo … > /dev/kmsg`) are no faults."""

    @field_validator(
        *("watched_namespaces", "excluded_namespaces", "validation_tolerations", "persons"), mode="before"
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("namespace", "validation_namespace")
    @classmethod
    def _one_namespace(cls, value: str) -> str:
        if not _NAMESPACE.fullmatch(value):
            raise ValueError(f"{value!r} is not a namespace name")
        return value

    @field_validator("watched_namespaces", "excluded_namespaces")
    @classmethod
    def _namespaces(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        watching = info.field_name == "watched_namespaces"
        for name in value:
            # A namespace must be able to fit the pattern: one that begins with a hyphen does not exist.
            if not _NAMESPACE.fullmatch(_WILDCARD.sub("a", name.removeprefix("!") if watching else name)):
                raise ValueError(f"{name!r} is neither the name of a namespace nor a pattern such as team-*")
        if watching and value and all(name.startswith("!") for name in value):
            raise ValueError(f"has only exclusions; to watch all other namespaces write *,{','.join(value)}")
        # Left out, not refused: an earlier version took this name, and an upgrade must not stop tainting.
        return tuple(name for name in value if not watching or name != NEVER_WATCHED)

    @field_validator("log_endpoint", "alerts_endpoint")
    @classmethod
    def _endpoint(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "alerts_endpoint":
            return value
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
        if parts.path.rstrip("/").endswith(("/api/v1", "/api/v1/query")):
            raise ValueError("ends with a part of the API; give what stands before /api/v1")
        if "@" in parts.path:
            raise ValueError("has an @ behind a /; in a user name or password write / as %2F and @ as %40")
        return value.rstrip("/")

    @field_validator("alerts_tenant")
    @classmethod
    def _header(cls, value: str) -> str:
        if value and not (value.isascii() and value.isprintable()):
            raise ValueError("has characters that an HTTP header cannot carry")
        return value

    @field_validator("node_label", "namespace_label", "pod_label", "container_label")
    @classmethod
    def _label(cls, value: str) -> str:
        if not _LABEL_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a Loki label name")
        return value

    @field_validator("node_condition")
    @classmethod
    def _condition(cls, value: str) -> str:
        if value and not _CONDITION.fullmatch(value):
            raise ValueError(
                "choose a name in CamelCase such as TrainyGPUFaulty: not one that ends with Ready, because "
                "True must mean faulty, and not one that another program writes"
            )
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
        if self.return_by == "validated" and not self.validation_image:
            raise ValueError("KONDUCTOR_RETURN=validated needs KONDUCTOR_VALIDATION_IMAGE")
        if self.recovery == "rehearse" and self.return_by != "validated":
            raise ValueError(
                "KONDUCTOR_RECOVERY=rehearse needs KONDUCTOR_RETURN=validated: nothing else is rehearsed"
            )
        self._check_validation_namespace(self.namespace)
        if self.job_events and not self.ask_for_pods:
            raise ValueError("KONDUCTOR_JOB_EVENTS needs KONDUCTOR_ASK_FOR_PODS=true, to know the jobs")
        if not any(matcher.op == "=" for matcher in parse_matchers(self.kernel_selector)):
            raise ValueError("KONDUCTOR_KERNEL_SELECTOR needs at least one matcher with =")
        if len(",".join(self.watched_namespaces + self.excluded_namespaces)) > _NAMESPACES_CHARS:
            raise ValueError(
                f"WATCHED_NAMESPACES and KONDUCTOR_EXCLUDED_NAMESPACES may have {_NAMESPACES_CHARS:,} "
                "characters together; write patterns such as team-* in place of names"
            )
        return self

    def _check_validation_namespace(self, own: str) -> None:
        refused = {
            **dict.fromkeys(self.watched_namespaces, "in WATCHED_NAMESPACES: logs of tests are never read"),
            **dict.fromkeys(self._reader_namespaces(), "the namespace of the kernel-log reader"),
            own: "the controller's own namespace",
        }
        if self.validation_image and (why := refused.get(self.validation_namespace)):
            raise ValueError(f"KONDUCTOR_VALIDATION_NAMESPACE must not be {why}")

    @property
    def pod_poll_interval_seconds(self) -> float:
        """Seconds between two polls of pod lines."""
        return POD_POLL_SECONDS

    def placed(self, namespace: str) -> Self:
        """Return the settings of a controller there. Raises ValueError if its validations would run there."""
        self._check_validation_namespace(namespace)
        return self.model_copy(update={"namespace": namespace})

    def _reader_namespaces(self) -> list[str]:
        return [
            matcher.value
            for matcher in parse_matchers(self.kernel_selector)
            if (matcher.name, matcher.op) == (self.namespace_label, "=")
        ]

    def namespaces(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the watched names and patterns, and the excluded ones, which win.

        A pattern never selects NEVER_WATCHED, the controller's own namespace and the kernel-log reader's; a
        name may select the latter two.
        """
        named = self.watched_namespaces
        watched = tuple(name for name in named if not name.startswith("!"))
        excluded = tuple(name[1:] for name in named if name.startswith("!")) + self.excluded_namespaces
        if self.validation_image:  # a test may print what would be a fault in the log of a job
            excluded += (self.validation_namespace,)
        if not any(map(_WILDCARD.search, watched)):
            return watched, excluded
        ours = (NEVER_WATCHED, self.namespace, *self._reader_namespaces())
        return watched, excluded + tuple(name for name in ours if name not in watched)

    def policy(self) -> PolicyConfig:
        """Return the policy's settings: every setting that the policy has under the same name.

        While the file of ``recovery_file`` is there, no node returns by itself and none is validated.
        """
        by_file = self.has_recovery_file()
        shared = {field.name for field in fields(PolicyConfig)} & type(self).model_fields.keys()
        numbers: dict[str, Any] = {name: getattr(self, name) for name in shared}
        numbers["returns_by_reboot"] = self.return_by == "reboot" and not by_file
        numbers["returns_by_validation"] = self.return_by == "validated" and not by_file
        numbers["rehearses"] = self.recovery == "rehearse" and not by_file
        numbers["recovery_by_file"] = by_file
        numbers["validates"] = bool(self.validation_image)
        return PolicyConfig(**numbers, count_user_written=self.user_written == "count")

    def has_recovery_file(self) -> bool:
        """Whether the file of ``recovery_file`` is there, and not only named. One that is hidden is there."""
        try:
            return self.recovery_file is not None and self.recovery_file.stat() is not None
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def lease_namespace(self, pods_own: str | None) -> str:
        """Return the Lease's namespace: ``KONDUCTOR_NAMESPACE`` if set, else the pod's own, else the default.

        ``pods_own`` is None outside a pod.
        """
        return pods_own if pods_own and "namespace" not in self.model_fields_set else self.namespace
