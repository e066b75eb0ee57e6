"""Builders of a record: of one node's incidents, while faults are folded into them.

A line names its GPU and, for an unknown Xid, its rule. One pod or one broken driver can therefore ask for any
number of incidents. A record has at most ``INCIDENTS_MOST``, and ``GPUS_OF_RULE_MOST`` of one rule: further
GPUs of the rule share one incident without a GPU, so no line of them is lost.
"""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import (
    Doubt,
    DroppedFault,
    Fault,
    Growth,
    Incident,
    IncidentState,
    KernelPosition,
    MetBy,
    NodeRecord,
    Severity,
    Source,
)
from konductor_like.model.faults import NOWHERE
from konductor_like.policy.node.covers import uptime_at
from konductor_like.policy.node.endings import release_ns

INCIDENTS_MOST = 64
"""Incidents of one record, those that pods' lines opened among them."""
INCIDENTS_OF_PODS_MOST = 24
"""Incidents that pods' lines opened, so that no pod can keep a kernel line out of the record."""
GPUS_OF_RULE_MOST = 16
"""Incidents of one rule with a GPU of their own; no machine has more GPUs."""

ADVICE_IN_DOUBT = {
    Doubt.MAY_BE_NEW: "May be new: read after the release, and without a boot id. If it is new, taint the "
    "node: `konductor-like taint NODE --reason '...'`.",
    Doubt.BEFORE_RELEASE: "Printed before the release, and read after it. If it is not repaired, taint the "
    "node: `konductor-like taint NODE --reason '...'`.",
}

Key = tuple[str, str | None, bool, str | None]
"""The incident that a fault belongs to: rule, GPU, whether the fault taints, boot.

A rule may report both faults that taint and faults that do not; these are two incidents.
"""


def new_incident(fault: Fault, state: IncidentState) -> Incident:
    """Return the incident that a fault opens."""
    finding = fault.finding
    return Incident(
        key=fault.key,
        kind=finding.kind,
        severity=fault.severity,
        state=state,
        count=fault.times,
        first_ns=fault.timestamp_ns,
        last_ns=fault.timestamp_ns,
        last=finding.position,
        code=finding.code,
        evidence=finding.text,
        title=finding.title,
        advice=finding.advice,
        needs=finding.needs,
        source=fault.source,
        before_install=fault.before_install,
        first_us=finding.position.plain_us,
        user_written=finding.user_written,
        job=fault.job,
        uuid=finding.uuid,
        serial=finding.serial,
    )


def key_of(incident: Incident) -> Key:
    """Return the key of a recorded incident."""
    return (incident.key.rule, incident.key.gpu, incident.severity.taints, incident.last.boot_id)


