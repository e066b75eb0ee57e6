"""The XML of nvidia-smi: what the driver says of each GPU, and what it leaves out."""

from __future__ import annotations

import re

import pytest

from konductor_like.detection.nvidia_smi import read_facts
from konductor_like.detection.verdicts import WHY_CHARS
from konductor_like.model import ValidationVerdict
from tests.validation_outputs import FACTS

PASS, FAIL, UNKNOWN = ValidationVerdict.PASS, ValidationVerdict.FAIL, ValidationVerdict.UNKNOWN
UUIDS = re.findall("<uuid>(.*)</uuid>", FACTS)
DEPRECATED = "Requested functionality has been deprecated"


def changed(old: str, new: str) -> str:
    assert old in FACTS
    return FACTS.replace(old, new, 1)


@pytest.mark.parametrize(
    ("output", "code", "verdict", "why"),
    [
        ("Unable to determine the device handle for GPU0000:DB:00.0: GPU is lost", 15, FAIL,
         "facts: nvidia-smi cannot reach a GPU: it fell off the bus (exit code 15)"),
        ("sh: 1: nvidia-smi: not found", 127, UNKNOWN,
         "facts: nvidia-smi: command not found; the image needs it"),
        ("", 126, UNKNOWN, "facts: nvidia-smi cannot be executed in the image"),
        ("", 9, UNKNOWN, "facts: nvidia-smi ended with exit code 9: the NVIDIA driver is not loaded"),
        ("", 0, UNKNOWN, "facts: no XML of nvidia-smi, or a cut one"),
        (FACTS[:-20], 0, UNKNOWN, "facts: no XML of nvidia-smi, or a cut one"),
        (changed("<uuid>", "<uid>"), 0, UNKNOWN, "facts: the XML of nvidia-smi is broken"),
        (changed("<!DOCTYPE", '<!DOCTYPE x [<!ENTITY a "b">]><!DOCTYPE'), 0, UNKNOWN,
         "facts: the XML declares an entity"),
        (changed("<driver_version>575.51.02</driver_version>", ""), 0, UNKNOWN,
         "facts: nvidia-smi tells no driver version"),
        (changed(">GPU-0", ">GPX-0"), 0, UNKNOWN, "facts: a GPU has no UUID or no PCI bus id"),
        (changed('id="00000000:18:00.0"', 'id="18"'), 0, UNKNOWN,
         "facts: a GPU has no UUID or no PCI bus id"),
        (changed('id="00000000:18:00.0"', 'id="00000000:2A:00.0"'), 0, UNKNOWN,
         "facts: two GPUs have the same UUID or PCI bus id"),
        (changed(UUIDS[0], UUIDS[1]), 0, UNKNOWN,
         "facts: two GPUs have the same UUID or PCI bus id"),
        (changed("<attached_gpus>8", "<attached_gpus>9"), 0, UNKNOWN,
         "facts: the driver counts 9 attached GPUs, and lists 8"),
        (changed("<gpu_recovery_action>None<", "<gpu_recovery_action>Drain and Reset<"), 0, FAIL,
         "facts: GPU 0000:18:00 needs a recovery action: Drain and Reset"),
        (changed("<gpu_recovery_action>None<", "<gpu_recovery_action>Unknown Error<"), 0, UNKNOWN,
         "facts: the recovery action of GPU 0000:18:00 is Unknown Error"),
        (changed("<gpu_recovery_action>None</gpu_recovery_action>", ""), 0, UNKNOWN,
         "facts: the driver tells the recovery action of some GPUs only"),
        (changed(f"<reset_required>{DEPRECATED}", "<reset_required>Yes"), 0, FAIL,
         "facts: GPU 0000:18:00: reset_required is Yes"),
        (changed("<remapped_row_failure>No", "<remapped_row_failure>Yes"), 0, FAIL,
         "facts: a row remap of GPU 0000:18:00 failed: the GPU's memory cannot be repaired"),
        (changed("<remapped_row_pending>No", "<remapped_row_pending>Yes"), 0, UNKNOWN,
         "facts: GPU 0000:18:00: a row remap is pending until a GPU reset or a reboot"),
        (changed("<remapped_row_failure>No</remapped_row_failure>", ""), 0, UNKNOWN,
         "facts: GPU 0000:18:00: the driver does not tell whether a row remap failed"),
        (changed("<remapped_row_pending>No</remapped_row_pending>", ""), 0, UNKNOWN,
         "facts: GPU 0000:18:00: the driver does not tell whether a row remap is pending"),
        (changed("<dram_uncorrectable>0", "<dram_uncorrectable>2"), 0, UNKNOWN,
         "facts: GPU 0000:18:00: volatile uncorrectable ECC errors: 2"),
        (changed("<dram_uncorrectable>0</dram_uncorrectable>", ""), 0, UNKNOWN,
         "facts: GPU 0000:18:00: the driver does not tell its uncorrectable ECC errors"),
        (changed("<remapped_row_unc>", "<remapped_row_failure>No</remapped_row_failure><remapped_row_unc>"),
         0, UNKNOWN, "facts: GPU 0000:18:00: the driver tells a fact twice"),
        (changed("<retired_pages>", "<retired_pages></retired_pages><retired_pages>"), 0,
         UNKNOWN, "facts: GPU 0000:18:00: the driver tells a fact twice"),
        (changed("<channel_repair_pending>No", "<channel_repair_pending>Yes"), 0, UNKNOWN,
         "facts: GPU 0000:18:00: a channel repair is pending until a GPU reset or a reboot"),
        (changed("<volatile>", "<former>").replace("</volatile>", "</former>", 1), 0, UNKNOWN,
         "facts: GPU 0000:18:00: the driver does not tell its uncorrectable ECC errors"),
    ],
)  # fmt: skip
def test_facts_that_do_not_pass(output: str, code: int, verdict: ValidationVerdict, why: str) -> None:
    result = read_facts(output, code, 8)

    assert (result.verdict, result.why) == (verdict, why)


