"""The JSON of ``dcgmi diag --json``, read strictly: DCGM 3 and 4, levels 2 to 4.

The structure and the names are those of NVIDIA/DCGM: dcgmi/Diag.cpp, nvvs/include/NvvsJsonStrings.h,
nvvs/include/PluginStrings.h and nvvs/src/NvidiaValidationSuite.cpp (FillTestVectors), 3.1 to 4.6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from konductor_like.detection.verdicts import PASSED, exit_words, failed, quoted, unknown
from konductor_like.model import ValidationResult, ValidationVerdict

_ROOTS = {"DCGM GPU Diagnostic": 3, "DCGM Diagnostic": 4}
_VERSION = re.compile(r"([0-9]{1,3})\.[0-9]{1,3}\.[0-9]{1,3}[0-9A-Za-z.+-]{0,40}")
_GPU_GROUP = 1  # DCGM_FE_GPU
_LINE_OF_JSON = re.compile(r"^\{", re.MULTILINE)

_DEPLOYMENT_3 = (
    "Denylist",
    "NVML Library",
    "CUDA Main Library",
    "Permissions and OS Blocks",
    "Persistence Mode",
    "Environment Variables",
    "Page Retirement/Row Remap",
    "Graphics Processes",
    "Inforom",
)
"""Tests of DCGM 3 that have one result for all GPUs."""
_STRESS_3 = ("Diagnostic", "Memory Bandwidth", "Targeted Stress", "Targeted Power")
_STRESS_4 = ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power")
EXPECTED_TESTS: Mapping[tuple[int, int], tuple[str, ...]] = {
    (3, 2): ("GPU Memory", "PCIe"),
    (3, 3): ("GPU Memory", "PCIe", *_STRESS_3),
    (3, 4): ("GPU Memory", "PCIe", *_STRESS_3, "Memtest", "Pulse Test"),
    (4, 2): ("software", "memory", "pcie"),
    (4, 3): ("software", "memory", "pcie", *_STRESS_4),
    (4, 4): ("software", "memory", "pcie", *_STRESS_4, "memtest", "pulse_test"),
}
"""Tests that must pass on each GPU, by DCGM's major version and level.

Not among them: ``nvbandwidth``, which DCGM skips on A100 and some B200 (nvvs/diag-skus.yaml.in),
``nccl_tests``, which it skips without DCGM_NCCL_TESTS_BIN_PATH, and ``eud``, which is a package of its own. A
failure of these counts.
"""

_FAULT_EXITS = {
    205: "DCGM asks to isolate a GPU",
    237: "a GPU requires a reset",
    238: "a GPU is lost",
}
"""Exit codes of dcgmi that report a fault. A code is the low byte of the negative result (dcgm_structs.h)."""
_OTHER_EXITS = {
    189: "the GPUs are detached from DCGM",
    190: "the diagnostic was stopped",
    198: "DCGM has no test for these GPUs",
    203: "the diagnostic was killed",
    217: "another diagnostic is running on the node",
    222: "the GPUs are in use",
    226: "a test failed",
    235: "the connection to the hostengine was lost",
    242: "DCGM has no results",
}
_FAULT_SEVERITIES = {2: "isolate", 3: "unknown", 4: "triage", 6: "reset"}
_SETUP_SEVERITIES = {1: "monitor", 5: "configuration"}
_SETUP_CATEGORIES = {3, 4, 8, 16}
"""Software configuration, library and other, and DCGM itself: the set-up may be at fault.

