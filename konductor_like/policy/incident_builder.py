"""A node's record while evidence is folded into it: ``NodeRecord`` and ``Incident``, made to be changed.

A storm is hundreds of thousands of lines of one incident. One more occurrence is a few additions here, and
the frozen values are made once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from konductor_like.model import Fault, Growth, Incident, IncidentState, KernelPosition, NodeRecord
from konductor_like.model.time import unix_ns

Key = tuple[str, str | None, bool, str | None]
"""Which incident an occurrence belongs to: rule, GPU, whether it taints, boot."""


class IncidentBuilder:
    """One incident on the way to its next value.

    The node does not tell of ``unwritten`` occurrences yet: ``latest`` is the newest of them, and together
    they reach to ``reached`` in the kernel log.
    """

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        self._changed = False
        self.ack = incident.ack
        self.advice, self.needs, self.ended_ns = incident.advice, incident.needs, incident.ended_ns
        self.boot_id = incident.last.boot_id
        self.state = incident.state
        self.count = incident.count
        self.last = incident.last
        self.last_ns = incident.last_ns
        self.released_ns = incident.released_ns
        self.user_written = incident.user_written
        self.latest: Fault | None = None
        self.unwritten = 0
        self.reached = KernelPosition()

    @property
    def key(self) -> Key:
        """What an occurrence of it is found by."""
        key = self._incident.key
        return (key.rule, key.gpu, self._incident.severity.taints, self.boot_id)

    @property
    def goes_on(self) -> bool:
        """Whether it was seen again after a person had acknowledged it, or the driver had called it over."""
        return (self.ack is None and self._incident.ack is not None) or (
            self.ended_ns is None and self._incident.ended_ns is not None
        )

    @property
    def before_install(self) -> bool:
        """Whether it is only remembered, from before the first start."""
        return self._incident.before_install

    def seen(self, fault: Fault) -> bool:
        """Whether it already counts this evidence: a replay, or a line read twice."""
        order = fault.finding.position.at_or_before(self.last)
        if order is not None:
            return order
        if fault.timestamp_ns == self.last_ns and self.count == 1:
            # The annotation may have had room for the beginning of the line only. Of several lines it quotes
            # the first, which says nothing about the last.
            return fault.finding.text.startswith(self._incident.evidence.removesuffix("…"))
        return fault.timestamp_ns <= self.last_ns

    def before_release(self, fault: Fault) -> bool:
        """Whether a release covers it by its time."""
        return self.released_ns is not None and fault.timestamp_ns <= self.released_ns

    def extend(self, fault: Fault, count: int) -> None:
        """Add so many occurrences, of which ``fault`` is the latest."""
        self._changed = True
        self.count += count
        if (
            self.ack is not None
            and count
            and not self._incident.taints
            and fault.timestamp_ns > unix_ns(self.ack.at)
        ):
            self.ack = None  # it goes on: somebody should look again
        if self.ended_ns is not None and count:
            self.ended_ns, self.advice, self.needs = None, fault.finding.advice, fault.finding.needs
        if fault.timestamp_ns > self.last_ns:
            self.last_ns = fault.timestamp_ns
        self.last = self.last.later(fault.finding.position)
        self.user_written = self.user_written and fault.finding.user_written

    def grow(self, fault: Fault) -> None:
        """Count an occurrence that may wait to be written."""
        self.extend(fault, fault.times)
        self.latest = fault
        self.unwritten += fault.times
        self.reached = self.reached.later(fault.finding.position)

    def catch_up(self, growth: Growth) -> None:
        """Count what earlier decisions counted and the node does not tell of."""
        self.extend(growth.latest, max(0, growth.count - self.count))
        self.latest, self.unwritten = growth.latest, growth.latest.times
        self.reached = growth.latest.finding.position

    def release(self, released_ns: int) -> None:
        """It has ended."""
        self._changed = True
        self.state, self.released_ns = IncidentState.RELEASED, released_ns

    def end(self, fault: Fault) -> None:
        """The driver says that this is over: what taints waits for its reset, anything else is closed."""
        self.extend(fault, 0)
        if self._incident.taints:
            self.ended_ns = fault.timestamp_ns
            self.advice, self.needs = fault.finding.advice, fault.finding.needs
        else:
            self.release(fault.timestamp_ns)

    def takes_back(self, fault: Fault, boot_id: str | None) -> bool:
        """Whether ``fault`` says that this has ended (it clears the rule on its GPU)."""
        return (
            self._incident.key.rule == fault.finding.clears
            and self._incident.key.gpu == fault.finding.gpu
            and self.state is IncidentState.ACTIVE
            and not self._incident.taints
            and self.boot_id == boot_id
            and bool(self.last.at_or_before(fault.finding.position))
        )

    def incident(self) -> Incident:
        """As it stands now; the very same value where nothing was added."""
        if not self._changed:
            return self._incident
        return replace(
            self._incident,
            state=self.state,
            count=self.count,
            last_ns=self.last_ns,
            last=booted(self.last, self.boot_id),
            released_ns=self.released_ns,
            user_written=self.user_written,
            ack=self.ack,
            advice=self.advice,
            needs=self.needs,
            ended_ns=self.ended_ns,
        )

    def growth(self) -> Growth | None:
        """What is to be carried to the next decision unless the record is written now."""
        if self.latest is None:
            return None
        position = booted(self.reached, self.boot_id)
        finding = self.latest.finding._replace(position=position, user_written=self.user_written)
        return Growth(self.count, replace(self.latest, finding=finding, times=self.unwritten))


class RecordBuilder:
    """The incidents of one node, found by their key, and how far its kernel log was judged."""

    def __init__(self, record: NodeRecord) -> None:
        self._record = record
        self._read, self._read_boot = record.read, record.read.boot_id
        self.releases = record.releases
        self.past_boots = record.past_boots
        self._entries: list[IncidentBuilder] = []
        self._by_key: dict[Key, IncidentBuilder] = {}
        for incident in record.incidents:
            entry = IncidentBuilder(incident)
            self._entries.append(entry)
            self._by_key.setdefault(entry.key, entry)
        self.remembered = [entry for entry in self._entries if entry.before_install]
        self.of_past_boots = [entry for entry in self._entries if entry.boot_id in record.past_boots]

    def find(self, key: Key) -> IncidentBuilder | None:
        """The incident of such a fault. What taints hides behind nothing else: a rule may print both."""
        return self._by_key.get(key)

    def open(self, incident: Incident) -> None:
        """A new incident, in place of a released one of its key."""
        entry = IncidentBuilder(incident)
        before = self._by_key.get(entry.key)
        self._entries = [*(other for other in self._entries if other is not before), entry]
        self._by_key[entry.key] = entry
        remembered = [other for other in self.remembered if other is not before]
        self.remembered = [*remembered, entry] if entry.before_install else remembered

    def taken_back(self, fault: Fault, boot_id: str | None) -> Iterable[IncidentBuilder]:
        """The incidents that ``fault`` says have ended."""
        return [entry for entry in self._entries if entry.takes_back(fault, boot_id)]

    def standing(self, rule: str, gpu: str | None, boot_id: str | None) -> list[IncidentBuilder]:
        """The incidents of a rule on a GPU in a boot that no release covers, whether they taint or not."""
        return [
            entry
            for entry in self._entries
            if (entry.key[0], entry.key[1], entry.boot_id) == (rule, gpu, boot_id)
            and entry.state is not IncidentState.RELEASED
        ]

    def read_to(self, position: KernelPosition, boot_id: str | None) -> None:
        """This much of the boot's kernel log was judged."""
        if self._read_boot != boot_id:
            self._read, self._read_boot = position, boot_id
        elif position.known:
            self._read = self._read.later(position)

    def record(self) -> NodeRecord:
        """As it stands now."""
        return replace(
            self._record,
            incidents=tuple(entry.incident() for entry in self._entries),
            read=booted(self._read, self._read_boot),
        )

    @property
    def goes_on(self) -> bool:
        """Whether anything was seen again that a person had acknowledged, or the driver had called over."""
        return any(entry.goes_on for entry in self._entries)

    def growths(self) -> tuple[Growth, ...]:
        """What is to be carried to the next decision unless the record is written now."""
        return tuple(growth for entry in self._entries if (growth := entry.growth()) is not None)


def booted(position: KernelPosition, boot_id: str | None) -> KernelPosition:
    """The position with its boot named."""
    return position if position.boot_id == boot_id else replace(position, boot_id=boot_id)


def with_boot(fault: Fault, boot_id: str | None) -> Fault:
    """A line that names no boot is of the present one: a kernel log holds no other."""
    position = fault.finding.position
    if position.boot_id is not None or boot_id is None:
        return fault
    return replace(fault, finding=fault.finding._replace(position=replace(position, boot_id=boot_id)))
