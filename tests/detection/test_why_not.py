"""Why a line is not a fault: the reason is the true one, and there always is one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.catalog import Catalog, Mode, load_catalog
from konductor_like.detection import Detector, find
from konductor_like.detection.why_not import why_no_fault
from konductor_like.model import Source

CATALOG = load_catalog()
LOST = "NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TRAPS = Path(__file__).parents[1] / "data" / "traps.jsonl"


def reason(text: str, source: Source = Source.KERNEL, catalog: Catalog = CATALOG) -> str:
    assert Detector(catalog).find(text, source) is None
    why = why_no_fault(catalog, text, source)
    assert why is not None
    return why


def test_a_quoted_kernel_line_is_recognised_by_the_text_before_it() -> None:
    assert "here 'alertmanager:' comes first" in reason(f"[  12.000001] alertmanager: {LOST}")


def test_a_journal_entry_of_a_program_is_not_the_kernels() -> None:
    entry = json.dumps({"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "watcher", "MESSAGE": LOST})

    assert "a program logged it" in reason(entry)


def test_a_mangled_line_is_not_in_the_form_of_any_fault() -> None:
    assert reason("NVRM: Xid (PCI:0000:2a:00): many") == (
        "The line contains 'Xid (', but is not in the form of any known fault."
    )


def test_a_code_that_is_cut_is_no_quotation() -> None:
    assert "not in the form of any known fault" in reason("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 2003")


def test_a_pod_that_prints_a_kernel_line_repeats_it() -> None:
    assert "only count in the kernel log itself" in reason(LOST, Source.POD)


def test_a_conversation_about_an_error_is_a_quotation() -> None:
    said = "user: what is RuntimeError: CUDA error: device-side assert triggered"

    assert "a conversation" in reason(said, Source.POD)


def test_a_rule_that_is_off_is_named() -> None:
    off = replace(CATALOG.xid(79), mode=Mode.OFF)

    assert reason(LOST, catalog=replace(CATALOG, xids={**CATALOG.xids, 79: off})) == "The rule xid.79 is off."


@pytest.mark.parametrize("source", list(Source))
def test_what_resembles_no_fault_has_no_reason(source: Source) -> None:
    assert why_no_fault(CATALOG, "usb 1-1: new high-speed USB device number 2", source) is None


def test_every_trap_gets_an_answer() -> None:
    traps = [json.loads(line) for line in TRAPS.read_text("utf-8").splitlines()]
    answered = 0
    for trap in traps:
        for source in Source:
            if find(trap["line"], source) is None:
                answered += why_no_fault(CATALOG, trap["line"], source) is not None

    assert answered > len(traps) / 3
