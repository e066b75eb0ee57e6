"""Reads a page of the report as a browser does."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = {"meta"}
"""Elements without an end tag on the page."""


@dataclass(slots=True)
class Element:
    """An element with its attributes and all text below it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the elements with this tag below this one, in their order."""
        found = []
        for each in self.inside:
            found += ([each] if each.tag == tag else []) + each.all(tag)
        return found

    def get(self, name: str) -> str:
        """Return an attribute; empty if it is absent."""
        return self.attributes.get(name, "")


class Page(HTMLParser):
    """Parses strictly: each end tag must close the element that was opened last."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert [each.tag for each in self._open] == [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(element)
        if tag not in _EMPTY:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for each in self._open:
            each.text += data

    @property
    def text(self) -> str:
        """The text that is shown, on one line."""
        [body] = self.root.all("body")
        return " ".join(body.text.split())

    @property
    def rows(self) -> list[Element]:
        """The rows of the table of outages."""
        wide = [each for each in self.root.all("div") if each.get("class") == "wide scroll"]
        return [row for each in wide for body in each.all("tbody") for row in body.all("tr")]

    def nodes(self, link: Element) -> list[str]:
        """Return the nodes of the outages to which a link leads."""
        group = link.get("href").removeprefix("#")
        return [row.all("th")[0].text for row in self.rows if group in row.get("class").split()]

    def section(self, title: str) -> Element:
        """Return the section with this heading."""
        [found] = [
            each
            for each in self.root.all("section")
            if title in [head.text for head in each.all("h2") + each.all("h3")][:1]
        ]
        return found

    def cells(self, title: str) -> list[list[str]]:
        """Return the rows of the first table of a section."""
        body = self.section(title).all("table")[0].all("tbody")[0]
        return [[cell.text.strip() for cell in row.inside] for row in body.all("tr")]
