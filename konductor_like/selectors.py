"""The two kinds of selectors in settings: labels of Nodes, and matchers of Loki's streams."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

Selector = tuple[tuple[str, str | None], ...]
"""Labels that a Node must all have, as (key, value); with None as the value any value will do."""
_MATCHER = re.compile(
    r'\s*(?P<name>[a-zA-Z_]\w*)\s*(?P<op>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|`[^`]*`)\s*'
)


def parse_selector(text: str) -> Selector:
    """Parse a selector such as ``gpu,pool=h100``. Raises ValueError, which names the invalid part."""
    terms: list[tuple[str, str | None]] = []
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.strip().replace("==", "=").partition("="))
        if not key and not sign:
            continue
        if not key or set(key) & set("!<>() \t") or "=" in value:
            raise ValueError(f"{part.strip()!r} is neither key nor key=value")
        terms.append((key, value if sign else None))
    return tuple(terms)


class Matcher(NamedTuple):
    """A LogQL label matcher; ``op`` is ``=``, ``!=``, ``=~`` or ``!~``, ``value`` is unquoted."""

    name: str
    op: str
    value: str


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Read ``{a="b", c=~"d"}`` or the same without braces. Raises ValueError with the wrong part."""
    inner = text.strip()
    if inner.startswith("{"):
        if not inner.endswith("}"):
            raise ValueError(f"{text!r} has no closing brace")
        inner = inner[1:-1]
    matchers: list[Matcher] = []
    position = 0
    while inner[position:].strip():
        match = _MATCHER.match(inner, position)
        if match is None:
            raise ValueError(f'{inner[position:].strip()!r} is not a matcher such as name="value"')
        raw = match["value"]
        value = raw[1:-1] if raw[0] == "`" else _unquoted(raw)
        if match["op"] in ("=~", "!~"):
            from konductor_like.catalog.patterns import fits_whole  # slow, and seldom needed

            try:
                fits_whole(value)
            except ValueError as error:
                raise ValueError(
                    f"{value!r} is not a regular expression of RE2, which Loki uses: {error}"
                ) from error
        matchers.append(Matcher(match["name"], match["op"], value))
        position = match.end()
        if position < len(inner):
            if inner[position] != ",":
                raise ValueError(f"expected a comma before {inner[position:]!r}")
            position += 1
    return tuple(matchers)


def _unquoted(quoted: str) -> str:
    """The content of a string in double quotes. Raises ValueError for a backslash that escapes nothing."""
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise ValueError(
            f"{quoted} has a backslash that escapes nothing; write it twice, or use `backticks`"
        ) from error
