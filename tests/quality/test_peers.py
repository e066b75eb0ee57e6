"""The other systems' reading, held to what is documented about each."""

from __future__ import annotations

import pytest

from konductor_like.model import Source
from tests.quality.peers import Judgement, gpud, konduktor, nvsentinel

LOST = "NVRM: Xid (PCI:0000:5e:00): 79, pid=812, name=python3, GPU has fallen off the bus."
EXCEPTION = "NVRM: Xid (PCI:0000:5e:00): 13, pid=812, Graphics SM Warp Exception"
PRIV = "nvidia-nvswitch1: SXid (PCI:0000:a4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"
REMAP = "NVRM: Xid (PCI:0000:5e:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000)"
DIGITS = "NVRM: Xid (PCI:0000:5e:00): 146, TLW_TX_PIPE0 Fatal XC0 i0 Link 00 (0x0000000c 0x00000004 0x0)"


def test_all_three_act_on_a_plain_xid_79() -> None:
    assert konduktor(LOST, Source.KERNEL) == Judgement(takes_out=True, code=79)
    assert gpud(LOST, Source.KERNEL) == Judgement(takes_out=True, code=79, gpu="0000:5e:00")
    assert nvsentinel(LOST, Source.KERNEL) == Judgement(takes_out=True, code=79, gpu="0000:5e:00")


def test_konduktor_taints_whatever_the_code_and_reads_pods_for_one_phrase() -> None:
    assert konduktor(EXCEPTION, Source.KERNEL) == Judgement(takes_out=True, code=13)
    assert konduktor("CUDA error: invalid device ordinal", Source.POD) == Judgement(takes_out=True)
    assert konduktor("CUDA error: out of memory", Source.POD) is None


def test_konduktors_query_for_peermem_lacks_a_blank() -> None:
    said = "nvidia-peermem nv_get_p2p_free_callback:127{}ERROR detected invalid context, skipping further"
    assert konduktor(said.format(" "), Source.KERNEL) is None
    assert konduktor(said.format(""), Source.KERNEL) == Judgement(takes_out=True)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:5e:00): 79",
        "NVRM: Xid (PCI:0000:5e:00.0): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:5e:00 GPU-I:05): 95, Uncontained",
        "NVRM: Xid (PCI:0000:5e:00): 174, pid=1",
        "nvidia-nvswitch1: SXid (PCI:0000:a4:00.0): 22012, Fatal, Link 55 Minion Link BADINIT interrupt",
    ],
    ids=["ends behind the code", "function", "MIG", "unlisted Xid", "unlisted SXid"],
)
def test_gpud_does_not_read(line: str) -> None:
    assert gpud(line, Source.KERNEL) is None


def test_gpud_decodes_nvlink_errors_but_for_units_with_digits() -> None:
    assert gpud(REMAP, Source.KERNEL) == Judgement(takes_out=True, code=145, gpu="0000:5e:00")
    assert gpud(DIGITS, Source.KERNEL) == Judgement(takes_out=False, code=146, gpu="0000:5e:00")


def test_gpud_and_nvsentinel_know_a_lost_gpu_without_an_xid() -> None:
    lines = "NVRM: The NVIDIA GPU 0000:5e:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    record = lines + "NVRM: fallen off the bus and is not responding to commands."
    assert gpud(record, Source.KERNEL) == Judgement(takes_out=True, code=79, gpu="0000:5e:00")
    assert nvsentinel(record, Source.KERNEL) == Judgement(takes_out=True, gpu="0000:5e:00")


def test_nvsentinel_takes_the_word_of_an_sxid_for_the_verdict_and_needs_a_link() -> None:
    assert nvsentinel(PRIV, Source.KERNEL) == Judgement(takes_out=False, code=12028, gpu="0000:a4:00")
    assert nvsentinel("nvidia-nvswitch0: SXid (PCI:0000:a4:00.0): 26006, SOE HALTED", Source.KERNEL) is None


def test_nvsentinel_reads_the_words_of_xid_154_and_calls_unknown_codes_fatal() -> None:
    changed = (
        "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x{}"
    )
    none, reset = (
        nvsentinel(changed.format(end), Source.KERNEL) for end in ("0 (None)", "4 (Drain and Reset)")
    )
    assert none is not None
    assert not none.takes_out
    assert reset is not None
    assert reset.takes_out
    unknown = nvsentinel("NVRM: Xid (PCI:0000:5e:00): 191, Ch 2", Source.KERNEL)
    assert unknown is not None
    assert unknown.takes_out


def test_no_peer_is_shown_what_a_program_logged_under_its_own_tag() -> None:
    line = f"Mar  4 11:22:33 gpu-3 monitor[812]: {LOST}"
    assert [judge(line, Source.KERNEL) for judge in (konduktor, gpud, nvsentinel)] == [None, None, None]
