"""The JSON of dcgmi: each test of the level on each GPU, and which failure is the hardware's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.detection.dcgm import EXPECTED_TESTS, read_diag
from konductor_like.model import ValidationVerdict
from tests.validation_outputs import DCGM_3, DCGM_4, all_tests, categories_of, dcgm_of

PASS, FAIL, UNKNOWN = ValidationVerdict.PASS, ValidationVerdict.FAIL, ValidationVerdict.UNKNOWN
MAJORS = pytest.mark.parametrize("major", [3, 4])
LEVELS = pytest.mark.parametrize(("major", "level"), list(EXPECTED_TESTS))


def read(document: object, code: int = 0, level: int = 2) -> tuple[ValidationVerdict, str]:
    text = document if isinstance(document, str) else json.dumps(document, indent=1)
    result = read_diag(text, code, level, 8)
    return result.verdict, result.why


def failing(major: int, test: str, gpu: int, **warning: object) -> dict[str, Any]:
    """Return a document in which this test failed on this GPU, with this warning."""
    document = dcgm_of(major, 2)
    (found,) = (each for each in all_tests(document) if each["name"] == test)
    entry = {"warning": "A fault of GPU 3", "error_id": 1, **warning}
    found["results"][gpu] |= {"status": "Fail", "warnings": [entry]}
    if major == 4:
        found["test_summary"] = {"status": "Fail", "warnings": [entry]}
    return document


@LEVELS
def test_a_pass(major: int, level: int) -> None:
    assert read(dcgm_of(major, level), level=level) == (PASS, "")


@LEVELS
def test_each_expected_test_must_run_on_each_gpu(major: int, level: int) -> None:
    for name in EXPECTED_TESTS[major, level]:
        document = dcgm_of(major, level)
        (test,) = (each for each in all_tests(document) if each["name"] == name)
        test["results"][3]["status"] = "Skip"
        assert read(document, level=level) == (UNKNOWN, f"dcgm: test {name} was skipped on GPU 3")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("Warn", "has status Warn"),
        ("pass", "has status pass"),
        ("Not Run", "has status Not Run"),
        (None, "has status "),
        (True, "has status "),
    ],
)
@MAJORS
def test_another_status_is_no_pass(major: int, status: object, words: str) -> None:
    document = dcgm_of(major, 2)
    test = all_tests(document)[-1]
    test["results"][3]["status"] = status

    assert read(document) == (UNKNOWN, f"dcgm: test {test['name']} on GPU 3 {words}")


@MAJORS
def test_each_gpu_has_one_result_of_a_test(major: int) -> None:
    for change, words in (("missing", "did not run"), ("doubled", "has more than one result")):
        document = dcgm_of(major, 2)
        test = all_tests(document)[-1]
        one = test["results"].pop(3)
        test["results"] += [one] * 2 if change == "doubled" else []
        assert read(document) == (UNKNOWN, f"dcgm: test {test['name']} {words} on GPU 3")


@LEVELS
def test_no_test_may_be_missing(major: int, level: int) -> None:
    for category in range(len(categories_of(dcgm_of(major, level)))):
        for test in range(len(categories_of(dcgm_of(major, level))[category]["tests"])):
            document = dcgm_of(major, level)
            gone = categories_of(document)[category]["tests"].pop(test)["name"]
            verdict, why = read(document, level=level)
            assert verdict is UNKNOWN
            assert why.startswith(f"dcgm: test {gone} did not run")


@pytest.mark.parametrize(("major", "level"), [(3, 2), (3, 3), (4, 2), (4, 3)])
def test_a_lower_level_is_no_pass_of_a_higher_one(major: int, level: int) -> None:
    assert read(dcgm_of(major, level), level=level + 1)[0] is UNKNOWN


def test_a_level_that_is_not_known_is_no_pass() -> None:
    assert read(DCGM_4, level=5) == (UNKNOWN, "dcgm: level 5 is not known here")


@pytest.mark.parametrize(
    ("warning", "verdict", "word"),
    [
        ({"error_severity": 2, "error_category": 8}, FAIL, "severity isolate"),
        ({"error_severity": 3, "error_category": 0}, FAIL, "severity unknown"),
        ({"error_severity": 4, "error_category": 1}, FAIL, "severity triage"),
        ({"error_severity": 4, "error_category": 6}, FAIL, "severity triage"),
        ({"error_severity": 6, "error_category": 10}, FAIL, "severity reset"),
        ({"error_category": 14}, FAIL, "a hardware category"),
        # Graphics processes, a missing library, an internal error.
        ({"error_severity": 6, "error_category": 8}, UNKNOWN, ""),
        ({"error_severity": 4, "error_category": 4}, UNKNOWN, ""),
        ({"error_severity": 4, "error_category": 16}, UNKNOWN, ""),
        # ECC is off; persistence mode is off; a clock was slowed.
        ({"error_severity": 5, "error_category": 10}, UNKNOWN, "severity configuration"),
        ({"error_severity": 5, "error_category": 8}, UNKNOWN, "severity configuration"),
        ({"error_severity": 1, "error_category": 9}, UNKNOWN, "severity monitor"),
        ({"error_severity": True, "error_category": "10"}, UNKNOWN, ""),
        ({}, UNKNOWN, ""),
    ],
)
@MAJORS
def test_which_failed_test_is_a_fault_of_the_hardware(
    major: int, warning: dict[str, object], verdict: ValidationVerdict, word: str
) -> None:
    name = "memory" if major == 4 else "GPU Memory"
    where = f"dcgm: test {name} on GPU 3 failed" + (f" ({word})" if word else "")

    for code in (0, 226):
        assert read(failing(major, name, 3, **warning), code) == (verdict, f"{where}: A fault of GPU 3")


def test_a_failure_of_the_hardware_is_named_before_one_of_the_set_up() -> None:
    document = failing(4, "pcie", 0, error_severity=5)
    document["DCGM Diagnostic"]["test_categories"][0]["tests"] += all_tests(
        failing(4, "memory", 3, error_severity=2)
    )[1:2]

    assert read(document)[0] is FAIL


def test_a_failure_without_a_gpu_counts() -> None:
    document = json.loads(DCGM_3)
    all_tests(document)[8]["results"] = [
        {"status": "Fail", "gpu_id": 2, "warnings": [None, {"warnings": "bad", "error_severity": 2}]}
    ]

    assert read(document) == (FAIL, "dcgm: test Inforom failed (severity isolate): ")


@pytest.mark.parametrize(
    ("code", "verdict", "why"),
    [
        (205, FAIL, "dcgm: DCGM asks to isolate a GPU (exit code 205)"),
        (237, FAIL, "dcgm: a GPU requires a reset (exit code 237)"),
        (238, FAIL, "dcgm: a GPU is lost (exit code 238)"),
        (226, UNKNOWN, "dcgm: a test failed (exit code 226)"),
        (189, UNKNOWN, "dcgm: the GPUs are detached from DCGM (exit code 189)"),
        (190, UNKNOWN, "dcgm: the diagnostic was stopped (exit code 190)"),
        (198, UNKNOWN, "dcgm: DCGM has no test for these GPUs (exit code 198)"),
        (203, UNKNOWN, "dcgm: the diagnostic was killed (exit code 203)"),
        (217, UNKNOWN, "dcgm: another diagnostic is running on the node (exit code 217)"),
        (222, UNKNOWN, "dcgm: the GPUs are in use (exit code 222)"),
        (235, UNKNOWN, "dcgm: the connection to the hostengine was lost (exit code 235)"),
        (242, UNKNOWN, "dcgm: DCGM has no results (exit code 242)"),
        (1, UNKNOWN, "dcgm: dcgmi ended with exit code 1"),
        (127, UNKNOWN, "dcgm: dcgmi: command not found; the image needs it"),
    ],
)
def test_an_exit_code_may_be_a_failure_and_never_makes_a_pass(
    code: int, verdict: ValidationVerdict, why: str
) -> None:
    assert read(DCGM_4, code) == (verdict, why)
    if code != 226:
        assert read("no JSON", code) == (verdict, why)
    assert read(failing(4, "memory", 3, error_severity=2), code)[0] is FAIL


def drop(*path: str | int) -> Callable[[Any], None]:
    """Return a change that takes one key or element out."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def put(value: object, *path: str | int) -> Callable[[Any], None]:
    """Return a change that writes one value."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


OTHER_GPUS = "DCGM lists other GPUs than those that were tested"
ROOT, TESTS = "DCGM Diagnostic", ("DCGM Diagnostic", "test_categories", 1, "tests")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put("5.0.0", "metadata", "version"), "DCGM 5 is not known here"),
        (put("2.4.8", "metadata", "version"), "DCGM 2 is not known here"),
        (put("3.3.9", "metadata", "version"), "the JSON is not that of DCGM 3: its root is DCGM Diagnostic"),
        (put("4", "metadata", "version"), "the JSON tells no version of DCGM"),
        (drop("metadata"), "the JSON tells no version of DCGM"),
        (drop(ROOT), "the JSON is not that of a diagnostic"),
        (put([], ROOT), "the JSON is not that of a diagnostic"),
        (put({}, "DCGM GPU Diagnostic"), "the JSON is not that of a diagnostic"),
        (put("no GPU", ROOT, "runtime_error"), "the diagnostic did not run: no GPU"),
        (put([["no text"]], ROOT, "runtime_error"), "the diagnostic did not run: "),
        (put([], ROOT, "test_categories"), "no test ran"),
        (drop(ROOT, "test_categories"), "no test ran"),
        (put([None], ROOT, "test_categories"), "the JSON has not the structure of a diagnostic"),
        (put([None], *TESTS, 0, "results"), "the JSON has not the structure of a diagnostic"),
        (drop(*TESTS, 0, "name"), "a test has no name"),
        (drop(*TESTS, 0, "test_summary"), "test memory did not run"),
        (put("Skip", *TESTS, 0, "test_summary", "status"), "test memory was skipped"),
        (put("Fail", *TESTS, 0, "test_summary", "status"), "test memory failed: no reason told"),
        (put(2, *TESTS, 0, "results", 3, "entity_group_id"), "test memory did not run on GPU 3"),
        (put(9, *TESTS, 0, "results", 3, "entity_id"), "9 of 8 GPUs were tested"),
        (put("3", *TESTS, 0, "results", 3, "entity_id"), "test memory did not run on GPU 3"),
        (drop("entity_groups"), "the JSON has not the structure of a diagnostic"),
        (put(9, "entity_groups", 0, "entities", 7, "entity_id"), OTHER_GPUS),
        (drop("entity_groups", 0, "entities", 0, "entity_id"), OTHER_GPUS),
        (drop("entity_groups", 0, "entity_group_id"), OTHER_GPUS),
    ],
)  # fmt: skip
def test_another_structure_shows_nothing(change: Callable[[Any], None], why: str) -> None:
    document = json.loads(DCGM_4)
    change(document)

    assert read(document) == (UNKNOWN, f"dcgm: {why}")


def test_fewer_gpus_than_ordered_are_no_pass() -> None:
    document = json.loads(DCGM_3)
    for test in all_tests(document):
        test["results"] = test["results"][:7]

    assert read(document) == (UNKNOWN, "dcgm: 7 of 8 GPUs were tested")


def test_tests_that_are_not_expected_may_be_skipped_and_may_not_fail() -> None:
    for status, verdict in (("Skip", PASS), ("Fail", UNKNOWN)):
        document = dcgm_of(4, 3)
        for test in ("nvbandwidth", "nccl_tests"):
            results = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": status}]
            categories_of(document)[1]["tests"].append(
                {"name": test, "results": results, "test_summary": {"status": status}}
            )
        # Its plugin is not installed.
        categories_of(document)[1]["tests"].append({"name": "eud"})
        assert read(document, level=3)[0] is verdict


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("Error: unable to establish a connection to the specified host", "no JSON in the output"),
        (DCGM_4[:-30], "the JSON is broken or cut"),
        (
            DCGM_4.replace('"version" : "4', '"version" : "4.0.0", "version" : "4'),
            "the JSON is broken or cut",
        ),
        (DCGM_4 + DCGM_4, "more than one JSON document in the output"),
    ],
)
def test_an_output_without_one_document_shows_nothing(output: str, why: str) -> None:
    assert read(output) == (UNKNOWN, f"dcgm: {why}")


def test_words_around_the_document_do_no_harm() -> None:
    assert read("WARNING: {x}\n" + DCGM_4 + "\nbye\n") == (PASS, "")


def test_the_failure_of_a_real_node_with_persistence_mode_off_is_no_fault() -> None:
    """DCGM 4.2.3 on a GB10, exit code 226 (tests/data/validation/README.md)."""
    document = failing(
        4, "software", 0, warning="Persistence Mode: Persistence mode for GPU 0 is disabled.",
        error_category=8, error_id=29, error_severity=5,
    )  # fmt: skip

    verdict, why = read(document, 226)

    assert verdict is UNKNOWN
    assert why.startswith("dcgm: test software on GPU 0 failed (severity configuration): Persistence Mode: ")
