"""``explain`` of a fault: describes a rule or a line of a log, as text and as a document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from konductor_like.catalog import Catalog, Entry, Mode, SxidEntry, XidEntry
from konductor_like.catalog.descriptions import Blame, Explanation, explain
from konductor_like.catalog.fault_names import parse_fault_name
from konductor_like.cli.columns import NONE, fault_name, natural
from konductor_like.cli.errors import CommandError
from konductor_like.cli.output import API_VERSION, Paragraph, fields_of
from konductor_like.detection import Detector
from konductor_like.detection.why_not import why_no_fault
from konductor_like.exits import Exit
from konductor_like.model import APPLICATION_XIDS, FaultKind, Finding, Severity, Source
from konductor_like.model.text import clipped
from konductor_like.policy.wording import device_of

_NAME = re.compile(r"([a-z][a-z0-9_]*)[\s.]([a-z0-9_.-]+(?: [a-z0-9_]+){0,3})", re.ASCII)
_EXAMPLES = {"xid": 79, "sxid": 12028}
_BARE = (FaultKind.ALERT, FaultKind.CONDITION)
_CODED = (*_EXAMPLES, "cuda")
_HINT = "Name a fault (xid 79, sxid 12028, cuda 719, nccl.socket), or paste a line in quotation marks."
_CONTROLLER = {
    Severity.FATAL: "taints the node at once, unless the brake holds it back",
    Severity.TEST: "taints the node at once, and marks the taint as a test",
    Severity.SUSPECT: "records the fault; one such line does not taint the node",
    Severity.APPLICATION: "records the fault as the job's own; it never taints a node",
    Severity.INFO: "records the fault; nothing needs to be done",
}
_CAUSES = {
    Blame.APPLICATION: "the application",
    Blame.DRIVER: "the driver, the firmware or other software of the vendor",
    Blame.HARDWARE: "the hardware",
    Blame.FABRIC: "the fabric: NVLink, NVSwitch or the network",
    Blame.OTHER_EVENT: "another event, of which this fault is a consequence",
}
_SHOWN_CHARS = 1000
"""Characters of a pasted line that the text shows."""
_NAME_CHARS = 80
_BUILT_IN = "built-in"


class NoFaultError(CommandError):
    """The text is neither a rule's name nor a line of a log; it may be a node's name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The explanation of a rule, or of a line.

    For a line, ``source`` is the kind of log as which it was read (None if it resembles no fault of either
    kind); ``finding`` is its fault, or ``reason`` is why it has no fault.
    """

    explanation: Explanation | None = None
    line: str | None = None
    source: Source | None = None
    finding: Finding | None = None
    reason: str = ""


def explain_text(text: str, source: Source | None, detector: Detector) -> Answer:
    """Explain the rule that the text names; a text that names no rule is read as a line of a log.

    Raises CommandError if there is no such rule; NoFaultError for a word that is neither a rule nor a line.
    """
    if not text:
        raise CommandError("there is nothing to explain", hint=_HINT, status=Exit.USAGE)
    if source is not None:
        return _explain_line(detector, text, (source,))
    catalog = detector.catalog
    rule, meant = parse_fault_name(_with_family(text, catalog), catalog)
    if rule is not None and (explanation := explain(catalog, rule)) is not None:
        return Answer(explanation)
    if re.search(r"\s", text) and not _is_name(catalog, text):
        return _explain_line(detector, text, tuple(Source))
    raise _not_found(catalog, text, _did_you_mean(meant))


def _with_family(text: str, catalog: Catalog) -> str:
    """Return the rule's name for the bare name of an alert or a condition, as Alertmanager shows it."""
    return next((f"{kind}.{text}" for kind in _BARE if f"{kind}.{text}" in catalog.named_entries), text)


def _is_name(catalog: Catalog, text: str) -> bool:
    """Whether the text has the form of a rule's name, and not that of a line: ``nccl no such rule``."""
    name = _NAME.fullmatch(text.lower())
    return name is not None and name[1] in {
        *_CODED,
        *(rule.partition(".")[0] for rule in _rule_names(catalog)),
    }


def _explain_line(detector: Detector, line: str, sources: tuple[Source, ...]) -> Answer:
    for source in sources:
        finding = detector.find(line, source)
        if finding is not None:
            return Answer(explain(detector.catalog, finding.rule), line, source, finding)
    for source in sources:
        reason = why_no_fault(detector.catalog, line, source)
        if reason is not None:
            return Answer(line=line, source=source, reason=reason)
    logs = " or ".join(f"{source.value} log" for source in sources)
    reason = f"The line has none of the words that the rules look for in a {logs}."
    meant = _did_you_mean(parse_fault_name(line, detector.catalog).suggestions)
    return Answer(line=line, reason=f"{reason} {meant}".rstrip())


