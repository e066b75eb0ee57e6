"""The made-up fleet looks like a real one."""

from __future__ import annotations

import json

import pytest

from konductor_like.sandbox.fleet import make_cpu_node, make_fleet, make_node


def test_a_gpu_node_weighs_what_a_real_one_does() -> None:
    assert 15_000 < len(json.dumps(make_node("gpu-1"), separators=(",", ":"))) < 40_000


def test_a_gpu_node_says_so_in_its_labels_and_its_capacity() -> None:
    node = make_node("gpu-1", gpus=4)

    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"
    assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
    assert (
        node["status"]["capacity"]["nvidia.com/gpu"] == node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    )


def test_a_cpu_node_says_nothing_of_gpus() -> None:
    assert "nvidia" not in json.dumps(make_cpu_node("cpu-1")["metadata"]["labels"])
    assert "nvidia.com/gpu" not in make_cpu_node("cpu-1")["status"]["capacity"]


def test_every_machine_is_its_own_and_the_same_in_every_run() -> None:
    identities = [
        (node["metadata"]["uid"], info["systemUUID"], info["bootID"], info["machineID"])
        for node in make_fleet(20, 5)
        for info in [node["status"]["nodeInfo"]]
    ]

    assert len({part for identity in identities for part in identity}) == 4 * 25
    assert make_fleet(20, 5) == make_fleet(20, 5)
    assert [n["metadata"]["name"] for n in make_fleet(2, 1)] == ["gpu-0001", "gpu-0002", "cpu-0001"]


def test_a_node_is_made_to_measure() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    node = make_node(
        "gpu-1", labels={"a": "b"}, annotations={"c": "d"}, taints=[taint], boot_id="b-1", unschedulable=True
    )

    assert (node["metadata"]["labels"]["a"], node["metadata"]["annotations"]["c"]) == ("b", "d")
    assert (node["spec"]["taints"], node["spec"]["unschedulable"]) == ([taint], True)
    assert node["status"]["nodeInfo"]["bootID"] == "b-1"


@pytest.mark.parametrize(("ready", "status"), [(True, "True"), (False, "Unknown")])
def test_a_node_is_ready_or_not(ready: bool, status: str) -> None:
    conditions = {c["type"]: c["status"] for c in make_node("gpu-1", ready=ready)["status"]["conditions"]}

    assert conditions["Ready"] == status
    assert conditions["MemoryPressure"] == "False"


def test_a_node_names_the_writers_of_its_fields() -> None:
    entries = make_node("gpu-1")["metadata"]["managedFields"]

    assert [(e["manager"], e.get("subresource")) for e in entries] == [
        ("kubelet", None),
        ("kubelet", "status"),
    ]
    assert "f:nvidia.com/gpu.present" in entries[0]["fieldsV1"]["f:metadata"]["f:labels"]
