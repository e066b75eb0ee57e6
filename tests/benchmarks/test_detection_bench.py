"""Lines that detection reads in a second of CPU time, by kind of line and source."""

from __future__ import annotations

import sys
import time

import pytest

from konductor_like.detection import packaged
from konductor_like.model import Source
from tools.quality.corpus import own_cases

pytestmark = pytest.mark.bench

BATCH = 100_000
ROUNDS = 7
OTHER_LINES = {
    Source.KERNEL: (
        "[   12.345678] usb 1-1: new high-speed USB device number 4 using xhci_hcd",
        "[90211.000417] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
        "[90214.771200] IPv6: ADDRCONF(NETDEV_CHANGE): cali5d2f3c9a1b4: link becomes ready",
        "[90301.118834] audit: type=1400 audit(1772617200.123:451): apparmor='ALLOWED' operation='open'",
    ),
    Source.POD: (
        "INFO 03-04 11:22:33 engine.py:310] Avg prompt throughput: 5121.3 tokens/s, Running: 31 reqs",
        "step 4100 | loss 1.8831 | lr 2.9e-04 | grad norm 0.41 | 412.6 TFLOP/s/GPU | 18211 tokens/s/GPU",
        '10.31.4.9 - - [04/Mar/2026:11:22:33 +0000] "GET /healthz HTTP/1.1" 200 2 "-" "kube-probe/1.33"',
        "worker-4:912:1377 [6] NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7",
    ),
}


def lines_that(source: Source, kind: str) -> list[str]:
    """Return the corpus's lines of one kind, repeated until there are enough."""
    detector = packaged()
    if kind == "other":
        lines = list(OTHER_LINES[source])
    else:
        anchors = detector.anchors(source)
        lines = [
            case.line
            for case in own_cases()
            if case.source is source
            and any(anchor in case.line for anchor in anchors)
            and (detector.find(case.line, source) is not None) == (kind == "positive")
        ]
    assert len(lines) >= (4 if kind == "other" else 20)
    return (lines * (BATCH // len(lines) + 1))[:BATCH]


@pytest.mark.parametrize("source", list(Source))
@pytest.mark.parametrize(
    ("kind", "target"), [("positive", 90_000), ("negative with an anchor", 200_000), ("other", 1_500_000)]
)
def test_detection_reads_enough_lines_a_second(source: Source, kind: str, target: int) -> None:
    lines = lines_that(source, kind)
    detector = packaged()
    find = detector.find_in_kernel_log if source is Source.KERNEL else detector.find_in_pod_log
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for line in lines:
            find(line)
        best = min(best, time.process_time() - begun)
    rate = BATCH / best

    sys.stdout.write(
        f"\n{source.value:<6} {kind:<23} {rate:>10,.0f} lines/s, {rate / target:.2f} of {target:,}\n"
    )
    assert rate >= target
