"""Which GPU is in which place of a node, and which one failed there. No decision depends on it (rule 43).

A PCI bus id names a place. After a repair another GPU may be in it, so an incident keeps UUID and serial
number of the GPU that was there in its own boot: a GPU is swapped while the machine is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from konductor_like.model import GpuSource, Incident, Machine, NodeRecord, NodeState, SeenGpu
from konductor_like.model.gpus import newest
from konductor_like.model.time import moment_of, stamp, unix_ns


def present_gpus(state: NodeState, told: Iterable[SeenGpu] = ()) -> Mapping[str, SeenGpu]:
    """Return, by PCI bus id, the GPUs of the node in its present boot, as far as they are known.

    ``told``: what exporters tell. What was seen before the present boot began is left out.
    """
    later = (each for each in (*state.seen_gpus, *told) if each.at_ns >= (state.booted_after_ns or 0))
    return newest((*_in_record(state.record, state.machine.boot_id), *later))


def _in_record(record: NodeRecord, boot_id: str | None) -> Iterator[SeenGpu]:
    """Yield the GPUs that a validation of this boot found, or that were noted with its faults."""
    tested = record.validation
    if tested is not None and tested.ended_at is not None and tested.boot_id == boot_id:
        for gpu in tested.gpus:
            yield SeenGpu(gpu, GpuSource.VALIDATION, unix_ns(tested.ended_at))
    for each in record.incidents:
        if (noted := each.seen_gpu) is not None and each.last.boot_id == boot_id:
            yield SeenGpu(noted, GpuSource.FAULT, each.first_ns)


def present_words(state: NodeState) -> Iterator[str]:
    """Yield which GPUs are now in the places of faults, unless the latest fault there is noted for them."""
    latest = {each.key.gpu: each for each in sorted(state.record.incidents, key=lambda each: each.last_ns)}
    for bus, seen in sorted(present_gpus(state).items()):
        failed = latest.get(bus)
        if failed is None or failed.uuid == seen.gpu.uuid:
            continue
        told = f"{bus} {seen.gpu.identity} ({seen.told_by.value}, {stamp(moment_of(seen.at_ns))})"
        yield f"{told}: {'not the GPU that failed' if failed.uuid else 'which GPU failed was not noted'}"


def with_identities(record: NodeRecord, state: NodeState, told: Iterable[SeenGpu] = ()) -> NodeRecord:
    """Return the record with the GPUs of those incidents of the present boot that lack theirs."""
    if not any(_lacks(each, state.machine) for each in record.incidents):
        return record
    gpus = present_gpus(replace(state, record=record), told)
    incidents = tuple(
        replace(each, uuid=gpus[bus].gpu.uuid, serial=gpus[bus].gpu.serial)
        if _lacks(each, state.machine) and (bus := each.key.gpu or "") in gpus
        else each
        for each in record.incidents
    )
    return record if incidents == record.incidents else replace(record, incidents=incidents)


def _lacks(incident: Incident, machine: Machine) -> bool:
    is_of_boot = machine.boot_id is not None and incident.last.boot_id == machine.boot_id
    return is_of_boot and incident.key.gpu is not None and not incident.uuid
