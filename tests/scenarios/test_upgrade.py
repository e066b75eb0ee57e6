"""Records across versions: 0.1.0 wrote the first ones here, and can read what this version writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from konductor_like.cluster.node.patch import SUSPECT_TAINT
from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_way_back import boots
from tests.scenarios.words import LOST, gpu, gpus

TEAM = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
OUT_AT = "2026-11-20T05:48:55Z"
RULES = {
    "xid.79": ("fatal", 79, "reboot"),
    "xid.94": ("suspect", 94, "application restart"),
    "xid.14": ("test", 14, "nothing"),
    "xid.48": ("fatal", 48, "gpu reset"),
}
"""Severity, code and needs of the rules, as version 0.1.0 wrote them: needs with blanks."""
OLD_VALUES = {
    "state": {"pending", "active", "held", "released"},
    "severity": {"fatal", "test", "suspect", "application", "info"},
    "kind": {
        *("xid", "sxid", "nvrm", "peermem", "nvlink", "aer", "ib", "fm", "amd", "neuron", "cuda"),
        *("nccl", "custom"),
    },
    "source": {"kernel", "pod"},
    "role": {"root-cause", "collateral", "unclear"},
}
"""The values of these fields that version 0.1.0 knows; it cannot read an incident with another value."""


def old_record(node: Mapping[str, Any], rule: str, **more: Any) -> dict[str, Any]:
    """Return a record as version 0.1.0 wrote it, with one incident."""
    severity, code, needs = RULES[rule]
    position = {"seq": 1001, "us": 1_235_130_000_000}
    info = node["status"]["nodeInfo"]
    return {
        "v": 2,
        "machine": {"uid": node["metadata"]["uid"], "system": info["systemUUID"], "boot": info["bootID"]},
        "rules": {
            rule: {
                "kind": "xid",
                "code": code,
                "severity": severity,
                "title": "A title",
                "advice": "Some advice.",
                "needs": needs,
            }
        },
        "incidents": [
            {
                "rule": rule,
                "gpu": "0000:4e:00",
                "state": "active",
                "count": 1,
                "first": "2026-11-20T05:48:50.000000001Z",
                "last": "2026-11-20T05:48:50.000000001Z",
                "line": f"NVRM: Xid (PCI:0000:4e:00): {code}, pid=4711",
                "at": position,
            }
        ],
        "act": {"id": "054d9a406030", "at": OUT_AT, "rules": "built-in"},
        **({"tainted": OUT_AT} if severity != "suspect" else {}),
        "read": position,
        **more,
    }


def with_record(node: dict[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    faulty = "tainted" in record
    node["metadata"].setdefault("annotations", {})[RECORD_ANNOTATION] = json.dumps(record)
    node["metadata"]["labels"][HEALTH_LABEL] = "faulty" if faulty else "suspect"
    if faulty:
        ours = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}
        node["spec"]["taints"] = [*node["spec"].get("taints", []), ours]
    return node


@pytest.fixture
def old_fleet() -> list[dict[str, Any]]:
    """Five nodes: version 0.1.0 tainted 1, 3 and 4, suspected 2, and knew nothing of 5."""
    nodes = make_fleet(5)
    before = {
        "releases": [
            {
                "at": "2026-11-20T04:49:10Z",
                "by": "kim@laptop",
                "reason": "rebooted",
                "how": "reset",
                "read": {"seq": 1000, "us": 1_230_130_000_000},
                "until": {"kernel": "2026-11-20T04:49:05Z"},
            }
        ],
        "quarantines": [{"rule": "xid.48", "out": "2026-11-20T04:48:55Z", "back": "2026-11-20T04:49:10Z"}],
        "hold_until": "2026-11-20T06:18:55Z",
    }
    with_record(nodes[0], old_record(nodes[0], "xid.79"))
    with_record(nodes[1], old_record(nodes[1], "xid.94"))
    with_record(nodes[2], old_record(nodes[2], "xid.14"))
    with_record(nodes[3], old_record(nodes[3], "xid.48", **before))
    return nodes


def heard(site: Site, span_seconds: float) -> Site:
    site.hearts()
    site.run(span_seconds)
    return site


def test_the_records_of_the_last_version_are_taken_over(
    site_of: Opens, old_fleet: list[dict[str, Any]]
) -> None:
    site = heard(site_of(old_fleet, brake_max_percent=100.0), 300)

    assert site.tainted == {gpu(1), gpu(4)}, "the test on node 3 has ended"
    assert {name: incident.needs for name, incident in site.open} == {
        gpu(1): "reboot",
        gpu(2): "application-restart",
        gpu(4): "gpu-reset",
    }
    assert all(state.record_problem is None for state in site.nodes().values())


@pytest.mark.parametrize(
    ("rule", "evidence", "told"),
    [
        ("node.refuses_pods", "refused 3 GPU pods in 4 min", "reason: refused 3 GPU pods in 4 min"),
        ("amd.ras", "amdgpu: uncorrectable hardware error", "line: amdgpu: uncorrectable hardware error"),
    ],
)
def test_a_fault_of_a_removed_rule_is_told_and_released(
    rule: str, evidence: str, told: str, site_of: Opens
) -> None:
    """An earlier version suspected node 1 for it, and tainted node 2 because of a second fault."""
    nodes = make_fleet(3)
    for node, out in zip(nodes, ({}, {"tainted": OUT_AT}), strict=False):
        record = old_record(node, "xid.94", **out)
        kind = rule.partition(".")[0]
        record["rules"] = {rule: {**record["rules"]["xid.94"], "kind": kind, "code": None}}
        [incident] = record["incidents"]
        incident |= {"rule": rule, "gpu": None, "line": evidence}
        incident |= {"escalated_because": "xid 79 on this node"} if out else {}
        with_record(node, record)
    site = heard(site_of(nodes, brake_max_percent=100.0), 300)

    assert (site.tainted, site.labels) == ({gpu(2)}, {"faulty": 1, "suspect": 1})
    assert all(state.record_problem is None for state in site.nodes().values())
    assert told in site.cli("explain", gpu(1)).out
    assert site.cli("reset", gpu(2), "--yes", "--reason", "looked at").code == 0
    site.run(60)
    assert (site.tainted, site.labels) == (set(), {"suspect": 1})


def test_nodes_that_the_last_version_tainted_return_after_a_reboot(
    site_of: Opens, old_fleet: list[dict[str, Any]]
) -> None:
    site = heard(site_of(old_fleet, brake_max_percent=100.0, return_by="reboot"), 130)
    boots(site, *gpus(4))

    site.run(900, step_seconds=20)

    assert site.tainted == set()
    assert site.labels == {"probation": 2}
    assert [each.how for each in site.record(gpu(4)).life.quarantines] == ["reboot", ""]


def test_the_last_version_can_read_the_records_of_this_version(site_of: Opens) -> None:
    site = heard(site_of(make_fleet(5), brake_max_percent=100.0, return_by="reboot"), 130)
    for name in gpus(3):
        site.kernel(name, LOST)
    site.kernel(gpu(4), LOST.replace("79", "94"))
    site.run(20)
    boots(site, *gpus(2))
    site.run(900, step_seconds=20)
    site.kernel(gpu(2), LOST)
    site.run(20)
    assert site.labels == {"probation": 1, "faulty": 2, "suspect": 1}

    for name in gpus(4):
        record = json.loads(site.kube.node(name)["metadata"]["annotations"][RECORD_ANNOTATION])
        assert record["v"] == 2
        assert set(unreadable(record)) == set()


def unreadable(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield each value that version 0.1.0 could not read."""
    rules = record.get("rules", {})
    for incident in record["incidents"]:
        found = {**rules.get(incident["rule"], {}), **incident}
        for field, known in OLD_VALUES.items():
            if field in found and found[field] not in known:
                yield f"{field} {found[field]}"