def _not_found(catalog: Catalog, text: str, meant: str) -> CommandError:
    """Return the error for a text without a rule; ``meant`` is the command that was probably meant."""
    shown = clipped(text, _NAME_CHARS)
    family, *name = re.split(r"[\s.]", text.lower(), maxsplit=1)
    names = [known for known in _rule_names(catalog) if known.startswith(f"{family}.")]
    if names:
        hint = f"There are {', '.join(map(fault_name, sorted(names, key=natural)))}."
    elif family in _CODED:
        hint = f"Name its code, as in `{family} {_EXAMPLES[family]}`."
    else:
        error = f"{shown!r} is neither a fault nor a line of a log"
        return NoFaultError(error, hint=meant or _HINT, status=Exit.USAGE)
    if not name:
        return CommandError(f"{shown} is a family of rules", hint=hint, status=Exit.USAGE)
    return CommandError(f"there is no rule {shown}", hint=meant or hint, status=Exit.USAGE)


def _did_you_mean(names: Sequence[str]) -> str:
    """Return the right commands for these names; empty without a name."""
    return f"Did you mean: konductor-like explain {' or '.join(names)}?" if names else ""


def _rule_names(catalog: Catalog) -> Iterator[str]:
    """Yield the names of all rules except the codes of Xid and SXid."""
    for rule in (*catalog.kernel_rules, *catalog.pod_rules):
        if rule.entry is not None:
            yield rule.entry.rule
    yield from {entry.rule for entry in catalog.named_entries.values()}


def paragraphs(answer: Answer) -> Iterator[Paragraph]:
    """Yield the text for people: first the line, if there is one, then the rule."""
    if answer.line is not None:
        yield from _line_rows(answer, answer.line)
    if answer.line is not None and answer.explanation is not None:
        yield "", [""]
    if answer.explanation is not None:
        yield from _rule_rows(answer.explanation, answer.finding)


