"""Faults that only several lines of one kernel log tell together. Pure: the context goes in and comes out.

- A lost GPU may take three lines, of which the first has the address and the last the fault.
- An SXid's ``Severity`` and ``Data`` lines belong to the line before, and mean what its word Fatal says.
- A PCIe port's error says nothing about the node, until an NVIDIA function below it is named as well.

Lines belong together when their printk stamps are close; where there are none, when few lines lie between.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from konductor_like.catalog import Catalog, Mode
from konductor_like.detection.detector import Detector, packaged
from konductor_like.detection.finding import normal_pci
from konductor_like.detection.kernel_record import open_record
from konductor_like.model import Fault, FaultKind, Finding, KernelPosition, LogLine, Severity, Source

LOGS_MOST = 10_000
"""How many kernel logs are followed at once; of those over it the ones longest silent are forgotten."""
_RECORD_US = 1_000_000
"""The lines of one record, or of one SXid, are microseconds apart."""
_RECOVERY_US = 10_000_000
"""How long the kernel may work on one PCIe error before it says how that ended."""
_LINES_BETWEEN = 8
_SWITCHES_MOST = 8

_GPU_FIRST = "The NVIDIA GPU "
_GPU = re.compile(
    rf"NVRM: {_GPU_FIRST}([0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}})(?:\.|\s|$)", re.ASCII
)
_SXID_PART = re.compile(r"\): ?\d{5}, (Fatal|Non-fatal|Severity|Data)\b", re.ASCII)
_RAISED = "aer.gpu_error"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line stood: in the kernel's own terms, and by count; and whether a user wrote it."""

    position: KernelPosition
    line: int
    user_written: bool

    def soon_before(self, other: _Place, span_us: int) -> bool:
        mine, theirs = self.position, other.position
        if self.user_written != other.user_written:
            return False  # what a user wrote adds nothing to what the kernel said
        if mine.boot_id and theirs.boot_id and mine.boot_id != theirs.boot_id:
            return False
        if mine.stamp_us is not None and theirs.stamp_us is not None:
            return 0 <= theirs.stamp_us - mine.stamp_us <= span_us
        return 0 < other.line - self.line <= _LINES_BETWEEN


@dataclass(frozen=True, slots=True)
class _PcieError:
    """An uncorrected error that the kernel works on: how bad, and whose.

    ``device`` is the one below the port that the report names, ``gpu`` the NVIDIA function named since.
    """

    place: _Place
    fatal: bool = False
    device: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The last lines of one kernel log, as far as its next ones may need them."""

    lines: int = 0
    gpu: tuple[_Place, str] | None = None
    """The GPU that a record of several lines began with."""
    switches: tuple[tuple[_Place, Finding], ...] = ()
    """First lines of SXids, the newest first."""
    pcie: _PcieError | None = None


def join(
    catalog: Catalog, context: Context, text: str, finding: Finding | None
) -> tuple[Context, Finding | None]:
    """The context from here on, and what ``finding``, found in the line ``text``, means in it."""
    # No replace(): it takes longer than all else here, and this is done for every fault.
    context = Context(context.lines + 1, context.gpu, context.switches, context.pcie)
    if finding is None:
        return (_with_gpu(context, text) if _GPU_FIRST in text else context), None
    place = _Place(finding.position, context.lines, finding.user_written)
    if finding.kind is FaultKind.SXID:
        return _switch(context, place, finding)
    if finding.kind is FaultKind.AER and finding.severity is not Severity.INFO:
        return _pcie(catalog, context, place, finding)
    if finding.rule == "nvrm.fallen_off_bus" and finding.gpu is None and context.gpu is not None:
        begun, gpu = context.gpu
        if begun.soon_before(place, _RECORD_US):
            return context, finding._replace(gpu=gpu)
    return context, finding


class MultilineDetector:
    """Follows many kernel logs at once and finds with each one's context. For one thread."""

    def __init__(self, detector: Callable[[], Detector] = packaged) -> None:
        """``detector`` gives the one in force, which may change between two lines."""
        self._detector = detector
        self._contexts: OrderedDict[Hashable, Context] = OrderedDict()

    def find(self, text: str, log: Hashable = None) -> Finding | None:
        """The finding in the next line of the kernel log ``log``; None where there is no fault."""
        detector = self._detector()
        finding = detector.find_in_kernel_log(text)
        if finding is None and _GPU_FIRST not in text and log not in self._contexts:
            return None
        context, finding = join(detector.catalog, self._contexts.get(log, Context()), text, finding)
        self._contexts[log] = context
        self._contexts.move_to_end(log)
        if len(self._contexts) > LOGS_MOST:
            self._contexts.popitem(last=False)
        return finding

    def detect(self, line: LogLine) -> Fault | None:
        """The fault that a line of Loki reports; a kernel line in the context of its node's log."""
        if line.source is not Source.KERNEL or line.node is None:
            return self._detector().detect(line)
        finding = self.find(line.text, line.node)
        if finding is None:
            return None
        return Fault(
            finding, line.source, line.timestamp_ns, line.node, line.namespace, line.pod, line.container
        )


