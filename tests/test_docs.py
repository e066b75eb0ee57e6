"""The documentation says what the code does."""

from __future__ import annotations

import pytest

from tests.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_pages_are_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page](), "run make docs"
