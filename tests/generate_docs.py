"""The generated pages: ``make docs`` rewrites them, a test holds them to the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from konductor_like.controller.metrics import Metrics
from konductor_like.settings import PREFIX, Settings
from tests.quality.report import detection_quality

DOCS = Path(__file__).parent.parent / "docs"

_CONFIGURATION_HEAD = """\
# Configuration

Everything is set by environment variables; nothing needs to be. `konductor-like check-config` shows the
effective values with secrets hidden, and names what is wrong or misspelt. This page is generated from
`konductor_like/settings.py` by `make docs`.

| variable | default | meaning |
| --- | --- | --- |
"""

_METRICS_HEAD = """\
# Metrics

Served at `/metrics` on `KONDUCTOR_LISTEN`. Alert on `time() - konductor_like_last_success_timestamp_seconds`
and on `konductor_like_brake_held > 0`. This page is generated from `konductor_like/controller/metrics.py` by
`make docs`.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""


def configuration() -> str:
    """``docs/configuration.md``."""
    rows = [
        f"| `{_variable(name, info)}` | {_default(info)} | {_cell(str(info.description))} |\n"
        for name, info in Settings.model_fields.items()
    ]
    return _CONFIGURATION_HEAD + "".join(rows)


def metrics() -> str:
    """``docs/metrics.md``."""
    rows = []
    for collector in vars(Metrics()).values():
        if not hasattr(collector, "describe"):
            continue
        [family] = collector.describe()
        suffix = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in collector._labelnames) or "-"
        rows.append(
            f"| `{family.name}{suffix}` | {family.type} | {labels} | {_cell(family.documentation)} |\n"
        )
    return _METRICS_HEAD + "".join(sorted(rows))


PAGES = {"configuration.md": configuration, "detection-quality.md": detection_quality, "metrics.md": metrics}


def _variable(name: str, info: FieldInfo) -> str:
    if isinstance(info.validation_alias, AliasChoices):
        return str(info.validation_alias.choices[1])
    return PREFIX + name.upper()


def _default(info: FieldInfo) -> str:
    value: Any = info.default
    if value is None or value in ("", ()):
        return "-"
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
