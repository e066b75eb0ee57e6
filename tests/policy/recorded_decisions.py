"""The recorded decisions: what a build made of many nodes, kept as a file.

``python -m tests.policy.recorded_decisions`` writes the file with the code as it is. That is legitimate only
if an issue asks for another decision, Event or text: then the test names the questions whose answers changed,
and each of them is a change that the issue asks for. A refactoring never writes the file.

The file has questions and answers (see ``answers.py``). Answers occur many times, so each is in it once. The
nodes are those of ``odd_records.jsonl``, made by hand (each kind of record, and those that only damage or
forgery explain), and of random lives.

Changed since, on purpose: five answers on ``more GPUs``, because each write of a record has its own act; the
words for the release of a node; messages of ``GPUNodeRebooted`` that promised a return although a lasting
guard keeps the node out; failures on probation of nodes that are tainted already, which are told as relapses;
outages that name their GPU, advice that begins with ``nvidia-bug-report.sh`` (and records that are cut
elsewhere because of both), and rebooted nodes that are out for a test;
43 answers on ``opted out``, because the faults of such a node are recorded; 20 writes that give a node on
probation the health label that it lacks; the end of 1,439 Events, which names the fault behind the node's
need if the Event describes another fault; the problem with a record of another version, which says
`konductor-like reset NODE`; 739 releases by people, whose record and Event name each unmet need;
231 records with a line without a boot id, whose stamp is kept apart; 19 fatal lines that were read after a
release, each of which makes its node suspect, with an Event; hints to ``taint`` that name ``--reason``;
the words for what keeps a contested node out; and 38 answers on nodes with the suspect taint of an earlier
version, which is only taken off, by a write that may wait.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from konductor_like.cluster.node.record import decode, encode
from tests.policy.answers import answer
from tests.policy.lives import Life

DATA = Path(__file__).parent.parent / "data" / "records"
FILE = DATA / "recorded_decisions.json.xz"
ODD_RECORDS = DATA / "odd_records.jsonl"
"""The records by hand: their times are around ``NOON``, and each node runs ``boot-a`` unless it says so."""
NOON = datetime.fromisoformat("2026-03-04T12:00:00+00:00")
ONE, TWO, THREE = "0000:4e:00", "0000:1b:00", "0000:9a:00"
HEARD = {"heard": 1500}
RETURNS = HEARD | {"returns": True}
LINE_US = 36_100_000_000
"""The kernel stamp of a line that is printed at noon."""
LIVES = 24
_SETTINGS: Mapping[str, dict[str, Any]] = {"ask": HEARD, "reboot": RETURNS}
_BY_HAND = {"writer": "kubectl-taint", "tainted": False}
FACTS: Mapping[str, dict[str, Any]] = {
    "": {},
    "rebooted": {"boot": "boot-b"},
    "taint removed": _BY_HAND,
    "cordoned": {"boot": "boot-b", "cordoned": True},
    "not Ready": {"boot": "boot-b", "ready": False},
    "claimed by others": {"boot": "boot-b", "taints": [["karpenter.sh/disrupted", None, "NoSchedule"]]},
    "one GPU less": {"boot": "boot-b", "gpus": {"allocatable": 7, "capacity": 8}},
    "removed by a controller": _BY_HAND | {"writer": "node-repairer"},
    "opted out": {"opted_out": True},
    "our key, another value": {"taints": [["trainy.konduktor.ai/faulty", "false", "NoSchedule"]]},
    "suspects have a taint": {"suspect_tainted": True},
}
"""The facts in which a Node differs from the one of the record; the first three are asked of every record."""


ASKED_OF_OTHERS = {"no line, return reboot", "xid 79, return reboot", "no line, later", "reset"}
"""What is asked of a record if the Node's facts are others than its own."""


class Asked(NamedTuple):
    """One question by its name."""

    name: str
    question: dict[str, Any]


