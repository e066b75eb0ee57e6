"""How an answer of ``explain`` is shown: labelled paragraphs for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from konductor_like.catalog import Entry, Mode, SxidEntry, XidEntry
from konductor_like.catalog.explain import Blame, Explanation
from konductor_like.cli.columns import NONE, fault_name
from konductor_like.cli.document import API_VERSION
from konductor_like.cli.explaining import Answer
from konductor_like.cli.paragraphs import Row
from konductor_like.model import APPLICATION_XIDS, FaultKind, Finding, Severity

_WE = {
    Severity.FATAL: "taint the node at once, as far as the brake allows",
    Severity.TEST: "taint the node at once, and mark it as a test",
    Severity.SUSPECT: "record it on the node; one such line does not taint",
    Severity.APPLICATION: "record it as the job's own fault; it never taints",
    Severity.INFO: "record it; there is nothing to act upon",
}
_USUALLY = {
    Blame.APPLICATION: "the application's fault",
    Blame.DRIVER: "the fault of the driver, firmware or another part of the vendor's software",
    Blame.HARDWARE: "the hardware's fault",
    Blame.FABRIC: "the fault of the fabric: NVLink, NVSwitch or the network",
    Blame.OTHER_EVENT: "no fault of its own: something else is behind it",
}
_BUILT_IN = "built-in"


def rows(answer: Answer) -> Iterator[Row]:
    """What people read: first the line, where there is one."""
    if answer.line is not None:
        yield from _line_rows(answer)
    if answer.explanation is not None:
        if answer.line is not None:
            yield "", [""]
        yield from _rule_rows(answer.explanation, only_scan=answer.only_scan)


def document(answer: Answer) -> dict[str, Any]:
    """The stable form, described in docs/cli.md; what is not known is null or empty."""
    explanation = answer.explanation
    return {
        "apiVersion": API_VERSION,
        "kind": "Explanation",
        "line": None if answer.line is None else _line_document(answer),
        "rule": None if explanation is None else _rule_document(explanation, only_scan=answer.only_scan),
    }


def _action(entry: Entry, severity: Severity, *, only_scan: bool) -> str:
    if entry.mode is Mode.OFF:
        return "do nothing: its rule is off"
    if entry.mode is Mode.SHADOW:
        return f"count and log it, no more: its rule is on trial (shadow), as {severity.value}"
    if only_scan:
        return (
            "find it with `scan` alone: no log that the controller reads has such lines, so they never taint"
        )
    return _WE[severity]


def _action_of_rule(explanation: Explanation, *, only_scan: bool) -> str:
    """The same for a rule, of which often the line decides."""
    entry = explanation.entry
    if not explanation.details or only_scan or entry.mode is not Mode.ENFORCE:
        return _action(entry, entry.severity, only_scan=only_scan)
    severity = _else(entry)
    return f"what the line says (see But); where it says nothing, {_WE[severity]}"


def _else(entry: Entry) -> Severity:
    """The severity where the line decides and says nothing: an SXid not called Fatal is suspect."""
    return Severity.SUSPECT if isinstance(entry, SxidEntry) else entry.severity


def _change(entry: Entry) -> str:
    """The line under ``overrides:`` that would change what we do; of a user's own rule, where it is.

    Empty where we advise against it.
    """
    if entry.kind is FaultKind.CUSTOM:
        return f"the rule itself, in {entry.origin}"
    # Fabric Manager's line means what the SXid means that it repeats.
    rule = f"sxid.{entry.code}" if isinstance(entry, SxidEntry) else entry.rule
    if entry.mode is not Mode.ENFORCE:
        return f"{rule}.mode: {Mode.ENFORCE.value}"
    if entry.rule in APPLICATION_XIDS and entry.origin == _BUILT_IN:
        return ""
    other = Severity.FATAL if entry.severity is Severity.SUSPECT else Severity.SUSPECT
    return f"{rule}.severity: {other.value}"


def _line_rows(answer: Answer) -> Iterator[Row]:
    finding = answer.finding
    yield "Line", [finding.text if finding else answer.line or ""]
    if answer.source is not None:
        yield "Read as", [f"{answer.source.value} log"]
    if finding is None:
        yield "No fault", [answer.reason]
        return
    position = finding.position
    facts = {
        "GPU": finding.gpu,
        "MIG": finding.mig,
        "Port": finding.port,
        "Detail": finding.sub_code,
        "Process": _process(finding),
        "Boot": position.boot_id,
        "Sequence": position.sequence,
        "Since boot": _seconds(finding),
        "Written by": "a user, not the kernel" if finding.user_written else None,
    }
    yield from ((label, [str(value)]) for label, value in facts.items() if value is not None)
    if answer.explanation is None:
        return
    entry = answer.explanation.entry
    as_listed = (finding.severity, finding.title) == (entry.severity, entry.title)
    if as_listed and not answer.explanation.details:
        return
    yield "It says", [f"{finding.title} ({finding.severity.value})"]
    yield "So we", [_action(entry, finding.severity, only_scan=answer.only_scan)]
    yield "To do", [finding.advice]
    yield "Needs", [finding.needs]


def _rule_rows(explanation: Explanation, *, only_scan: bool) -> Iterator[Row]:
    entry = explanation.entry
    yield "Fault", [f"{fault_name(entry.rule)}: {entry.title}"]
    if name := _vendors_name(entry):
        yield "Name", [name]
    if explanation.text:
        yield "What", [explanation.text]
    if explanation.blame is not None:
        yield "Usually", [_USUALLY[explanation.blame]]
    by_line = f"by the line ({_else(entry).value} where it says nothing)"
    yield "Severity", [by_line if explanation.details else entry.severity.value]
    yield "We", [_action_of_rule(explanation, only_scan=only_scan)]
    if explanation.details:
        yield "But", [explanation.details]
    custom = entry.kind is FaultKind.CUSTOM
    if change := _change(entry):
        then = ", and then whatever the line says" if explanation.details else ""
        yield "To change", [change if custom else f"{change}   (under `overrides:` in the rules file{then})"]
    if not custom and entry.origin != _BUILT_IN:
        yield "Changed by", [entry.origin]
    if says := "; then ".join(filter(None, (explanation.vendor_now, explanation.vendor_later))):
        yield "NVIDIA says", [says]
    yield "To do", [entry.advice.text]
    yield "Needs", [entry.advice.needs.value]
    if isinstance(entry, XidEntry) and explanation.in_catalog:
        yield "GPUs", [" ".join(entry.generations) or "none from A100 on"]
        if entry.recovery_since:
            since = "" if entry.recovery_since == "always" else f" since driver {entry.recovery_since}"
            yield "Comes with", [f"xid 154{since}, which says what the GPU needs"]
    if explanation.look_for:
        names = [_family_name(rule) for rule, _ in explanation.look_for]
        width = max(map(len, names))
        titles = [title for _, title in explanation.look_for]
        yield "Look for", [f"{name:<{width}}   {title}" for name, title in zip(names, titles, strict=True)]
    if explanation.link:
        yield "Page", [explanation.link]


def _family_name(rule: str) -> str:
    family, _, name = rule.partition(".")
    return f"any {family}" if name == "*" else fault_name(rule)


def _vendors_name(entry: Entry) -> str:
    if isinstance(entry, XidEntry):
        return entry.mnemonic.replace("|", ", ")
    return entry.name if isinstance(entry, SxidEntry) else ""


def _process(finding: Finding) -> str | None:
    if finding.pid is None:
        return finding.process
    return f"{finding.process or NONE} (pid {finding.pid})"


def _seconds(finding: Finding) -> str | None:
    stamp = finding.position.stamp_us
    return None if stamp is None else f"{stamp // 1_000_000}.{stamp % 1_000_000:06} s"


def _line_document(answer: Answer) -> dict[str, Any]:
    finding = answer.finding
    head = {
        "text": answer.line,
        "source": answer.source and answer.source.value,
        "fault": finding is not None,
        "reason": answer.reason,
    }
    if finding is None:
        return head
    position = finding.position
    return {
        **head,
        "message": finding.text,
        "severity": finding.severity.value,
        "title": finding.title,
        "advice": finding.advice,
        "needs": finding.needs,
        "gpu": finding.gpu,
        "mig": finding.mig,
        "port": finding.port,
        "subCode": finding.sub_code,
        "pid": finding.pid,
        "process": finding.process,
        "bootID": position.boot_id,
        "sequence": position.sequence,
        "stampMicroseconds": position.stamp_us,
        "userWritten": finding.user_written,
        "shadow": finding.shadow,
    }


def _rule_document(explanation: Explanation, *, only_scan: bool) -> dict[str, Any]:
    entry = explanation.entry
    xid = entry if isinstance(entry, XidEntry) else None
    return {
        "rule": entry.rule,
        "kind": entry.kind.value,
        "code": entry.code,
        "inCatalog": explanation.in_catalog,
        "name": _vendors_name(entry),
        "title": entry.title,
        "explanation": explanation.text,
        "usually": explanation.blame and explanation.blame.value,
        "severity": entry.severity.value,
        "mode": entry.mode.value,
        "origin": entry.origin,
        "onlyScan": only_scan,
        "action": _action_of_rule(explanation, only_scan=only_scan),
        "details": explanation.details,
        "change": _change(entry),
        "vendorNow": explanation.vendor_now,
        "vendorLater": explanation.vendor_later,
        "advice": entry.advice.text,
        "needs": entry.advice.needs.value,
        "generations": list(xid.generations) if xid else [],
        "recoverySince": xid.recovery_since if xid else "",
        "lookFor": [{"rule": rule, "title": title} for rule, title in explanation.look_for],
        "link": explanation.link,
    }
