"""``explain`` of an alert or of an Event's reason: its runbook, from the wheel or the checkout's docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parents[2]
FOLDERS = (_PACKAGE / "runbooks", _PACKAGE.parent / "docs" / "runbooks")
"""The place of the pages in an installed wheel (pyproject.toml, force-include), and in a checkout."""
_SHARED = "other-events"
"""The page with a section for each Event that has no page of its own."""
_LINK = re.compile(r"(\()?\[([^\]]+)\]\(([^)\s#]+)\.md(?:#([^)\s]+))?\)")
"""Matches a link to a page, with the parenthesis before it: ``([faults](docs/use/faults.md#all``."""


class Runbook(NamedTuple):
    """The runbook of an alert or an Event."""

    name: str
    """The alert or the Event's reason, as the documentation writes it."""
    path: str
    """The file in a checkout, with the anchor of the section: ``docs/runbooks/GPUFaultReadLate.md``."""
    text: str
    """Its sections, in Markdown, with links from the checkout's root."""

    @property
    def plain(self) -> str:
        """The sections for a terminal: a link to a runbook is the command that shows it, others are paths."""
        known = {each.lower(): each for each in runbooks()}

        def shown(link: re.Match[str]) -> str:
            before, text, page, anchor = link.groups(default="")
            name = known.get((anchor if page == _SHARED else page).lower())
            target = f"`konductor-like explain {name}`" if name else f"{page}.md{anchor and f'#{anchor}'}"
            if text == name:
                return f"{before}{target}"
            return f"{before}{text}: {target}" if before else f"{text} ({target})"

        return _LINK.sub(shown, self.text)


def runbooks() -> dict[str, Runbook]:
    """Return every runbook by its name; none if the installation lacks the pages."""
    found = {}
    for page in sorted(next(filter(Path.is_dir, FOLDERS), FOLDERS[0]).glob("*.md")):
        title, _, text = page.read_text("utf-8").replace("](../", "](docs/").partition("\n")
        names = title.removeprefix("# ").split(", ")  # an alert and an Event with one cause share a page
        path, sections = f"docs/runbooks/{page.name}", dict.fromkeys(names, text)
        if page.stem == _SHARED:
            sections = dict(each.split("\n", 1) for each in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
        for name, section in sections.items():
            anchor = f"#{name.lower()}" if page.stem == _SHARED else ""
            found[name] = Runbook(name, path + anchor, section.strip())
    return {name: each for name, each in found.items() if each.path != "docs/runbooks/README.md"}


def runbook_of(name: str) -> Runbook | None:
    """Return the runbook of this name in any case; None for any other name."""
    return {each.lower(): runbook for each, runbook in runbooks().items()}.get(name.lower())
