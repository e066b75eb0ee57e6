"""A user's pattern: RE2 with the interface of Python's re, in linear time."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog.patterns import LinearPattern

TEXT = st.text(st.sampled_from("ab é\U0001f600\nx"), max_size=30)


@given(
    TEXT,
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([r"a+b", r"\bx", r"(?P<gpu>é+)|x$", "[^a]b"]),
)
def test_it_finds_what_python_finds(text: str, first: int, end: int, pattern: str) -> None:
    ours, python = LinearPattern(pattern), re.compile(pattern, re.ASCII)
    pos, endpos = min(first, len(text)), min(max(first, end), len(text))

    for method in ("match", "search"):
        found = getattr(ours, method)(text, pos, endpos)
        expected = getattr(python, method)(text, pos, endpos)
        if "$" in pattern and text[pos:endpos].endswith("\n"):
            continue  # Python's $ also stands before a last newline
        if pattern == r"\bx" and text[pos:endpos] != text[pos:]:
            continue  # the two differ about a word that the end of the window cuts
        assert (found is None) == (expected is None)
        if found is not None:
            assert (found.start(), found.end(), found.groupdict()) == (
                expected.start(),
                expected.end(),
                expected.groupdict(),
            )


def test_half_a_character_in_a_text_is_no_obstacle() -> None:
    found = LinearPattern("b+").search("\ud800a\udfffbb", 0, 5)

    assert found is not None
    assert (found.start(), found.end()) == (3, 5)


def test_what_ruins_a_backtracking_engine_takes_linear_time() -> None:
    pattern = LinearPattern(r"^(\w+\s?)*\$|(a|aa)+\$|(.*,){12}x")
    text = "a" * 100_000 + ","

    begun = time.process_time()
    assert pattern.search(text, 0, len(text)) is None

    assert time.process_time() - begun < 1


@pytest.mark.parametrize("pattern", ["(", r"\1(a)", "(?=a)", "(?<!a)b", "a++", "x{1001}", "\ud800"])
def test_a_pattern_that_re2_cannot_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        LinearPattern(pattern)


def test_a_pattern_that_needs_much_memory_is_refused() -> None:
    LinearPattern("(?:.*a){20}x")

    with pytest.raises(ValueError, match="pattern too large"):
        LinearPattern("(?:.*a){20}.{900}x")


def test_a_refused_pattern_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="missing"):
        LinearPattern("(")

    assert capfd.readouterr() == ("", "")


def test_re2_is_only_loaded_for_a_users_rule() -> None:
    program = (
        "import sys; from konductor_like.detection import packaged; packaged(); print('re2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert done.stdout == "False\n"
