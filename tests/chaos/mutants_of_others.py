"""Mutants about words of other programs: see :mod:`tests.chaos.mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from konductor_like.model import FaultKind, NodeState, ReportedCondition, Severity
from tests.chaos.mutant import Mutant


def _fatal(real: Any) -> Any:
    return lambda finding, *rest: real(finding._replace(severity=Severity.FATAL), *rest)


def _changed_at_each_heartbeat(real: Any) -> Any:
    def of(each: ReportedCondition) -> ReportedCondition:
        return replace(each, since_ns=max(each.since_ns or 0, each.beat_ns or 0))

    return lambda conditions: tuple(map(of, real(conditions)))


def _heartbeat_for_a_missing_time(real: Any) -> Any:
    def of(each: ReportedCondition) -> ReportedCondition:
        return each if each.since_ns is not None else replace(each, since_ns=each.beat_ns)

    return lambda conditions: tuple(map(of, real(conditions)))


def _last_is_right(real: Any) -> Any:
    return lambda conditions: real(list({each["type"]: each for each in conditions}.values()))


def _without_releases(real: Any) -> Any:
    def known_to_ns(key: Any, state: NodeState, *rest: Any, **named: Any) -> Any:
        return real(key, replace(state, record=replace(state.record, releases=())), *rest, **named)

    return known_to_ns


def _of_any_boot(real: Any) -> Any:
    return lambda each, state, now_ns: real(each, replace(state, booted_after_ns=None), now_ns)


def _of_the_future(real: Any) -> Any:
    return lambda each, state, now_ns: real(each, state, max(now_ns, each.since_ns or 0))


def _gone_is_changed(real: Any) -> Any:
    def stands(incident: Any, state: NodeState, now_ns: int) -> Any:
        types = [f"condition.{each.type}" for each in state.reported]
        return incident.key.rule in types and real(incident, state, now_ns)

    return stands


def _within(seconds: int) -> Callable[[Any], Any]:
    def confirmed_by(real: Any) -> Any:
        return lambda together, *rest: real(replace(together, within_seconds=seconds), *rest)

    return confirmed_by


def _without_counts(real: Any) -> Any:
    return lambda together, incident, own, mine, now_ns: real(
        together, incident, own, [each for each in mine if not each.key.rule.startswith("node.")], now_ns
    )


def _all_witnesses(real: Any) -> Any:
    return lambda self, rule: real(self, "condition.GPUMissing" if rule.startswith("condition.") else rule)


def _no_suspicion(real: Any) -> Any:
    return lambda incident: incident.kind is not FaultKind.CONDITION and real(incident)


MUTANTS_OF_OTHERS: dict[str, Mutant] = {
    "other programs are not read": Mutant(
        "policy.reported_faults",
        lambda _: lambda _snapshot, seen, *_rest: ([], seen),
        example="words of other programs make suspects, count each change once, and taint nothing",
    ),
    "a word of another program taints alone": Mutant(
        *("policy.node.conditions._fault", _fatal),
        example="words of other programs make suspects, count each change once, and taint nothing",
    ),
    "a word of another program makes no suspect": Mutant(
        *("policy.node.health.is_suspicious", _no_suspicion),
        example="words of other programs make suspects, count each change once, and taint nothing",
    ),
    "status leaves out other programs' words": Mutant(
        *("cli.status.document.node_document", lambda real: lambda node: real(node) | {"faults": []}),
        example="words of other programs make suspects, count each change once, and taint nothing",
    ),
    "each heartbeat of a word counts": Mutant(
        *("cluster.node.decoder._reported", _changed_at_each_heartbeat),
        example="words of other programs make suspects, count each change once, and taint nothing",
    ),
    "no change of a word is known": Mutant(
        *("policy.node.covers.known_to_ns", lambda _: lambda *_args, **_named: -1),
        example="a boot ends only a suspicion whose program says that it has changed",
    ),
    "a release covers no word": Mutant(
        *("policy.node.covers.known_to_ns", _without_releases),
        example="a boot ends only a suspicion whose program says that it has changed",
    ),
    "a word that nobody repeats is told": Mutant(
        *("policy.node.conditions.STALE_NS", lambda _: 10**18),
        example="words that tell nothing of the present begin nothing",
    ),
    "a word of the future is told": Mutant(
        *("policy.node.conditions._is_told_now", _of_the_future),
        example="words that tell nothing of the present begin nothing",
    ),
    "a word of an earlier boot is told": Mutant(
        *("policy.node.conditions._is_told_now", _of_any_boot),
        example="a word of an earlier boot begins nothing",
    ),
    "a heartbeat is the time of a change that has none": Mutant(
        *("cluster.node.decoder._reported", _heartbeat_for_a_missing_time),
        example="words that tell nothing of the present begin nothing",
    ),
    "of two programs the last one is right": Mutant(
        *("cluster.node.decoder._reported", _last_is_right),
        example="words that tell nothing of the present begin nothing",
    ),
    "a node that is not ready is accused": Mutant(
        *("policy.node.conditions.may_accuse", lambda _: lambda _state: True),
        example="words that tell nothing of the present begin nothing",
    ),
    "a boot ends what stands": Mutant(
        *("policy.node.conditions.stands", lambda _: lambda *_args: False),
        example="a boot ends only a suspicion whose program says that it has changed",
    ),
    "a boot ends what is gone": Mutant(
        *("policy.node.conditions.stands", _gone_is_changed),
        example="a boot ends only a suspicion whose program says that it has changed",
    ),
    "no boot ends a word": Mutant(
        *("policy.node.conditions.stands", lambda _: lambda each, *_rest: each.kind is FaultKind.CONDITION),
        example="a boot ends only a suspicion whose program says that it has changed",
    ),
    "a word that nobody repeats ends by quiet": Mutant(
        *("policy.node.endings._quiet_since_ns", lambda _: lambda each, *_rest: each.last_ns),
        example="quiet ends only a suspicion whose program says for as long that it is healthy",
    ),
    "a word never ends by quiet": Mutant(
        *("policy.node.conditions.healthy_since_ns", lambda _: lambda *_args: None),
        example="quiet ends only a suspicion whose program says for as long that it is healthy",
    ),
    "two witnesses may be a day apart": Mutant(
        *("policy._confirmed_by", _within(86_400)),
        example="neither a word of hours ago nor one about Xids is a second witness",
    ),
    "missing GPUs confirm nothing": Mutant(
        *("policy._confirmed_by", _without_counts),
        example="a program that counts too few GPUs and a Node that lacks some taint together",
    ),
    "every program is a second witness": Mutant(
        *("policy.PolicyConfig.escalation", _all_witnesses),
        example="neither a word of hours ago nor one about Xids is a second witness",
    ),
}
