"""Making a record fit: what goes first when a node has more to tell than its annotation may hold.

Evidence lines are shortened; then whole entries go, the least needed first: what never taints, then released
incidents, then older releases, and only then incidents that the taint stands for; of each the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from konductor_like.model import Incident, IncidentState, KernelPosition, Machine, NodeRecord, Release

RECORD_BYTES = 8192
_EVIDENCE_CHARS = (240, 120, 60)
_WORDS_CHARS = 120
_NAME_CHARS = 48  # the longest that still fits when every character takes six bytes
_BOOTS = 8
_STINTS = 4

Render = Callable[[NodeRecord, str | None], str]
"""Makes the text of a record; the second argument says what was left out, if anything."""


def fit(record: NodeRecord, render: Render) -> str:
    """The text of ``record`` if it fits, else of as much of it as does; at most ``RECORD_BYTES`` bytes."""
    text = render(record, None)
    if _fits(text):
        return text
    for limit in _EVIDENCE_CHARS:
        record = replace(record, incidents=tuple(_with_evidence(i, limit) for i in record.incidents))
        text = render(record, "lines shortened")
        if _fits(text):
            return text
    return _fewer(_terse(record), render)


def _fewer(record: NodeRecord, render: Render) -> str:
    """Keep as many entries as fit, in the order of how much they are needed."""
    order = _by_need(record)

    def keeping(count: int) -> str:
        kept = set(order[:count])
        left_out = len(order) - len(kept)
        shorter = replace(
            record,
            incidents=tuple(i for n, i in enumerate(record.incidents) if ("incident", n) in kept),
            releases=tuple(r for n, r in enumerate(record.releases) if ("release", n) in kept),
        )
        also = f", {left_out} entries left out" if left_out else ""
        return render(shorter, f"words shortened{also}")

    low, high = 0, len(order)  # ``low`` is known to fit, unless not even an empty record does
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(keeping(middle)):
            low = middle
        else:
            high = middle - 1
    text = keeping(low)
    return text if _fits(text) else render(_bare(record), "everything but names left out")


def _by_need(record: NodeRecord) -> list[tuple[str, int]]:
    """All entries, the most needed first."""
    by_age = sorted(enumerate(record.incidents), key=lambda entry: entry[1].last_ns, reverse=True)
    live = [("incident", n) for n, i in by_age if i.taints and not _is_released(i)]
    done = [("incident", n) for n, i in by_age if _keeps_from_tainting(i)]
    minor = [("incident", n) for n, i in by_age if not (i.taints or _keeps_from_tainting(i))]
    marks = sorted(enumerate(record.releases), key=lambda entry: entry[1].at, reverse=True)
    releases = [("release", n) for n, _ in marks]
    return [*releases[:1], *live, *releases[1:], *done, *minor]


def _keeps_from_tainting(incident: Incident) -> bool:
    """Whether it is remembered so that a replay of its lines does not taint: released, or from before us."""
    return incident.before_install or (incident.taints and _is_released(incident))


def _is_released(incident: Incident) -> bool:
    return incident.state is IncidentState.RELEASED


def _with_evidence(incident: Incident, limit: int) -> Incident:
    return replace(incident, evidence=_cut(incident.evidence, limit))


def _terse(record: NodeRecord) -> NodeRecord:
    """With every word that only people read cut short."""
    return replace(
        record,
        incidents=tuple(_terse_incident(incident) for incident in record.incidents),
        releases=tuple(_terse_release(release) for release in record.releases),
        past_boots=record.past_boots[:_BOOTS],
        quarantines=tuple(
            replace(stint, rule=_cut(stint.rule, _NAME_CHARS)) for stint in record.quarantines[:_STINTS]
        ),
        act=record.act
        and replace(record.act, id=record.act.id[:_NAME_CHARS], rules=record.act.rules[:_NAME_CHARS]),
    )


def _terse_incident(incident: Incident) -> Incident:
    ack = incident.ack
    return replace(
        incident,
        title=_cut(incident.title, _WORDS_CHARS),
        advice=_cut(incident.advice, _WORDS_CHARS),
        needs=_cut(incident.needs, _NAME_CHARS),
        job=incident.job and _cut(incident.job, _WORDS_CHARS),
        event=incident.event and _cut(incident.event, _WORDS_CHARS),
        origin=incident.origin and _cut(incident.origin, _WORDS_CHARS),
        grounds=_cut(incident.grounds, _WORDS_CHARS),
        ack=ack and replace(ack, by=_cut(ack.by, _WORDS_CHARS), reason=_cut(ack.reason, _WORDS_CHARS)),
    )


def _terse_release(release: Release) -> Release:
    return replace(
        release,
        by=_cut(release.by, _WORDS_CHARS),
        reason=_cut(release.reason, _WORDS_CHARS),
        how=_cut(release.how, _WORDS_CHARS),
        warning=None if release.warning is None else _cut(release.warning, _WORDS_CHARS),
    )


def _bare(record: NodeRecord) -> NodeRecord:
    """Only which machine it is, with names that long cut: nothing of this size comes from a real node."""
    known = record.machine
    machine = known and Machine(_name(known.node_uid) or "", _name(known.system_id), _name(known.boot_id))
    read = KernelPosition(_name(record.read.boot_id), record.read.sequence, record.read.stamp_us)
    boots = tuple(boot[:_NAME_CHARS] for boot in record.past_boots)
    return NodeRecord(
        machine,
        record.tainted_at,
        read=read,
        past_boots=boots,
        hold_until=record.hold_until,
        replace_since=record.replace_since,
    )


def _name(text: str | None) -> str | None:
    return text and text[:_NAME_CHARS]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _fits(text: str) -> bool:
    return len(text.encode("utf-8")) <= RECORD_BYTES
