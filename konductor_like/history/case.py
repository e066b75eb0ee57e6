"""A case: what a GPU's vendor asks for when the GPU of one outage is sent in. Pure.

A case leaves the cluster, so it has nothing of tenants' pods: no line of a pod's log, no name of a job, no
failure group (its name is a job's), and no text in which the controller names pods. Lines come from the
node's kernel log alone. What persons wrote as reasons is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from konductor_like.detection.gpu_identity import gpu_in_line, serial_in_line
from konductor_like.history.kernel import AROUND, KernelReading
from konductor_like.history.outages import End, Kind, Outage, how_words
from konductor_like.history.read import TrailReading
from konductor_like.history.trail import DELETE, REBOOTED, SILENT, WORDS, TrailLine
from konductor_like.model import (
    OPERATOR_RULE,
    PERSONS_TAINT,
    FaultKind,
    Gpu,
    Incident,
    IncidentKey,
    MetBy,
    NodeRecord,
    NodeState,
    ReleaseHow,
    Source,
    Validation,
    ValidationStage,
)
from konductor_like.model.time import moment_of, stamp

UNHEARD_SECONDS = 180.0
"""Seconds without a heartbeat after which kernel lines may be missing: one comes each minute."""
_POD_KINDS = (FaultKind.NCCL.value, FaultKind.CUDA.value)
_SAME = timedelta(seconds=1)
_LOGGED = timedelta(minutes=1)
"""Time after a taint in which its line is in the audit trail."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the Node object tells of the machine; empty texts for what is not known."""

    name: str
    exists: bool = False
    deleted: bool = False
    """Whether the Nodes were read and this one was not among them."""
    provider_id: str = ""
    system_uuid: str = ""
    kernel: str = ""
    os: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """A GPU, and where its UUID and serial number were read."""

    gpu: Gpu
    told_by: str
    """Where that was read, in words."""
    doubtful: bool = False
    """Whether it was read after the begin of the outage, so that the GPU may have been swapped before."""


@dataclass(frozen=True, slots=True)
class CaseAct:
    """Something that was done to the node."""

    at: datetime
    what: str
    by: str = ""
    """The person; empty for the controller."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One outage of one node, as a vendor's engineer reads it."""

    node: NodeFacts
    outage: Outage
    number: int
    """1 for the node's latest outage, 2 for the one before."""
    title: str
    """What the fault is, by the rule; empty if it is not known."""
    fault: Incident | None
    """The incident on the record, if it is still there and from the kernel log."""
    identities: tuple[NamedGpu, ...]
    kernel: KernelReading
    acts: tuple[CaseAct, ...]
    others: tuple[Outage, ...]
    """The node's other outages, the latest first."""
    missing: tuple[str, ...]
    """What the case does not have, and what to do about it, in sentences."""
    made_at: datetime
    labelled_now: bool = False
    """Whether model or driver are those that the Node's labels name now: nothing tells those of then."""

    @property
    def is_over(self) -> bool:
        """Whether the outage has certainly ended, so that the node may have another GPU in the same place."""
        end = self.outage.end
        return end is End.ENDED or (end is End.UNKNOWN and self.node.exists)

    @property
    def of_gpu(self) -> tuple[Outage, ...]:
        """The other outages of the same GPU, or of the same place where a UUID is not known."""
        mine = self.outage
        return tuple(
            each
            for each in self.others
            if mine.gpu and (each.uuid == mine.uuid if each.uuid and mine.uuid else each.gpu == mine.gpu)
        )

    @property
    def of_node(self) -> tuple[Outage, ...]:
        """The other outages of the node that were not of this GPU."""
        return tuple(each for each in self.others if each not in self.of_gpu)


def incident_of(outage: Outage, record: NodeRecord) -> Incident | None:
    """Return the incident of the kernel log that the outage is about, if it is still on the record."""
    key = IncidentKey(outage.rule, outage.gpu)
    until = outage.until or datetime.max.replace(tzinfo=outage.since.tzinfo)
    found = [
        each
        for each in record.incidents
        if each.key == key and each.source is Source.KERNEL and moment_of(each.first_ns) <= until
    ]
    fit = [each for each in found if moment_of(each.last_ns) >= outage.since - timedelta(days=1)]
    return fit[0] if fit else None


