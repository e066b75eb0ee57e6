"""The controller's last attempts in ``status``: writes that fail, and queries of Loki that fail. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import age_of, count, fault_name
from konductor_like.cli.output import fields_of
from konductor_like.model import Verb
from konductor_like.model.attempts import READS, Attempts, Doing, Unwritten

NAMES_SHOWN = 5
_NOT_NAMED = "some nodes that the controller cannot write are not named: this may be one of them"


def unwritten_words(attempts: Attempts, now: datetime) -> Iterator[str]:
    """Yield a sentence about the nodes that should be tainted and cannot be, then one about other writes."""
    write = attempts.of(Doing.WRITE)
    lasting = f" for {age_of(write.since, now)}" if write.since else ""
    for number, what, taints in (
        (attempts.taints, "should be tainted and cannot be", True),
        (attempts.others, "cannot be written", False),
    ):
        named = [_named(each) for each in attempts.unwritten if (each.verb is Verb.TAINT) is taints]
        names = ", ".join(named[:NAMES_SHOWN])
        more = f" and {number - len(named[:NAMES_SHOWN])} more" if number > len(named[:NAMES_SHOWN]) else ""
        who = f"; {names}{more}" if names else ""  # the sentence begins with the number
        if number:
            yield f"{count(number, 'node')} {what}{lasting}: {write.error}{who}"


def failing_reads(attempts: Attempts, now: datetime) -> Iterator[str]:
    """Yield a sentence about each source whose last query of Loki failed."""
    for doing in READS:
        found = attempts.of(doing)
        if found.since is not None:
            lines = "heartbeats" if doing is Doing.HEARTBEAT else f"{doing.value} lines"
            yield f"the controller cannot read {lines} for {age_of(found.since, now)}: {found.error}"


def failing_alerts(attempts: Attempts, now: datetime) -> str:
    """Return a sentence if the last question about alerts failed; empty if it did not, or without one."""
    found = attempts.of(Doing.ALERTS)
    return f"not read for {age_of(found.since, now)}: {found.error}" if found.since is not None else ""


def refusal_of(node: str, attempts: Attempts) -> tuple[Verb | None, str]:
    """Return the write of a node that fails and a sentence about it; no verb if the node is not named."""
    found = next((each for each in attempts.unwritten if each.node == node), None)
    if found is None:
        return None, "" if attempts.complete else _NOT_NAMED
    error = attempts.of(Doing.WRITE).error
    if found.verb is Verb.TAINT:
        return found.verb, f"it should be tainted for {fault_name(found.rule)} and cannot be: {error}"
    return found.verb, f"it cannot be written: {error}"


def attempts_document(attempts: Attempts) -> dict[str, Any]:
    """Return the attempts for ``controller.attempts`` of the document."""
    return {
        "latest": {
            doing.value: {**fields_of(each, "ok", "since"), "error": each.error or None}
            for doing, each in attempts.latest.items()
        },
        **fields_of(attempts, "heard", "taints", "others"),
        "unwritten": [fields_of(each, "node", "verb", "rule") for each in attempts.unwritten],
    }


def _named(each: Unwritten) -> str:
    return f"{each.node}: {fault_name(each.rule)}" if each.rule else each.node
