"""Which lines the releases in a record cover (rule 4).

A line's place in the kernel log decides, because the clocks of nodes, laptops and servers may be off. Only
for a line without a position, or without a boot id after a reboot, its time decides.
"""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import (
    Covers,
    Doubt,
    Fault,
    IncidentKey,
    KernelPosition,
    NodeRecord,
    NodeState,
    Release,
    Snapshot,
    Source,
)
from konductor_like.model.time import unix_ns

COVERED = "covered by the last release"
COVERED_BY_TIME = "only its time, and no position in the kernel log, shows that the last release covers it"
"""Only clocks show that a line that would taint is no new one, and clocks may be off."""
COVERED_LATE = "the line precedes the last release in the kernel log, but was read after it"
"""Either a replay of a line that no record has any more, or a line that arrived after later ones: nothing
shows which."""
MAY_BE_NEW = (
    "the line has no boot id and may be new, but was read after a release of lines with higher stamps"
)
"""A line with a stamp of another boot may have been read before the release, and no heartbeat tells it."""
DOUBTS = {COVERED_LATE: Doubt.BEFORE_RELEASE, MAY_BE_NEW: Doubt.MAY_BE_NEW}
"""By the reason for which a fatal line taints nothing, why it is kept as suspect all the same."""


def why_covered(
    record: NodeRecord, fault: Fault, *, names_boot: bool, began_ns: int | None = None
) -> str | None:
    """Return how the releases in a record cover a fault that it has no incident of; None if they do not.

    ``began_ns`` is when the Node's present boot began by its heartbeats (:attr:`Snapshot.began`), if known.
    """
    found = ((mark, read_at(mark, began_ns)) for mark in record.releases)
    booted_ns = record.booted_after_ns
    marks = [
        (mark, read)
        for mark, read in found
        if covers(mark, read, fault, names_boot=names_boot, booted_after_ns=booted_ns)
    ]
    if not marks:
        return None
    if not fault.severity.taints:
        return COVERED
    if not any(decides_by_position(read, fault) for _, read in marks):
        return COVERED_BY_TIME
    if any(had_been_read(mark, fault) for mark, _ in marks):
        return COVERED
    return COVERED_LATE if names_boot or began_ns is not None else MAY_BE_NEW


def covers(
    mark: Release, read: KernelPosition, fault: Fault, *, names_boot: bool, booted_after_ns: int | None
) -> bool:
    """Whether a release covers a fault of an incident that was not recorded at the release.

    Within one boot the line's kernel position decides alone, by the ``read`` of :func:`read_at`: clocks may
    be off. Only a line without a position, or one without a boot id that may be of an earlier boot, is
    covered by its time: it had been read at the release, or Loki had it before the present boot began
    (``booted_after_ns``, if known).
    """
    position = fault.finding.position
    if decides_by_position(read, fault):
        return bool(position.at_or_before(read))
    if mark.read.boot_id == position.boot_id:
        return had_been_read(mark, fault)
    is_older = booted_after_ns is not None and fault.timestamp_ns <= booted_after_ns
    return not names_boot and (is_older or had_been_read(mark, fault))


def read_at(mark: Release, began_ns: int | None) -> KernelPosition:
    """Return up to where the kernel log of its boot had been read at a release.

    Without heartbeats a line without a boot id raises only the bound for such lines, because it may be of
    another boot. With them, a stamp above the uptime at the release is of another boot, and any other stamp
    was reached before the release, whatever its line names. For example a line without a boot id at 9,000 s
    counts as one at 5,450 s, if that is the uptime at the release. The uptime is the bound, too, where a
    person's reset knows no line that names the boot. A taint that somebody removed by hand may have been
    removed long before the controller saw it.
    """
    if began_ns is None:
        return mark.read
    uptime_us = uptime_at(began_ns, unix_ns(mark.at))
    read = mark.read.capped(uptime_us)
    if not read.names_boot and mark.how.is_reset and mark.how.covers is Covers.READ:
        return KernelPosition(read.boot_id, stamp_us=uptime_us)
    return read if read.plain_us is None else KernelPosition(read.boot_id, stamp_us=read.newest_us)


def uptime_at(began_ns: int, at_ns: int) -> int:
    """Return the microseconds from the beginning of a boot to a time."""
    return max(0, at_ns - began_ns) // 1000


def decides_by_position(read: KernelPosition, fault: Fault) -> bool:
    """Whether the fault's place in the kernel log, and not its time, tells if the release covers it.

    A line with a sequence number names its boot. If no line of that boot had been read at the release, such a
    line is new; any other line may be of an earlier boot.
    """
    position = fault.finding.position
    is_comparable = position.sequence is not None or (position.known and read.known)
    return is_comparable and read.boot_id == position.boot_id


def had_been_read(mark: Release, fault: Fault) -> bool:
    """Whether this line had been read at the time of the release; a replay of it has a later timestamp."""
    return fault.timestamp_ns < mark.read_ns.get(fault.source, 0)


def known_to_ns(key: IncidentKey, state: NodeState, snapshot: Snapshot, *, by_gpu: bool = False) -> int:
    """Return up to when facts of this rule are recorded or counted already, or a release covers them.

    It is for facts without a line: their time identifies them. With ``by_gpu`` only those of the GPU count,
    and those without a GPU, because a full record has several GPUs in one incident. A person has seen the
    Node as it was; a validation covers what had been read when it began.
    """
    record, keys = state.record, (key, (key.rule, None))
    found = [
        each.last_ns
        for each in record.incidents
        if each.key.rule == key.rule and (not by_gpu or each.key in keys)
    ]
    found += [mark.read_ns.get(Source.KERNEL, 0) - 1 for mark in record.releases]
    if record.last_by_person is not None:
        found.append(unix_ns(record.last_by_person.at))
    grown = (each.latest for each in snapshot.grown.get(state.name, ()))
    found += [
        each.timestamp_ns
        for each in grown
        if each.finding.rule == key.rule and (not by_gpu or each.key in keys)
    ]
    return max(found, default=-1)


def covered_to(record: NodeRecord, fault: Fault, released_ns: int | None) -> NodeRecord:
    """Return the record whose release of that time covers a fault that was counted but not written."""
    place = fault.finding.position
    if not place.known:
        return record

    def covering(mark: Release) -> Release:
        is_it = (
            unix_ns(mark.at) == released_ns
            and mark.how.covers is Covers.READ
            and mark.read.boot_id == place.boot_id
        )
        return replace(mark, read=mark.read.later(place)) if is_it else mark

    return replace(record, releases=tuple(map(covering, record.releases)))
