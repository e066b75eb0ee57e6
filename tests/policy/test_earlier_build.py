"""An earlier build reads the records that this code writes: no node returns, and no mark is forgotten.

That happens when an upgrade is taken back, or while two versions run. Each zip in ``tests/data/builds`` is
the pure part of a build (see the note there). It runs in a process of its own, without this code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.policy.answers import answer
from tests.policy.lives import Life
from tests.policy.recorded_decisions import HEARD, LINE_US, NOON, RETURNS, THREE, odd_records
from tests.policy.validated_lives import ValidatedLife

BUILDS = sorted((Path(__file__).parent.parent / "data" / "builds").glob("*.zip"))
LIVES = int(os.environ.get("KONDUCTOR_TEST_LIVES", "10"))
"""Number of random lives; each has 30 events."""
MARKS = ("tainted", "hold_until", "replace", "contested", "probation", "gpus")
"""What a record must not lose, by the names of the annotation's fields."""

VALIDATED = {
    *("asked", "asked unknown", "running", "ended pass", "ended fail", "ended unknown"),
    *("releases: validated", "quarantines: validated", "written, and kept"),
}
"""What the records say of validations."""


def questions() -> Iterator[dict[str, Any]]:
    """Return nodes with records that this code wrote, and what is asked about each."""
    for seed in range(10_000, 10_000 + LIVES):
        life = Life(seed)
        for number in range(30):
            life.step(number)
            if number % 3 == 0:
                up = (life.now - life.booted).total_seconds()
                line = [79, THREE, life.boot_id, round(up * 1e6)]
                for ask in (RETURNS, RETURNS | {"faults": [line]}):
                    yield life.situation() | {"ask": ask | {"now": life.now.isoformat()}}
                later = (life.now + timedelta(hours=3)).isoformat()
                yield life.situation() | {"ask": RETURNS | {"now": later}}
    yield from questions_about_validations()
    for _, text, facts in odd_records():  # what this code makes of them is a record that it writes
        line = [79, THREE, facts.get("boot", "boot-a"), LINE_US]
        asked = {"record": text, "node": facts, "ask": HEARD | {"now": NOON.isoformat(), "faults": [line]}}
        if written := answer(asked).get("record"):
            now = (NOON + timedelta(minutes=5)).isoformat()
            facts = facts | {"tainted": facts.get("tainted", True)}
            yield {"record": written, "node": facts, "ask": RETURNS | {"now": now}}


def questions_about_validations() -> Iterator[dict[str, Any]]:
    """Ask about nodes that are validated, or were returned by a validation, also after a pass or a reboot."""
    for seed in range(20_000, 20_000 + LIVES):
        life = ValidatedLife(seed)
        for number in range(30):
            life.step(number)
            situation = life.situation()
            if number % 2 or "validat" not in (situation["record"] or ""):
                continue
            up = (life.now - life.booted).total_seconds()
            line = [79, THREE, life.boot_id, round(up * 1e6)]
            for ask in (RETURNS, RETURNS | {"faults": [line]}):
                yield situation | {"ask": ask | {"now": life.now.isoformat()}}
            later = (life.now + timedelta(hours=3)).isoformat()
            facts = situation["node"] | {"boot": f"boot-{life.boots + 1}", "booted_after_ns": 0}
            yield {"record": situation["record"], "node": facts, "ask": RETURNS | {"now": later}}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.stem)
def test_the_earlier_build_returns_no_node_and_forgets_no_mark(build: Path) -> None:
    asked = list(questions())
    lines = "".join(f"{json.dumps(each)}\n" for each in asked)
    ran = subprocess.run(
        [sys.executable, "-S", "-I", str(build)], input=lines, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")

    happened: Counter[str] = Counter()
    for question, line in zip(asked, ran.stdout.splitlines(), strict=True):
        told, ours = json.loads(line), answer(question)
        theirs = told["answer"]
        assert _parts(told["text"]) == _parts(question["record"])
        if theirs.get("verb") == "untaint" != ours.get("verb"):
            # That build does not know a validation that runs or failed. Without it, this code returns the
            # node as well: a reboot met every need.
            ours = answer(_unvalidated(question))
            assert ours.get("verb") == "untaint", question
        kept, left = (_marks(question["record"], each) for each in (ours, theirs))
        if "tainted" in kept and not question["node"].get("tainted"):
            continue  # that build takes every removal of the taint for a release (rule 23)
        assert kept.items() <= left.items(), question
        happened.update(kept.keys())
        noted, left_over = (_parts(each) for each in (question["record"], theirs.get("record")))
        if left_over and "validation" in noted:
            assert left_over["validation"] == noted["validation"], question
            happened["written, and kept"] += 1
        happened.update(_about_validation(noted))
    assert {*VALIDATED} <= {*happened}, happened
    assert {*MARKS, "relapses"} <= {*happened}


def _about_validation(parts: dict[str, Any]) -> Iterator[str]:
    """Yield what the record says of validations: the stage, the verdict, and returns after one."""
    if found := parts.get("validation"):
        yield f"{found['stage']} {found.get('verdict', '')}".rstrip()
    for place in ("releases", "quarantines"):
        if any(each.get("how") == "validated" for each in parts.get(place, ())):
            yield f"{place}: validated"


def _unvalidated(question: dict[str, Any]) -> dict[str, Any]:
    """Return the question about the same record without its validation."""
    record = {name: part for name, part in json.loads(question["record"]).items() if name != "validation"}
    return question | {"record": json.dumps(record)}


def _marks(record: str | None, answered: dict[str, Any]) -> dict[str, Any]:
    """Return the marks of the record that a build leaves on the node."""
    parts = _parts(answered.get("record", record))
    found = {name: parts[name] for name in MARKS if name in parts}
    relapses = [each["back"] for each in parts.get("quarantines", ()) if each.get("relapse")]
    return found | ({"relapses": relapses} if relapses else {})


def _parts(record: str | None) -> dict[str, Any]:
    """Return the record's JSON, without the note that says what the last write left out.

    A build before ``Quarantine.gpu`` forgets the GPUs of past outages; no decision depends on them.
    """
    parts: dict[str, Any] = json.loads(record or "{}")
    for outage in parts.get("quarantines", ()):
        outage.pop("gpu", None)
    return {name: part for name, part in parts.items() if name != "truncated"}