@pytest.fixture
def tainted_suspects(old_fleet: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fleet with the last version's suspect taint: beside ours on 1, with a record on 2, alone on 5."""
    for node in (old_fleet[0], old_fleet[1], old_fleet[4]):
        node["spec"]["taints"] = [*node["spec"].get("taints", []), TEAM, dict(SUSPECT_TAINT)]
    return old_fleet


def test_the_suspect_taint_of_the_last_version_is_taken_off_by_one_write_a_node(
    site_of: Opens, tainted_suspects: list[dict[str, Any]]
) -> None:
    site = heard(site_of(tainted_suspects, brake_max_percent=100.0), 50)

    assert keys_of(site) == {gpu(1): [TAINT_KEY, "team"], gpu(2): ["team"], gpu(5): ["team"]}
    assert [site.writes[gpu(number)] for number in (1, 2, 5)] == [1, 1, 1]
    assert site.labels == {"faulty": 2, "suspect": 1}


def test_a_reset_takes_the_suspect_taint_off(site_of: Opens, tainted_suspects: list[dict[str, Any]]) -> None:
    site = site_of(tainted_suspects, brake_max_percent=100.0)

    printed = [site.cli("reset", gpu(number), "--yes", "--reason", "seen") for number in (1, 2, 5)]

    assert [each.code for each in printed] == [0, 0, 0]
    assert keys_of(site) == {gpu(1): ["team"], gpu(2): ["team"], gpu(5): ["team"]}


def keys_of(site: Site) -> dict[str, list[str]]:
    """Return the keys of the taints of the nodes that had the suspect taint, in order."""
    return {
        name: [taint["key"] for taint in site.kube.node(name)["spec"]["taints"]]
        for name in (gpu(1), gpu(2), gpu(5))
    }
