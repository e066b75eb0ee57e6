"""The output of a validation's Job, read strictly.

``konductor_like/cluster/validation.sh`` writes it. Each step's output stands between two frame lines, which
name the attempt; the termination message lists the steps once more. A pass needs each of them, complete and
in order. A failure is what the hardware itself says. Anything else is unknown, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from konductor_like.detection.dcgm import read_diag
from konductor_like.detection.nccl import read_all_reduce
from konductor_like.detection.nvidia_smi import read_facts
from konductor_like.detection.verdicts import PASSED, failed, quoted, unknown
from konductor_like.model import ValidationResult, ValidationVerdict

MOST_BYTES = 4 * 1024 * 1024
"""Bytes of output that are read; a longer one is cut, and never a pass."""
SKIPPED = "skipped"
_FRAME = re.compile(rb"^=== konductor-like.*$", re.MULTILINE)
_FRAME_TEXT = re.compile(
    r"=== konductor-like (?P<attempt>[0-9A-Za-z._-]{1,128}) "
    r"(?:(?P<edge>start|finish) boot=(?P<boot>[0-9a-z-]{1,64})"
    r"|(?P<kind>begin|end|skipped) (?P<step>[a-z]{1,16})(?: rc=(?P<code>[0-9]{1,3}))?) ==="
)
_STEP = r"[a-z]{1,16}:(?:[0-9]{1,3}|skipped)"
_MESSAGE = re.compile(
    r"v=(?P<v>[0-9]{1,4}) attempt=(?P<attempt>\S{1,128})"
    r"(?: boot=(?P<boot>\S{1,64}) boot_end=(?P<boot_end>\S{1,64})"
    r" gpus=(?P<gpus>[0-9]{1,4}) driver=(?P<driver>\S{1,64}) steps="
    rf"(?P<steps>{_STEP}(?:,{_STEP}){{0,9}}) end| stopped)\n?"
)


@dataclass(frozen=True, slots=True)
class Ordered:
    """What the controller ordered, and so what the output must show."""

    attempt: str
    boot_id: str
    """The boot in which the attempt began."""
    level: int
    """Level of ``dcgmi diag``: 2, 3 or 4."""
    gpus: int
    """Number of GPUs that the node should have."""
    command: bool
    """Whether the user's own command runs in place of dcgm and nccl."""


class _DoubtError(Exception):
    """The output shows nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    code: str
    """The exit code in digits, or ``skipped``."""
    output: bytes = b""


@dataclass(frozen=True, slots=True)
class _Told:
    """What the termination message says."""

    steps: tuple[tuple[str, str], ...]
    """Name and exit code (or ``skipped``) of each step."""
    boots: tuple[str, str]
    gpus: str
    driver: str


def read_output(log: bytes, message: str, ordered: Ordered) -> ValidationResult:
    """Return the verdict of one attempt, from its pod's log and termination message. It raises nothing."""
    try:
        told, steps = _checked(log, message, ordered)
        facts = _judge(steps[0], ordered)
        verdict = _verdict(facts, told, steps[1:], ordered)
        return replace(verdict, driver=facts.driver, gpus=facts.gpus)
    except _DoubtError as doubt:
        return unknown(str(doubt))


def _checked(log: bytes, message: str, ordered: Ordered) -> tuple[_Told, list[_Step]]:
    """Return the termination message and the steps in order, the facts first. Raises ``_DoubtError``."""
    if len(log) > MOST_BYTES:
        raise _DoubtError(f"the output is cut: it has more than {MOST_BYTES // 1024 // 1024} MiB")
    told = _told(message, ordered.attempt)
    steps, boots = _framed(log, ordered.attempt)
    for boot, when in zip((*told.boots, *boots), ("start", "end") * 2, strict=True):
        if not ordered.boot_id or boot != ordered.boot_id:
            raise _DoubtError(
                f"the boot at the {when} of the tests is not the one in which the attempt began"
            )
    if told.steps != tuple((each.name, each.code) for each in steps):
        raise _DoubtError("the output and the termination message name different steps or exit codes")
    names = [each.name for each in steps]
    wanted = ["facts", "command"] if ordered.command else ["facts", "dcgm", "nccl"]
    if not names or names != wanted[: len(names)]:
        raise _DoubtError(f"the steps are {quoted(', '.join(names))}, and not {', '.join(wanted)}")
    return told, steps


