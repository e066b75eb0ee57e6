"""Kernel lines and pod lines that Loki has under other labels than the settings say.

Only a few small questions go to Loki: the values of at most ten labels, and at most 50 lines of at most
eight streams. A stream is named only after its lines showed that the kernel wrote them. Sources of the names
of labels: Promtail's chart and its journal example, Alloy's ``loki.source.journal``, Grafana's chart
k8s-monitoring, Fluent Bit's output ``loki`` and its filter ``kubernetes``, Loki's labels of OTLP attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from konductor_like.detection import HEARTBEAT_ANCHOR, parse_heartbeat
from konductor_like.detection.kernel_record import is_of_kernel, is_stamped, open_record
from konductor_like.detection.wrapper import with_text_message
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.logql import kernel_matchers, log_query, pod_matchers, selector
from konductor_like.loki.query.response import Entry
from konductor_like.model.time import SECOND_NS
from konductor_like.selectors import Matcher, parse_matchers
from konductor_like.settings import Settings

_SPANS_NS = (600 * SECOND_NS, 3600 * SECOND_NS)
"""The last ten minutes, then the last hour: a quiet kernel prints little, and a collector may be new."""
_LINES, _STREAMS_MOST = 50, 8
_TRANSPORTS = ("transport", "_TRANSPORT", "journal_transport", "systemd_transport")
"""The names that collectors give to a field of journald; only the kernel's entries have ``kernel`` in it."""
_PLACES = ("source", "job", "service_name", "container", "k8s_container_name", "filename")
_VALUES = (
    re.compile(r"kernel|kmsg|dmesg|kern\.log"),
    re.compile(r"journal"),
    re.compile(r"fluent-?bit|unknown_service"),  # everything that a collector sent without a name
)
"""Values of these labels that may be a kernel log, the most likely first."""
_TRACES = (HEARTBEAT_ANCHOR, '"_TRANSPORT":"kernel"', '"_TRANSPORT": "kernel"', "NVRM: ")
PODS = {
    "namespace": ("pod", "container"),
    "k8s_namespace_name": ("k8s_pod_name", "k8s_container_name"),
    "namespace_name": ("pod_name", "container_name"),
    "kubernetes_namespace_name": ("kubernetes_pod_name", "kubernetes_container_name"),
    "kubernetes_pod_namespace": ("kubernetes_pod_name", "kubernetes_container_name"),
}
"""The labels of a namespace that collectors write, and what they call the pod and the container."""
_NODES = ("node", "node_name", "k8s_node_name", "nodename", "hostname", "host", "instance", "kubernetes_host")
HEARTBEATS = "heartbeats of the kernel-log reader"
ENTRIES = "journal entries of the kernel"
OF_TRANSPORT = "lines with the kernel's transport"
STAMPED = "lines with the kernel's stamp"
_LIST = re.compile(r"\[\d{1,3}(, ?\d{1,3})+\]")


@dataclass(frozen=True, slots=True)
class Sample:
    """Some lines of one selector, and what they are."""

    selector: str
    what: str = ""
    """:data:`HEARTBEATS` or another of these; empty if the lines do not show who wrote them."""
    node_labels: tuple[str, ...] = ()
    """The labels and the structured metadata with the node's name, the most likely first."""
    names: frozenset[str] = frozenset()
    """The values of the first of these."""
    strangers: tuple[str, ...] = ()
    """Those of them that are names of no Node."""
    labels: frozenset[str] = frozenset()
    """The names of all labels and all structured metadata."""
    of_driver: bool = False
    """Whether a line has words of NVIDIA's driver."""
    is_lists: bool = False
    """Whether a line is only a list of numbers: a journal's message that a collector did not decode."""
    is_json: bool = False
    """Whether each line looks like JSON."""

    @property
    def is_journal(self) -> bool:
        """Whether these are kernel lines of a journal, which has no heartbeats."""
        return self.what in (ENTRIES, OF_TRANSPORT)


@dataclass(frozen=True, slots=True)
class Foreign:
    """Lines that Loki has under other labels, or without heartbeats."""

    kernel: Sample | None = None
    """Lines of the kernel that the settings do not select."""
    mixed: str = ""
    """The selector of lines of the kernel or its drivers that nothing tells from lines of programs."""
    quiet: str = ""
    """The selector of a journal in plain text without any line of the kernel or its drivers."""
    own: Sample | None = None
    """Lines of the settings' own selector, if these have no heartbeat or no node's name."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """The settings that fit the labels of the pod logs, if the present ones do not."""
    on_pods: tuple[str, ...] | None = None
    """The labels with the node's name on pod lines, the most likely first; None if no pod line was read."""


@dataclass(frozen=True, slots=True)
class Known:
    """The findings of the settings' own selectors."""

    beats: bool
    """Whether heartbeats with a node's name were found."""
    lines: bool
    """Whether any kernel line was found."""
    pods: bool
    """Whether a line of a watched namespace was found."""