class IncidentBuilder:
    """One incident while occurrences are added to it."""

    def __init__(
        self, incident: Incident, recorded: Incident | None = None, uptime_us: int | None = None
    ) -> None:
        """``uptime_us`` is the uptime at its release; None if it is open or no heartbeat tells the uptime."""
        self.incident = incident
        self._uptime_us = uptime_us
        self.recorded = recorded
        """The incident in the record that this one continues; None for a new incident."""
        self.count, self.last, self.last_ns = incident.count, incident.last, incident.last_ns
        self.user_written, self.first_us = incident.user_written, incident.first_us
        self.goes_on = False
        """Whether it occurred again after the driver reported its end."""
        self.latest: Fault | None = None
        """The latest of the ``unwritten`` occurrences, which the node's annotation does not count yet."""
        self.unwritten = 0
        self.reached = NOWHERE
        """The latest kernel position of the unwritten occurrences."""
        self.counted_ns = 0
        """When the latest of them was counted, by the controller's clock."""

    def seen(self, fault: Fault) -> bool:
        """Whether the incident counts this fault already: the line is a replay, or was read twice."""
        place = fault.finding.position
        order = self.has_read(place)
        if order is not None or (place.known and self.last.known):
            return bool(order)
        if fault.timestamp_ns == self.last_ns and self.count == 1:
            # The annotation may contain only the beginning of the line. With several occurrences, it quotes
            # the first line, which does not identify the last.
            return fault.finding.text.startswith(self.incident.evidence.removesuffix("…"))
        return fault.timestamp_ns <= self.last_ns

    @property
    def lowest_us(self) -> int:
        """The lowest kernel stamp of its lines without a boot id; 0 if it is not known."""
        return self.incident.lowest_us if self.first_us is None else self.first_us

    def has_read(self, place: KernelPosition) -> bool | None:
        """Whether the incident's lines were read up to this place; None if nothing shows it.

        A line that names its boot may have been read without the boot id, and the other way round. Of a
        released incident, stamps of lines without a boot id count up to the uptime at the release, and not
        below the incident's first line: a line of another boot may have opened it.
        """
        if place.known and place == self.last:
            return True
        last = self.last if self._uptime_us is None else self.last.capped(self._uptime_us)
        order, is_released = place.at_or_before(last), self.incident.state is IncidentState.RELEASED
        us = place.stamp_us if place.names_boot else place.newest_us
        if us is None or last.plain_us is None or not (place.names_boot or is_released):
            return order
        is_among = self.lowest_us <= us <= last.plain_us
        if place.names_boot:
            return is_among or order
        return is_among or (last.stamp_us is not None and us <= last.stamp_us)

    def repeats_before_install(self, fault: Fault) -> bool:
        """Whether the fault repeats a kernel line of this incident, which is older than the first start."""
        return self.incident.before_install and bool(self.has_read(fault.finding.position))

    def before_release(self, fault: Fault) -> bool:
        """Whether a release covers the fault by its time, because its position cannot be compared."""
        place = fault.finding.position
        is_comparable = place.sequence is not None or (place.known and self.last.known)
        if self.incident.released_ns is None or is_comparable:
            return False
        return fault.timestamp_ns <= self.incident.released_ns

    def extend(self, fault: Fault, count: int) -> None:
        """Add ``count`` occurrences, the latest of which is ``fault``."""
        self.count += count
        self.last_ns = max(self.last_ns, fault.timestamp_ns)
        place = fault.finding.position
        if place.plain_us is not None and (self.last.plain_us is None or self.first_us is not None):
            self.first_us = min(place.plain_us, self.first_us or place.plain_us)
        self.last = self.last.later(place)
        self.user_written = self.user_written and fault.finding.user_written
        finding = fault.finding
        if self.incident.ended_ns is not None and count:
            self.incident = replace(self.incident, ended_ns=None, advice=finding.advice, needs=finding.needs)
            self.goes_on = True

    def grow(self, fault: Fault, now_ns: int) -> None:
        """Add an occurrence that may be written later."""
        self.extend(fault, fault.times)
        self.latest = fault
        self.unwritten += fault.times
        self.reached = self.reached.later(fault.finding.position)
        self.counted_ns = now_ns

    def catch_up(self, growth: Growth) -> None:
        """Add the growth: occurrences that earlier decisions counted and did not write."""
        self.extend(growth.latest, max(0, growth.count - self.count))
        if growth.first_us is not None:
            self.first_us = min(growth.first_us, self.first_us or growth.first_us)
        self.latest, self.unwritten = growth.latest, growth.latest.times
        self.reached = growth.latest.finding.position
        self.counted_ns = growth.counted_ns

    def close(self, ended_ns: int) -> None:
        """Close the incident, which does not taint: a line reported its end."""
        self.incident = replace(
            self.incident,
            state=IncidentState.RELEASED,
            released_ns=ended_ns,
            met_ns=ended_ns,
            met_by=MetBy.HEALTHY_LINE,
        )

    def end(self, fault: Fault) -> None:
        """Note the end that the driver reports; an incident that taints stays open until a release."""
        self.extend(fault, 0)
        if not self.incident.taints:
            self.close(fault.timestamp_ns)
            return
        advice, needs = fault.finding.advice, fault.finding.needs
        self.incident = replace(self.incident, ended_ns=fault.timestamp_ns, advice=advice, needs=needs)

    def value(self) -> Incident:
        """Return the incident with the added occurrences; the identical object if there are none."""
        before = self.incident
        added = replace(
            before,
            count=self.count,
            last_ns=self.last_ns,
            last=self.last,
            first_us=self.first_us,
            user_written=self.user_written,
        )
        return before if added == before else added

    def growth(self, latest: Fault) -> Growth:
        """Return all unwritten occurrences, for the next decision unless the record is written now."""
        finding = latest.finding._replace(position=self.reached, user_written=self.user_written)
        latest = replace(latest, finding=finding, times=self.unwritten)
        return Growth(self.count, latest, counted_ns=self.counted_ns, first_us=self.first_us)