def _told(message: str, attempt: str) -> _Told:
    """Return what the termination message says. Raises ``_DoubtError``."""
    if not message.strip():
        raise _DoubtError("there is no termination message: the tests did not come to their end")
    match = _MESSAGE.fullmatch(message)
    if match is None:
        raise _DoubtError("the termination message is cut, or another program wrote it")
    if match["v"] != "1":
        raise _DoubtError(f"version {match['v']} of the termination message is not known here")
    if match["attempt"] != attempt:
        raise _DoubtError("the termination message of another attempt")
    if match["steps"] is None:
        raise _DoubtError("the tests were stopped before their end")
    steps = tuple((name, code) for name, code in (each.split(":") for each in match["steps"].split(",")))
    return _Told(steps, (match["boot"], match["boot_end"]), match["gpus"], match["driver"])


def _frames(log: bytes, attempt: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """Yield each frame line with its place. Raises ``_DoubtError`` for a line that is none of ours."""
    for line in _FRAME.finditer(log):
        match = _FRAME_TEXT.fullmatch(line[0].decode("utf-8", "replace"))
        if match is None:
            raise _DoubtError("a frame line of the output is broken")
        if match["attempt"] != attempt:
            raise _DoubtError("the frames of another attempt")
        yield match, line.start(), line.end()


def _framed(log: bytes, attempt: str) -> tuple[list[_Step], tuple[str, str]]:
    """Return the steps and the boots at start and finish. Raises ``_DoubtError``."""
    frames = list(_frames(log, attempt))
    if not frames:
        raise _DoubtError("there is no output, or its frames are missing")
    edges = [match["edge"] for match, _, _ in frames]
    if edges[0] != "start" or edges[-1] != "finish" or any(edges[1:-1]) or len(edges) < 2:
        raise _DoubtError("the output is cut: it has not one start and one finish")
    steps: list[_Step] = []
    begun: tuple[str, int] | None = None
    for match, start, end in frames[1:-1]:
        kind, name, code = match["kind"], match["step"], match["code"]
        if kind == "begin" and begun is None and code is None:
            begun = name, end
        elif kind == "end" and begun is not None and begun[0] == name and code is not None:
            steps.append(_Step(name, code, log[begun[1] : start]))
            begun = None
        elif kind == SKIPPED and begun is None and code is None:
            steps.append(_Step(name, SKIPPED))
        else:
            raise _DoubtError(f"{name}: its frames are missing, repeated or out of order")
    if begun is not None:
        raise _DoubtError(f"{begun[0]}: its output is cut")
    return steps, (frames[0][0]["boot"], frames[-1][0]["boot"])


def _judge(step: _Step, ordered: Ordered) -> ValidationResult:
    """Return the verdict of one step. Raises ``_DoubtError``."""
    if step.code == SKIPPED:
        # The image need not have all_reduce_perf.
        return PASSED if step.name == "nccl" else unknown(f"{step.name}: it was skipped")
    code = int(step.code)
    if step.name == "command":
        return _judge_command(code)
    try:
        text = step.output.decode("utf-8")
    except UnicodeDecodeError:
        raise _DoubtError(f"{step.name}: the output is not UTF-8") from None
    if step.name == "facts":
        return read_facts(text, code, ordered.gpus)
    if step.name == "dcgm":
        return read_diag(text, code, ordered.level, ordered.gpus)
    return read_all_reduce(text, code, ordered.gpus)


def _verdict(facts: ValidationResult, told: _Told, steps: list[_Step], ordered: Ordered) -> ValidationResult:
    """Return the first verdict that is no pass, or a pass if each ordered step has passed.

    ``steps`` are those after the facts. Raises ``_DoubtError``.
    """
    if facts.verdict is not ValidationVerdict.PASS:
        return facts
    if (told.gpus, told.driver) != (str(ordered.gpus), facts.driver):
        raise _DoubtError("facts: the output and the termination message name different GPUs or drivers")
    for step in steps:
        verdict = _judge(step, ordered)
        if verdict.verdict is not ValidationVerdict.PASS:
            return verdict
    if len(steps) < (1 if ordered.command else 2):
        raise _DoubtError("the tests ended before the last step")
    return PASSED


def _judge_command(code: int) -> ValidationResult:
    if code == 0:
        return PASSED
    if code == 1:
        return failed("command: it says that the hardware failed (exit code 1)")
    if code in {126, 127}:
        return unknown(f"command: the image lacks it, or cannot execute it (exit code {code})")
    return unknown(f"command: it ended with exit code {code}")
