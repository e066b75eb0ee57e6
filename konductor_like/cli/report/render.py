"""Renders the page with Jinja2. Each text that the template shows is made printable, cut and escaped."""

from __future__ import annotations

from datetime import datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from konductor_like.build import this_program
from konductor_like.cli.report.page import page_of
from konductor_like.history.read import History
from konductor_like.model.text import clipped, printable

TEXT_CHARS = 500
"""Characters of a text on the page: a person's reason may have this many."""
NAME_CHARS = 100
"""Characters of a name in a table: a label has 63 at most, and few nodes have a longer name."""


def rendered(history: History, now: datetime) -> str:
    """Return the page; ``now`` is when the history was read."""
    environment = Environment(
        loader=PackageLoader("konductor_like.cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    environment.filters["short"] = lambda name: clipped(printable(name), NAME_CHARS)
    template = environment.get_template("page.html.j2")
    return template.render(page=page_of(history), made=now, program=str(this_program()))


def _safe(value: object) -> object:
    """Return a text without control and format characters, which could reverse the text around them."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clipped(printable(value), TEXT_CHARS)
    return value
