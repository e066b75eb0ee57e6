"""Regular expressions as Loki reads them: RE2, run here by Python's engine.

What RE2 has not (look-around, back-references) is refused, so that a query that works here works there. Of
Python's own extensions only the common ones are known to be refused; of RE2's, Unicode classes are not had.
"""

from __future__ import annotations

import re

_GO_ESCAPES = set("AzbBdDsSwWQEpPCafnrtvx0") | set(r"\.+*?()|[]{}^$/-#&~!\"'%,:;<=>@_` ")
_PERL_GROUP = re.compile(r"\(\?(?!P<|<[A-Za-z_]|[imsU-]*[:)])(?:P|<[=!]|[=!#(>])")
_NESTED = re.compile(r"[*+?][*+]")
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_SPECIAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?$)|\$", re.DOTALL)
"""An escape, a set of characters (whole, or open to the end), or the end of the text."""


class RegexpError(ValueError):
    """Not a regular expression to Loki; the message is Go's."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


def compile_re2(pattern: str) -> re.Pattern[str]:
    """The pattern compiled; the dot matches newlines as everywhere in Loki. Raises ``RegexpError``."""
    _refuse_what_re2_has_not(pattern)
    try:
        return re.compile(_for_python(pattern), re.DOTALL)
    except re.error as error:
        raise _in_go_words(pattern, error) from None


def _refuse_what_re2_has_not(pattern: str) -> None:
    for special in _SPECIAL.finditer(pattern):
        text = special[0]
        if text.startswith("\\") and text[1] not in _GO_ESCAPES:
            raise RegexpError("invalid escape sequence", text)
        if text.startswith("[") and not text.endswith("]"):
            raise RegexpError("missing closing ]", text)
    bare = _SPECIAL.sub(lambda special: "_" * len(special[0]), pattern)
    if group := _PERL_GROUP.search(bare):
        raise RegexpError("invalid or unsupported Perl syntax", group[0])
    if nested := _NESTED.search(bare):
        raise RegexpError("invalid nested repetition operator", nested[0])
    for repeat in _REPEAT.finditer(bare):
        if max(int(repeat[1]), int(repeat[2] or 0)) > 1000:
            raise RegexpError("invalid repeat count", repeat[0])


def _for_python(pattern: str) -> str:
    """The same for Python's engine: its ``$`` also stands before a last newline, and it wonders at ``[[``."""

    def translated(special: re.Match[str]) -> str:
        text = special[0]
        if text in ("$", r"\z"):
            return r"\Z"
        return text[0] + re.sub(r"(?<!\\)([\[&~|])", r"\\\1", text[1:]) if text[0] == "[" else text

    return _SPECIAL.sub(translated, pattern)


def _in_go_words(pattern: str, error: re.error) -> RegexpError:
    at = error.pos or 0
    words = error.msg
    if "missing )" in words:
        return RegexpError("missing closing )", pattern)
    if "unbalanced parenthesis" in words:
        return RegexpError("unexpected )", pattern)
    if "nothing to repeat" in words:
        return RegexpError("missing argument to repetition operator", pattern[at : at + 1])
    if "bad character range" in words:
        return RegexpError("invalid character class range", pattern[at : at + 3])
    return RegexpError(words, pattern)
