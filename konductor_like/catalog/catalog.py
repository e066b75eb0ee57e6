"""The catalogue: everything that is known about faults, and how to look it up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from konductor_like.catalog.entries import Advice, Entry, LinkRule, Mode, SxidEntry, XidEntry
from konductor_like.catalog.patterns import PatternRule
from konductor_like.model import Escalation, FaultKind, Severity, Source

CODE = re.compile(r"[1-9][0-9]{0,4}")
"""The number of an Xid or SXid in a rule's name."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables and rules, checked. Codes that no table knows get an entry that says so."""

    xids: Mapping[int, XidEntry]
    sxids: Mapping[int, SxidEntry]
    recovery_actions: Mapping[int, Entry]
    """The actions that an Xid 154 asks for, by the number in its text."""
    link_rules: Mapping[int, tuple[LinkRule, ...]]
    """The decode table of Xid 144 to 150, by Xid."""
    register_bits: Mapping[tuple[int, int], tuple[Severity, str]]
    """The registers of Xid 74: by register and bit how bad the bit is alone, and why."""
    cuda_errors: Mapping[str, Entry]
    """By text, in lower case."""
    pattern_rules: tuple[PatternRule, ...]
    """Those that are off, too."""
    advice: Mapping[str, Advice]
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    """By rule, what makes more of it than one line says."""

    def xid(self, code: int) -> XidEntry:
        """The entry of an Xid. An unknown one is recorded: peers taint or drop it, and both go wrong."""
        known = self.xids.get(code)
        if known is not None:
            return known
        title = "An Xid that is not in the catalogue"
        return XidEntry(f"xid.{code}", FaultKind.XID, Severity.SUSPECT, title, self.advice["unknown"], code)

    def sxid(self, code: int) -> SxidEntry:
        """The entry of an SXid. Of an unknown one the driver's own word Fatal says whether it is."""
        known = self.sxids.get(code)
        if known is not None:
            return known
        rule, title = f"sxid.{code}", "An SXid that is not in the catalogue"
        advice = self.advice["switch_unknown"]
        return SxidEntry(rule, FaultKind.SXID, Severity.FATAL, title, advice, code, word_decides=True)

    @property
    def kernel_rules(self) -> tuple[PatternRule, ...]:
        """The pattern rules for kernel logs."""
        return tuple(rule for rule in self.pattern_rules if rule.source is Source.KERNEL)

    @property
    def pod_rules(self) -> tuple[PatternRule, ...]:
        """The pattern rules for the logs of pods."""
        return tuple(rule for rule in self.pattern_rules if rule.source is Source.POD)

    def rules(self, source: Source) -> tuple[PatternRule, ...]:
        """The rules of one source that are not off, in the order in which they are tried.

        Those on trial come last, so that none of them hides a fault from one that is enforced.
        """
        on = [rule for rule in self.pattern_rules if rule.source is source and rule.mode is not Mode.OFF]
        return tuple(sorted(on, key=lambda rule: rule.mode is Mode.SHADOW))

    def anchors(self, source: Source) -> tuple[str, ...]:
        """The few short literals that Loki is asked for: one of them stands in every line of a fault.

        Each costs time on every byte that Loki scans (rule 11).
        """
        return shortest(
            anchor for rule in self.rules(source) if not rule.scan_only for anchor in rule.anchors
        )

    def scan_anchors(self, source: Source) -> tuple[str, ...]:
        """The same for `scan`, which also looks for what no collected source has; as few as will do.

        Here a line too many costs little and a literal much, so that what many rules share is preferred.
        """
        rules = self.rules(source)
        shared = Counter(literal for rule in rules for literal in {*rule.anchors, *rule.contains})

        def least_shared(literals: tuple[str, ...]) -> int:
            return min(shared[literal] for literal in literals)

        groups = (max(rule.anchors, rule.contains, key=least_shared) for rule in rules)
        return shortest(literal for group in groups for literal in group)

    def may_continue(self, code: int) -> bool:
        """Whether an Xid at the very end of a line may be another one, cut: 14 may be the start of 149."""
        return any(code * 10 + digit in self.xids for digit in range(10))

    def entry(self, rule: str) -> Entry | None:
        """The entry behind a finding's rule (``xid.79``, ``cuda.719``, ``nvrm.init_failed``), if known."""
        family, _, name = rule.partition(".")
        if family in ("xid", "sxid") or (family == "fm" and name.isdecimal()):
            table: Mapping[int, Entry] = self.xids if family == "xid" else self.sxids
            return table.get(int(name)) if name.isdecimal() else None
        candidates = (*(pattern.entry for pattern in self.pattern_rules), *self.cuda_errors.values())
        return next((entry for entry in candidates if entry is not None and entry.rule == rule), None)

    def entry_or_unknown(self, rule: str) -> Entry | None:
        """The same; for the code of an Xid or SXid that no table knows, the entry that holds for such."""
        family, _, name = rule.partition(".")
        if family not in ("xid", "sxid", "fm") or not CODE.fullmatch(name):
            return self.entry(rule)
        return self.xid(int(name)) if family == "xid" else self.sxid(int(name))


def shortest(literals: Iterable[str]) -> tuple[str, ...]:
    """The literals without those that contain another one, which finds their lines anyway."""
    unique = tuple(dict.fromkeys(literals))
    return tuple(one for one in unique if not any(other in one for other in unique if other != one))