def look(
    loki: LokiClient,
    settings: Settings,
    known: Known,
    nodes: Callable[[], Collection[str]],
) -> Foreign:
    """Look for what the settings do not find. Raises a LokiError.

    ``nodes`` waits for the names of all Nodes.
    """
    now_ns, labels = loki.now_ns(), tuple[str, ...]()
    if not (known.beats and known.pods):
        labels = tuple(loki.label_names(now_ns - _SPANS_NS[-1], now_ns))
    found = _watched(loki, settings, nodes) if known.pods else _pods(loki, settings, labels, nodes)
    if known.beats:
        return found
    if known.lines:
        matchers = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
        own = _sample(loki, matchers, ("",), _SPANS_NS, settings.node_label, nodes)
        return replace(found, own=own and _with_names(loki, own, labels, nodes()))
    mixed = quiet = ""
    for each in _candidates(loki, settings, labels):
        matchers = (each.matcher, *parse_matchers(settings.extra_matchers))
        one = _sample(
            loki,
            matchers,
            each.anchors,
            each.spans_ns,
            settings.node_label,
            nodes,
            () if each.is_shared else labels,
        )
        if one and one.what and not each.is_shared:
            return replace(found, kernel=one)
        mixed = mixed or (one.selector if one and (one.what or one.of_driver) else "")
        if one is None and each.is_journal and not quiet:
            of_no_pod = (Matcher(name, "=", "") for name in PODS if name in labels)
            lines = _sample(loki, (*matchers, *of_no_pod), ("",), _SPANS_NS[:1], settings.node_label, nodes)
            quiet = lines.selector if lines and not lines.is_json else ""
    return replace(found, mixed=mixed, quiet=quiet)


class _Candidate(NamedTuple):
    """A stream that may have a kernel log, and how to look at it."""

    matcher: Matcher
    anchors: tuple[str, ...]
    spans_ns: tuple[int, ...] = _SPANS_NS
    is_shared: bool = False
    """Whether all that a collector sends may be there, also lines of pods."""
    is_journal: bool = False
    """Whether the name says that this is a journal."""


def _candidates(loki: LokiClient, settings: Settings, labels: Collection[str]) -> list[_Candidate]:
    """Return the streams that may have a kernel log, the most likely first."""
    names = [name for name in (*_TRANSPORTS, *_PLACES) if name in labels]
    values = {name: _values(loki, settings, name) for name in names}
    found: dict[Matcher, _Candidate] = {}
    for name in _TRANSPORTS:
        if "kernel" in values.get(name, ()):
            of_kernel = Matcher(name, "=", "kernel")
            found[of_kernel] = _Candidate(of_kernel, ("",))
    for pattern in _VALUES:
        likely = [
            (value, name) for name in _PLACES for value in values.get(name, ()) if pattern.search(value)
        ]
        for value, name in sorted(likely, key=lambda each: (each[1] == "service_name", len(each[0]))):
            one = Matcher(name, "=", value)
            found.setdefault(one, _looked_at(one, pattern))
    return list(found.values())[:_STREAMS_MOST]


def _looked_at(one: Matcher, pattern: re.Pattern[str]) -> _Candidate:
    if pattern is _VALUES[0]:
        return _Candidate(one, ("",))
    if pattern is _VALUES[1]:
        return _Candidate(one, _TRACES, is_journal=True)
    return _Candidate(one, _TRACES, _SPANS_NS[:1], is_shared=True)


def _values(loki: LokiClient, settings: Settings, label: str) -> Sequence[str]:
    """Return the values of an index label in the last hour."""
    now_ns, extra = loki.now_ns(), parse_matchers(settings.extra_matchers)
    return loki.label_values(label, selector(extra) if extra else "", now_ns - _SPANS_NS[-1], now_ns)


def _sample(
    loki: LokiClient,
    matchers: Sequence[Matcher],
    anchors: Sequence[str],
    spans_ns: Sequence[int],
    node_label: str,
    nodes: Callable[[], Collection[str]],
    index: Collection[str] = (),
) -> Sample | None:
    """Return what some lines of a stream show; None if it has no line with one of ``anchors``.

    With ``index``, Loki's index labels, the selector is narrowed to the namespace of these lines, or to lines
    without one: a pod's label could have the same name and value.
    """
    entries = _lines(loki, matchers, anchors, spans_ns)
    if not entries:
        return None
    proofs = [_proof(entry, matchers) for entry in entries]
    what = _what(proofs, is_json=all(map(_is_json, entries)))
    shown = [entry for entry, proof in zip(entries, proofs, strict=True) if not what or proof == what]
    if namespace := next((name for name in PODS if name in index and name != matchers[0].name), ""):
        value = shown[0].labels.get(namespace, "")
        shown = [entry for entry in shown if entry.labels.get(namespace, "") == value]
        matchers = (
            (Matcher(namespace, "=", value), *matchers) if value else (*matchers, Matcher(namespace, "=", ""))
        )
    every = nodes()
    labels = _node_labels(shown, node_label, every)
    names = frozenset(entry.labels[labels[0]] for entry in shown) if labels else frozenset()
    return Sample(
        selector(matchers),
        what,
        labels,
        names,
        tuple(sorted(names - set(every))) if every else (),
        frozenset(name for entry in shown for name in entry.labels),
        of_driver=any("NVRM: " in entry.text for entry in entries),
        is_lists=any(_LIST.fullmatch(entry.text.strip()) for entry in entries),
        is_json=all(map(_is_json, entries)),
    )


