"""The output of ``all_reduce_perf`` (NVIDIA/nccl-tests, src/util.cu), read strictly."""

from __future__ import annotations

import re

from konductor_like.detection.verdicts import PASSED, exit_words, failed, unknown
from konductor_like.model import ValidationResult

_SIZES = [8 << power for power in range(26)]  # bytes: -b 8 -e 256M -f 2
_RANK = re.compile(r"^# +Rank +[0-9]+ ", re.MULTILINE)
_OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values +: ([0-9]{1,12}) (?:OK|FAILED)$", re.MULTILINE)
_BUSBW = re.compile(r"^# Avg bus bandwidth +: ([0-9][0-9.e+-]{0,15}) ?(?:OK)?$", re.MULTILINE)
_ROW = re.compile(r"^ *([0-9]{1,12}) +[0-9]+ +[a-z0-9]+ +[a-z]+ +-?[0-9]+ +(\S.*)$", re.MULTILINE)


def read_all_reduce(text: str, code: int, gpus: int) -> ValidationResult:
    """Return the verdict of ``all_reduce_perf -b 8 -e 256M -f 2 -g GPUS``. It raises nothing."""
    bounds = _OUT_OF_BOUNDS.findall(text)
    rows = [(int(size), rest.split()) for size, rest in _ROW.findall(text)]
    if any(int(each) for each in bounds) or any(_wrong(columns) for _, columns in rows):
        return failed("nccl: all_reduce_perf computed wrong values")
    if code:
        return unknown(f"nccl: {exit_words(code, 'all_reduce_perf')}")
    if len(bounds) != 1 or len(_BUSBW.findall(text)) != 1:
        return unknown("nccl: all_reduce_perf tells no result, or more than one")
    if len(_RANK.findall(text)) != gpus:
        return unknown(f"nccl: all_reduce_perf did not run on {gpus} GPUs")
    if [size for size, _ in rows] != _SIZES:
        return unknown("nccl: all_reduce_perf did not test each size once, from 8 B to 256 MiB")
    if not all(_checked_row(columns, size) for size, columns in rows):
        return unknown("nccl: a line of all_reduce_perf tells no bandwidth or no check")
    return PASSED


def _wrong(columns: list[str]) -> bool:
    """Whether out of place (column 4) or in place (column 8) a value was wrong."""
    return any(re.fullmatch("[0-9]*[1-9][0-9]*", each) is not None for each in columns[3:8:4])


def _checked_row(columns: list[str], size: int) -> bool:
    """Whether time, two bandwidths and the count of wrong values stand there; small sizes round to 0.00."""
    if len(columns) != 8 or columns[3] != "0" or columns[7] not in {"0", "N/A"}:
        return False
    numbers = [each for each in columns[:3] if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", each)]
    return len(numbers) == 3 and (size < _SIZES[-1] or float(numbers[2]) > 0)
