"""Regular expressions as Loki reads them: RE2, run here by Python's engine.

What RE2 has not (look-around, back-references) is refused, so that a query that works here works there. Of
Python's own extensions only the common ones are known to be refused; of RE2's, Unicode classes are not had.
"""

from __future__ import annotations

import re

_GO_ESCAPES = set("AzbBdDsSwWQEpPCafnrtvx0") | set(r"\.+*?()|[]{}^$/-#&~!\"'%,:;<=>@_` ")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PERL_GROUP = re.compile(r"\(\?(?!P<|<[A-Za-z_]|[imsU-]*[:)])(?:P|<[=!]|[=!#(>])")
_NESTED = re.compile(r"(?<!\\)([*+?])([*+])")
_REPEAT = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")


class RegexpError(ValueError):
    """Not a regular expression to Loki; the message is Go's."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


def compile_re2(pattern: str) -> re.Pattern[str]:
    """The pattern compiled; the dot matches newlines as everywhere in Loki. Raises ``RegexpError``."""
    _refuse_what_re2_has_not(pattern)
    try:
        return re.compile(pattern.replace(r"\z", r"\Z"), re.DOTALL)
    except re.error as error:
        raise _in_go_words(pattern, error) from None


def _refuse_what_re2_has_not(pattern: str) -> None:
    if group := _PERL_GROUP.search(pattern):
        raise RegexpError("invalid or unsupported Perl syntax", group[0])
    for escape in _ESCAPE.finditer(pattern):
        if escape[1] not in _GO_ESCAPES:
            raise RegexpError("invalid escape sequence", escape[0])
    if nested := _NESTED.search(pattern):
        raise RegexpError("invalid nested repetition operator", nested[0])
    for repeat in _REPEAT.finditer(pattern):
        if max(int(repeat[1]), int(repeat[2] or 0)) > 1000:
            raise RegexpError("invalid repeat count", repeat[0])


def _in_go_words(pattern: str, error: re.error) -> RegexpError:
    at = error.pos or 0
    words = error.msg
    if "unterminated character set" in words:
        return RegexpError("missing closing ]", pattern[at:])
    if "missing )" in words:
        return RegexpError("missing closing )", pattern)
    if "unbalanced parenthesis" in words:
        return RegexpError("unexpected )", pattern)
    if "nothing to repeat" in words:
        return RegexpError("missing argument to repetition operator", pattern[at : at + 1])
    if "bad character range" in words:
        return RegexpError("invalid character class range", pattern[at : at + 3])
    return RegexpError(words, pattern)
