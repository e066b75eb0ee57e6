"""One question to Prometheus as PromQL, and its answer as values. Pure.

One query has three parts, each with other labels: our alerts that fire, the exporters that are read of the
nodes that have had an alert, and the number of nodes that each exporter covers. A quiet fleet of 5,000 nodes
answers with two series.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from konductor_like.detection.gpu_identity import gpu_of_labels
from konductor_like.detection.kernel_record import normal_pci
from konductor_like.model import EVIDENCE_CHARS, AlertKey, AlertsAnswer, Gpu, ToldAlert
from konductor_like.model.text import clipped, printable
from konductor_like.selectors import Matcher

EXPORTER_UP = "konductor_exporter_up"
"""The series of ``manifests/gpu_alerts.yaml`` that tells of which nodes an exporter's metrics are read."""
NODES_NAMED = 200
"""Nodes that the query names, at most; for more it asks for all nodes."""
_PCI = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(\.[0-7])?")
_LABEL_CHARS, _WARNING_CHARS = 64, 120
_SHOWN = ("gpu", "UUID", "device", "port")
"""Labels that say which part of the node an alert is about."""
_RE2_SPECIAL = re.compile(r"[.+*?()|\[\]{}^$\\]")


class NotPrometheusAnswerError(ValueError):
    """The body is no answer of Prometheus; the text says what it is."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """An answer of Prometheus."""

    alerts: AlertsAnswer
    watched: Mapping[str, int]
    """By exporter, the number of nodes of which its metrics are read."""
    warnings: tuple[str, ...] = ()
    """What Prometheus says is missing in the answer."""
    skipped: int = 0
    """Alerts of ours without a usable label ``node``."""


def question(names: Iterable[str], nodes: Collection[str], more: Sequence[Matcher]) -> str:
    """Return the PromQL for these alerts, and for the exporters of these nodes."""
    ours = [Matcher("alertstate", "=", "firing"), Matcher("alertname", "=~", "|".join(sorted(names)))]
    asked = [Matcher("node", "=~", "|".join(map(_escaped, sorted(nodes))))]
    parts = [_selector("ALERTS", ours, more)]
    if nodes:
        parts.append(_selector(EXPORTER_UP, asked if len(nodes) <= NODES_NAMED else (), more))
    parts.append(f"count by (exporter) ({_selector(EXPORTER_UP, (), more)})")
    return " or ".join(parts)


def _selector(metric: str, matchers: Iterable[Matcher], more: Iterable[Matcher]) -> str:
    inner = ",".join(
        f"{each.name}{each.op}{json.dumps(each.value, ensure_ascii=False)}" for each in (*matchers, *more)
    )
    return f"{metric}{{{inner}}}"


def _escaped(name: str) -> str:
    return _RE2_SPECIAL.sub(lambda match: f"\\{match.group()}", name)


def parse(body: bytes | bytearray, at_ns: int) -> Parsed:
    """Return what an answer says. Raises NotPrometheusAnswerError."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise NotPrometheusAnswerError("something that is no JSON") from None
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or content.get("status") != "success":
        raise NotPrometheusAnswerError("JSON that is no answer to a query")
    result = data.get("result")
    if data.get("resultType") != "vector" or not isinstance(result, list):
        raise NotPrometheusAnswerError("something that is no vector")
    warnings = content.get("warnings") or []
    if not isinstance(warnings, list):
        raise NotPrometheusAnswerError("warnings that are no list")
    firing, up, watched, skipped = dict[AlertKey, ToldAlert](), set[tuple[str, str]](), Counter[str](), 0
    for labels, value in _series(result):
        name, node, exporter = (_text(labels, each) for each in ("alertname", "node", "exporter"))
        if name and node:
            key = AlertKey(name, node, _gpu(labels))
            firing.setdefault(key, ToldAlert(_words(name, labels), _identity(labels)))
        elif name:
            skipped += 1
        elif node and exporter:
            up.add((exporter, node))
        elif exporter:
            watched[exporter] = value
    told = tuple(clipped(printable(str(each)), _WARNING_CHARS) for each in warnings)
    alerts = AlertsAnswer(at_ns, firing, frozenset(up), complete=not warnings)
    return Parsed(alerts, watched, told, skipped)


def _series(result: list[Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield labels and value of each series. Raises NotPrometheusAnswerError."""
    try:
        for each in result:
            yield dict(each["metric"]), int(each["value"][1])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise NotPrometheusAnswerError("a series without labels or value") from None


def _text(labels: Mapping[str, Any], name: str) -> str:
    value = labels.get(name)
    return value if isinstance(value, str) else ""


def _gpu(labels: Mapping[str, Any]) -> str | None:
    address = _text(labels, "pci_bus_id")
    return normal_pci(address.partition(".")[0]) if _PCI.fullmatch(address) else None


def _identity(labels: Mapping[str, Any]) -> Gpu | None:
    seen = gpu_of_labels({name: each for name, each in labels.items() if isinstance(each, str)}, 0)
    return seen.gpu if seen else None


def _words(name: str, labels: Mapping[str, Any]) -> str:
    """Return ``KonductorGPURowRemapFailed fires (gpu 3, UUID GPU-…)``, safe to print."""
    shown = [f"{each} {clipped(_text(labels, each), _LABEL_CHARS)}" for each in _SHOWN if _text(labels, each)]
    return clipped(printable(f"{name} fires" + (f" ({', '.join(shown)})" if shown else "")), EVIDENCE_CHARS)
