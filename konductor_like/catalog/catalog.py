"""The catalogue: all that is known about faults, and how to look it up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from konductor_like.catalog.entries import Advice, Entry, LinkRule, Mode, SxidEntry, XidEntry
from konductor_like.catalog.patterns import PatternRule
from konductor_like.model import AlertRule, ConditionRule, Escalation, FaultKind, Severity, Source

CODE = re.compile(r"[1-9][0-9]{0,4}")
"""The number of an Xid or SXid in a rule's name."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The checked tables and rules. A code that is in no table gets an entry that says so."""

    xids: Mapping[int, XidEntry]
    sxids: Mapping[int, SxidEntry]
    recovery_actions: Mapping[int, Entry]
    """The actions that an Xid 154 may ask for, by the number in its text."""
    recovery_words: Mapping[str, int]
    """The words for those actions, of every driver branch, with their numbers."""
    link_rules: Mapping[int, tuple[LinkRule, ...]]
    """The rows of the decode table of Xid 144 to 150, by Xid."""
    register_bits: Mapping[tuple[int, int], tuple[Severity, str]]
    """The register bits of Xid 74, by register and bit: the severity of the bit alone, and the reason."""
    named_entries: Mapping[str, Entry]
    """The CUDA errors by their text in lower case; by their rule the faults that no line reports, because the
    controller sees them on the Node."""
    pattern_rules: tuple[PatternRule, ...]
    """All pattern rules, also those that are off."""
    advice: Mapping[str, Advice]
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    """By rule, the threshold, corroboration and deferral that change what one of its lines leads to."""
    alerts: Mapping[str, AlertRule] = field(default_factory=dict)
    """By name, the alerts of Prometheus that are faults, without their findings; their entries are in
    ``named_entries``."""
    conditions: Mapping[str, ConditionRule] = field(default_factory=dict)
    """By type, what the conditions of other programs look like that report a fault. Their entries are in
    ``named_entries``."""

    def xid(self, code: int) -> XidEntry:
        """Return the entry of an Xid. An unknown Xid is suspect: it may be a fault, and may be harmless."""
        known = self.xids.get(code)
        if known is not None:
            return known
        title = "An Xid that is not in the catalogue"
        return XidEntry(f"xid.{code}", FaultKind.XID, Severity.SUSPECT, title, self.advice["unknown"], code)

    def sxid(self, code: int) -> SxidEntry:
        """Return the entry of an SXid. For an unknown SXid the driver's word Fatal decides."""
        known = self.sxids.get(code)
        if known is not None:
            return known
        rule, title = f"sxid.{code}", "An SXid that is not in the catalogue"
        advice = self.advice["switch_unknown"]
        return SxidEntry(rule, FaultKind.SXID, Severity.FATAL, title, advice, code, word_decides=True)

    @property
    def kernel_rules(self) -> tuple[PatternRule, ...]:
        """Return the pattern rules for kernel logs."""
        return tuple(rule for rule in self.pattern_rules if rule.source is Source.KERNEL)

    @property
    def pod_rules(self) -> tuple[PatternRule, ...]:
        """Return the pattern rules for pods' logs."""
        return tuple(rule for rule in self.pattern_rules if rule.source is Source.POD)

    def rules(self, source: Source) -> tuple[PatternRule, ...]:
        """Return the rules of one source that are not off, in the order in which detection tries them.

        Rules in shadow mode come last, so that none of them hides a fault from a rule that is enforced.
        """
        on = [rule for rule in self.pattern_rules if rule.source is source and rule.mode is not Mode.OFF]
        return tuple(sorted(on, key=lambda rule: rule.mode is Mode.SHADOW))

    def anchors(self, source: Source) -> tuple[str, ...]:
        """Return the few short literals that Loki is asked for; every line with a fault contains one of them.

        Each literal costs time on every byte that Loki scans (rule 11).
        """
        return shortest(
            anchor for rule in self.rules(source) if not rule.scan_only for anchor in rule.anchors
        )

    def scan_anchors(self, source: Source) -> tuple[str, ...]:
        """Return the literals that `scan` looks for, as few as possible, for the rules of ``scan_only`` too.

        For `scan` a needless line costs little and a literal costs much. So of a rule's ``anchor`` and
        ``contains`` it takes the list whose literals more rules share.
        """
        rules = self.rules(source)
        shared = Counter(literal for rule in rules for literal in {*rule.anchors, *rule.contains})

        def least_shared(literals: tuple[str, ...]) -> int:
            return min(shared[literal] for literal in literals)

        groups = (max(rule.anchors, rule.contains, key=least_shared) for rule in rules)
        return shortest(literal for group in groups for literal in group)

    def may_continue(self, code: int) -> bool:
        """Whether a code at the very end of a line may be a longer one that was cut: 14 may be 149."""
        return any(code * 10 + digit in self.xids for digit in range(10))

    def entry(self, rule: str) -> Entry | None:
        """Return the entry of a rule (``xid.79``, ``cuda.719``, ``nvrm.init_failed``); None if unknown."""
        family, _, name = rule.partition(".")
        if family in ("xid", "sxid") or (family == "fm" and name.isdecimal()):
            table: Mapping[int, Entry] = self.xids if family == "xid" else self.sxids
            return table.get(int(name)) if name.isdecimal() else None
        candidates = (*(pattern.entry for pattern in self.pattern_rules), *self.named_entries.values())
        return next((entry for entry in candidates if entry is not None and entry.rule == rule), None)

    def entry_or_unknown(self, rule: str) -> Entry | None:
        """Return the entry of a rule; for an Xid or SXid that is in no table, the entry of unknown codes."""
        family, _, name = rule.partition(".")
        if family not in ("xid", "sxid", "fm") or not CODE.fullmatch(name):
            return self.entry(rule)
        return self.xid(int(name)) if family == "xid" else self.sxid(int(name))


def shortest(literals: Iterable[str]) -> tuple[str, ...]:
    """Drop each literal that contains another one: the shorter literal finds the same lines."""
    unique = tuple(dict.fromkeys(literals))
    return tuple(
        literal for literal in unique if not any(other in literal for other in unique if other != literal)
    )