def identities(outage: Outage, kernel: KernelReading, record: NodeRecord) -> tuple[NamedGpu, ...]:
    """Return which GPU failed; without a bus id of the fault, every GPU that is known."""
    found: dict[str, NamedGpu] = {}
    told = (_in_validation(record.validation, outage), _with_fault(outage), _in_kernel_log(kernel, outage))
    for each in chain(*told):
        bus = each.gpu.bus
        if outage.gpu is None or bus == outage.gpu:
            before = found.get(bus)
            if before is not None and before.gpu.uuid == each.gpu.uuid and not each.gpu.serial:
                continue  # the validation knows the serial number, too
            found[bus] = each
    return tuple(found[bus] for bus in sorted(found))


def _with_fault(outage: Outage) -> Iterator[NamedGpu]:
    """Yield the GPU that the controller noted with the fault."""
    if outage.uuid:
        yield NamedGpu(Gpu(outage.gpu or "", outage.uuid, outage.serial), "noted with the fault")


def _in_validation(validation: Validation | None, outage: Outage) -> Iterator[NamedGpu]:
    if validation is None or validation.ended_at is None:
        return
    after = validation.ended_at > outage.since
    told = f"validation of {stamp(validation.ended_at)}"
    for gpu in validation.gpus:
        yield NamedGpu(gpu, told, doubtful=after)


def _in_kernel_log(kernel: KernelReading, outage: Outage) -> Iterator[NamedGpu]:
    lines = kernel.lines
    for line, after in zip(lines, [*lines[1:], None], strict=False):
        if (found := gpu_in_line(line.text)) is None:
            continue
        gpu = replace(found[0], serial=serial_in_line(after.text) if after is not None else "")
        told = f"kernel log, {stamp(moment_of(line.at_ns))}"
        is_after = outage.until is not None and moment_of(line.at_ns) > outage.until
        yield NamedGpu(gpu, told, doubtful=is_after)


def acts(outage: Outage, lines: Iterable[TrailLine], record: NodeRecord, now: datetime) -> Iterator[CaseAct]:
    """Yield what was done during the outage, in order: from the trail and, what it lacks, from the record."""
    start, end = outage.since - AROUND, (outage.until or now) + _SAME
    told = [act for line in lines if line.node == outage.node and (act := _act_of(line)) is not None]
    for act in _of_record(outage, record):
        if not any(each.what == act.what and abs(each.at - act.at) <= _SAME for each in told):
            told.append(act)
    unique = dict.fromkeys(told)  # the next controller logs acts of people again
    yield from sorted((each for each in unique if start <= each.at <= end), key=lambda each: each.at)


def _act_of(line: TrailLine) -> CaseAct | None:
    kind = (line.rule or "").partition(".")[0]
    if not line.applied or line.why in SILENT or kind in _POD_KINDS:
        return None
    fault = f": {fault_words(line.rule, line.gpu)}" if line.rule else ""
    by = line.by or ""
    if line.verb == DELETE:
        return CaseAct(line.happened_at, "Node deleted from the cluster", by)
    if line.how is not None:
        return CaseAct(line.happened_at, released_words(line.how), by, line.reason or "")
    known = WORDS.get(line.why or "")
    what = f"{known}{fault}" if known else None
    if what is None and line.verb == "taint":
        what = taken_out_words(line.rule or "", line.gpu)
    if what is None:
        return None
    at = line.happened_at
    if line.verb == "taint" and line.out_since is not None and abs(at - line.out_since) <= _LOGGED:
        at = line.out_since  # the line itself is a moment later
    return CaseAct(at, what, by, line.reason or "")


def released_words(how: str) -> str:
    """Return how an outage ended: ``back in service: reset``."""
    return f"back in service: {how_words(how)}"


