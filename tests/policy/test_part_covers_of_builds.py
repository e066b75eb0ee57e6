"""Records of the version that released single faults: their old lines taint nothing, in either version."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import Fault, IncidentState, KernelPosition, ReleaseHow
from konductor_like.model.time import unix_ns
from tests.policy.scenes import GPU, OURS, Cluster, at, fault, fleet

DATA = Path(__file__).parent.parent / "data"
RECORDS = {
    found["name"]: found
    for found in map(json.loads, (DATA / "records" / "part_covers.jsonl").read_text().splitlines())
}
"""Written by the last build with ``reset --rule``, each after a release of an Xid 79 that left the record."""
PLAIN = "a plain dmesg"
LAST = "the last one"


def cluster_of(name: str, **changed: Any) -> Cluster:
    cluster = Cluster(fleet(10))
    record, problem = decode(json.dumps(RECORDS[name]["record"] | changed))
    assert problem is None
    state = replace(cluster.nodes["gpu-1"], record=record)
    cluster.nodes["gpu-1"] = replace(state, taints=(OURS,)) if RECORDS[name]["tainted"] else state
    return cluster


def line(number: int, seconds: float, *, plain: bool = False, rule: str = "xid.79", gpu: str = GPU) -> Fault:
    """The kernel's record of this number, printed at as many seconds of the boot."""
    found = fault(rule=rule, gpu=gpu, seconds=seconds, boot=None if plain else "boot-a")
    place = KernelPosition(None, None, number * 10**6)
    place = place if plain else KernelPosition("boot-a", number, number * 10**6)
    return replace(found, finding=found.finding._replace(position=place))


@pytest.mark.parametrize("name", RECORDS)
def test_a_kernel_ring_that_is_read_again_taints_nothing(name: str) -> None:
    cluster, plain = cluster_of(name), name == PLAIN
    before = cluster.nodes["gpu-1"]

    cluster.tick(*(line(number, 400 + number, plain=plain) for number in (90, 100)), seconds=600)

    after = cluster.nodes["gpu-1"]
    assert after.tainted is before.tainted
    states = {each.state for each in after.record.incidents if each.key.rule == "xid.79"}
    assert states == {IncidentState.RELEASED}
    assert {"part_covers", "failed", "failed_gpu"}.isdisjoint(json.loads(encode(after.record)))


@pytest.mark.parametrize("began", [None, -1000.0], ids=["no heartbeat", "heard"])
@pytest.mark.parametrize(
    "new",
    [line(200, 400), line(99, 400, gpu="0000:9a:00"), line(99, 400, rule="xid.95")],
    ids=["a later line", "another GPU", "another rule"],
)
def test_a_line_that_was_not_released_taints(new: Fault, began: float | None) -> None:
    cluster = cluster_of(LAST)
    if began is not None:
        snapshot = replace(cluster.snapshot, began={"gpu-1": ("boot-a", unix_ns(at(began)))})
        cluster.snapshot = snapshot

    cluster.tick(new, seconds=600)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize(
    "cover",
    [{"boot": "boot-0", "seq": 100, "us": 10**8}, {"boot": "boot-a"}],
    ids=["an earlier boot", "no position"],
)
def test_a_cover_of_no_line_of_this_boot_hides_none(cover: dict[str, Any]) -> None:
    cover = {"rule": "xid.79", "gpu": GPU, "at": "2026-03-04T12:01:00Z"} | cover
    cluster = cluster_of(LAST, part_covers=[cover])

    cluster.tick(line(100, 50), seconds=600)

    assert cluster.tainted == {"gpu-1"}


def test_the_release_is_read_as_one_of_some_faults_and_keeps_its_need() -> None:
    state = cluster_of(LAST).nodes["gpu-1"]

    assert [(each.how, each.needs) for each in state.record.releases] == [(ReleaseHow.PART, "reboot")]
    assert state.record.last_by_person is None
    assert decode(encode(state.record))[0].releases == state.record.releases


@pytest.mark.parametrize("name", RECORDS)
def test_an_earlier_build_reads_what_this_one_writes(name: str) -> None:
    """It finds the released incident, and takes the release for one of some faults only."""
    written = encode(cluster_of(name).nodes["gpu-1"].record)
    boot = None if name == PLAIN else "boot-a"
    node = {"tainted": RECORDS[name]["tainted"], "uid": "uid-gpu-1", "system": "system-gpu-1"}
    heard = {"now": at(600).isoformat(), "heard": 1500}
    lines = [
        {"record": written, "node": node, "ask": {**heard, "faults": [[79, gpu, boot, 90 * 10**6]]}}
        for gpu in (GPU, "0000:b1:00")
    ]
    ran = subprocess.run(
        [sys.executable, "-S", "-I", DATA / "builds" / "before_stages.zip"],
        input="".join(f"{json.dumps(each)}\n" for each in lines),
        capture_output=True,
        text=True,
        check=True,
    )

    again, elsewhere = (json.loads(text)["answer"] for text in ran.stdout.splitlines())
    assert again.get("verb") != "taint"
    assert "GPUFaultRecorded" not in str(again)
    assert name != LAST or elsewhere["verb"] == "taint"
