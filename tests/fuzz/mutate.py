"""Lines that nobody would write: the corpus bent, cut, glued, wrapped and blown up.

One seed always gives the same lines, as long as corpus and mutations are the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from konductor_like.model import Source
from tools.quality.corpus import own_cases

HUGE_CHARS = 256 * 1024
_BLOWN_UP_EVERY = 400
_MUTATIONS_MOST = 3
_PIECE_TEXT = (
    "NVRM: |Xid (PCI:0000:c7:00): |GPU0 |Xid (c7:00): |79, |SXid (|nvidia-nvswitch0: |[12.345678] |<4>|"
    '4,5,6,-;|kernel: |level=err |msg="|kmsg/1 boot=| seq=18446744073709551616 |facility=9999 |AER: |'
    "mlx5_core |nv_mem |caused by previous Xid |GPU-I:|0x|changed from 0x0 (None) to 0x|, pid=|name=|"
    'kernlog-7m2xq reader |[kernlog-7m2xq] |2026-10-21T06:14:09Z {a="b"} |changed to OS Reboot|'
    'libnccl|CUDA error: |NCCL WARN |atchdog |node `|ERROR |"|`|{|}|\\x0a|\\xff|\\u0000|\x1b[31m|\x00|\r|'
    "\n|\t|\u2028|\ufeff|\ud800|\udfff|é|٣|月|🂡|á"
)
_PIECES = (*_PIECE_TEXT.split("|"), "kernlog-1  | ")


def _bent(rng: random.Random, line: str) -> str:
    """One character becomes any other."""
    at = rng.randrange(len(line) + 1)
    return line[:at] + chr(rng.randrange(1 << rng.randrange(3, 17))) + line[at + 1 :]


def _flipped(rng: random.Random, line: str) -> str:
    """A bit of a byte is flipped, as a damaged file is read."""
    data = bytearray(line.encode("utf-8", "replace") or b" ")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", "replace")


def _cut(rng: random.Random, line: str) -> str:
    return line[: rng.randrange(len(line) + 1)]


def _beheaded(rng: random.Random, line: str) -> str:
    return line[rng.randrange(len(line) + 1) :]


def _without(rng: random.Random, line: str) -> str:
    at = rng.randrange(len(line) + 1)
    return line[:at] + line[at + rng.randrange(1, 20) :]


def _doubled(rng: random.Random, line: str) -> str:
    """A stretch stands there several times."""
    start = rng.randrange(len(line) + 1)
    end = start + rng.randrange(1, 40)
    return line[:end] + line[start:end] * rng.randrange(1, 30) + line[end:]


def _pierced(rng: random.Random, line: str) -> str:
    at = rng.randrange(len(line) + 1)
    return line[:at] + rng.choice(_PIECES) + line[at:]


def _prefixed(rng: random.Random, line: str) -> str:
    return "".join(rng.choices(_PIECES, k=rng.randrange(1, 12))) + line


def _wrapped(rng: random.Random, line: str) -> str:
    """Inside one to five records of runtimes, journald or collectors, the last perhaps cut."""
    for _ in range(rng.randrange(1, 6)):
        match rng.randrange(7):
            case 0:
                line = json.dumps({"log": line, "stream": "stderr"})
            case 1:
                line = json.dumps({"MESSAGE": line, "_BOOT_ID": "0" * 32, "SYSLOG_FACILITY": "٣"})
            case 2:
                line = json.dumps({rng.choice(("log", "body", "_entry", "msg", "message")): line})
            case 3:
                line = json.dumps({"msg": line, "sequence": 7, "sec": 1, "usec": 2})
            case 4:
                line = json.dumps({"message": line, "_TRANSPORT": "kernel"})
            case 5:
                level = rng.choice(("", "level=err ", "level=warning ", "facility=kern priority=3 "))
                line = f"{level}msg={json.dumps(line)}{rng.choice(('', ' attribute_a=b', ' caller=x.go:1'))}"
            case _:
                line = f"2026-03-04T11:22:33.000000001Z stdout F {line}"
    return line if rng.randrange(4) else _cut(rng, line)


def _digits(rng: random.Random, line: str) -> str:
    """A number of any size, in place of whatever stood there."""
    at = rng.randrange(len(line) + 1)
    return line[:at] + str(rng.getrandbits(rng.randrange(1, 200))) + line[at + rng.randrange(8) :]


_MUTATIONS: tuple[Callable[[random.Random, str], str], ...] = (
    *(_bent, _flipped, _cut, _beheaded, _without, _doubled, _pierced, _prefixed, _wrapped, _digits),
)


def lines(seed: int, count: int) -> Iterator[tuple[str, Source]]:
    """So many lines, and as what each is to be read."""
    rng = random.Random(seed)
    cases = own_cases()
    for number in range(count):
        case = rng.choice(cases)
        line = case.line if rng.randrange(20) else "".join(rng.choices(_PIECES, k=rng.randrange(40)))
        for _ in range(rng.randrange(1, _MUTATIONS_MOST + 1)):
            line = rng.choice(_MUTATIONS)(rng, line)
        if rng.randrange(8) == 0:  # glued to another
            line = _cut(rng, line) + _beheaded(rng, rng.choice(cases).line)
        if number % _BLOWN_UP_EVERY == 0:
            line = _blown_up(rng, line)
        yield line, case.source if rng.randrange(8) else rng.choice(list(Source))


def _blown_up(rng: random.Random, line: str) -> str:
    """A stretch of the line, or a piece, again and again between its halves; up to ``HUGE_CHARS``."""
    at = rng.randrange(len(line) + 1)
    stretch = rng.choice((line, line[at : at + 30], rng.choice(_PIECES))) or " "
    length = int(2 ** rng.uniform(8, HUGE_CHARS.bit_length() - 1)) + 1
    return (line[:at] + stretch * (length // len(stretch)) + line[at:])[:HUGE_CHARS]