def document(answer: Answer) -> dict[str, Any]:
    """Return the document that docs/reference/json.md describes; unknown values are null or empty."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Explanation",
        "line": None if answer.line is None else _line_document(answer),
        "rule": None if answer.explanation is None else _rule_document(answer.explanation, answer.finding),
    }


def _action(explanation: Explanation, severity: Severity) -> str:
    """Return what the controller does."""
    mode, is_fact = explanation.entry.mode, not explanation.entry.kind.has_line
    if mode is Mode.OFF:
        return "does not look: the rule is off" if is_fact else "ignores such lines: the rule is off"
    if mode is Mode.SHADOW:
        return f"only counts and logs the fault, as {severity.value}: the rule is in shadow mode"
    if explanation.only_scan:
        return "never taints for it: only `konductor-like scan` looks for such lines"
    if is_fact and severity is Severity.SUSPECT:
        return "records the fault; it does not taint the node"
    return _CONTROLLER[severity]


def _action_of_rule(explanation: Explanation) -> str:
    """Return the controller's action for a rule; for many rules the action depends on the line's details."""
    entry = explanation.entry
    if not explanation.details or explanation.only_scan or entry.mode is not Mode.ENFORCE:
        return _action(explanation, entry.severity)
    return f"depends on the line (see Details); without details, it {_CONTROLLER[_default_severity(entry)]}"


def _default_severity(entry: Entry) -> Severity:
    """Return the severity of a line without details; an SXid without the word Fatal is suspect."""
    return Severity.SUSPECT if isinstance(entry, SxidEntry) else entry.severity


def _override_hint(entry: Entry, severity: Severity) -> str:
    """Return the line under ``overrides:`` that changes the action; for a user's own rule, its place.

    ``severity`` is what the rule, or its line, leads to now.

    Return an empty text for a fault that applications cause, because no override is advisable.
    """
    if entry.kind is FaultKind.CUSTOM:
        return f"the rule itself, in {entry.origin}"
    # A line of Fabric Manager repeats an SXid, whose severity applies to it.
    rule = f"sxid.{entry.code}" if isinstance(entry, SxidEntry) else entry.rule
    if entry.mode is not Mode.ENFORCE:
        return f"{rule}.mode: {Mode.ENFORCE.value}"
    if entry.rule in APPLICATION_XIDS and entry.origin == _BUILT_IN:
        return ""
    other = Severity.FATAL if severity is Severity.SUSPECT else Severity.SUSPECT
    return f"{rule}.severity: {other.value}"


def _severity(entry: Entry, finding: Finding | None) -> Severity:
    return entry.severity if finding is None else finding.severity


def _line_rows(answer: Answer, line: str) -> Iterator[Paragraph]:
    finding = answer.finding
    yield "Line", finding.text if finding else clipped(line, _SHOWN_CHARS)
    yield "Read as", f"{answer.source.value} log" if answer.source else ""
    yield "Result", f"Not a known GPU fault. {answer.reason}" if answer.reason else ""
    if finding is None:
        return
    process = finding.process
    if finding.pid is not None:
        process = f"{finding.process or NONE} (pid {finding.pid})"
    device = device_of(finding.rule)
    facts = {
        device[:1].upper() + device[1:]: finding.gpu,
        "MIG": finding.mig,
        "Port": finding.port,
        "Sub-code": finding.sub_code,
        "Process": process,
        "Written by": "a user, not the kernel" if finding.user_written else None,
    }
    yield from ((label, str(value)) for label, value in facts.items() if value is not None)
    if answer.explanation is None:
        return
    if finding.title != answer.explanation.entry.title:
        yield "Meaning", finding.title


def _rule_rows(explanation: Explanation, finding: Finding | None) -> Iterator[Paragraph]:
    """Yield the rows about the rule; with a finding, what they say about its line."""
    entry, custom = explanation.entry, explanation.entry.kind is FaultKind.CUSTOM
    change, severity = _override_hint(entry, _severity(entry, finding)), entry.severity.value
    if finding is not None:
        severity = finding.severity.value
    elif explanation.details:
        severity = f"depends on the line ({_default_severity(entry).value} without details)"
    if change and not custom:
        then = "; the line's details are then ignored" if explanation.details else ""
        change = f"{change}   (under `overrides:` in the rules file{then})"
    yield "Fault", f"{fault_name(entry.rule)}: {entry.title}"
    yield "Name", _vendors_name(entry)
    yield "What", explanation.text
    yield "Usual cause", _CAUSES[explanation.blame] if explanation.blame else ""
    yield "Severity", severity
    yield "Controller", _action(explanation, finding.severity) if finding else _action_of_rule(explanation)
    yield "Details", explanation.details
    yield "To change", change
    yield "Changed by", "" if custom or entry.origin == _BUILT_IN else entry.origin
    yield "NVIDIA says", _vendors_advice(explanation)
    yield "To do", finding.advice if finding else entry.advice.text
    yield "Needs", finding.needs if finding else entry.advice.needs.value
    if isinstance(entry, XidEntry) and explanation.in_catalog:
        yield "GPUs", " ".join(entry.generations) or "none from A100 on"
        if entry.recovery_since:
            since = "" if entry.recovery_since == "always" else f" since driver {entry.recovery_since}"
            yield "Comes with", f"xid 154{since}, which names what the GPU needs"
    others = [
        (f"any {rule[:-2]}" if rule.endswith(".*") else fault_name(rule), title)
        for rule, title in explanation.look_for
    ]
    width = max((len(name) for name, _ in others), default=0)
    yield "Look for", [f"{name:<{width}}   {title}" for name, title in others]
    yield "Page", explanation.link


def _vendors_advice(explanation: Explanation) -> str:
    now, later = explanation.vendor_now, explanation.vendor_later
    if now == later == "nothing":
        return "no action"
    return f"at once: {now}; later: {later}" if now and later else now or later


def _vendors_name(entry: Entry) -> str:
    if isinstance(entry, XidEntry):
        return entry.mnemonic.replace("|", ", ")
    return entry.name if isinstance(entry, SxidEntry) else ""


def _line_document(answer: Answer) -> dict[str, Any]:
    finding = answer.finding
    head = {
        "text": answer.line,
        **fields_of(answer, "source"),
        "fault": finding is not None,
        "reason": answer.reason,
    }
    if finding is None:
        return head
    position = finding.position
    return {
        **head,
        "message": finding.text,
        **fields_of(finding, "severity", "title", "advice", "needs"),
        **fields_of(finding, "gpu", "mig", "port", "sub_code", "pid", "process"),
        "bootID": position.boot_id,
        "sequence": position.sequence,
        "stampMicroseconds": position.stamp_us,
        **fields_of(finding, "user_written", "shadow"),
    }


def _rule_document(explanation: Explanation, finding: Finding | None) -> dict[str, Any]:
    entry = explanation.entry
    xid = entry if isinstance(entry, XidEntry) else None
    return {
        **fields_of(entry, "rule", "kind", "code"),
        "inCatalog": explanation.in_catalog,
        "name": _vendors_name(entry),
        "title": entry.title,
        "explanation": explanation.text,
        "usually": explanation.blame and explanation.blame.value,
        **fields_of(entry, "severity", "mode", "origin"),
        "onlyScan": explanation.only_scan,
        "action": _action_of_rule(explanation),
        "details": explanation.details,
        "change": _override_hint(entry, _severity(entry, finding)),
        **fields_of(explanation, "vendor_now", "vendor_later"),
        "advice": entry.advice.text,
        "needs": entry.advice.needs.value,
        "generations": list(xid.generations) if xid else [],
        "recoverySince": xid.recovery_since if xid else "",
        "lookFor": [{"rule": rule, "title": title} for rule, title in explanation.look_for],
        "link": explanation.link,
    }
