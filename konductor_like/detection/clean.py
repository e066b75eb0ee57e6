"""Small repairs of text: colours, NULs, escapes, line breaks, addresses, stamps."""

from __future__ import annotations

import re

from konductor_like.model import EVIDENCE_CHARS, printable

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPE = re.compile(r"(?:\\x[0-9a-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def strip_colours(text: str) -> str:
    """Without terminal colours and NULs."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return text.replace("\x00", "") if "\x00" in text else text


def decode_kmsg_escapes(text: str) -> str:
    """With the bytes that /dev/kmsg writes as ``\\x0a`` put back."""
    if "\\x" not in text:
        return text
    return _ESCAPE.sub(lambda match: _bytes_of(match[0]).decode("utf-8", "replace"), text)


def one_line(text: str) -> str:
    """One printable line: every run of control characters is one blank, and lone surrogates are replaced."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8").strip()


def evidence(message: str) -> str:
    """What a finding keeps of its one-line message, ready for Events and logs, which spell out nothing."""
    if len(message) <= EVIDENCE_CHARS and message.isprintable():
        return message
    shown = printable(message[: EVIDENCE_CHARS + 1])
    return shown if len(shown) <= EVIDENCE_CHARS else shown[: EVIDENCE_CHARS - 1] + "…"


def normal_pci(address: str | None) -> str | None:
    """``dddd:bb:dd`` in lower case, without function; the domain has four digits, or all that it needs.

    ``00000018:01:00`` is ``0018:01:00``, ``3d:00`` is ``0000:3d:00``, and ``10000:01:00`` (Intel VMD) itself.
    """
    if address is None:
        return None
    address = address.lower()
    if len(address) == 10:
        return address
    head, _, device = address.rpartition(":")
    domain, _, bus = head.rpartition(":")
    return f"{domain.lstrip('0'):0>4}:{bus}:{device}"


def stamp_us(seconds: str, fraction: str) -> int:
    """Microseconds of ``seconds.fraction``, whatever number of digits the fraction has."""
    return int(seconds + fraction[:6].ljust(6, "0"))


def _bytes_of(escapes: str) -> bytes:
    return bytes.fromhex(escapes.replace("\\x", ""))