class RecordBuilder:
    """One node's record while faults are folded into it."""

    def __init__(self, record: NodeRecord, *, urgent: bool, began_ns: int | None) -> None:
        """``urgent`` is whether the record is written now, whatever is folded into it.

        ``began_ns`` is when the Node's present boot began by its heartbeats, if known.
        """
        self.urgent = urgent
        self.began_ns = began_ns
        self.counted: list[Fault] = []
        self.ignored: list[DroppedFault] = []
        self.news: list[Fault] = []
        """The faults that opened or reopened an incident."""
        self.ended: Incident | None = None
        """The last incident whose end the driver reported."""
        self.load(record)

    def load(self, record: NodeRecord) -> None:
        """Start again from this record."""
        self.record, self.read = record, record.read
        self.entries: dict[Key, IncidentBuilder] = {}
        """The incidents that faults may have changed, and the new ones; most of a record need none."""
        self.recorded = {key_of(each): each for each in reversed(record.incidents)}

    def entry(self, key: Key) -> IncidentBuilder | None:
        """Return the builder of the incident with this key; None if there is no such incident."""
        known = self.entries.get(key)
        if known is None and (incident := self.recorded.get(key)) is not None:
            uptime_us = self._uptime_at_release(incident)
            known = self.entries[key] = IncidentBuilder(incident, incident, uptime_us)
        return known

    def _uptime_at_release(self, incident: Incident) -> int | None:
        """Return the uptime at the release of an incident; None if it is open, or if nothing tells it."""
        at_ns = release_ns(incident, self.record.releases)
        return None if self.began_ns is None or at_ns is None else uptime_at(self.began_ns, at_ns)

    def doubt(self, fault: Fault, why: Doubt) -> None:
        """Keep a fatal line as suspect that was first read after a release that seems to cover it.

        One is enough of a rule and GPU until the next release. A full record has no room for any.
        """
        key = (fault.finding.rule, fault.finding.gpu, False, fault.finding.position.boot_id)
        entry = self.entry(key)
        if entry is not None and (entry.incident.state is not IncidentState.RELEASED or entry.seen(fault)):
            return
        if len(self.incidents()) < INCIDENTS_MOST:
            incident = new_incident(fault, IncidentState.ACTIVE)
            self.open(
                key, replace(incident, severity=Severity.SUSPECT, doubt=why, advice=ADVICE_IN_DOUBT[why])
            )
            self.urgent = True

    def open(self, key: Key, incident: Incident) -> None:
        """Add a new incident. It is the last, and replaces a released one of its key."""
        before = self.entry(key)
        if before is not None and before.last.plain_us is not None and incident.first_us is not None:
            # A replay begins with the lines that the released incident had counted.
            incident = replace(incident, first_us=min(incident.first_us, before.lowest_us))
        self.remove(key)
        self.entries[key] = IncidentBuilder(incident)

    def remove(self, key: Key) -> None:
        """Remove the incident with this key, if there is one."""
        self.entries.pop(key, None)
        if (recorded := self.recorded.pop(key, None)) is not None:
            kept = tuple(i for i in self.record.incidents if i is not recorded)
            self.record = replace(self.record, incidents=kept)

    def incidents(self) -> dict[Key, Incident]:
        """Return all incidents, the new ones too; their counts may be out of date."""
        return self.recorded | {key: each.incident for key, each in self.entries.items()}

    def placed(self, fault: Fault) -> tuple[Fault, Key]:
        """Return the fault and the key of its incident; without its GPU if its rule has enough others."""
        rule, gpu, boot_id = fault.finding.rule, fault.finding.gpu, fault.finding.position.boot_id
        key = (rule, gpu, fault.severity.taints, boot_id)
        if gpu is None or self.entry(key) is not None:
            return fault, key
        gpus = {known[1] for known in self.incidents() if known[0] == rule} - {None, gpu}
        if len(gpus) < GPUS_OF_RULE_MOST:
            return fault, key
        fault = replace(fault, finding=fault.finding._replace(gpu=None))
        return fault, (rule, None, fault.severity.taints, boot_id)

    def make_room(self, fault: Fault) -> bool:
        """Whether the record may have one more incident, for this fault; the least needed one gives way.

        A released incident gives way, and for a fault that taints any other that does not.
        """
        incidents = self.incidents()
        if fault.source is Source.POD:
            incidents = {key: each for key, each in incidents.items() if each.source is Source.POD}
        if len(incidents) < (INCIDENTS_OF_PODS_MOST if fault.source is Source.POD else INCIDENTS_MOST):
            return True
        taints = fault.severity.taints
        spare = [
            (
                each.state is not IncidentState.RELEASED,
                each.taints,
                each.source is not Source.POD,
                each.last_ns,
                key,
            )
            for key, each in incidents.items()
            if (taints and not each.taints) or each.state is IncidentState.RELEASED
        ]
        if spare:
            self.remove(min(spare, key=lambda each: each[:4])[-1])
        return bool(spare)

    def read_to(self, position: KernelPosition, own_boot: str | None) -> None:
        """Note that the kernel log of the Node's own boot was folded up to the position."""
        if position.boot_id != own_boot:
            return
        if self.read.boot_id != position.boot_id:
            self.read = position
        elif position.known:
            self.read = self.read.later(position)

    def finish(self) -> NodeRecord:
        """Build the record from the incidents."""
        if self.entries or self.read is not self.record.read:
            values = {id(each.recorded): each.value() for each in self.entries.values()}
            kept = (values.get(id(incident), incident) for incident in self.record.incidents)
            new = (each.value() for each in self.entries.values() if each.recorded is None)
            self.record = replace(self.record, incidents=(*kept, *new), read=self.read)
        return self.record
