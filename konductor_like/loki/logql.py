"""The queries that go to Loki: a stream selector and one line filter with a few literal anchors (rule 11)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from konductor_like.detection import HEARTBEAT_ANCHOR, OVERRUN_ANCHOR
from konductor_like.settings import Matcher, Settings, parse_matchers

_RE2_SPECIAL = re.compile(r"[.+*?()|\[\]{}^$\\]")


@lru_cache(maxsize=8)  # each line is tested by them
def kernel_matchers(kernel_selector: str, extra_matchers: str) -> tuple[Matcher, ...]:
    """The matchers that make a stream a kernel log, by the two settings."""
    return parse_matchers(kernel_selector) + parse_matchers(extra_matchers)


def kernel_query(settings: Settings, anchors: Iterable[str]) -> str:
    """The kernel lines that may hold a fault; ``anchors`` are the detector's."""
    return log_query(kernel_matchers(settings.kernel_selector, settings.extra_matchers), anchors)


def heartbeat_query(settings: Settings) -> str:
    """What our own kernel-log reader says about itself; the fault query's anchors match none of it."""
    return kernel_query(settings, (HEARTBEAT_ANCHOR, OVERRUN_ANCHOR))


def pod_query(settings: Settings, anchors: Iterable[str]) -> str | None:
    """The pod lines that may hold a fault, of all watched namespaces at once; None when none is watched.

    Only the namespace label selects, because it comes from the log file's path and is always there (rule 12).
    The kernel-log reader's own container is told apart by its labels when the answer is read.
    """
    watched = [name for name in settings.watched_namespaces if name not in settings.excluded_namespaces]
    if not watched:
        return None
    namespaces = one_of(settings.namespace_label, watched)
    return log_query((namespaces, *parse_matchers(settings.extra_matchers)), anchors)


def log_query(matchers: Iterable[Matcher], anchors: Iterable[str]) -> str:
    """Lines of the streams that satisfy all ``matchers`` and that contain any of ``anchors``."""
    selector = ", ".join(f"{matcher.name}{matcher.op}{quote(matcher.value)}" for matcher in matchers)
    return f"{{{selector}}} |= {' or '.join(quote(anchor) for anchor in anchors)}"


def of_nodes(query: str, node_label: str, nodes: Iterable[str], *, without: bool = False) -> str:
    """The lines of these nodes only, or all others; ``""`` is a line that names none.

    The label may be an index label or structured metadata: a filter after the line filter knows both.
    """
    # Loki takes an empty expression in a label filter for anything: =~"" finds all lines and !~"" none.
    pattern = "|".join(_RE2_SPECIAL.sub(r"\\\g<0>", name) or "^$" for name in sorted(nodes))
    return f"{query} | {node_label}{'!~' if without else '=~'}{quote(pattern)}"


def counting(query: str, width_ms: int) -> str:
    """How many lines of the log query there are in the milliseconds before the time that is asked for."""
    return f"sum(count_over_time({query} [{width_ms}ms]))"


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """A matcher for exactly these values of a label."""
    unique = list(dict.fromkeys(values))
    if len(unique) == 1:
        return Matcher(label, "=", unique[0])
    return Matcher(label, "=~", "|".join(_RE2_SPECIAL.sub(r"\\\g<0>", value) for value in unique))


def quote(text: str) -> str:
    """``text`` as a LogQL string. LogQL reads strings as Go does; JSON's escapes are all among Go's."""
    return json.dumps(text, ensure_ascii=False)
