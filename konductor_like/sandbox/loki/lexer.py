"""LogQL cut into tokens, with the positions and the words of Loki's own error messages.

Source: pkg/logql/syntax/lex.go; bodies seen on a real Loki.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from konductor_like.sandbox.loki.clock import parse_duration_ns
from konductor_like.sandbox.loki.limits import LokiError


class Kind(Enum):
    """Token kinds, under the names that Loki's errors use."""

    IDENTIFIER = "IDENTIFIER"
    STRING = "STRING"
    NUMBER = "NUMBER"
    RANGE = "RANGE"
    SYMBOL = "symbol"
    END = "$end"


KEYWORDS = frozenset(
    {"by", "without", "or", "and", "keep", "drop", "unwrap", "offset", "json", "logfmt", "ip"}
)
FUNCTIONS = frozenset({"sum", "count_over_time", "rate", "bytes_over_time", "bytes_rate"})
_MAX_BYTES = 128 * 1024

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<raw>`[^`]*`)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<range>\[[^\]]*\])
    |(?P<two>=~|!~|!=|\|=|\|~|>=|<=|==|\|>|!>)
    |(?P<one>[^\s"`])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)


class ParseError(LokiError):
    """A query that Loki does not understand: status 400 with the place and the reason."""

    def __init__(self, message: str, line: int | None = None, column: int = 0) -> None:
        where = "" if line is None else f"at line {line}, col {column}"
        super().__init__(400, f"parse error {where}: {message}")


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``value`` is the unquoted string, or the range in ns as text; otherwise the text itself."""

    kind: Kind
    value: str
    line: int
    column: int

    @property
    def name(self) -> str:
        """How an error message calls it."""
        return self.value if self.kind is Kind.SYMBOL else self.kind.value


def tokenize(query: str) -> list[Token]:
    """All tokens of the query, the end included. Raises ``ParseError``."""
    if len(query.encode("utf-8", "replace")) > _MAX_BYTES:
        raise ParseError(f"input size too long ({len(query.encode())} > {_MAX_BYTES})")
    tokens = []
    at = 0
    while at < len(query):
        line, column = _position(query, at)
        match = _TOKEN.match(query, at)
        if match is None:
            raise ParseError("literal not terminated", line, column)
        if match.lastgroup != "space":
            tokens.append(_token(match, query, line, column))
        at = match.end()
    return [*tokens, Token(Kind.END, "", *_position(query, len(query)))]


def _position(query: str, at: int) -> tuple[int, int]:
    return query.count("\n", 0, at) + 1, at - query.rfind("\n", 0, at)


def _token(match: re.Match[str], query: str, line: int, column: int) -> Token:
    text = match[0]
    match match.lastgroup:
        case "word":
            return Token(_kind_of_word(text, query[match.end() :]), text, line, column)
        case "number":
            return Token(Kind.NUMBER, text, line, column)
        case "raw":
            return Token(Kind.STRING, text[1:-1].replace("\r", ""), line, column)
        case "string":
            return Token(Kind.STRING, _unquote(text[1:-1], line, column), line, column)
        case "range":
            return Token(Kind.RANGE, _range(text[1:-1], column), 0, column)
        case "two":  # Loki's scanner forgets the line after a token of two characters
            return Token(Kind.SYMBOL, text, 0, column)
        case _:
            return _single(text, line, column)


def _single(text: str, line: int, column: int) -> Token:
    if text == "'":
        raise ParseError("invalid char literal", line, column)
    if text == "[":
        raise ParseError("missing closing ']' in duration", 0, column)
    return Token(Kind.SYMBOL if text in "{}()=,|<>.-+*/" else Kind.IDENTIFIER, text, line, column)


def _kind_of_word(word: str, rest: str) -> Kind:
    """Function names are words of the language only where they are called."""
    called = re.match(r"\s*(\(|(by|without)\b)", rest)
    return Kind.SYMBOL if word in KEYWORDS or (word in FUNCTIONS and called) else Kind.IDENTIFIER


def _unquote(text: str, line: int, column: int) -> str:
    def replaced(escape: re.Match[str]) -> str:
        code = escape[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        if len(code) == 3:
            return chr(int(code, 8))
        if code not in _ESCAPES:
            raise ParseError("invalid char escape", line, column)
        return _ESCAPES[code]

    return _ESCAPE.sub(replaced, text)


def _range(text: str, column: int) -> str:
    try:
        return str(parse_duration_ns(text))
    except ValueError as error:
        raise ParseError(str(error), 0, column) from None