Severities 3, 4 and 6 of these do not mean the hardware: DCGM calls a missing library "triage", and a
running X server "reset" (dcgmlib/src/dcgm_errors.c).
"""
_HARDWARE_CATEGORIES = range(9, 16)


@dataclass(frozen=True, slots=True)
class _Result:
    """One status in the output; ``gpu`` is None for a result of all GPUs or of something else."""

    test: str
    gpu: int | None
    status: str
    warnings: tuple[Mapping[str, Any], ...]

    @property
    def where(self) -> str:
        return f"test {quoted(self.test)}" + (f" on GPU {self.gpu}" if self.gpu is not None else "")


class _UnreadableError(Exception):
    """The output is not that of a diagnostic; the message says why."""


def read_diag(output: str, exit_code: int, level: int, gpus: int) -> ValidationResult:
    """Return the verdict of ``dcgmi diag -r LEVEL --json`` on a node with this number of GPUs.

    ``output`` is what the command printed, warnings before the JSON included. It raises nothing.
    """
    try:
        root, major = _document(output)
        results = list(_results(root, major))
        verdict = _judged(results) or _complete(root, results, major, level, gpus) or PASSED
    except _UnreadableError as error:
        verdict = unknown(f"dcgm: {error}")
    return _with_exit_code(verdict, exit_code)


def _with_exit_code(verdict: ValidationResult, exit_code: int) -> ValidationResult:
    """Return the verdict, given the exit code: the code may make a failure of it, and never a pass."""
    if exit_code == 0 or verdict.verdict is ValidationVerdict.FAIL:
        return verdict
    if exit_code in _FAULT_EXITS:
        return failed(f"dcgm: {_FAULT_EXITS[exit_code]} (exit code {exit_code})")
    if exit_code == 226 and verdict.why:
        return verdict
    words = _OTHER_EXITS.get(exit_code)
    return unknown(
        f"dcgm: {words} (exit code {exit_code})" if words else f"dcgm: {exit_words(exit_code, 'dcgmi')}"
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _document(output: str) -> tuple[dict[str, Any], int]:
    """Return the JSON and DCGM's major version. Raises ``_UnreadableError``."""
    starts = [each.start() for each in _LINE_OF_JSON.finditer(output)]
    if not starts:
        raise _UnreadableError("no JSON in the output")
    try:
        document, end = json.JSONDecoder(object_pairs_hook=_unique).raw_decode(output, starts[0])
    except (ValueError, RecursionError):
        raise _UnreadableError("the JSON is broken or cut") from None
    if any(start >= end for start in starts):
        raise _UnreadableError("more than one JSON document in the output")
    roots = [name for name in document if name.startswith("DCGM")]
    if len(roots) != 1 or not isinstance(inner := document[roots[0]], dict):
        raise _UnreadableError("the JSON is not that of a diagnostic")
    metadata = document.get("metadata")
    versions = [document.get("version"), inner.get("version")]
    versions.append(metadata.get("version") if isinstance(metadata, dict) else None)
    matches = {match[1] for each in versions if isinstance(each, str) and (match := _VERSION.fullmatch(each))}
    if len(matches) != 1:
        raise _UnreadableError("the JSON tells no version of DCGM")
    major = int(matches.pop())
    if major not in _ROOTS.values():
        raise _UnreadableError(f"DCGM {major} is not known here")
    if _ROOTS.get(roots[0]) != major:
        raise _UnreadableError(f"the JSON is not that of DCGM {major}: its root is {quoted(roots[0])}")
    if "runtime_error" in inner:
        raise _UnreadableError(f"the diagnostic did not run: {quoted(inner['runtime_error'])}")
    return document, major


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list that has nothing else. Raises ``_UnreadableError``."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _UnreadableError("the JSON has not the structure of a diagnostic")
    return value


def _results(document: dict[str, Any], major: int) -> Iterator[_Result]:
    """Yield each status of the document. Raises ``_UnreadableError`` for another structure."""
    (root,) = (document[name] for name in _ROOTS if name in document)
    for category in _objects(root.get("test_categories", [])):
        for test in _objects(category.get("tests")):
            name = test.get("name")
            if not isinstance(name, str):
                raise _UnreadableError("a test has no name")
            for each in _objects(test.get("results", [])):
                gpu = _gpu_of_3(each) if major == 3 else _gpu_of_4(each)
                yield _Result(name, gpu, _status(each), _warnings(each))
            # A test that did not run has a name and no summary.
            if isinstance(summary := test.get("test_summary"), dict):
                yield _Result(name, None, _status(summary), _warnings(summary))


def _status(entry: dict[str, Any]) -> str:
    status = entry.get("status")
    return status if isinstance(status, str) else ""


