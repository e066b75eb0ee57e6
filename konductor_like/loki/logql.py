"""The LogQL that goes to Loki: a stream selector and one line filter with a few literal anchors (rule 11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from konductor_like.detection import HEARTBEAT_ANCHOR, OVERRUN_ANCHOR
from konductor_like.settings import Matcher, Settings, parse_matchers

_RE2_SPECIAL = re.compile(r"[.+*?()|\[\]{}^$\\]")


@lru_cache(maxsize=8)  # every line is tested with these matchers
def kernel_matchers(kernel_selector: str, extra_matchers: str) -> tuple[Matcher, ...]:
    """Return the matchers that make a stream a kernel log, from the two settings."""
    return parse_matchers(kernel_selector) + parse_matchers(extra_matchers)


def kernel_query(settings: Settings, anchors: Iterable[str]) -> str:
    """Return the query for kernel lines that may report a fault; ``anchors`` are the detector's."""
    return log_query(kernel_matchers(settings.kernel_selector, settings.extra_matchers), anchors)


def heartbeat_query(settings: Settings) -> str:
    """Return the query for heartbeats and overruns; the fault query's anchors fit neither."""
    return kernel_query(settings, (HEARTBEAT_ANCHOR, OVERRUN_ANCHOR))


def pod_query(settings: Settings, anchors: Iterable[str]) -> str | None:
    """Return the query for pod lines that may report a fault; None when no namespace is watched.

    Only the namespace label selects, because the collector derives it from the log file's path, so that it is
    always there (rule 12). Lines of the kernel-log reader's own container are dropped later, by their labels.
    """
    watched = [name for name in settings.watched_namespaces if name not in settings.excluded_namespaces]
    if not watched:
        return None
    namespaces = one_of(settings.namespace_label, watched)
    return log_query((namespaces, *parse_matchers(settings.extra_matchers)), anchors)


def log_query(matchers: Iterable[Matcher], anchors: Iterable[str]) -> str:
    """Return the query for lines with one of ``anchors``, in the streams that fit all ``matchers``."""
    selector = ", ".join(f"{matcher.name}{matcher.op}{quote(matcher.value)}" for matcher in matchers)
    return f"{{{selector}}} |= {' or '.join(quote(anchor) for anchor in anchors)}"


def of_nodes(query: str, node_label: str, nodes: Iterable[str], *, without: bool = False) -> str:
    """Limit a query to the lines of ``nodes``, or of all other nodes; ``""`` means lines without a node.

    The label may be an index label or structured metadata: a filter behind the line filter finds both.
    """
    # In a label filter an empty expression fits anything: =~"" finds all lines and !~"" finds no line.
    pattern = "|".join(_RE2_SPECIAL.sub(r"\\\g<0>", name) or "^$" for name in sorted(nodes))
    return f"{query} | {node_label}{'!~' if without else '=~'}{quote(pattern)}"


def counting(query: str, width_ms: int) -> str:
    """Return the query that counts the lines of ``query`` in the ``width_ms`` ms before its time."""
    return f"sum(count_over_time({query} [{width_ms}ms]))"


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """Return a matcher for exactly these values of a label."""
    unique = list(dict.fromkeys(values))
    if len(unique) == 1:
        return Matcher(label, "=", unique[0])
    return Matcher(label, "=~", "|".join(_RE2_SPECIAL.sub(r"\\\g<0>", value) for value in unique))


def quote(text: str) -> str:
    """Return ``text`` as a LogQL string. LogQL's strings are Go's, and Go knows all of JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)