def taken_out_words(rule: str, gpu: str | None) -> str:
    """Return how an outage began, to which the person's name may be added: ``tainted`` (by bob)."""
    if rule == OPERATOR_RULE:
        return "tainted"
    return f"taken out of service: {fault_words(rule, gpu)}" if rule else "taken out of service"


def fault_words(rule: str | None, gpu: str | None) -> str:
    """Return a fault: ``xid 79 on 0000:4e:00``."""
    if rule == OPERATOR_RULE:
        return PERSONS_TAINT
    name = (rule or "unknown").replace(".", " ").replace("_", " ")
    return f"{name} on {gpu}" if gpu else name


def _of_record(outage: Outage, record: NodeRecord) -> Iterator[CaseAct]:
    yield CaseAct(outage.since, taken_out_words(outage.rule, outage.gpu), outage.begun_by or "")
    for mark in record.releases:
        by = "" if mark.how.by_controller else mark.by
        yield CaseAct(mark.at, released_words(mark.how.value), by, mark.reason)
    for each in record.incidents:
        if each.ack is not None and each.source is Source.KERNEL:
            fault = fault_words(each.key.rule, each.key.gpu)
            yield CaseAct(each.ack.at, f"acknowledged: {fault}", each.ack.by, each.ack.reason)
    validation = record.validation
    if validation is None:
        return
    what = f"validation of the GPUs asked for, level {validation.level}"
    yield CaseAct(validation.asked_at, what, validation.by, validation.reason)
    if validation.stage is ValidationStage.ENDED and validation.ended_at and validation.verdict:
        yield CaseAct(validation.ended_at, f"validation of the GPUs ended: {validation.verdict.value}")


def missing(case: Case, state: NodeState | None, trail: TrailReading) -> Iterator[str]:
    """Yield what the case does not have.

    The texts of errors are left out: they may name addresses of the site.
    """
    outage, kernel = case.outage, case.kernel
    yield _bug_report(case, state)
    if outage.kind is Kind.TEST:
        yield "The outage was a test of the alarm chain: no GPU failed."
    if not case.node.exists:
        why = "The Node was deleted" if case.node.deleted else "The Node could not be read"
        yield f"{why}: its provider id, system UUID, kernel and OS are not known."
    elif state is not None and (created := moment_of(state.created_ns)) > outage.since:
        yield (
            f"The Node was created at {stamp(created)}, after the begin of the outage: provider id, system "
            "UUID, kernel and OS may be those of another machine of that name."
        )
    known = [each for each in case.identities if each.gpu.bus == outage.gpu]
    if not any(each.gpu.serial for each in known):
        yield f"No serial number of the GPU is known. {_where_serial(case)}"
    if any(each.doubtful for each in known):
        yield (
            "Serial number and UUID were read after the begin of the outage: if the GPU was swapped before "
            "that, they are the new one's."
        )
    if not (outage.model and outage.driver):
        yield "GPU model or driver are not labelled on the Node (GPU feature discovery writes these labels)."
    elif case.labelled_now:
        yield "GPU model and driver are those of today: those at the begin of the outage are not known."
    yield from _kernel_gaps(case)
    if kernel.overruns:
        yield f"The kernel overwrote {kernel.overruns} records of its log before they were read."
    if not trail.is_whole or not trail.lines:
        yield (
            "The site's audit trail could not be read: what was done, and the other outages, are from the "
            "record on the Node alone."
        )
    elif trail.first_at is not None and trail.first_at - outage.since > _LOGGED:
        yield f"The site's audit trail begins at {stamp(trail.first_at)}, after the begin of the outage."


def _where_serial(case: Case) -> str:
    label = "from the label of the board that you send in"
    if case.node.deleted:
        return f"The Node was deleted: read it {label}."
    if case.is_over:
        return f"Read it {label}: the outage is over, so the node may have another GPU in its place now."
    return f"Read it on the node: `nvidia-smi --query-gpu=pci.bus_id,serial,uuid --format=csv`, or {label}."


