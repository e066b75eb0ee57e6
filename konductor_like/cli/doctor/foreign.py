"""Kernel lines and pod lines that Loki has under other labels than the settings say.

Only a few small questions go to Loki: the values of at most ten labels, and at most 50 lines of at most
eight streams. A stream is named only after its lines showed that the kernel wrote them. Sources of the names
of labels: Promtail's chart and its journal example, Alloy's ``loki.source.journal``, Grafana's chart
k8s-monitoring, Fluent Bit's output ``loki`` and its filter ``kubernetes``, Loki's labels of OTLP attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from konductor_like.cli.doctor.link import Link, broken, few, ok, warn
from konductor_like.detection import HEARTBEAT_ANCHOR, parse_heartbeat
from konductor_like.detection.kernel_record import is_of_kernel, is_stamped, open_record, with_text_message
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.logql import kernel_matchers, log_query, selector
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
_GUIDE = "docs/start/collectors.md"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some lines of one selector, and what they are."""

    selector: str
    what: str = ""
    """:data:`HEARTBEATS` or another of these; empty if the lines do not show who wrote them."""
    node_label: str = ""
    """The label or structured metadata with the node's name, if one has it."""
    strangers: tuple[str, ...] = ()
    """The names in that label, if none of them is the name of a Node."""
    labels: frozenset[str] = frozenset()
    """The names of all labels and all structured metadata."""
    of_driver: bool = False
    """Whether a line has words of NVIDIA's driver."""
    is_lists: bool = False
    """Whether a line is only a list of numbers: a journal's message that a collector did not decode."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The lines that Loki has under other labels, or without heartbeats."""

    kernel: Sample | None = None
    """Lines of the kernel that the settings do not select."""
    mixed: str = ""
    """The selector of lines of the kernel or its drivers that nothing tells from lines of programs."""
    own: Sample | None = None
    """Lines of the settings' own selector, if these have no heartbeat or no node's name."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """The settings that fit the labels of the pod logs, if the present ones do not."""


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
    if known.beats and known.pods:
        return Foreign()
    now_ns = loki.now_ns()
    labels = loki.label_names(now_ns - _SPANS_NS[-1], now_ns)
    pods: Mapping[str, str] = {} if known.pods else _pods(loki, settings, labels)
    if known.beats:
        return Foreign(pods=pods)
    if known.lines:
        own = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
        return Foreign(own=_sample(loki, own, ("",), _SPANS_NS, settings.node_label, nodes), pods=pods)
    mixed = ""
    for each in _candidates(loki, settings, labels):
        matchers = (each.matcher, *parse_matchers(settings.extra_matchers))
        found = _sample(
            loki,
            matchers,
            each.anchors,
            each.spans_ns,
            settings.node_label,
            nodes,
            () if each.is_shared else labels,
        )
        if found and found.what and not each.is_shared:
            return Foreign(found, pods=pods)
        mixed = mixed or (found.selector if found and (found.what or found.of_driver) else "")
    return Foreign(mixed=mixed, pods=pods)


class _Candidate(NamedTuple):
    """A stream that may have a kernel log, and how to look at it."""

    matcher: Matcher
    anchors: tuple[str, ...]
    spans_ns: tuple[int, ...] = _SPANS_NS
    is_shared: bool = False
    """Whether all that a collector sends may be there, also lines of pods."""


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
        return _Candidate(one, _TRACES)
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
    now_ns = loki.now_ns()
    for span_ns in spans_ns:
        entries = loki.query_range(log_query(matchers, anchors), now_ns - span_ns, now_ns, _LINES).entries
        if entries:
            break
    else:
        return None
    proofs = [_proof(entry, matchers[0]) for entry in entries]
    what = _what(proofs, [entry.text for entry in entries])
    shown = [entry for entry, proof in zip(entries, proofs, strict=True) if not what or proof == what]
    if namespace := next((name for name in PODS if name in index and name != matchers[0].name), ""):
        value = shown[0].labels.get(namespace, "")
        shown = [entry for entry in shown if entry.labels.get(namespace, "") == value]
        matchers = (
            (Matcher(namespace, "=", value), *matchers) if value else (*matchers, Matcher(namespace, "=", ""))
        )
    names = nodes()
    label = _node_label(shown, node_label, names)
    named = {entry.labels[label] for entry in shown} if label else set()
    return Sample(
        selector(matchers),
        what,
        label,
        tuple(sorted(named)) if names and named.isdisjoint(names) else (),
        frozenset(name for entry in shown for name in entry.labels),
        of_driver=any("NVRM: " in entry.text for entry in entries),
        is_lists=any(_LIST.fullmatch(entry.text.strip()) for entry in entries),
    )


def _proof(entry: Entry, matcher: Matcher) -> str:
    """Return what shows that the kernel, or the kernel-log reader, wrote a line; empty if nothing does."""
    text = with_text_message(entry.text)
    if parse_heartbeat(text):
        return HEARTBEATS
    opened = open_record(text)
    if opened and is_of_kernel(opened[1]):
        return ENTRIES
    if matcher.name in _TRANSPORTS:
        return OF_TRANSPORT
    return STAMPED if opened and is_stamped(opened[1]) else ""


def _what(proofs: Sequence[str], texts: Sequence[str]) -> str:
    """Return what the lines are; empty if a program may have written one of those that would count.

    The controller reads an entry in JSON by its own fields. Plain lines prove a stream only if all are alike.
    """
    if HEARTBEATS in proofs:
        return HEARTBEATS
    if ENTRIES in proofs and all(text.lstrip().startswith("{") for text in texts):
        return ENTRIES
    return proofs[0] if len(set(proofs)) == 1 else ""


def _node_label(entries: Sequence[Entry], wanted: str, nodes: Collection[str]) -> str:
    """Return the label with the node's name; without the Nodes' names, a label that is usually one."""
    if all(entry.labels.get(wanted) for entry in entries):
        return wanted
    names = dict.fromkeys((*_NODES, *sorted(name for entry in entries for name in entry.labels)))
    for name in names if nodes else _NODES:
        values = {entry.labels.get(name, "") for entry in entries}
        if values <= set(nodes) or (not nodes and all(values)):
            return name
    return ""


def _pods(loki: LokiClient, settings: Settings, labels: Collection[str]) -> Mapping[str, str]:
    """Return the settings under which the watched namespaces have lines; empty if none would help."""
    watched = settings.namespaces()[0]
    for name, (pod, container) in PODS.items():
        if name not in labels or name == settings.namespace_label:
            continue
        values = _values(loki, settings, name)
        fits = next((value for value in values if any(fnmatchcase(value, each) for each in watched)), None)
        if fits is None:
            continue
        found, now_ns = {"KONDUCTOR_NAMESPACE_LABEL": name}, loki.now_ns()
        query = log_query((Matcher(name, "=", fits), *parse_matchers(settings.extra_matchers)), ("",))
        for entry in loki.query_range(query, now_ns - _SPANS_NS[-1], now_ns, 1).entries:
            wanted = {"KONDUCTOR_POD_LABEL": pod, "KONDUCTOR_CONTAINER_LABEL": container}
            found |= {setting: label for setting, label in wanted.items() if label in entry.labels}
        return found
    return {}


def elsewhere(foreign: Foreign, settings: Settings) -> Link | None:
    """Return the link `kernel stream` if the settings find no line; None if nothing else was found either."""
    nothing = f"{settings.kernel_selector} has no line in the last hour"
    if found := foreign.kernel:
        wanted = {"KONDUCTOR_KERNEL_SELECTOR": f"'{found.selector}'"}
        if found.node_label and found.node_label != settings.node_label:
            wanted["KONDUCTOR_NODE_LABEL"] = found.node_label
        details = [] if found.node_label else [f"no label of these lines has the name of a Node: {_GUIDE}"]
        words = f"{nothing}; your kernel lines are under {found.selector} ({found.what})"
        return broken(words, _to_set({**wanted, **foreign.pods}), *details)
    if foreign.mixed:
        other = f"{foreign.mixed} has lines of the kernel or its drivers, and any program may write there"
        words = f"{nothing}; {other}"
        return broken(words, f"let the collector give the kernel's lines a label of their own: {_GUIDE}")
    return None


def without_beats(own: Sample, settings: Settings) -> Link:
    """Return the link `kernel stream` for lines without a heartbeat: those of another reader or a journal."""
    if own.is_lists:
        words = (
            f"{settings.kernel_selector} has messages that are only a list of numbers: an Xid in them is lost"
        )
        return broken(words, f"let the collector write messages as text: {_GUIDE}")
    if own.what == ENTRIES:
        words = f"{settings.kernel_selector} has journal entries, and no heartbeat: nodes are `not measured`"
        return warn(words, f"nothing, or use the kernel-log reader: {_GUIDE} says what a journal lacks")
    do = "use the reader of manifests/dmesg_daemonset.yaml (docs/start/own-loki.md)"
    return warn(f"{settings.kernel_selector} has lines, and no heartbeat in the last minutes", do)


def node_label(own: Sample, settings: Settings) -> Link:
    """Return the link `node label` for kernel lines without a heartbeat, or for nameless heartbeats."""
    wanted = settings.node_label
    if own.node_label == wanted and own.strangers:
        do = "let the collector set the name that `kubectl get nodes` prints"
        return broken(f"{wanted} on the latest kernel lines names no Node: {few(own.strangers)}", do)
    if own.node_label == wanted:
        return ok(f"{wanted} is on the latest kernel lines")
    do = "set KONDUCTOR_NODE_LABEL to the label that has the node's name; the collector must set it"
    if own.node_label:
        do = _to_set({"KONDUCTOR_NODE_LABEL": own.node_label})
    lines = "heartbeat has" if own.what == HEARTBEATS else "kernel line has"
    return broken(f"no {lines} {wanted}", do, f"they have: {few(own.labels)}")


def of_pods(foreign: Foreign, settings: Settings) -> Link | None:
    """Return the link `namespaces` if the watched namespaces have lines under another label."""
    if not foreign.pods:
        return None
    other = foreign.pods["KONDUCTOR_NAMESPACE_LABEL"]
    words = f"no watched namespace is under {settings.namespace_label}; the label {other} has one"
    return broken(words, _to_set(foreign.pods))


def _to_set(wanted: Mapping[str, str]) -> str:
    return f"set {', '.join(f'{name}={value}' for name, value in wanted.items())} ({_GUIDE})"
