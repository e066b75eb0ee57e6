"""The LogQL that goes to Loki: a stream selector and one line filter with a few literal anchors (rule 11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from konductor_like.detection import HEARTBEAT_ANCHOR, OVERRUN_ANCHOR
from konductor_like.selectors import Matcher, parse_matchers
from konductor_like.settings import Settings

_WILDCARDS = re.compile(r"[*?]+")
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
    matchers = pod_matchers(settings)
    return log_query(matchers, anchors) if matchers else None


def pod_matchers(settings: Settings) -> tuple[Matcher, ...] | None:
    """Return the matchers of the watched pods' streams; None when no namespace is watched.

    Names alone need no ``!~``: the excluded ones are left out here.
    """
    label, extra = settings.namespace_label, parse_matchers(settings.extra_matchers)
    watched, excluded = settings.namespaces()
    patterns = [name for name in watched if _WILDCARDS.search(name)]
    fits = [name for name in watched if name in patterns or not _any_fits(excluded, name)]
    if not patterns:
        return (one_of(label, fits), *extra) if fits else None
    wanted = Matcher(label, "=~", "|".join(map(_expression, dict.fromkeys(fits))))
    # An excluded name that no pattern fits would only make the query longer.
    unwanted = [name for name in excluded if _WILDCARDS.search(name) or _any_fits(patterns, name)]
    if not unwanted:
        return (wanted, *extra)
    return (wanted, Matcher(label, "!~", "|".join(map(_expression, dict.fromkeys(unwanted)))), *extra)


def _any_fits(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def log_query(matchers: Iterable[Matcher], anchors: Iterable[str]) -> str:
    """Return the query for lines with one of ``anchors``, in the streams that fit all ``matchers``."""
    return f"{selector(matchers)} |= {' or '.join(quote(anchor) for anchor in anchors)}"


def selector(matchers: Iterable[Matcher]) -> str:
    """Return the stream selector of ``matchers``."""
    return f"{{{', '.join(f'{each.name}{each.op}{quote(each.value)}' for each in matchers)}}}"


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


def _expression(pattern: str) -> str:
    """Return a namespace's name or pattern as RE2. It fits no empty text, which Loki would refuse."""
    if not pattern.strip("*"):
        return ".+"
    return _WILDCARDS.sub(lambda found: "." * found[0].count("?") + ".*" * ("*" in found[0]), pattern)


def quote(text: str) -> str:
    """Return ``text`` as a LogQL string. LogQL's strings are Go's, and Go knows all of JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)
