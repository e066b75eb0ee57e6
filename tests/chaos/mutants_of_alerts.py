"""Mutants of alerts: see :mod:`tests.chaos.mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from konductor_like.model import FaultKind, Severity
from tests.chaos.mutant import Mutant

_SUSPECTS = "alerts make suspects, count once, and taint nothing"
_ANEW = "an alert fires anew after half an hour of absence, and no earlier"
_RELEASED = "after a release the same firing says nothing"
_ABSENT = "an absence without the exporter, in a partial answer or without an answer is none"
_BOOT = "a boot ends only a firing that is over"
_QUIET = "quiet ends only an alert that is absent for as long"
_NOTHING = "alerts of other names, and of nodes that are not ready, begin nothing"


def _always_up(real: Any) -> Any:
    def absent(key: Any, known: Any, answer: Any, before: Any, policy: Any, **named: Any) -> Any:
        up = {(rule.exporter, key.node) for rule in policy.alerts.values()}
        return real(key, known, replace(answer, up=frozenset(up)), before, policy, **named)

    return absent


def _always_whole(real: Any) -> Any:
    def absent(key: Any, known: Any, answer: Any, *rest: Any, **named: Any) -> Any:
        return real(key, known, replace(answer, complete=True), *rest, **named)

    return absent


def _fatal(real: Any) -> Any:
    return lambda finding, *rest: real(finding._replace(severity=Severity.FATAL), *rest)


MUTANTS_OF_ALERTS: dict[str, Mutant] = {
    "alerts are not read": Mutant(
        "policy.alert_faults", lambda _: lambda _snapshot, seen, _policy: ([], seen), example=_SUSPECTS
    ),
    "an alert taints alone": Mutant("policy.node.alerts._fault", _fatal, example=_SUSPECTS),
    "a new controller takes each alert for a new one": Mutant(
        "policy.node.alerts._recorded", lambda _: lambda _snapshot: iter(()), example=_SUSPECTS
    ),
    "each end of an alert is over": Mutant("policy.node.alerts.OVER_NS", lambda _: 0, example=_ANEW),
    "no firing is ever over": Mutant("policy.node.alerts.OVER_NS", lambda _: 10**18, example=_RELEASED),
    "a lost exporter is the end of its alerts": Mutant(
        "policy.node.alerts._absent", _always_up, example=_ABSENT
    ),
    "a partial answer is a whole one": Mutant("policy.node.alerts._absent", _always_whole, example=_ABSENT),
    "time without an answer counts": Mutant("policy.node.alerts.GAP_NS", lambda _: 10**18, example=_ABSENT),
    "a boot ends an alert that fires": Mutant(
        "policy.node.alerts.still_counts", lambda _: lambda *_args: False, example=_BOOT
    ),
    "no boot ends an alert": Mutant(
        "policy.node.alerts.still_counts",
        lambda _: lambda each, *_rest: each.kind is FaultKind.ALERT,
        example=_BOOT,
    ),
    "an alert ends by the quiet of the kernel log": Mutant(
        "policy.node.alerts.absent_since_ns", lambda _: lambda each, *_rest: each.last_ns, example=_QUIET
    ),
    "an alert never ends by quiet": Mutant(
        "policy.node.alerts.absent_since_ns", lambda _: lambda *_args: None, example=_QUIET
    ),
    "an alert of a node that is not ready counts": Mutant(
        "policy.node.conditions.may_accuse", lambda _: lambda _state: True, example=_NOTHING
    ),
}