def _lines(
    loki: LokiClient, matchers: Sequence[Matcher], anchors: Sequence[str], spans_ns: Sequence[int]
) -> Sequence[Entry]:
    """Return some lines of the first of these spans that has any."""
    query, now_ns = log_query(matchers, anchors), loki.now_ns()
    spans = (loki.query_range(query, now_ns - span_ns, now_ns, _LINES).entries for span_ns in spans_ns)
    return next(filter(None, spans), ())


def _with_names(loki: LokiClient, own: Sample, index: Collection[str], nodes: Collection[str]) -> Sample:
    """Add the names of the nodes whose lines the sample does not have, if they are in an index label."""
    if not own.node_labels or own.node_labels[0] not in index:
        return own
    now_ns = loki.now_ns()
    also = loki.label_values(own.node_labels[0], own.selector, now_ns - _SPANS_NS[-1], now_ns)
    names = own.names.union(also)
    return replace(own, names=names, strangers=tuple(sorted(names - set(nodes))) if nodes else ())


def _is_json(entry: Entry) -> bool:
    return entry.text.lstrip().startswith("{")


def _proof(entry: Entry, matchers: Sequence[Matcher]) -> str:
    """Return what shows that the kernel, or the kernel-log reader, wrote a line; empty if nothing does."""
    text = with_text_message(entry.text)
    if parse_heartbeat(text):
        return HEARTBEATS
    opened = open_record(text)
    if opened and is_of_kernel(opened[1]):
        return ENTRIES
    if any(each.name in _TRANSPORTS for each in matchers):
        return OF_TRANSPORT
    return STAMPED if opened and is_stamped(opened[1]) else ""


def _what(proofs: Sequence[str], *, is_json: bool) -> str:
    """Return what the lines are; empty if a program may have written one of those that would count.

    The controller reads an entry in JSON by its own fields. Plain lines prove a stream only if all are alike.
    """
    if HEARTBEATS in proofs:
        return HEARTBEATS
    if ENTRIES in proofs and is_json:
        return ENTRIES
    return proofs[0] if len(set(proofs)) == 1 else ""


def _node_labels(
    entries: Sequence[Entry], wanted: str, nodes: Collection[str], *, on_each: bool = True
) -> tuple[str, ...]:
    """Return the labels with the node's name, ``wanted`` first if the lines have it.

    Without the Nodes' names these are labels that usually have it. ``on_each``: a label must be on each line.
    """

    def fits(name: str) -> bool:
        values = {entry.labels.get(name, "") for entry in entries}
        if not values - {""} or (on_each and "" in values):
            return False
        return name == wanted or (values <= {*nodes, ""} if nodes else name in _NODES)

    every = (*_NODES, *sorted(name for entry in entries for name in entry.labels))
    return tuple(filter(fits, dict.fromkeys((wanted, *every))))


def _watched(loki: LokiClient, settings: Settings, nodes: Callable[[], Collection[str]]) -> Foreign:
    """Return the labels with the node's name on the lines of the watched pods."""
    matchers = pod_matchers(settings)
    entries = _lines(loki, matchers, ("",), _SPANS_NS) if matchers else ()
    return Foreign(on_pods=_on_pods(entries, settings, settings.namespace_label, nodes))


def _on_pods(
    entries: Sequence[Entry], settings: Settings, namespace: str, nodes: Callable[[], Collection[str]]
) -> tuple[str, ...] | None:
    """Return the labels with the node's name; lines of no pod, such as Events, have none and do not count."""
    of_pod = (settings.pod_label, settings.container_label, *PODS.get(namespace, ()))
    lines = [entry for entry in entries if any(map(entry.labels.get, of_pod))]
    return _node_labels(lines, settings.node_label, nodes(), on_each=False) if lines else None


def _pods(
    loki: LokiClient, settings: Settings, labels: Collection[str], nodes: Callable[[], Collection[str]]
) -> Foreign:
    """Return the settings under which the watched namespaces have lines; none if none would help."""
    watched = settings.namespaces()[0]
    for name, of_pod in PODS.items():
        if name not in labels or name == settings.namespace_label:
            continue
        values = _values(loki, settings, name)
        fits = next((value for value in values if any(fnmatchcase(value, each) for each in watched)), None)
        if fits is None:
            continue
        found = {"KONDUCTOR_NAMESPACE_LABEL": name}
        one = (Matcher(name, "=", fits), *parse_matchers(settings.extra_matchers))
        entries = _lines(loki, one, ("",), _SPANS_NS[-1:])
        for setting, label in zip(("KONDUCTOR_POD_LABEL", "KONDUCTOR_CONTAINER_LABEL"), of_pod, strict=True):
            found |= {setting: label} if any(label in entry.labels for entry in entries) else {}
        return Foreign(pods=found, on_pods=_on_pods(entries, settings, name, nodes))
    return Foreign()
