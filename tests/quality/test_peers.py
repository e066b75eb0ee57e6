"""The models of the other systems agree with their documentation."""

from __future__ import annotations

import pytest

from konductor_like.model import Source
from tools.quality.peers import Peer, Reading, gpud, konduktor, nvsentinel

LOST = "NVRM: Xid (PCI:0000:5e:00): 79, pid=812, name=python3, GPU has fallen off the bus."
EXCEPTION = "NVRM: Xid (PCI:0000:5e:00): 13, pid=812, Graphics SM Warp Exception"
PRIV = "nvidia-nvswitch1: SXid (PCI:0000:a4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"
REMAP = "NVRM: Xid (PCI:0000:5e:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000)"
DIGITS = "NVRM: Xid (PCI:0000:5e:00): 146, TLW_TX_PIPE0 Fatal XC0 i0 Link 00 (0x0000000c 0x00000004 0x0)"


HEAD = "NVRM: Xid (PCI:0000:5e:00): "
SWITCH = "nvidia-nvswitch1: SXid (PCI:0000:a4:00.0): "
RECOVERY = HEAD + "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x"
PEERMEM = "nvidia-peermem nv_get_p2p_free_callback:127{}ERROR detected invalid context, skipping further"
RECORD = (
    "NVRM: The NVIDIA GPU 0000:5e:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
GPU = "0000:5e:00"


@pytest.mark.parametrize(
    ("peer", "line", "expected"),
    [
        (konduktor, LOST, Reading(takes_out=True, code=79)),
        (gpud, LOST, Reading(takes_out=True, code=79, gpu=GPU)),
        (nvsentinel, LOST, Reading(takes_out=True, code=79, gpu=GPU)),
        (konduktor, EXCEPTION, Reading(takes_out=True, code=13)),  # whatever the code
        (konduktor, PEERMEM.format(" "), None),  # its query lacks the blank
        (konduktor, PEERMEM.format(""), Reading(takes_out=True)),
        (gpud, HEAD + "79", None),  # ends behind the code
        (gpud, "NVRM: Xid (PCI:0000:5e:00.0): 79, GPU has fallen off the bus.", None),
        (gpud, "NVRM: Xid (PCI:0000:5e:00 GPU-I:05): 95, Uncontained", None),
        (gpud, HEAD + "174, pid=1", None),  # unlisted
        (gpud, SWITCH + "22012, Fatal, Link 55 Minion Link BADINIT interrupt", None),
        (gpud, REMAP, Reading(takes_out=True, code=145, gpu=GPU)),
        (gpud, DIGITS, Reading(takes_out=False, code=146, gpu=GPU)),  # units with digits
        (gpud, RECORD, Reading(takes_out=True, code=79, gpu=GPU)),
        (nvsentinel, RECORD, Reading(takes_out=True, gpu=GPU)),
        (nvsentinel, PRIV, Reading(takes_out=False, code=12028, gpu="0000:a4:00")),
        (nvsentinel, SWITCH + "26006, SOE HALTED", None),  # needs a link
        (nvsentinel, RECOVERY + "0 (None)", Reading(takes_out=False, code=154, gpu=GPU)),
        (nvsentinel, RECOVERY + "4 (Drain and Reset)", Reading(takes_out=True, code=154, gpu=GPU)),
        (nvsentinel, HEAD + "191, Ch 2", Reading(takes_out=True, code=191, gpu=GPU)),  # unknown
        *((each, f"Mar  4 11:22:33 gpu-3 mon[8]: {LOST}", None) for each in (konduktor, gpud, nvsentinel)),
    ],
)
def test_a_line_of_the_kernel_is_read_as_documented(peer: Peer, line: str, expected: Reading | None) -> None:
    assert peer(line, Source.KERNEL) == expected


def test_konduktor_reads_one_phrase_from_pods() -> None:
    assert konduktor("CUDA error: invalid device ordinal", Source.POD) == Reading(takes_out=True)
    assert konduktor("CUDA error: out of memory", Source.POD) is None
