"""Kernel lines and pod lines that Loki has under other labels than the settings say.

The question is asked without the names that collectors give: which label's values are names of Nodes, and
which streams have lines of the kernel. It costs Loki at most 40 small queries: the values of 20 labels, one
line filter over ten minutes for each of six labels, and 50 lines each of a found stream and of the pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

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
_LINES, _LABELS_MOST, _FILTERS_MOST = 50, 20, 6
_TRACES = (HEARTBEAT_ANCHOR, '"_TRANSPORT":"kernel"', '"_TRANSPORT": "kernel"', "NVRM: ")
HEARTBEATS = "heartbeats of the kernel-log reader"
ENTRIES = "journal entries of the kernel"
OF_TRANSPORT = "lines with the kernel's transport"
STAMPED = "lines with the kernel's stamp"
_BEST = (HEARTBEATS, ENTRIES, STAMPED)
_LIST = re.compile(r"\[\d{1,3}(, ?\d{1,3})+\]")


@dataclass(frozen=True, slots=True)
class Sample:
    """Some lines of one selector, and what they are."""

    selector: str
    what: str = ""
    """:data:`HEARTBEATS` or another of these; empty if the lines do not show who wrote them."""
    node_labels: tuple[str, ...] = ()
    """The labels and the structured metadata with the node's name, the setting's first."""
    names: frozenset[str] = frozenset()
    """The values of the first of these."""
    strangers: tuple[str, ...] = ()
    """Those of them that are names of no Node."""
    labels: frozenset[str] = frozenset()
    """The names of all labels and all structured metadata."""
    is_lists: bool = False
    """Whether a line is only a list of numbers: a journal's message that a collector did not decode."""

    @property
    def is_journal(self) -> bool:
        """Whether these are kernel lines of a journal, which has no heartbeats."""
        return self.what in (ENTRIES, OF_TRANSPORT)


@dataclass(frozen=True, slots=True)
class Foreign:
    """Lines that Loki has under other labels, or without heartbeats."""

    kernel: Sample | None = None
    """Lines of the kernel that the settings do not select; without ``what``, any program may write there."""
    named: tuple[str, ...] = ()
    """The index labels with names of Nodes, if no kernel line was found with the settings."""
    own: Sample | None = None
    """Lines of the settings' own selector, if these have no heartbeat or no node's name."""
    on_pods: tuple[str, ...] | None = None
    """The labels with the node's name on pod lines, the setting's first; None if no pod line was read."""


def look(
    loki: LokiClient,
    settings: Settings,
    labels: Collection[str],
    nodes: Callable[[], Collection[str]],
    *,
    beats: bool,
    lines: bool,
) -> Foreign:
    """Look for what the settings do not find. Raises a LokiError.

    ``labels`` are the index labels, and ``nodes`` waits for the names of all Nodes. ``beats`` and ``lines``
    say whether the settings find heartbeats with a node's name, and any kernel line.
    """
    found = Foreign(on_pods=_on_pods(loki, settings, nodes))
    if beats:
        return found
    if not lines:
        return _elsewhere(loki, settings, labels, frozenset(nodes()), found)
    matchers = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
    if not (entries := _lines(loki, matchers)):
        return found
    own = _sample(matchers, entries, settings.node_label, frozenset(nodes()))
    return replace(found, own=_with_names(loki, own, labels, nodes()))


def _elsewhere(
    loki: LokiClient, settings: Settings, labels: Collection[str], nodes: frozenset[str], found: Foreign
) -> Foreign:
    """Look for the kernel's lines among all lines of the last ten minutes."""
    some, extra = sorted(labels)[:_LABELS_MOST], parse_matchers(settings.extra_matchers)
    among = selector(extra) if extra else ""
    named = tuple(name for name in some if not nodes.isdisjoint(_values(loki, name, among)))
    found = replace(found, named=named)
    for label in list(dict.fromkeys((*named, *some)))[:_FILTERS_MOST]:
        everything = Matcher(label, "=~", ".+")
        if entries := _lines(loki, (everything, *extra), _TRACES, _SPANS_NS[:1]):
            proofs = [_proof(entry, ()) for entry in entries]
            best = min(filter(None, proofs), key=_BEST.index, default="")
            shown = [entry for entry, proof in zip(entries, proofs, strict=True) if proof == best]
            matchers = _shared(shown, labels, settings.namespace_label, nodes) or (everything,)
            one = _sample(matchers, _lines(loki, matchers) or shown, settings.node_label, nodes)
            if one.what:
                return replace(found, kernel=one)
            found = replace(found, kernel=one)
    return found


