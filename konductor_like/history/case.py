"""A case: what a GPU's vendor asks for when the GPU of one outage is sent in. Pure.

A case leaves the cluster, so it has nothing of tenants' pods: no line of a pod's log, no name of a job, no
failure group (its name is a job's), and no text in which the controller names pods. Lines come from the
node's kernel log alone. What persons wrote as reasons is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from konductor_like.detection.gpu_identity import gpu_in_line, serial_in_line
from konductor_like.history.kernel import KernelReading
from konductor_like.history.outages import Outage
from konductor_like.model import Gpu, Incident, IncidentKey, NodeRecord, Source, Validation
from konductor_like.model.time import moment_of, stamp


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the Node object tells of the machine; empty texts for what is not known."""

    name: str
    exists: bool = False
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
    others: tuple[Outage, ...]
    """The node's other outages, the latest first."""
    made_at: datetime


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
