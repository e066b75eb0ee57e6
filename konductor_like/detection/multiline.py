"""Faults that only several lines of one kernel log show together.

- A lost GPU may print three lines: the first has the address and the last the fault.
- The ``Severity`` and ``Data`` lines of an SXid belong to its first line. They are no faults of their own: an
  SXid counts once. A ``Severity 1`` line counts where the first line did not say Fatal.
- A PCIe port's error shows nothing about the node until the kernel names an NVIDIA function below the port.
- A PCIe error that firmware reports has its severity, address and vendor in three lines.
- The driver names UUID and serial number of a GPU once in a boot, before the GPU's first Xid.
- A network port that lost its link is suspect when that happens three times within ten minutes.
- A line without a stamp may go on the record before it (:mod:`konductor_like.detection.continuation`).

Lines belong together when their printk stamps are close; without stamps, when few lines are between them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from konductor_like.catalog import Catalog, Mode
from konductor_like.catalog.patterns import PCI
from konductor_like.detection.continuation import Continuations, LinesBefore
from konductor_like.detection.detector import Detector, gravest, packaged
from konductor_like.detection.entry import kernel_lines
from konductor_like.detection.gpu_identity import GPU_WORDS, SERIAL_WORDS, gpu_in_line, serial_in_line
from konductor_like.detection.kernel_record import normal_pci, open_record, origin
from konductor_like.model import Fault, FaultKind, Finding, Gpu, KernelPosition, LogLine, Severity, Source

LOGS_MOST = 10_000
"""Kernel logs that are followed at once; beyond it the log that has been silent longest is forgotten."""
_RECORD_US = 1_000_000
"""Microseconds between the lines of one record or of one SXid at most; usually it is a few."""
_RECOVERY_US = 10_000_000
"""Microseconds that the kernel may work on one PCIe error before it prints how that ended."""
_FLAP_US = 600_000_000
"""Microseconds in which a port that loses its link ``_FLAPS`` times is suspect."""
_FLAPS = 3
_LINES_BETWEEN = 8
_SWITCHES_MOST = 8
_GPUS_MOST = 32
"""GPUs of one machine whose names are remembered; beyond it the one that was named first is forgotten."""
_PORTS_MOST = 64
"""Ports of one machine that are followed; beyond it the port that has been silent longest is forgotten."""

_GPU_FIRST = "The NVIDIA GPU "
_GPU = re.compile(
    rf"NVRM: {_GPU_FIRST}((?:[0-9A-Fa-f]{{4,8}}:)?[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}})(?:\.|\s|$)", re.ASCII
)
_CONTINUED_SXID = re.compile(r"\): ?\d{5}, (?:Severity \d|Data \{)", re.ASCII)
_GPU_ERROR = "aer.gpu_error"
_FIRMWARE = "[Hardware Error]: "
_OF_FIRMWARE = re.compile(
    r"\{\d{1,10}\}\[Hardware Error\]: +"
    rf"(?:(?:event severity|Error \d{{1,3}}, type): (?P<severity>[a-z]{{1,16}})|device_id: {PCI}$)",
    re.ASCII,
)
_HARMLESS = ("corrected", "info")
_PORT = re.compile(r"mlx5_core (\S{1,32} \S{1,16}): ", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a line in the kernel's terms and by count, and whether a user wrote the line."""

    position: KernelPosition
    line: int
    user_written: bool

    def soon_before(self, other: _Place, span_us: int) -> bool:
        mine, theirs = self.position, other.position
        if self.user_written != other.user_written:
            return False  # a line that a user wrote does not complete a line of the kernel
        if mine.boot_id and theirs.boot_id and mine.boot_id != theirs.boot_id:
            return False
        if mine.stamp_us is not None and theirs.stamp_us is not None:
            return 0 <= theirs.stamp_us - mine.stamp_us <= span_us
        return 0 < other.line - self.line <= _LINES_BETWEEN


@dataclass(slots=True)
class _PcieError:
    """An uncorrected error that the kernel works on.

    ``device`` is the device below the port that the report names; ``gpu`` is the NVIDIA function that a later
    line names.
    """

    place: _Place
    fatal: bool = False
    device: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class _FirmwareRecord:
    """The last lines of a firmware's record: the severity of the error, and its device."""

    place: _Place
    severity: str
    device: str | None = None


@dataclass(slots=True)
class _Log:
    """The part of a kernel log's last lines that its next lines may need."""

    lines: int = 0
    gpu: tuple[_Place, str | None] | None = None
    """The GPU in the first line of a record of several lines."""
    switches: tuple[tuple[_Place, Finding], ...] = ()
    """The lines of SXids that counted, newest first."""
    pcie: _PcieError | None = None
    firmware: _FirmwareRecord | None = None
    named: OrderedDict[str, tuple[_Place, Gpu]] = field(default_factory=OrderedDict)
    """By PCI bus id, the GPUs whose UUID the driver has printed, the latest last."""
    downs: OrderedDict[str, tuple[_Place, ...]] = field(default_factory=OrderedDict)
    """By network port, the last times when it lost its link."""


