"""What every match of a pattern begins with, read off the pattern.

A kernel message that begins with no pattern's head need not be tried on any of them, and most lines that
quote a fault are such. Only plain beginnings are understood: literals, and groups of them that may be absent.
"""

from __future__ import annotations

from collections.abc import Iterator

_SPECIAL = frozenset(".^$*+?{}[]()|")
_MAY_BE_ABSENT = ("?", "*", "{")
_GROUP = "(?:"
_HEADS_MOST = 64
"""A pattern of many alternatives one after the other would have more than memory holds."""


def heads_of(pattern: str) -> frozenset[str] | None:
    """Literals of which every match of a valid pattern begins with one; None where that cannot be told."""
    heads, _ = _options(pattern)
    return None if "" in heads else heads


def _options(text: str) -> tuple[frozenset[str], bool]:
    """What the alternatives begin with, and whether that is the whole of each."""
    found = [_heads(alternative) for alternative in _alternatives(text)]
    return frozenset().union(*(heads for heads, _ in found)), all(whole for _, whole in found)


def _heads(text: str) -> tuple[frozenset[str], bool]:
    heads = frozenset({""})
    position = 0
    while position < len(text):
        if text.startswith(_GROUP, position):
            end = _closing(text, position)
            options, whole = _options(text[position + len(_GROUP) : end])
            follows = text[end + 1 : end + 2]
            optional = follows == "?"
            if follows in ("*", "{") or (optional and not whole):
                return heads, False
            if len(heads) * (len(options) + optional) > _HEADS_MOST:
                return heads, False
            heads = _joined(heads, options | {""} if optional else options)
            if not whole or follows == "+":
                return heads, False
            position = end + 1 + optional
            continue
        end = position + (2 if text[position] == "\\" else 1)
        character = text[end - 1 : end]
        literal = character not in _SPECIAL if end == position + 1 else not character.isalnum()
        if not literal or text.startswith(_MAY_BE_ABSENT, end):
            return heads, False
        heads = _joined(heads, frozenset({character}))
        position = end
    return heads, True


def _joined(heads: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    return frozenset(head + tail for head in heads for tail in more)


def _alternatives(text: str) -> Iterator[str]:
    """The parts between the bars that stand in no group and no class."""
    begin = 0
    for position, depth in _depths(text):
        if depth == 0 and text[position] == "|":
            yield text[begin:position]
            begin = position + 1
    yield text[begin:]


def _closing(text: str, opening: int) -> int:
    """Where the group that opens there is closed."""
    return next(
        opening + position for position, depth in _depths(text[opening:]) if depth == 0 and position > 0
    )


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Every character outside of classes that is not escaped, and how many groups are open behind it."""
    depth = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        if text[position] == "[":
            position = _class_end(text, position)
        else:
            depth += (text[position] == "(") - (text[position] == ")")
            yield position, depth
        position += 1


def _class_end(text: str, opening: int) -> int:
    """Where a class ends: at the first bracket that is not escaped and not its first member."""
    position = opening + 1 + text.startswith("^", opening + 1)
    position += text.startswith("]", position)
    while position < len(text) and text[position] != "]":
        position += 2 if text[position] == "\\" else 1
    return position
