"""Warnings about a rules file: what may be done in it, and is more often a mistake than a wish."""

from __future__ import annotations

from collections.abc import Iterator

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Mode
from konductor_like.catalog.rules_file import Override, RuleFile
from konductor_like.model import APPLICATION_XIDS, Distinct, Severity, Source

_TABLES = ("xid", "sxid")
_NO_TAINT = "this is fatal by default, and taints no node any more."
_POD = "one line of a pod takes its node out, and any pod of a watched namespace can print it."


def lint(content: RuleFile, base: Catalog, catalog: Catalog) -> Iterator[str]:
    """The warnings about a file that can be used; ``catalog`` is what it makes of ``base``."""
    for override in content.overrides:
        for warning in _about(override, base, catalog):
            yield f"{content.file}:{override.line}, {override.rule}.{override.field}: {warning}"
    for record in content.rules:
        entry = catalog.entry(record.text("id"))
        if entry is not None and entry.severity.taints and record.text("source") == Source.POD:
            yield f"{content.file}:{record.line}, {entry.rule}: {_POD}"
    for source in Source:
        before = base.anchors(source)
        for anchor in catalog.anchors(source):
            if anchor not in before:
                yield (
                    f"{content.file}: Loki is asked for one more literal in {source} lines, {anchor!r}; "
                    "every poll costs a little more."
                )


def _about(override: Override, base: Catalog, catalog: Catalog) -> Iterator[str]:
    rule = override.rule
    before, now = base.entry_or_unknown(rule), catalog.entry_or_unknown(rule)
    if override.field == "severity" and now is not None and now.severity.taints:
        if rule in APPLICATION_XIDS:
            yield "a bug in a job prints this Xid, and then takes a healthy node out."
        elif rule.partition(".")[0] not in _TABLES and not any(rule == each.id for each in base.kernel_rules):
            yield _POD
    if override.field == "severity" and before is not None and now is not None:
        if before.severity is Severity.FATAL and not now.severity.taints:
            yield _NO_TAINT
        if before.line_decides:
            yield "its line no longer decides, whatever it says of a reset, of registers or of being fatal."
    if override.field == "threshold" and override.rule in APPLICATION_XIDS:
        threshold = catalog.escalations[override.rule].threshold
        if threshold is not None and threshold.distinct is not Distinct.JOBS:
            yield "one job that fails often enough takes a healthy node out; count `from distinct jobs`."
    if override.field == "defer_seconds" and catalog.escalations[override.rule].defer_seconds:
        yield "a fatal line of it waits, and then taints no node where another seems to be the root cause."
    acted_on = before is not None and before.severity is Severity.FATAL and before.mode is Mode.ENFORCE
    if override.field == "mode" and override.value != Mode.ENFORCE and (acted_on or rule in _TABLES):
        yield _NO_TAINT
