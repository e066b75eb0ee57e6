"""The controller's settings and its build, as it publishes them on the Lease for the command line.

Only the settings named here are published: numbers, label names, selectors of nodes and of streams, watched
namespaces. Loki's address, tenant and credentials and the paths of files are never published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from konductor_like.build import Program
from konductor_like.cluster.lenient_json import Fields, dumps, read
from konductor_like.policy.config import PolicyConfig
from konductor_like.selectors import parse_selector
from konductor_like.settings import Settings

SETTINGS_ANNOTATION = "trainy.konduktor.ai/settings"
BUILD_ANNOTATION = "trainy.konduktor.ai/build"
"""Apart from the settings: a program that cannot read the settings of another build can read this."""
BYTES_MOST = 6 * 1024
"""Bytes of the annotation, at most."""
NAMESPACES_MOST = 40
"""Namespaces that are published by name, at most (63 characters each); of the others only the number is."""
_VERSION = 1
_POLICY = {
    name: get_args(hint) or (hint,)
    for name, hint in get_type_hints(PolicyConfig).items()
    if name not in ("version", "escalations", "conditions", "alerts", "node_condition")
    and name != "persons"  # a command does not know who removed a taint
}
"""The numbers of the policy by name, each with its type, and NoneType if it may be None."""
_LATER_POLICY = frozenset(
    {"returns_by_validation", "validates", "rehearses", "validation_level", "recovery_by_file"}  # since 0.2
)
"""The numbers of the policy that a controller of an earlier version does not publish: it has none of them."""
_REMOVED_POLICY = {"common_node_jobs": 0, "record_interval_seconds": 600.0, "suspect_taint": False}
"""Numbers of the policy that this version does not have; a command of an earlier version needs them."""
_LATER: Mapping[str, type] = {
    "poll_interval_seconds": float,
    "ask_for_pods": bool,
    "job_events": bool,
    "node_condition": str,
    "recovery_node_selector": str,
    "validation_namespace": str,
    "rack_label": str,
}
"""Settings that single commands need; a controller of an earlier version does not publish them."""
LOKI_NAMES = ("kernel_selector", "extra_matchers", "node_label", "namespace_label")
"""Settings of the queries of Loki, which ``doctor`` takes over for its own queries. A controller of an
earlier version does not publish them, nor does one whose selectors are too long."""
_TEXTS = ("gpu_node_selector", "node_selector", "pool_label", "domain_label")


@dataclass(frozen=True, slots=True)
class Published:
    """The settings of one controller."""

    by: str
    """The controller's identity, the same as ``holderIdentity``."""
    version: str
    """The version of the controller's program."""
    rules_digest: str
    """A hash of the rules in force: the built-in ones and the user's file."""
    policy: PolicyConfig
    """The numbers of the policy; its ``escalations`` are not published."""
    stale_seconds: float
    """Seconds after which a node without a heartbeat, or a source that was not read, is unknown."""
    gpu_node_selector: str = ""
    node_selector: str = ""
    pool_label: str = ""
    domain_label: str = ""
    namespaces: tuple[str, ...] = ()
    """The first ``NAMESPACES_MOST`` watched namespaces."""
    further_namespaces: int = 0
    """The number of further watched namespaces."""
    poll_interval_seconds: float = 5.0
    ask_for_pods: bool = True
    job_events: bool = False
    node_condition: str = ""
    recovery_node_selector: str = ""
    validation_namespace: str = "konductor-like-validation"
    rack_label: str = ""
    kernel_selector: str = ""
    """Empty if the settings of ``LOKI_NAMES`` are not known."""
    extra_matchers: str = ""
    node_label: str = ""
    namespace_label: str = ""