def _shared(
    entries: Sequence[Entry], index: Collection[str], namespace: str, nodes: frozenset[str]
) -> tuple[Matcher, ...]:
    """Return the index labels that all entries have with one value, apart from the node's name.

    Lines of no namespace are told from those of pods, which could have the same labels.
    """
    first, *others = (entry.labels for entry in entries)
    same = tuple(
        Matcher(name, "=", value)
        for name, value in sorted(first.items())
        if name in index and value not in nodes and all(each.get(name) == value for each in others)
    )
    of_no_pod = namespace in index and not any(entry.labels.get(namespace) for entry in entries)
    return (*same, Matcher(namespace, "=", "")) if same and of_no_pod else same


def _values(loki: LokiClient, label: str, among: str) -> Sequence[str]:
    """Return the values of an index label in the last hour."""
    now_ns = loki.now_ns()
    return loki.label_values(label, among, now_ns - _SPANS_NS[-1], now_ns)


def _sample(
    matchers: Sequence[Matcher], entries: Sequence[Entry], node_label: str, nodes: frozenset[str]
) -> Sample:
    """Return what some lines of a stream show."""
    what = _what([_proof(entry, matchers) for entry in entries], is_json=all(map(_is_json, entries)))
    labels = _node_labels(entries, node_label, nodes)
    names = frozenset(entry.labels[labels[0]] for entry in entries) if labels else frozenset()
    return Sample(
        selector(matchers),
        what,
        labels,
        names,
        tuple(sorted(names - nodes)) if nodes else (),
        frozenset(name for entry in entries for name in entry.labels),
        is_lists=any(_LIST.fullmatch(entry.text.strip()) for entry in entries),
    )


def _lines(
    loki: LokiClient,
    matchers: Sequence[Matcher],
    anchors: Sequence[str] = ("",),
    spans_ns: Sequence[int] = _SPANS_NS,
) -> Sequence[Entry]:
    """Return some lines of the first of these spans that has any."""
    query, now_ns = log_query(matchers, anchors), loki.now_ns()
    spans = (loki.query_range(query, now_ns - span_ns, now_ns, _LINES).entries for span_ns in spans_ns)
    return next(filter(None, spans), ())


def _with_names(loki: LokiClient, own: Sample, index: Collection[str], nodes: Collection[str]) -> Sample:
    """Add the names of the nodes whose lines the sample does not have, if they are in an index label."""
    if not own.node_labels or own.node_labels[0] not in index:
        return own
    names = own.names.union(_values(loki, own.node_labels[0], own.selector))
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
    if any("transport" in each.name.lower() and each.value == "kernel" for each in matchers):
        return OF_TRANSPORT  # only the kernel's entries have this value of journald's field _TRANSPORT
    return STAMPED if opened and is_stamped(opened[1]) else ""


def _what(proofs: Sequence[str], *, is_json: bool) -> str:
    """Return what the lines are; empty if a program may have written one of those that would count.

    The controller reads an entry in JSON by its own fields, so entries of programs do no harm there.
    """
    if ENTRIES in proofs and is_json:
        return ENTRIES
    if HEARTBEATS in proofs and all(proofs):
        return HEARTBEATS
    return proofs[0] if len(set(proofs)) == 1 else ""


def _node_labels(
    entries: Sequence[Entry], wanted: str, nodes: frozenset[str], *, on_each: bool = True
) -> tuple[str, ...]:
    """Return the labels with the node's name, ``wanted`` first if the lines have it.

    Without the Nodes' names only ``wanted`` can be told. ``on_each``: a label must be on each line.
    """

    def fits(name: str) -> bool:
        values = {entry.labels.get(name, "") for entry in entries}
        if not values - {""} or (on_each and "" in values):
            return False
        return name == wanted or (bool(nodes) and values - {""} <= nodes)

    every = sorted(name for entry in entries for name in entry.labels)
    return tuple(filter(fits, dict.fromkeys((wanted, *every))))


def _on_pods(
    loki: LokiClient, settings: Settings, nodes: Callable[[], Collection[str]]
) -> tuple[str, ...] | None:
    """Return the labels with the node's name; lines of no pod, such as Events, have none and do not count."""
    matchers, of_pod = pod_matchers(settings), (settings.pod_label, settings.container_label)
    entries = _lines(loki, matchers) if matchers else ()
    lines = [entry for entry in entries if any(map(entry.labels.get, of_pod))]
    return _node_labels(lines, settings.node_label, frozenset(nodes()), on_each=False) if lines else None