def asks(boot: str, now: datetime, line_us: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return what is asked about every node: no line, or a new one, and people."""
    lines = {
        "no line": [],
        "xid 79": [[79, ONE, boot, line_us]],
        "xid 79 elsewhere": [[79, THREE, boot, line_us]],
        "xid 63": [[63, TWO, boot, line_us]],
        "xid 14": [[14, TWO, boot, line_us]],
    }
    at = {"now": now.isoformat()}
    for line, faults in lines.items():
        for setting, values in _SETTINGS.items():
            yield f"{line}, return {setting}", at | values | {"faults": faults}
    yield "no line, later", RETURNS | {"now": (now + timedelta(hours=3)).isoformat()}
    yield "no line, log cut", at | RETURNS | {"gap": True}
    yield "paused", at | RETURNS | {"pause": True}
    yield "xid 79, brake", at | RETURNS | {"brake": True, "faults": lines["xid 79"]}
    yield "replay", at | HEARD | {"faults": [[79, ONE, boot, 1_000_000], [48, TWO, boot, 1_000_000]]}
    yield "line of an earlier boot", at | HEARD | {"faults": [[79, ONE, "boot-0", line_us]]}
    yield "line without a boot", at | HEARD | {"faults": [[48, TWO, None, line_us]]}
    for by in ("reset", "taint"):
        yield by, at | {"by": by}
    yield "reset with a reason", at | {"by": "reset", "reason": "new riser"}


def odd_records() -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Return the records by hand: name, text, and the facts of the node."""
    for line in ODD_RECORDS.read_text().splitlines():
        odd = json.loads(line)
        text = odd["record"]
        if isinstance(text, dict | list):
            text = json.dumps(text, separators=(",", ":"))
        yield odd["name"], text, odd["node"]


def questions() -> Iterator[Asked]:
    """Return all questions; their names are unique."""
    more = list(FACTS.items())[3:]
    for number, (odd, record, own) in enumerate(odd_records()):
        for name, facts in (*list(FACTS.items())[:3], more[number % len(more)]):
            node = own | facts
            for ask_name, ask in asks(node.get("boot", "boot-a") or "boot-a", NOON, LINE_US):
                asked = (not name) or ask_name in ASKED_OF_OTHERS
                if asked or (name == "rebooted" and "return reboot" in ask_name):
                    question = {"record": record, "node": node, "ask": ask}
                    yield Asked(f"{odd}; {name}; {ask_name}", question)
    for seed in range(LIVES):
        life = Life(seed)
        for step in range(1, 46):
            life.step(step)
            if step % 15:
                continue
            boot, up = life.boot_id, life.now - life.booted
            for ask_name, ask in asks(boot, life.now, round(up.total_seconds() * 1e6)):
                yield Asked(f"life {seed}; step {step}; {ask_name}", life.situation() | {"ask": ask})


def text_again(record: str | None) -> list[str | None]:
    """Return the record decoded and encoded again, and the problem with its text."""
    if record is None:
        return [None, None]
    found, problem = decode(record)
    return [encode(found), problem]


def recorded() -> Iterator[tuple[Asked, dict[str, Any], list[str | None]]]:
    """Return each recorded question with its answer, and with the record's text as encoded again."""
    found = json.loads(lzma.decompress(FILE.read_bytes()))
    for name, record, node, ask, reply in found["asked"]:
        parts = (found["records"][record], found["nodes"][node], found["asks"][ask])
        question = dict(zip(("record", "node", "ask"), parts, strict=True))
        yield Asked(name, question), found["answers"][reply], found["again"][record]


def write() -> None:
    """Write the file with the answers of this code."""
    kinds: dict[str, dict[str, int]] = {kind: {} for kind in ("records", "nodes", "asks", "answers")}

    def number(kind: str, value: Any) -> int:
        return kinds[kind].setdefault(json.dumps(value), len(kinds[kind]))

    asked = [
        [
            name,
            number("records", question["record"]),
            number("nodes", question["node"]),
            number("asks", question["ask"]),
            number("answers", answer(question)),
        ]
        for name, question in questions()
    ]
    lists: dict[str, Any] = {kind: [json.loads(text) for text in values] for kind, values in kinds.items()}
    lists |= {"again": [text_again(record) for record in lists["records"]], "asked": asked}
    text = json.dumps(lists, separators=(",", ":")).encode()
    FILE.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(asked)} questions, {len(lists['answers'])} answers, {len(text)} bytes of JSON")  # noqa: T201


if __name__ == "__main__":
    write()
