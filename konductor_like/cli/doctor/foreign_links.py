"""The links for kernel lines and pod lines that Loki has under other labels, or without heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from konductor_like.cli.doctor.foreign import ENTRIES, HEARTBEATS, Foreign, Sample
from konductor_like.cli.doctor.link import Link, broken, few, ok, warn
from konductor_like.settings import Settings

GUIDE = "docs/start/collectors.md"
_LABELS = f"{GUIDE}#labels-of-collectors"
_AS_JSON = "let the collector send the journal as JSON"
IS_JOURNAL = f"nothing, or use the kernel-log reader: {GUIDE} lists the limits of a journal"
RENAME = "let the collector set the name that `kubectl get nodes` prints"


def elsewhere(selector: str, foreign: Foreign, settings: Settings, labels: Collection[str]) -> Link:
    """Return the link `kernel stream` if the settings' selector finds no line; ``labels`` are Loki's."""
    found, nothing = foreign.kernel, f"{selector} has no line in the last hour"
    if found is None:
        do = "check KONDUCTOR_KERNEL_SELECTOR and KONDUCTOR_EXTRA_MATCHERS, then the collector's log"
        named = [f"names of Nodes are in: {few(foreign.named)}"] if foreign.named else []
        return broken(nothing, do, f"labels in Loki: {few(labels) or 'none'}", *named)
    if not found.what:
        words = f"{found.selector} has lines of the kernel or its drivers, and any program may write there"
        return broken(
            f"{nothing}; {words}", f"{_AS_JSON}, the kernel's lines under a label of their own: {GUIDE}"
        )
    label = _on_both(found.node_labels, foreign.on_pods)
    also = f", and KONDUCTOR_NODE_LABEL={label}" if label and label != settings.node_label else ""
    details = [] if found.node_labels else [f"no label of these lines has the name of a Node: {GUIDE}"]
    if found.node_labels and not label:
        details.append(_unlike(found.node_labels, foreign.on_pods))
    words = f"{nothing}; your kernel lines are under {found.selector} ({found.what})"
    do = f"set KONDUCTOR_KERNEL_SELECTOR to those of these labels that the lines of every node have{also}"
    return broken(words, f"{do} ({_LABELS})", *details)


def without_beats(own: Sample, settings: Settings) -> Link:
    """Return the link `kernel stream` for lines without a heartbeat: those of another reader or a journal."""
    if own.is_lists:
        words = (
            f"{settings.kernel_selector} has messages that are only a list of numbers: an Xid in them is lost"
        )
        return broken(words, f"let the collector write messages as text: {GUIDE}")
    if own.what == ENTRIES:
        words = f"{settings.kernel_selector} has journal entries, and no heartbeat: nodes are `not measured`"
        return warn(words, IS_JOURNAL)
    do = f"use the reader of manifests/dmesg_daemonset.yaml; for a journal, {_AS_JSON} ({GUIDE})"
    return warn(f"{settings.kernel_selector} has lines, and no heartbeat in the last minutes", do)


def node_label(own: Sample, foreign: Foreign, settings: Settings) -> Link:
    """Return the link `node label` for kernel lines without a heartbeat, or for nameless heartbeats."""
    wanted = settings.node_label
    if wanted in own.node_labels and own.names and len(own.strangers) == len(own.names):
        return broken(f"{wanted} on the latest kernel lines names no Node: {few(own.strangers)}", RENAME)
    if wanted in own.node_labels:
        return ok(f"{wanted} is on the latest kernel lines")
    do = "set KONDUCTOR_NODE_LABEL to the label that has the node's name; the collector must set it"
    details = [f"they have: {few(own.labels)}"]
    if label := _on_both(own.node_labels, foreign.on_pods):
        do = _to_set(label)
    elif own.node_labels:
        details.append(_unlike(own.node_labels, foreign.on_pods))
    lines = "heartbeat has" if own.what == HEARTBEATS else "kernel line has"
    return broken(f"no {lines} {wanted}", do, *details)


def node_label_of_pods(foreign: Foreign, of_kernel: Collection[str], settings: Settings) -> Link | None:
    """Return the link `node label` if pod lines lack the label that kernel lines have; None if not.

    ``of_kernel`` are all labels of the kernel lines.
    """
    wanted, on_pods = settings.node_label, foreign.on_pods
    if on_pods is None or wanted in on_pods:
        return None
    words = f"kernel lines have {wanted}, and pod lines do not: each fault of a pod is dropped"
    if label := next((name for name in on_pods if name in of_kernel), ""):
        return broken(words, _to_set(label))
    details = [_unlike((wanted,), on_pods)] if on_pods else []
    return broken(words, f"let the collector set {wanted} on pod lines, too: {GUIDE}", *details)


def _on_both(of_kernel: Sequence[str], on_pods: Sequence[str] | None) -> str:
    """Return the first label with the node's name on kernel lines and pod lines; empty if there is none."""
    return next((name for name in of_kernel if on_pods is None or name in on_pods), "")


def _unlike(of_kernel: Sequence[str], on_pods: Sequence[str] | None) -> str:
    there = few(on_pods or ("no label",))
    where = f"the node's name is in {few(of_kernel)} on kernel lines, and in {there} on pod lines"
    return f"{where}; let the collector give both the same label: {GUIDE}"


def _to_set(label: str) -> str:
    return f"set KONDUCTOR_NODE_LABEL={label} ({GUIDE})"
