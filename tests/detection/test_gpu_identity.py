"""UUID and serial number of a GPU in texts of other programs, and in the driver's lines before a fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.detection.gpu_identity import gpu_in_line, gpu_of, gpu_of_labels, serial_in_line
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import Finding, Gpu, GpuSource, SeenGpu

UUID, OTHER = "GPU-f1906b9b-557a-e961-045c-9fe4be3ce012", "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"
SERIAL = "1653923026510"
BOOT = "5b0e9a52-0f7c-4d1c-9e56-6a1f1c2f7d10"
GPU_LINE = f"NVRM: GPU at PCI:0000:5d:00: {UUID}"
SERIAL_LINE = f"NVRM: GPU Board Serial Number: {SERIAL}"
XID = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def kmsg(seq: int, text: str, *, boot: str = BOOT, facility: int = 0) -> str:
    """Return a line as the kernel-log reader prints it."""
    return f"kmsg/1 boot={boot} seq={seq} facility={facility} priority=3 [{4254 + seq}.197816] {text}"


def last(*lines: str) -> tuple[str, str]:
    """Return UUID and serial number of the finding in the last line."""
    logs, found = MultilineDetector(), list[Finding | None]()
    for line in lines:
        found.append(logs.find(line, "gpu-1"))
    finding = found[-1]
    assert finding is not None
    return finding.uuid, finding.serial


@pytest.mark.parametrize("bus", ["0000:5d:00", "00000000:5D:00.0", "0000:5D:00.0"])
def test_each_spelling_of_a_gpu_is_the_same_gpu(bus: str) -> None:
    assert gpu_of(bus, UUID.upper(), SERIAL) == Gpu("0000:5d:00", UUID, SERIAL)


@pytest.mark.parametrize(
    ("bus", "uuid"),
    [
        ("0000:5d:00", f"MIG-{UUID[4:]}"),
        ("0000:5d:00", UUID[:-1]),
        ("0000:5d:00", f"{UUID}0"),
        ("0000:5d:00", f"{UUID}\n"),
        ("0000:5d:00", UUID.replace("f", "g")),
        ("0000:5d:00", UUID.replace("1", "\u0661")),
        ("0000:5d", UUID),
        ("", UUID),
        ("0000:5d:00\n", UUID),
    ],
)
def test_what_is_no_bus_id_or_no_uuid_of_a_gpu_is_ignored(bus: str, uuid: str) -> None:
    assert gpu_of(bus, uuid) is None


@pytest.mark.parametrize(
    "serial", ["N/A", "[N/A]", "Not Supported", "1" * 33, "1\n", "\x1b[31m", "\u0661", ""]
)
def test_a_serial_number_that_is_none_is_left_out(serial: str) -> None:
    assert gpu_of("0000:5d:00", UUID, serial) == Gpu("0000:5d:00", UUID)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_read_without_an_error(bus: str, uuid: str, serial: str) -> None:
    assert gpu_of(bus, uuid, serial) is None
    assert gpu_in_line(f"NVRM: GPU at {bus}: {uuid}") is None
    assert len(serial_in_line(f"NVRM: GPU Board Serial Number: {serial}")) <= 32


def test_the_labels_of_dcgm_exporter_name_a_gpu() -> None:
    labels = {"pci_bus_id": "00000000:5D:00.0", "UUID": UUID, "modelName": "NVIDIA H100 80GB HBM3"}
    more = {**labels, "DCGM_FI_DEV_SERIAL": SERIAL}

    assert gpu_of_labels(labels, 7) == SeenGpu(Gpu("0000:5d:00", UUID), GpuSource.EXPORTER, 7)
    assert gpu_of_labels(more, 7) == SeenGpu(Gpu("0000:5d:00", UUID, SERIAL), GpuSource.EXPORTER, 7)
    assert gpu_of_labels({"UUID": UUID}, 7) is None


def test_the_lines_before_a_fault_name_its_gpu_for_the_rest_of_the_boot() -> None:
    talk = [kmsg(number, "NVRM: other words") for number in range(4, 30)]

    assert last(kmsg(1, GPU_LINE), kmsg(2, SERIAL_LINE), kmsg(3, XID)) == (UUID, SERIAL)
    assert last(kmsg(1, GPU_LINE), kmsg(2, SERIAL_LINE), kmsg(3, XID), *talk, kmsg(90, XID)) == (UUID, SERIAL)
    assert last(kmsg(1, GPU_LINE), kmsg(2, "NVRM: GPU Board Serial Number: "), kmsg(3, XID)) == (UUID, "")


def test_a_serial_number_belongs_to_the_gpu_of_the_line_before_it() -> None:
    other = kmsg(2, f"NVRM: GPU at PCI:0000:91:00: {OTHER}")

    assert last(kmsg(1, GPU_LINE), other, kmsg(3, SERIAL_LINE), kmsg(4, XID)) == (UUID, "")
    assert last(kmsg(1, GPU_LINE), kmsg(2, XID), kmsg(3, SERIAL_LINE), kmsg(4, XID)) == (UUID, "")


@pytest.mark.parametrize(
    "lines",
    [
        [kmsg(1, GPU_LINE, boot=BOOT.replace("5", "6")), kmsg(3, XID)],
        [kmsg(1, GPU_LINE.replace("5d", "91")), kmsg(3, XID)],
        [kmsg(1, GPU_LINE, facility=1), kmsg(3, XID)],
        [kmsg(1, f"my-tool: {GPU_LINE}"), kmsg(3, XID)],
        [f"[4254.1] {GPU_LINE}", f"[9999.1] {XID}"],
    ],
    ids=["of another boot", "of another GPU", "written by a user", "quoted", "without a boot, long ago"],
)
def test_lines_that_do_not_belong_to_the_fault_name_no_gpu(lines: list[str]) -> None:
    assert last(*lines) == ("", "")


def test_without_a_boot_id_the_lines_must_be_close() -> None:
    lines = [GPU_LINE, SERIAL_LINE, XID]

    assert last(*(f"[4254.19781{number}] {line}" for number, line in enumerate(lines))) == (UUID, SERIAL)


def test_a_log_that_names_ever_new_gpus_is_remembered_within_bounds() -> None:
    logs = MultilineDetector()
    for number in range(100):
        logs.find(kmsg(number, GPU_LINE.replace("5d", f"{number:02x}")), "gpu-1")

    assert len(logs._logs["gpu-1"].named) == 32
