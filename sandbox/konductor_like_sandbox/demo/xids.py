"""Kernel log lines of Xids, as the NVIDIA driver prints them."""

from __future__ import annotations

from collections.abc import Mapping

_UNKNOWN = "pid='<unknown>', name=<unknown>"
_TEXTS: Mapping[int, str] = {
    13: f"{_UNKNOWN}, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Illegal Instruction Encoding",
    31: (
        "pid=41187, name=python3, Ch 00000011, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 "
        "faulted @ 0x7f3a_20000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    ),
    48: (
        f"{_UNKNOWN}, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        "physAddr 0x2c81d4f00 partition 0, subpartition 1."
    ),
    63: "pid=2201, Row Remapper: New row marked for remapping",
    64: f"{_UNKNOWN}, Row Remapper Error: (0x00000002c81d4f00) - Attempting to remap a used up bank",
    79: f"{_UNKNOWN}, GPU has fallen off the bus.",
    94: "pid=41187, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    95: f"{_UNKNOWN}, Uncontained: FBHUB. RST: Yes, D-RST: No",
    119: (
        f"{_UNKNOWN}, Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76 "
        "(GSP_RM_CONTROL) (0x20800a4c 0x4)."
    ),
    154: f"{_UNKNOWN}, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}


def xid_message(code: int, gpu: str) -> str:
    """Return the driver's message about this Xid on the GPU with this PCI bus id."""
    return f"NVRM: Xid (PCI:{gpu}): {code}, {_TEXTS.get(code, f'{_UNKNOWN}, Ch 00000010')}"
