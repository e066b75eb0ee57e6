"""What the rule's mode and a user's word make of a finding."""

from __future__ import annotations

from collections.abc import Mapping

from konductor_like.catalog import Catalog, Entry, Mode, PatternRule
from konductor_like.model import Finding


def ruled_entries(catalog: Catalog) -> Mapping[str, Entry]:
    """By rule, the entries that are not simply enforced as the package has them; few, and mostly none."""
    entries = (
        *catalog.xids.values(),
        *catalog.sxids.values(),
        *catalog.cuda_errors.values(),
        *(rule.entry for rule in (*catalog.kernel_rules, *catalog.pod_rules) if rule.entry is not None),
    )
    return {entry.rule: entry for entry in entries if entry.mode is not Mode.ENFORCE or entry.fixed}


def as_ruled(finding: Finding, rule: PatternRule, ruled: Mapping[str, Entry]) -> Finding | None:
    """The finding with its marks; None where its rule is off."""
    entry = ruled.get(finding.rule)
    if entry is None:
        return finding._replace(shadow=True) if rule.mode is Mode.SHADOW else finding
    if entry.mode is Mode.OFF:
        return None
    shadow = Mode.SHADOW in (entry.mode, rule.mode)
    return finding._replace(shadow=shadow, severity_by_user="severity" in entry.fixed)
