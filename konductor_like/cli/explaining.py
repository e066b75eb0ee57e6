"""The work of ``explain``: what is asked about, and what is known about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from konductor_like.catalog import Catalog
from konductor_like.catalog.explain import Explanation, explain
from konductor_like.cli.columns import fault_name, natural
from konductor_like.cli.failures import CommandError
from konductor_like.detection import Detector
from konductor_like.detection.reason import why_no_fault
from konductor_like.exits import Exit
from konductor_like.model import Finding, Source

_CODE = re.compile(r"([a-z]+)(?:-|[\s.:]*)(-?\d{1,9})", re.ASCII)
_MENTION = re.compile(r"\b(xid|sxid|cuda)(?:-|[\s.:#]*)(\d{1,5})\b", re.ASCII)
_NAME = re.compile(r"([a-z][a-z0-9_]*)[\s.]([a-z0-9_.]+(?: [a-z0-9_]+){0,3})", re.ASCII)
_EXAMPLES = {"xid": 79, "sxid": 12028}
_CODED = (*_EXAMPLES, "cuda")
_HINT = "Name a rule (xid 79, sxid 12028, cuda 719, nccl.socket), or paste a line in quotation marks."


class NoFaultError(CommandError):
    """It is no fault by any name; it may be the name of something else."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about a rule, or about a line.

    Of a line ``source`` says as what it was read (None where it resembles no fault of either), ``finding``
    what it says, or ``reason`` why it is no fault.
    """

    explanation: Explanation | None = None
    only_scan: bool = False
    """No source that is collected has such lines."""
    line: str | None = None
    source: Source | None = None
    finding: Finding | None = None
    reason: str = ""


def explain_text(text: str, source: Source | None, detector: Detector) -> Answer:
    """Explain the rule that the text names, else what the text says as a line, by this detector's rules.

    Raises CommandError where it is neither; NoFaultError where it resembles neither.
    """
    if source is None:
        rule = _as_rule(detector.catalog, text)
        if rule is not None:
            return _about(detector.catalog, rule, text)
        if not re.search(r"\s", text):
            raise _not_found(detector.catalog, text, text)
    return _read(detector, text, (source,) if source else tuple(Source))


def _as_rule(catalog: Catalog, text: str) -> str | None:
    """The rule that a text names as people write it: ``Xid 79``, ``xid.79``, ``nvrm fallen off bus``.

    None where the text is a line, or nothing that can be looked up.
    """
    lower = text.lower()
    code = _CODE.fullmatch(lower)
    if code is not None and code[1] in _CODED:
        return f"{code[1]}.{int(code[2])}"
    name = _NAME.fullmatch(lower)
    if name is None:
        return None
    rule = f"{name[1]}.{name[2].replace(' ', '_')}"
    families = {known.partition(".")[0] for known in _rule_names(catalog)}
    return rule if name[1] in families or name[1] in _CODED else None


def _about(catalog: Catalog, rule: str, text: str) -> Answer:
    explanation = explain(catalog, rule)
    if explanation is None:
        raise _not_found(catalog, rule, text)
    return Answer(explanation, only_scan=_only_scan(catalog, rule))


def _only_scan(catalog: Catalog, rule: str) -> bool:
    """Whether ``scan`` alone finds it. What a table names (``fm.20034``) is found by a rule of its family."""
    family = rule.partition(".")[0]
    return any(
        one.scan_only and (one.id == rule or (bool(one.table) and one.id.startswith(f"{family}.")))
        for one in (*catalog.kernel_rules, *catalog.pod_rules)
    )


def _read(detector: Detector, line: str, sources: tuple[Source, ...]) -> Answer:
    for source in sources:
        finding = detector.find(line, source)
        if finding is not None:
            explanation = explain(detector.catalog, finding.rule)
            only_scan = _only_scan(detector.catalog, finding.rule)
            return Answer(explanation, only_scan, line, source, finding)
    for source in sources:
        reason = why_no_fault(detector.catalog, line, source)
        if reason is not None:
            return Answer(line=line, source=source, reason=reason)
    logs = " or ".join(f"{source.value} log" for source in sources)
    reason = f"It has none of the words by which faults are found in a {logs}."
    return Answer(line=line, reason=" ".join(filter(None, (reason, _meant(detector.catalog, line)))))


def _not_found(catalog: Catalog, rule: str, text: str) -> CommandError:
    """``rule`` is how the text was understood; the text itself where it was not."""
    if not text:
        return CommandError("there is nothing to explain", hint=_HINT, status=Exit.USAGE)
    family, dot, _ = rule.lower().partition(".")
    names = [name for name in _rule_names(catalog) if name.startswith(f"{family}.")]
    if not names and family not in _CODED:
        hint = _meant(catalog, text) or _HINT
        return NoFaultError(f"{text!r} is neither a rule nor a line of a log", hint=hint, status=Exit.USAGE)
    hint = _listed(names) if names else f"Name its code, as in `{family} {_EXAMPLES[family]}`."
    if not dot:
        return CommandError(f"{text} is a family of rules", hint=hint, status=Exit.USAGE)
    return CommandError(f"there is no rule {text}", hint=_meant(catalog, text) or hint, status=Exit.USAGE)


def _meant(catalog: Catalog, text: str) -> str:
    """The question that a number alone, or a code among other words, probably was; empty for none."""
    mention = _MENTION.search(text.lower())
    if mention is not None:
        named = [(mention[1], mention[2])]
    else:
        named = [(family, text) for family in _CODED if text.isascii() and text.isdecimal()]
    for family, code in named:
        if catalog.entry(f"{family}.{int(code)}") is not None:
            return f"Did you mean: konductor-like explain {family} {int(code)}?"
    return ""


def _listed(names: list[str]) -> str:
    return f"There are {', '.join(map(fault_name, sorted(names, key=natural)))}."


def _rule_names(catalog: Catalog) -> Iterator[str]:
    """The rules that have a name or number of their own, but for the codes of Xid and SXid."""
    for rule in (*catalog.kernel_rules, *catalog.pod_rules):
        if rule.entry is not None:
            yield rule.entry.rule
    yield from {entry.rule for entry in catalog.cuda_errors.values()}