def _warnings(entry: dict[str, Any]) -> tuple[Mapping[str, Any], ...]:
    warnings = entry.get("warnings", [])
    # DCGM 3 leaves a hole (null) where the index of a warning is skipped.
    return tuple(each for each in warnings if isinstance(each, dict)) if isinstance(warnings, list) else ()


def _gpu_of_3(entry: dict[str, Any]) -> int | None:
    number = entry.get("gpu_id")
    return int(number) if isinstance(number, str) and re.fullmatch("[0-9]{1,3}", number) else None


def _gpu_of_4(entry: dict[str, Any]) -> int | None:
    number = entry.get("entity_id")
    return number if entry.get("entity_group_id") == _GPU_GROUP and type(number) is int else None


def _judged(results: list[_Result]) -> ValidationResult | None:
    """Return the verdict of the tests that failed; None if none did."""
    failures = [each for each in results if each.status not in {"Pass", "Skip"}]
    # A result on a GPU says more than the summary of its test.
    failures.sort(key=lambda each: each.gpu is None)
    for each in failures:
        for warning in each.warnings:
            if each.status == "Fail" and (fault := _fault(warning)):
                text = quoted(warning.get("warning", ""))
                return failed(f"dcgm: {each.where} failed ({fault}): {text}")
    for each in failures:
        if each.status != "Fail":
            return unknown(f"dcgm: {each.where} has status {quoted(each.status)}")
        severity = next((warning.get("error_severity") for warning in each.warnings), None)
        words = _SETUP_SEVERITIES.get(severity, "") if type(severity) is int else ""
        text = next((quoted(warning.get("warning", "")) for warning in each.warnings), "no reason told")
        return unknown(f"dcgm: {each.where} failed" + (f" (severity {words})" if words else "") + f": {text}")
    return None


def _fault(warning: Mapping[str, Any]) -> str:
    """Return DCGM's word for a fault of the hardware; empty if it has none."""
    severity, category = warning.get("error_severity"), warning.get("error_category")
    severity = severity if type(severity) is int else 0
    category = category if type(category) is int else 0
    if severity in _FAULT_SEVERITIES and (severity == 2 or category not in _SETUP_CATEGORIES):
        return f"severity {_FAULT_SEVERITIES[severity]}"
    if severity not in _SETUP_SEVERITIES and category in _HARDWARE_CATEGORIES:
        return "a hardware category"
    return ""


def _complete(
    document: dict[str, Any], results: list[_Result], major: int, level: int, gpus: int
) -> ValidationResult | None:
    """Return why the passes are not those of each test on each GPU; None if they are."""
    expected = EXPECTED_TESTS.get((major, level))
    if expected is None:
        return unknown(f"dcgm: level {level} is not known here")
    if not results:
        return unknown("dcgm: no test ran")
    ids = {each.gpu for each in results if each.gpu is not None}
    if len(ids) != gpus:
        return unknown(f"dcgm: {len(ids)} of {gpus} GPUs were tested")
    if major == 4 and _listed_gpus(document) != sorted(ids):
        return unknown("dcgm: DCGM lists other GPUs than those that were tested")
    wanted: list[tuple[str, int | None]] = [(test, gpu) for test in expected for gpu in sorted(ids)]
    wanted += [(test, None) for test in (_DEPLOYMENT_3 if major == 3 else expected)]
    found: dict[tuple[str, int | None], list[str]] = {}
    for each in results:
        found.setdefault((each.test, each.gpu), []).append(each.status)
    for test, gpu in wanted:
        where = f"test {test}"
        on = f" on GPU {gpu}" if gpu is not None else ""
        statuses = found.get((test, gpu), [])
        if not statuses:
            return unknown(f"dcgm: {where} did not run{on}")
        if "Skip" in statuses:
            return unknown(f"dcgm: {where} was skipped{on}")
        if len(statuses) > 1:
            return unknown(f"dcgm: {where} has more than one result{on}")
    return None


def _listed_gpus(document: dict[str, Any]) -> list[object]:
    """Return the ids of the GPUs that DCGM 4 lists beside the results. Raises ``_UnreadableError``."""
    return [
        entity.get("entity_id")
        for group in _objects(document.get("entity_groups"))
        if group.get("entity_group_id") == _GPU_GROUP
        for entity in _objects(group.get("entities"))
    ]