class MultilineDetector:
    """Follows many kernel logs and finds faults that several lines show together. For one thread."""

    def __init__(self, detector: Detector | None = None) -> None:
        """Follow no log yet; without a ``detector`` the packaged rules count."""
        self._detector = detector or packaged()
        self._continuations = Continuations()
        self._logs: OrderedDict[Hashable, _Log] = OrderedDict()

    def detect(self, line: LogLine) -> Fault | None:
        """Return the fault that a line of Loki reports; a kernel line is read together with earlier ones."""
        if line.source is not Source.KERNEL or line.node is None:
            return self._detector.detect(line)
        stream = (line.node, line.namespace, line.pod, line.container)
        finding = self.find(line.text, line.node, stream=stream, at_ns=line.timestamp_ns)
        if finding is None:
            return None
        place = (line.node, line.namespace, line.pod, line.container)
        return Fault(finding, line.source, line.timestamp_ns, *place)

    def goes_on(self, name: Hashable = None) -> bool:
        """Whether the next line of a kernel log may go on a record of the driver."""
        return self._continuations.goes_on(name)

    def find(
        self,
        text: str,
        name: Hashable = None,
        *,
        stream: Hashable = None,
        at_ns: int | None = None,
        before: LinesBefore | None = None,
    ) -> Finding | None:
        """Return the finding in the next line of the kernel log ``name``; None where there is no fault.

        ``stream`` is the one of the log's streams that has the line, ``at_ns`` the line's time in Loki, in
        nanoseconds. ``before`` returns the lines before the line; None if only some of them are known.
        """
        if ("\n" in text or "\\n" in text) and len(records := kernel_lines(text)) > 1:
            found = (self.find(each, name, stream=stream, at_ns=at_ns, before=before) for each in records)
            return gravest(found)
        key = name if stream is None else stream
        detector = self._detector
        finding = self._continuations.judged(detector.find_in_kernel_log, text, key, at_ns, before)
        log = self._logs.get(name)
        if log is None:
            if finding is None and not (_GPU_FIRST in text or _FIRMWARE in text or GPU_WORDS in text):
                return None
            log = self._logs[name] = _Log()
            if len(self._logs) > LOGS_MOST:
                self._logs.popitem(last=False)
        self._logs.move_to_end(name)
        log.lines += 1
        if finding is None:
            if _GPU_FIRST in text:
                _note_gpu(log, text)
            elif _FIRMWARE in text:
                _note_firmware(log, text)
            elif GPU_WORDS in text or SERIAL_WORDS in text:
                _note_name(log, text)
            return None
        finding = _together(detector.catalog, log, finding)
        return finding and _with_name(log, finding)


def _together(catalog: Catalog, log: _Log, finding: Finding) -> Finding | None:
    """Return the finding as the earlier lines of its log complete it; None where they explain it."""
    if finding.kind is FaultKind.SXID:
        return _unless_continued(log, finding)
    if finding.rule == "aer.firmware_record":
        return _unless_corrected(log, finding)
    if finding.rule == "ib.link_down" and not finding.severity_by_user:
        return _if_flapping(catalog, log, finding)
    if finding.kind is FaultKind.AER and finding.severity is not Severity.INFO:
        return _with_earlier_pcie(catalog, log, finding)
    if finding.rule == "nvrm.fallen_off_bus" and finding.gpu is None and log.gpu is not None:
        begun, gpu = log.gpu
        if begun.soon_before(_place(log, finding), _RECORD_US):
            return finding._replace(gpu=gpu)
    return finding


def _place(log: _Log, finding: Finding) -> _Place:
    return _Place(finding.position, log.lines, finding.user_written)


def _note_gpu(log: _Log, text: str) -> None:
    record = open_record(text)
    if record is None:
        return
    message, around = record
    match = _GPU.match(message)
    if match is not None:
        position, user_written = origin(around)
        log.gpu = _Place(position, log.lines, user_written), normal_pci(match[1])


def _note_name(log: _Log, text: str) -> None:
    """Note a GPU's UUID, or the serial number in the line behind it."""
    if (found := gpu_in_line(text)) is not None:
        gpu, position = found
        log.named.pop(gpu.bus, None)
        log.named[gpu.bus] = _Place(position, log.lines, user_written=False), gpu
        if len(log.named) > _GPUS_MOST:
            log.named.popitem(last=False)
    elif log.named and (serial := serial_in_line(text)):
        bus, (place, gpu) = next(reversed(log.named.items()))
        if log.lines == place.line + 1:
            log.named[bus] = place, replace(gpu, serial=serial)


