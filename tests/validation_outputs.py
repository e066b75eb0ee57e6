"""Outputs of a validation's Job, built from tests/data/validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from konductor_like.detection.dcgm import EXPECTED_TESTS
from konductor_like.detection.validation import Ordered

DATA = Path(__file__).with_name("data") / "validation"
ATTEMPT = "7f3k9q2m"
BOOT = "5e8a4a1c-9d1f-4c53-8e2b-0a7d6f1b2c3d"
ORDERED = Ordered(ATTEMPT, BOOT, level=2, gpus=8, command=False)
FACTS = (DATA / "nvidia_smi_h100.xml").read_text("utf-8")
DCGM_3 = (DATA / "dcgm_3_level_2.json").read_text("utf-8")
DCGM_4 = (DATA / "dcgm_4_level_2.json").read_text("utf-8")
NCCL = (DATA / "all_reduce_perf_8.txt").read_text("utf-8")

Step = tuple[str, int | str, str]
"""Name, exit code or ``skipped``, output."""
STEPS: tuple[Step, ...] = (("facts", 0, FACTS), ("dcgm", 0, DCGM_4), ("nccl", 0, NCCL))


def frame(words: str, attempt: str = ATTEMPT) -> str:
    return f"=== konductor-like {attempt} {words} ===\n"


def log_of(*steps: Step, boot: str = BOOT) -> bytes:
    """Return the log that validation.sh writes for these steps."""
    parts = [frame(f"start boot={boot}")]
    for name, code, output in steps:
        if code == "skipped":
            parts.append(frame(f"skipped {name}"))
        else:
            parts += [frame(f"begin {name}"), output, "\n", frame(f"end {name} rc={code}")]
    return "".join([*parts, frame(f"finish boot={boot}")]).encode()


def message_of(*steps: Step, boot: str = BOOT, gpus: int = 8) -> str:
    """Return the termination message that validation.sh writes for these steps."""
    listed = ",".join(f"{name}:{code}" for name, code, _ in steps)
    return (
        f"v=1 attempt={ATTEMPT} boot={boot} boot_end={boot} gpus={gpus} driver=575.51.02 steps={listed} end\n"
    )


def dcgm_of(major: int, level: int) -> dict[str, Any]:
    """Return the JSON of a passing run of this level: each further test is like that of the memory."""
    document: dict[str, Any] = json.loads(DCGM_3 if major == 3 else DCGM_4)
    tests = all_tests(document)
    model = next(test for test in tests if test["name"] in {"memory", "GPU Memory"})
    have = {test["name"] for test in tests}
    more = [{**model, "name": name} for name in EXPECTED_TESTS[major, level] if name not in have]
    categories_of(document).append({"category": "Stress", "tests": more})
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]  # a copy without shared parts


def categories_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the categories of a document of DCGM 3 or 4."""
    root = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
    return root["test_categories"]  # type: ignore[no-any-return]  # JSON


def all_tests(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tests of a document, of all categories."""
    return [test for category in categories_of(document) for test in category["tests"]]