def _with_gpu(context: Context, text: str) -> Context:
    record = open_record(text)
    match = _GPU.match(record.message) if record is not None else None
    if record is None or match is None:
        return context
    position, user_written = record.origin()
    place = _Place(position, context.lines, user_written)
    return replace(context, gpu=(place, normal_pci(match[1]) or ""))


def _switch(context: Context, place: _Place, finding: Finding) -> tuple[Context, Finding]:
    part = _SXID_PART.search(finding.text)
    if part is None or part[1] in ("Fatal", "Non-fatal"):
        switches = ((place, finding), *context.switches)[:_SWITCHES_MOST]
        return replace(context, switches=switches), finding
    for begun, first in context.switches:
        if (first.rule, first.gpu) == (finding.rule, finding.gpu) and begun.soon_before(place, _RECORD_US):
            return context, _as_first(finding, first)
    return context, finding


def _as_first(finding: Finding, first: Finding) -> Finding:
    """A line that follows another; where its own number says Fatal, that stays."""
    if finding.severity.taints and not first.severity.taints:
        return finding._replace(port=first.port)
    return finding._replace(
        severity=first.severity,
        title=first.title,
        advice=first.advice,
        needs=first.needs,
        port=first.port,
    )


def _pcie(catalog: Catalog, context: Context, place: _Place, finding: Finding) -> tuple[Context, Finding]:
    text, error = finding.text, context.pcie
    ended = finding.rule == "aer.recovery_failed"
    if error is None or not error.place.soon_before(place, _RECOVERY_US) or _is_another(error, finding):
        device = None if text.startswith(f"pcieport {finding.gpu}.") else finding.gpu
        error = _PcieError(place, device=device)
    error = replace(
        error,
        fatal=error.fatal or "(Fatal)" in text,
        gpu=finding.gpu if text.startswith("nvidia ") else error.gpu,
    )
    if error.gpu is not None and (error.fatal or ended):
        finding = _raised(catalog, finding, error.gpu)
    return replace(context, pcie=None if ended else error), finding


def _is_another(error: _PcieError, finding: Finding) -> bool:
    """Whether the line is about another error than the one that the kernel works on."""
    text = finding.text
    if text.startswith("nvidia "):
        return error.device not in (None, finding.gpu)
    if text.startswith("pcieport ") and ("Bus Error" in text or finding.rule == "aer.recovery_failed"):
        # The port that is told of may be any between the root and the device, but of the same domain.
        return (
            error.gpu is not None and finding.gpu is not None and _domain(error.gpu) != _domain(finding.gpu)
        )
    return finding.gpu != error.gpu


def _domain(address: str) -> str:
    return address.partition(":")[0]


def _raised(catalog: Catalog, finding: Finding, gpu: str) -> Finding:
    """The error of a port as that of the GPU below it, unless a user's file says otherwise."""
    entry, own = catalog.entry(_RAISED), catalog.entry(finding.rule)
    if finding.severity.taints or entry is None or entry.mode is Mode.OFF:
        return finding
    if own is not None and "severity" in own.fixed:
        return finding
    return finding._replace(
        rule=entry.rule,
        severity=entry.severity,
        title=entry.title,
        advice=entry.advice.text,
        needs=entry.advice.needs.value,
        gpu=gpu,
        shadow=finding.shadow or entry.mode is Mode.SHADOW,
    )
