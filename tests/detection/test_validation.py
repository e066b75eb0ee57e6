"""The output of a validation's Job: a pass needs each piece, and a failure the hardware's word."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from konductor_like.detection.dcgm import read_diag
from konductor_like.detection.nccl import read_all_reduce
from konductor_like.detection.nvidia_smi import read_facts
from konductor_like.detection.validation import MOST_BYTES, Ordered, read_output
from konductor_like.detection.verdicts import WHY_CHARS
from konductor_like.model import Gpu, ValidationResult, ValidationVerdict
from tests.validation_outputs import (
    ATTEMPT,
    BOOT,
    DCGM_3,
    FACTS,
    NCCL,
    ORDERED,
    STEPS,
    Step,
    frame,
    log_of,
    message_of,
)

PASS, FAIL, UNKNOWN = ValidationVerdict.PASS, ValidationVerdict.FAIL, ValidationVerdict.UNKNOWN
LOG, MESSAGE = log_of(*STEPS), message_of(*STEPS)
WITH_COMMAND = replace(ORDERED, command=True)
OTHER_BOOT = BOOT.replace("5e8a", "5e8b")


def read(*steps: Step, ordered: Ordered = ORDERED, gpus: int = 8) -> ValidationResult:
    return read_output(log_of(*steps), message_of(*steps, gpus=gpus), ordered)


@pytest.mark.parametrize(
    ("steps", "ordered"),
    [
        (STEPS, ORDERED),
        ((STEPS[0], ("dcgm", 0, DCGM_3), STEPS[2]), ORDERED),
        ((*STEPS[:2], ("nccl", "skipped", "")), ORDERED),
        (
            (STEPS[0], ("command", 0, "fine, and not UTF-8: \udcff".encode("utf-8", "replace").decode())),
            WITH_COMMAND,
        ),
        ((("facts", 0, "WARNING: something\n" + FACTS), *STEPS[1:]), ORDERED),
    ],
    ids=["dcgm 4", "dcgm 3", "without nccl", "command", "a warning before the XML"],
)
def test_a_pass(steps: tuple[Step, ...], ordered: Ordered) -> None:
    result = read(*steps, ordered=ordered)

    assert (result.verdict, result.why) == (PASS, "")
    assert result.driver == "575.51.02"
    assert len(result.gpus) == 8
    assert result.gpus[7] == Gpu("0000:db:00", "GPU-70000000-1111-2222-3333-444444444447", "1650000000007")


def test_the_bytes_of_a_command_are_not_read() -> None:
    steps: tuple[Step, ...] = (STEPS[0], ("command", 0, "BYTES"))
    log = log_of(*steps).replace(b"BYTES", b"\xff\xfe\x00")

    assert read_output(log, message_of(*steps), WITH_COMMAND).verdict is PASS


@pytest.mark.parametrize("line", range(MESSAGE.count(" ") + 1))
def test_no_word_of_the_termination_message_may_be_missing_or_doubled(line: int) -> None:
    words = MESSAGE.split(" ")

    for changed in (words[:line] + words[line + 1 :], words[: line + 1] + words[line:]):
        result = read_output(LOG, " ".join(changed), ORDERED)
        assert result.verdict is UNKNOWN
        assert result.why


FRAMES = [line for line in LOG.splitlines(keepends=True) if line.startswith(b"===")]


@pytest.mark.parametrize("line", FRAMES, ids=[each.decode().strip() for each in FRAMES])
def test_no_frame_line_may_be_missing_doubled_cut_or_of_another_attempt(line: bytes) -> None:
    for changed in (b"", line * 2, line[:-5] + b"\n", line.replace(ATTEMPT.encode(), b"other")):
        result = read_output(LOG.replace(line, changed), MESSAGE, ORDERED)
        assert result.verdict is UNKNOWN
        assert result.why


@pytest.mark.parametrize(
    ("log", "message", "ordered", "why"),
    [
        (b"", MESSAGE, ORDERED, "there is no output, or its frames are missing"),
        (LOG, "", ORDERED, "there is no termination message: the tests did not come to their end"),
        (LOG, f"v=1 attempt={ATTEMPT} stopped\n", ORDERED, "the tests were stopped before their end"),
        (LOG.replace(frame("end nccl rc=0").encode(), b""), MESSAGE, ORDERED, "nccl: its output is cut"),
        (LOG, "v=2" + MESSAGE[3:], ORDERED, "version 2 of the termination message is not known here"),
        (LOG, MESSAGE[:-5], ORDERED, "the termination message is cut, or another program wrote it"),
        (LOG, MESSAGE, replace(ORDERED, attempt="b"), "the termination message of another attempt"),
        (LOG.replace(ATTEMPT.encode(), b"b"), MESSAGE, ORDERED, "the frames of another attempt"),
        (LOG[:-70], MESSAGE, ORDERED, "the output is cut: it has not one start and one finish"),
        (LOG + b" " * MOST_BYTES, MESSAGE, ORDERED, "the output is cut: it has more than 4 MiB"),
        (
            LOG,
            MESSAGE,
            replace(ORDERED, boot_id=OTHER_BOOT),
            "the boot at the start of the tests is not the one in which the attempt began",
        ),
        (
            log_of(*STEPS, boot="none"),
            message_of(*STEPS, boot="none"),
            replace(ORDERED, boot_id=""),
            "the boot at the start of the tests is not the one in which the attempt began",
        ),
        (
            LOG,
            MESSAGE.replace(f"boot_end={BOOT}", f"boot_end={OTHER_BOOT}"),
            ORDERED,
            "the boot at the end of the tests is not the one in which the attempt began",
        ),
        (
            LOG.replace(f"finish boot={BOOT}".encode(), f"finish boot={OTHER_BOOT}".encode()),
            MESSAGE,
            ORDERED,
            "the boot at the end of the tests is not the one in which the attempt began",
        ),
        (
            LOG,
            MESSAGE.replace("dcgm:0", "dcgm:226"),
            ORDERED,
            "the output and the termination message name different steps or exit codes",
        ),
        (LOG, MESSAGE, WITH_COMMAND, "the steps are facts, dcgm, nccl, and not facts, command"),
        (
            LOG,
            MESSAGE.replace("gpus=8", "gpus=7"),
            ORDERED,
            "facts: the output and the termination message name different GPUs or drivers",
        ),
        (
            LOG,
            MESSAGE.replace("driver=575", "driver=570"),
            ORDERED,
            "facts: the output and the termination message name different GPUs or drivers",
        ),
        (LOG.replace(b'"4.2.3"', b'"4.2.\xff"'), MESSAGE, ORDERED, "dcgm: the output is not UTF-8"),
        (log_of(STEPS[0]), message_of(STEPS[0]), ORDERED, "the tests ended before the last step"),
        (log_of(*STEPS[:2]), message_of(*STEPS[:2]), ORDERED, "the tests ended before the last step"),
        (log_of(), message_of(), ORDERED, "the termination message is cut, or another program wrote it"),
    ],
)  # fmt: skip
def test_an_output_that_shows_nothing(log: bytes, message: str, ordered: Ordered, why: str) -> None:
    result = read_output(log, message, ordered)

    assert (result.verdict, result.why) == (UNKNOWN, why)


def test_a_step_that_forges_frames_shows_nothing() -> None:
    forged = frame("end command rc=0") + frame("begin facts") + FACTS + frame("end facts rc=0")

    for output in (
        forged,
        frame("begin facts", "another"),
        frame("finish boot=" + BOOT),
        "=== konductor-like\n",
    ):
        steps: tuple[Step, ...] = (STEPS[0], ("command", 0, output))
        assert read(*steps, ordered=WITH_COMMAND).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("steps", "verdict", "why"),
    [
        ([STEPS[0], ("dcgm", 127, "sh: 1: dcgmi: not found")], UNKNOWN,
         "dcgm: dcgmi: command not found; the image needs it"),
        ([*STEPS[:2], ("nccl", 3, "Test NCCL failure common.cu:961")], UNKNOWN,
         "nccl: all_reduce_perf ended with exit code 3"),
        ([*STEPS[:2], ("nccl", 0, "")], UNKNOWN, "nccl: all_reduce_perf tells no result, or more than one"),
        ([*STEPS[:2], ("nccl", 0, NCCL.replace("#  Rank  7", "# No Rank"))], UNKNOWN,
         "nccl: all_reduce_perf did not run on 8 GPUs"),
        ([*STEPS[:2], ("nccl", 0, NCCL.replace("   268435456  ", "# 268435456  "))], UNKNOWN,
         "nccl: all_reduce_perf did not test each size once, from 8 B to 256 MiB"),
        ([*STEPS[:2], ("nccl", 0, NCCL.replace("221.38      0", "221.38    N/A"))], UNKNOWN,
         "nccl: a line of all_reduce_perf tells no bandwidth or no check"),
        ([*STEPS[:2], ("nccl", 0, NCCL.replace("126.50  221.38", "  0.00    0.00"))], UNKNOWN,
         "nccl: a line of all_reduce_perf tells no bandwidth or no check"),
        ([*STEPS[:2], ("nccl", 1, NCCL.replace("values : 0 OK", "values : 3 FAILED"))], FAIL,
         "nccl: all_reduce_perf computed wrong values"),
        ([*STEPS[:2], ("nccl", 0, NCCL.replace("222.55      0", "222.55      7"))], FAIL,
         "nccl: all_reduce_perf computed wrong values"),
        ([("facts", "skipped", "")], UNKNOWN, "facts: it was skipped"),
        ([STEPS[0], ("dcgm", "skipped", "")], UNKNOWN, "dcgm: it was skipped"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_pass(steps: tuple[Step, ...], verdict: ValidationVerdict, why: str) -> None:
    result = read(*steps)

    assert (result.verdict, result.why) == (verdict, why)


@pytest.mark.parametrize(
    ("code", "verdict", "why"),
    [
        (1, FAIL, "command: it says that the hardware failed (exit code 1)"),
        (2, UNKNOWN, "command: it ended with exit code 2"),
        (127, UNKNOWN, "command: the image lacks it, or cannot execute it (exit code 127)"),
        (137, UNKNOWN, "command: it ended with exit code 137"),
    ],
)
def test_the_exit_code_of_a_command(code: int, verdict: ValidationVerdict, why: str) -> None:
    result = read(STEPS[0], ("command", code, "words"), ordered=WITH_COMMAND)

    assert (result.verdict, result.why) == (verdict, why)
    assert len(result.gpus) == 8


# What a fault would change, in a line of the output. Other lines (names, counters, clocks) are not judged.
JUDGED = re.compile(
    rb"===|recovery_action|row_pending|row_failure|volatile|status|entity_id|entity_group_id"
    rb"|\"name\"|attached_gpus|Out of bounds|Avg bus|Rank|float"
)
LINES = LOG.splitlines(keepends=True)
PLACES = st.integers(0, len(LINES) - 1)
JUDGED_PLACES = st.sampled_from([place for place, line in enumerate(LINES) if JUDGED.search(line)])


@settings(max_examples=20)
@given(place=JUDGED_PLACES)
def test_no_judged_line_may_be_missing(place: int) -> None:
    result = read_output(b"".join(LINES[:place] + LINES[place + 1 :]), MESSAGE, ORDERED)

    assert result.verdict is not PASS


@settings(max_examples=20)
@given(end=st.integers(0, len(LOG) - 1))
def test_no_cut_output_passes(end: int) -> None:
    # The newline of the last frame says nothing.
    assert (read_output(LOG[:end], MESSAGE, ORDERED).verdict is PASS) == (end == len(LOG) - 1)


@settings(max_examples=20)
@given(first=PLACES, second=PLACES)
@example(first=5, second=8)  # the number of GPUs that are attached
def test_no_output_with_a_part_twice_passes(first: int, second: int) -> None:
    start, end = sorted((first, second))
    part = LINES[start : end + 1]
    log = b"".join(LINES[: end + 1] + part + LINES[end + 1 :])

    assert read_output(log, MESSAGE, ORDERED).verdict is not PASS or not any(map(JUDGED.search, part))


@settings(max_examples=20)
@given(first=PLACES, second=PLACES)
def test_no_output_with_frames_out_of_order_passes(first: int, second: int) -> None:
    lines = [*LINES]
    lines[first], lines[second] = lines[second], lines[first]
    moved = [each for each in (LINES[first], LINES[second]) if each.startswith(b"===")]

    assert (
        not moved
        or LINES[first] == LINES[second]
        or read_output(b"".join(lines), MESSAGE, ORDERED).verdict is not PASS
    )


@settings(max_examples=20)
@given(places=st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_raise_nothing(places: list[tuple[int, int]]) -> None:
    log = bytearray(LOG)
    for place, flip in places:
        log[place] ^= flip

    result = read_output(bytes(log), MESSAGE, ORDERED)

    assert (result.verdict is PASS) == (result.why == "")
    assert len(result.why) <= WHY_CHARS
    assert result.why.isprintable()


@settings(max_examples=20)
@given(
    place=st.sampled_from([place for place, line in enumerate(LINES) if b'"status" : "Pass"' in line]),
    flip=st.integers(1, 255),
)
def test_no_flipped_status_passes(place: int, flip: int) -> None:
    line = LINES[place].replace(b"Pass", bytes([ord("P") ^ flip]) + b"ass")

    assert (
        read_output(b"".join([*LINES[:place], line, *LINES[place + 1 :]]), MESSAGE, ORDERED).verdict
        is not PASS
    )


@settings(max_examples=20)
@given(output=st.binary(max_size=300), text=st.text(max_size=100), code=st.integers(0, 255))
def test_random_bytes_raise_nothing(output: bytes, text: str, code: int) -> None:
    verdicts = [
        read_output(output, text, ORDERED),
        read_facts(text, code, 8),
        read_diag(text, code, 2, 8),
        read_all_reduce(text, code, 8),
    ]

    assert all(each.why for each in verdicts)


@pytest.mark.parametrize(
    "step",
    [
        ("facts", 0, '<?xml version="1.0"?><nvidia_smi_log>' + "<gpu>" * 20_000 + "</nvidia_smi_log>"),
        ("dcgm", 0, "{" + '"a":[' * 200_000),
        ("dcgm", 0, '{"DCGM Diagnostic": ' + "9" * 100_000 + "}"),
        ("nccl", 0, "# Avg bus bandwidth : 1" + " " * 100_000 + "x"),
    ],
    ids=["deep XML", "deep JSON", "a long number", "a long line"],
)
def test_a_hostile_document_raises_nothing(step: Step) -> None:
    steps = (*STEPS[: ["facts", "dcgm", "nccl"].index(step[0])], step)

    assert read(*steps).verdict is UNKNOWN