def _bug_report(case: Case, state: NodeState | None) -> str:
    what = "`nvidia-bug-report.sh` is not in this archive."
    rebooted = _rebooted(case, state)
    if rebooted:
        return (
            f"{what} The node has rebooted since the fault, so the state that it reads is gone: if the fault "
            "comes again, run it as root on the node before the reboot, and send its file as well."
        )
    if case.node.deleted:
        return f"{what} The Node was deleted: if the machine has not rebooted since, run it there as root."
    if case.is_over:
        return (
            f"{what} The outage is over, so a report made now may describe a GPU that was put in since: if "
            "the fault comes again, run it as root on the node before the reboot, and send its file as well."
        )
    if rebooted is None:
        return f"{what} Run it before the reboot, as root on the node, and send its file as well."
    return (
        f"{what} The node has not rebooted since the fault: run it now, before the reboot, as root on "
        "the node, and send its file as well."
    )


def _rebooted(case: Case, state: NodeState | None) -> bool | None:
    """Whether the node has rebooted since the fault; None if nothing tells it."""
    outage, fault = case.outage, case.fault
    by_reboot = outage.how == ReleaseHow.REBOOT or (fault is not None and fault.met_by is MetBy.REBOOT)
    since = outage.since if fault is None else moment_of(fault.last_ns)
    if by_reboot or any(each.what.startswith(REBOOTED) and each.at >= since for each in case.acts):
        return True
    boot = fault.last.boot_id if fault is not None else None
    for place in fault_lines(case):
        finding = case.kernel.lines[place].finding
        boot = (finding.position.boot_id if finding is not None else None) or boot
    now = state.machine.boot_id if state is not None else None
    return None if boot is None or now is None else boot != now


def _kernel_gaps(case: Case) -> Iterator[str]:
    outage, kernel = case.outage, case.kernel
    if kernel.problem:
        upto = f" after {stamp(moment_of(kernel.read_until_ns))}" if kernel.read_until_ns else ""
        yield f"The kernel log could not be read{upto}."
    if kernel.cut:
        last = stamp(moment_of(kernel.lines[-1].at_ns))
        yield f"The kernel log has too many lines: those after {last} are left out."
    if kernel.incomplete:
        yield "At some moments the kernel log has more lines than the log store returns at once."
    if kernel.problem or kernel.cut:
        return
    if not kernel.lines and not kernel.heartbeats_ns:
        start, end = (stamp(moment_of(ns)) for ns in (first_ns(kernel), last_ns(kernel)))
        yield (
            f"There is no kernel line of the node between {start} and {end}: the time is past the "
            "retention of the site's log store, or no log arrived."
        )
        return
    if not kernel.heartbeats_ns:
        yield "The kernel log has no heartbeats, so whether all its lines arrived is not known."
    else:
        for before, after in kernel.unheard(UNHEARD_SECONDS):
            yield (
                f"No heartbeat of the kernel log from {stamp(before)} to {stamp(after)}: lines of this time "
                "may be missing."
            )
    if outage.kind is Kind.FAILURE and not fault_lines(case):
        yield "The kernel log of this time has no line of the fault: the fault may be older, or not a line."


def first_ns(kernel: KernelReading) -> int:
    """Return the begin of the first span that was to be read."""
    return min((each.window.start_ns for each in kernel.spans), default=0)


def last_ns(kernel: KernelReading) -> int:
    """Return the end of the last span that was to be read."""
    return max((each.window.end_ns for each in kernel.spans), default=0)


def fault_lines(case: Case) -> list[int]:
    """Return the places, in the kernel log, of the lines of the fault: its rule, or a fault of its GPU."""
    outage, found = case.outage, []
    for place, line in enumerate(case.kernel.lines):
        finding = line.finding
        if finding is None:
            continue
        same_gpu = outage.gpu is not None and finding.gpu == outage.gpu
        if same_gpu or (finding.rule == outage.rule and outage.gpu in (None, finding.gpu)):
            found.append(place)
    return found