@pytest.mark.parametrize(
    ("there", "expected", "verdict", "why"),
    [
        (7, 8, FAIL, "facts: the driver sees 7 of 8 GPUs"),
        (0, 8, FAIL, "facts: the driver sees none of 8 GPUs"),
        (8, 7, UNKNOWN, "facts: the driver sees 8 GPUs, and 7 were expected"),
        (8, 0, UNKNOWN, "facts: it is not known how many GPUs the node should have"),
    ],
)
def test_the_number_of_gpus(there: int, expected: int, verdict: ValidationVerdict, why: str) -> None:
    gpus = re.findall(r"\t<gpu .*?</gpu>\n", FACTS, re.DOTALL)
    facts = FACTS.replace("".join(gpus), "".join(gpus[:there])).replace(">8</att", f">{there}</att")

    result = read_facts(facts, 0, expected)

    assert (result.verdict, result.why, len(result.gpus)) == (verdict, why, there)


def test_a_gpu_without_a_serial_number_has_none() -> None:
    assert read_facts(changed("1650000000000<", "N/A<"), 0, 8).gpus[0].serial == ""


def test_gpus_with_mig_or_without_row_remapping_can_pass() -> None:
    facts = re.sub(
        r"<remapped_rows>.*?</remapped_rows>", "<remapped_rows>N/A</remapped_rows>", FACTS, flags=re.DOTALL
    )

    assert read_facts(facts, 0, 8).verdict is PASS


def test_a_reason_is_short_and_printable() -> None:
    result = read_facts(
        changed("<gpu_recovery_action>None<", "<gpu_recovery_action>" + "\u202ex" * 10_000 + "<"), 0, 8
    )

    assert result.verdict is FAIL
    assert len(result.why) <= WHY_CHARS
    assert result.why.isprintable()
