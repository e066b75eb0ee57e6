"""The text before a phrase shows whether it is a pod's statement or a quotation."""

from __future__ import annotations

import pytest

from konductor_like.detection import find
from konductor_like.model import Source

PHRASE = "CUDA error: misaligned address"


@pytest.mark.parametrize(
    "head",
    [
        "",
        "    ",
        "RuntimeError: ",
        "[rank3]: torch.AcceleratorError: ",
        "2026-03-04 11:22:33,123 ",
        "2026-03-04 11:22:33,123 ERROR ",
        "E0304 11:22:33.123 ",
        "(Worker pid=81) ",
        "<stderr> ",
        "trainer - ",
        "  what():  ",
        "x" * 3000 + ": ",
        'Traceback (most recent call last):\n  File "a.py", line 3\nRuntimeError: ',
        "- a list in front\n",
    ],
)
def test_behind_a_log_prefix_it_is_a_statement(head: str) -> None:
    finding = find(head + PHRASE, Source.POD)
    assert finding is not None
    assert finding.rule == "cuda.716"


@pytest.mark.parametrize(
    "head",
    [
        '"',
        "'",
        "`",
        'raise RuntimeError("',
        "# ",
        "// ",
        "- ",
        "* ",
        "2. ",
        "| ",
        "> ",
        "+ ",
        "$ grep: ",
        "user: ",
        "Assistant: ",
        "Example: ",
        "e.g. ",
        "a ",
        "see the section about ",
        "if this happens: ",
        '{"role": "user", "content": "it says: ',
        "node `gpu-1` has pod error: ",
        "first line\n# ",
    ],
)
def test_behind_anything_else_it_is_a_quotation(head: str) -> None:
    assert find(head + PHRASE, Source.POD) is None
