"""The XML of ``nvidia-smi -q -x``, read strictly: which GPUs the driver sees, and its own word on each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET  # _parsed refuses entity declarations

from konductor_like.detection.gpu_identity import gpu_of
from konductor_like.detection.kernel_record import normal_pci
from konductor_like.detection.verdicts import PASSED, exit_words, failed, quoted, unknown
from konductor_like.model import Gpu, ValidationResult
from konductor_like.model.validation import GPUS_KEPT

FALLEN_OFF_THE_BUS = 15
"""Exit code of nvidia-smi: a GPU fell off the bus, or cannot be reached otherwise (its man page)."""
_EXITS = {
    6: "it finds no GPU",
    8: "the external power of a GPU is not attached",
    9: "the NVIDIA driver is not loaded",
    10: "the kernel found a fault of a GPU's interrupts",
    12: "the NVML library is not in the image",
    14: "the infoROM of a GPU is corrupted",
}
"""Other exit codes of its man page."""
_DRIVER = re.compile(r"[0-9A-Za-z._-]{1,64}")
_NOT_TOLD = {"", "N/A", "Not Supported", "Requested functionality has been deprecated"}
_DOUBTS = (
    ("remapped_rows/remapped_row_pending", "a row remap is pending until a GPU reset or a reboot"),
    ("retired_pages/pending_retirement", "a page retirement is pending until a GPU reset or a reboot"),
    ("ecc_errors/channel_repair_pending", "a channel repair is pending until a GPU reset or a reboot"),
    ("ecc_errors/tpc_repair_pending", "a TPC repair is pending until a GPU reset or a reboot"),
    ("ecc_errors/unrepairable_memory", "the driver does not deny unrepairable memory"),
)
_PARENTS = ("ecc_errors", "ecc_errors/volatile", "gpu_reset_status", "remapped_rows", "retired_pages")


def read_facts(output: str, exit_code: int, expected_gpus: int) -> ValidationResult:
    """Return the verdict on the GPUs as the driver describes them, with the driver's version and the GPUs.

    ``output`` is the XML, or what nvidia-smi printed in its place. It raises nothing.
    """
    if exit_code == FALLEN_OFF_THE_BUS:
        return failed("facts: nvidia-smi cannot reach a GPU: it fell off the bus (exit code 15)")
    if exit_code:
        words = _EXITS.get(exit_code, "")
        return unknown(f"facts: {exit_words(exit_code, 'nvidia-smi')}" + (words and f": {words}"))
    log = _parsed(output)
    if isinstance(log, str):
        return unknown(f"facts: {log}")
    driver = _text(log, "driver_version")
    if not _DRIVER.fullmatch(driver):
        return unknown("facts: nvidia-smi tells no driver version")
    elements = log.findall("gpu")
    gpus = [_gpu(each) for each in elements]
    named = [each for each in gpus if each is not None]
    verdict = _counted(log, elements, expected_gpus) or _named(gpus) or _judged(elements) or PASSED
    return replace(verdict, driver=driver, gpus=tuple(named[:GPUS_KEPT]))


def _parsed(output: str) -> ET.Element | str:
    """Return the root of the XML, or why there is none."""
    start, end = output.find("<?xml"), output.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0:
        return "no XML of nvidia-smi, or a cut one"
    text = output[start : end + len("</nvidia_smi_log>")]
    if "<!ENTITY" in text:
        return "the XML declares an entity"
    try:
        root = ET.fromstring(text)  # noqa: S314  # no entities, and the caller bounds the size
    except (ET.ParseError, ValueError):
        return "the XML of nvidia-smi is broken"
    return root if root.tag == "nvidia_smi_log" else "the XML is not nvidia-smi's"


def _text(element: ET.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _gpu(element: ET.Element) -> Gpu | None:
    return gpu_of(element.get("id", ""), _text(element, "uuid"), _text(element, "serial"))


def _counted(log: ET.Element, elements: list[ET.Element], expected: int) -> ValidationResult | None:
    if expected < 1:
        return unknown("facts: it is not known how many GPUs the node should have")
    if len(elements) < expected:
        return failed(f"facts: the driver sees {len(elements) or 'none'} of {expected} GPUs")
    if len(elements) > expected:
        return unknown(f"facts: the driver sees {len(elements)} GPUs, and {expected} were expected")
    attached = ", ".join((each.text or "").strip() for each in log.findall("attached_gpus"))
    if attached != str(expected):
        return unknown(f"facts: the driver counts {quoted(attached)} attached GPUs, and lists {expected}")
    return None


def _named(gpus: list[Gpu | None]) -> ValidationResult | None:
    known = [each for each in gpus if each is not None]
    if len(known) < len(gpus):
        return unknown("facts: a GPU has no UUID or no PCI bus id")
    if len({each.uuid for each in known}) < len(gpus) or len({each.bus for each in known}) < len(gpus):
        return unknown("facts: two GPUs have the same UUID or PCI bus id")
    return None


def _judged(elements: list[ET.Element]) -> ValidationResult | None:
    """Return the first fault of any GPU, or else the first doubt; None if there is neither."""
    if len({_text(each, "gpu_recovery_action") == "" for each in elements}) > 1:
        return unknown("facts: the driver tells the recovery action of some GPUs only")
    faults = (why for each in elements for why in _faults(each))
    doubts = (why for each in elements for why in _doubts(each))
    if fault := next(faults, None):
        return failed(f"facts: {fault}")
    if doubt := next(doubts, None):
        return unknown(f"facts: {doubt}")
    return None


def _name(element: ET.Element) -> str:
    return f"GPU {normal_pci(element.get('id', '').rpartition('.')[0])}"


def _faults(element: ET.Element) -> Iterator[str]:
    action = _text(element, "gpu_recovery_action")
    if action != "None" and action not in _NOT_TOLD and "unknown" not in action.lower():
        yield f"{_name(element)} needs a recovery action: {quoted(action)}"
    # Drivers without a recovery action (555 is one) say it here.
    for tag in ("reset_required", "drain_and_reset_recommended"):
        if _text(element, f"gpu_reset_status/{tag}") == "Yes":
            yield f"{_name(element)}: {tag} is Yes"
    if _text(element, "remapped_rows/remapped_row_failure") == "Yes":
        yield f"a row remap of {_name(element)} failed: the GPU's memory cannot be repaired"


def _repeats(element: ET.Element) -> bool:
    """Whether something that is judged is there twice: which of both is true is not known."""
    parents = [element.findall(path) for path in _PARENTS]
    if any(len(found) > 1 for found in parents) or len(element.findall("gpu_recovery_action")) > 1:
        return True
    return any(len({child.tag for child in found[0]}) < len(found[0]) for found in parents if found)


def _doubts(element: ET.Element) -> Iterator[str]:
    name = _name(element)
    if _repeats(element):
        yield f"{name}: the driver tells a fact twice"
    if "unknown" in (action := _text(element, "gpu_recovery_action")).lower():
        yield f"the recovery action of {name} is {quoted(action)}"
    for path, words in _DOUBTS:
        if _text(element, path) not in {"No", *_NOT_TOLD}:
            yield f"{name}: {words}"
    remaps = element.find("remapped_rows")
    if remaps is None or (len(remaps) and not _text(remaps, "remapped_row_pending")):
        yield f"{name}: the driver does not tell whether a row remap is pending"
    elif len(remaps) and _text(remaps, "remapped_row_failure") not in {"No", "N/A"}:
        yield f"{name}: the driver does not tell whether a row remap failed"
    counts = [each for each in element.iterfind("ecc_errors/volatile/*") if "uncorrectable" in each.tag]
    if {each.tag[:4] for each in counts} != {"sram", "dram"}:
        yield f"{name}: the driver does not tell its uncorrectable ECC errors"
    for each in counts:
        if (count := (each.text or "").strip()) not in {"0", "N/A"}:
            yield f"{name}: volatile uncorrectable ECC errors: {quoted(count)}"