def _with_name(log: _Log, finding: Finding) -> Finding:
    """Return the finding with UUID and serial number of its GPU, if the driver named them in this boot."""
    if finding.gpu is None or finding.gpu not in log.named:
        return finding
    told, gpu = log.named[finding.gpu]
    place = _place(log, finding)
    is_same_boot = None is not told.position.boot_id == place.position.boot_id
    if not (is_same_boot or told.soon_before(place, _RECORD_US)):
        return finding
    return finding._replace(uuid=gpu.uuid, serial=gpu.serial)


def _note_firmware(log: _Log, text: str) -> None:
    record = open_record(text)
    match = None if record is None else _OF_FIRMWARE.match(record[0])
    if record is None or match is None:
        return
    if match["severity"]:
        position, user_written = origin(record[1])
        log.firmware = _FirmwareRecord(_Place(position, log.lines, user_written), match["severity"])
    elif log.firmware is not None:
        log.firmware = replace(log.firmware, device=normal_pci(match["gpu"]))


def _unless_corrected(log: _Log, finding: Finding) -> Finding | None:
    """Return the error of a firmware's record with its address; None where the hardware corrected it."""
    record = log.firmware
    if record is None or not record.place.soon_before(_place(log, finding), _RECORD_US):
        return finding
    return None if record.severity in _HARMLESS else finding._replace(gpu=record.device)


def _if_flapping(catalog: Catalog, log: _Log, finding: Finding) -> Finding | None:
    """Return a suspect fault when a port loses its link often; None for the first times."""
    entry = catalog.entry(finding.rule)
    port = _PORT.match(finding.text)
    place = _place(log, finding)
    name = "" if port is None else port[1]
    lately = [each for each in log.downs.pop(name, ()) if each.soon_before(place, _FLAP_US)]
    log.downs[name] = (*lately, place)[-_FLAPS:]
    if len(log.downs) > _PORTS_MOST:
        log.downs.popitem(last=False)
    if len(log.downs[name]) < _FLAPS:
        return None
    own_title = entry is not None and "title" in entry.fixed
    title = finding.title if own_title else "Link of a network adapter goes down again and again"
    return finding._replace(severity=Severity.SUSPECT, title=title)


def _unless_continued(log: _Log, finding: Finding) -> Finding | None:
    """Return None for a line that continues an SXid, unless the line makes the SXid graver.

    Where the first line is lost, the first line that is left counts in its place.
    """
    place = _place(log, finding)
    if _CONTINUED_SXID.search(finding.text) is not None:
        for begun, first in log.switches:
            if (first.rule, first.gpu) == (finding.rule, finding.gpu) and begun.soon_before(
                place, _RECORD_US
            ):
                if first.severity.taints or not finding.severity.taints:
                    return None
                finding = finding._replace(port=first.port)
                break
    log.switches = ((place, finding), *log.switches)[:_SWITCHES_MOST]
    return finding


def _with_earlier_pcie(catalog: Catalog, log: _Log, finding: Finding) -> Finding:
    place = _place(log, finding)
    text, error = finding.text, log.pcie
    ended = finding.rule == "aer.recovery_failed"
    if error is None or not error.place.soon_before(place, _RECOVERY_US) or _is_another(error, finding):
        device = None if text.startswith(f"pcieport {finding.gpu}.") else finding.gpu
        error = _PcieError(place, device=device)
    error.fatal = error.fatal or "(Fatal)" in text
    if text.startswith("nvidia "):
        error.gpu = finding.gpu
    log.pcie = None if ended else error
    if error.gpu is not None and (error.fatal or ended):
        return _as_gpu_error(catalog, finding, error.gpu)
    return finding


def _is_another(error: _PcieError, finding: Finding) -> bool:
    """Whether the line is about another error than the one that the kernel works on."""
    text = finding.text
    if text.startswith("nvidia "):
        return error.device not in (None, finding.gpu)
    if text.startswith("pcieport ") and ("Bus Error" in text or finding.rule == "aer.recovery_failed"):
        # The port may be any port between the root and the device, but in the same domain.
        return (
            error.gpu is not None
            and finding.gpu is not None
            and error.gpu.partition(":")[0] != finding.gpu.partition(":")[0]
        )
    return finding.gpu != error.gpu


def _as_gpu_error(catalog: Catalog, finding: Finding, gpu: str) -> Finding:
    """Turn the error of a port into one of the GPU below it, unless a user's file set its severity."""
    entry, own = catalog.entry(_GPU_ERROR), catalog.entry(finding.rule)
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