def published(settings: Settings, *, by: str, version: str, rules_digest: str) -> Published:
    """Return the part of the settings that is published."""
    return Published(
        by=by,
        version=version,
        rules_digest=rules_digest,
        policy=settings.policy(),
        stale_seconds=settings.heartbeat_stale_seconds,
        namespaces=settings.watched_namespaces[:NAMESPACES_MOST],
        further_namespaces=len(settings.watched_namespaces[NAMESPACES_MOST:]),
        **_of(settings, (*_TEXTS, *_LATER, *LOKI_NAMES)),
    )


def encode_settings(settings: Published) -> str:
    """Return the annotation. If the selectors make it longer than ``BYTES_MOST``, it reports only that."""
    who = {"v": _VERSION, "by": settings.by, "version": settings.version, "rules": settings.rules_digest}
    found = {
        **who,
        "stale_seconds": settings.stale_seconds,
        "policy": {**{name: getattr(settings.policy, name) for name in _POLICY}, **_REMOVED_POLICY},
        "nodes": {name: getattr(settings, name) for name in _TEXTS},
        "namespaces": list(settings.namespaces),
        "further_namespaces": settings.further_namespaces,
        **{name: getattr(settings, name) for name in _LATER},
    }
    for more in ({"loki": _of(settings, LOKI_NAMES)}, {}):
        if len(text := dumps({**found, **more})) <= BYTES_MOST:
            return text
    return dumps({**who, "problem": "the controller's selectors are too long for the Lease annotation"})


def decode_settings(text: str) -> tuple[Published | None, str | None]:
    """Return the settings and the problem with their text, if any. Never raises.

    If one setting is missing or invalid, no settings are returned: no default stands in for it.
    """
    fields = read(text)
    if (problem := fields.get("problem", str)) is not None:
        return None, problem
    nodes = fields.inner("nodes")
    later: dict[str, Any] = {name: fields.get(name, kind) for name, kind in _LATER.items()}
    _check_selector(fields, "recovery_node_selector", later["recovery_node_selector"] or "")
    loki = fields.inner("loki")
    later |= {name: loki.get(name, str) for name in LOKI_NAMES}
    found = Published(
        by=fields.get("by", str) or "",
        version=fields.get("version", str) or "",
        rules_digest=fields.get("rules", str) or "",
        policy=_policy(fields.inner("policy")),
        stale_seconds=fields.need("stale_seconds", float) or 0.0,
        namespaces=fields.texts("namespaces"),
        further_namespaces=fields.get("further_namespaces", int) or 0,
        **_texts(nodes),
        **{name: value for name, value in later.items() if value is not None},
    )
    return (None, fields.problem) if fields.problem else (found, None)


def encode_program(program: Program, *, by: str) -> str:
    """Return the annotation with the controller's version and build; ``by`` is the controller's identity."""
    return dumps({"v": _VERSION, "by": by, "version": program.version, "build": program.build})


def decode_program(text: str) -> tuple[tuple[str, Program] | None, str | None]:
    """Return the controller's identity and its program, and the problem with their text, if any."""
    fields = read(text)
    by, version, build = (fields.need(name, str) or "" for name in ("by", "version", "build"))
    return (None, fields.problem) if fields.problem else ((by, Program(version, build)), None)


def _of(settings: Settings | Published, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in names}


def _policy(fields: Fields) -> PolicyConfig:
    found: dict[str, Any] = {
        name: fields.get(name, kinds[0]) if kinds[1:] and name in fields else fields.need(name, kinds[0])
        for name, kinds in _POLICY.items()
        if name in fields or name not in _LATER_POLICY
    }
    return PolicyConfig(**found)


def _texts(nodes: Fields) -> dict[str, Any]:
    return {name: _text(nodes, name) for name in _TEXTS}


def _text(fields: Fields, name: str) -> str:
    """Read a label's name or a selector; an empty text means that it is not set."""
    text = fields.need(name, str) or ""
    if name.endswith("selector"):
        _check_selector(fields, name, text)
    return text


def _check_selector(fields: Fields, name: str, text: str) -> None:
    try:
        parse_selector(text)
    except ValueError as error:
        fields.complain(f"{name}: {error}")
