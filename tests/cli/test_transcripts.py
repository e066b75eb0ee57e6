"""Every transcript matches the output exactly; ``KONDUCTOR_TEST_REWRITE=1`` rewrites them instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli import transcripts


@pytest.mark.parametrize("path", sorted(transcripts.FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_transcript_matches_the_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite = os.environ.get("KONDUCTOR_TEST_REWRITE")

    actual = transcripts.replay(transcripts.read(path), tmp_path, monkeypatch, capsys)

    if rewrite:
        path.write_text(actual, "utf-8")
    assert actual == path.read_text("utf-8")
