from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.api.transport import FIELD_MANAGER
from konductor_like.cluster.node.decoder import (
    PageDecoder,
    Reading,
    decode_node,
    last_writer,
    node_decoder,
    says_gpu,
)
from konductor_like.cluster.node.record import encode
from konductor_like.model import (
    HEALTH_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    FaultKind,
    NodeRecord,
    NodeState,
    Source,
    Taint,
)
from konductor_like.selectors import parse_selector
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node
from tests.cluster.scenes import BOOT, OURS, TEAM, incident, raw_node, record, state_of


def test_a_real_nodes_state() -> None:
    node = make_node("gpu-7", taints=[TEAM], boot_id=BOOT, unschedulable=True)
    node["metadata"] |= {"uid": "u-7", "resourceVersion": "812"}

    state = decode_node(node)

    assert (state.name, state.is_gpu_node, state.ready, state.unschedulable) == ("gpu-7", True, True, True)
    assert state.machine.node_uid == "u-7"
    assert state.machine.boot_id == BOOT
    assert state.machine.system_id == node["status"]["nodeInfo"]["systemUUID"]
    assert state.taints[0] == Taint("team", "vision", "NoSchedule")
    assert state.as_read.taints is not None
    assert state.as_read.taints[0] == TEAM
    assert (state.as_read.resource_version, state.as_read.record) == ("812", None)
    assert state.created_ns > 0


def test_a_cpu_node_is_not_a_gpu_node() -> None:
    assert not decode_node(make_cpu_node("cpu-1")).is_gpu_node


def test_a_cpu_node_that_the_setting_selects_is_a_gpu_node() -> None:
    assert node_decoder(Settings(gpu_node_selector="pool=render"))(
        make_cpu_node("cpu-1", labels={"pool": "render"})
    ).is_gpu_node


def test_dead_gpus_do_not_make_it_another_kind_of_node() -> None:
    assert decode_node(make_node("gpu-1", gpus=0)).is_gpu_node


@pytest.mark.parametrize(("boot", "known_ns"), [(BOOT, 5_000_000_000), ("another", None)])
def test_a_reboot_that_an_earlier_controller_watched_is_known_of_that_boot_alone(
    boot: str, known_ns: int | None
) -> None:
    node = make_node("gpu-1", boot_id=BOOT)
    machine = decode_node(node).machine
    written = NodeRecord(machine, past_boots=("before",), booted_after_ns=5_000_000_000)
    node["metadata"]["annotations"] = {RECORD_ANNOTATION: encode(written)}
    node["status"]["nodeInfo"]["bootID"] = boot

    assert decode_node(node).booted_after_ns == known_ns


@pytest.mark.parametrize(
    ("kind", "source", "proof"),
    [
        (FaultKind.XID, Source.KERNEL, True),
        (FaultKind.SXID, Source.KERNEL, True),
        (FaultKind.NVRM, Source.KERNEL, True),
        (FaultKind.PEERMEM, Source.KERNEL, False),
        (FaultKind.NCCL, Source.POD, False),
        (FaultKind.XID, Source.POD, False),
    ],
)
def test_a_node_whose_own_kernel_once_named_a_gpu_has_one(
    kind: FaultKind, source: Source, proof: bool
) -> None:
    text = encode(record(replace(incident(), kind=kind, source=source)))

    assert state_of(raw_node(labels={}, annotations={RECORD_ANNOTATION: text})).is_gpu_node is proof


@pytest.mark.parametrize(("value", "out"), [("true", True), ("false", False), ("", False)])
def test_a_label_opts_a_node_out(value: str, out: bool) -> None:
    assert state_of(raw_node(labels={OPT_OUT_LABEL: value})).opted_out is out


def test_the_record_comes_with_its_text() -> None:
    text = encode(record(incident()))

    state = state_of(raw_node(annotations={RECORD_ANNOTATION: text}))

    assert (state.record, state.record_problem, state.as_read.record) == (record(incident()), None, text)


def test_a_mangled_record_is_kept_as_read_and_complained_of() -> None:
    state = state_of(raw_node(annotations={RECORD_ANNOTATION: "see ticket"}))

    assert (state.record, state.record_problem) == (NodeRecord(), "it is not JSON")
    assert state.as_read.record == "see ticket"


def test_absent_and_empty_stay_different() -> None:
    absent = state_of(raw_node(labels=None, annotations=None)).as_read
    empty = state_of(raw_node(labels={}, annotations={}, taints=[])).as_read

    assert (absent.taints, absent.has_labels, absent.has_annotations) == (None, False, False)
    assert (empty.taints, empty.has_labels, empty.has_annotations) == ((), True, True)


@pytest.mark.parametrize("uuid", ["", "03000200-0400-0500-0006-000700080009"])
def test_the_provider_id_stands_in_for_a_missing_system_uuid(uuid: str) -> None:
    node = raw_node()
    node["spec"]["providerID"] = "aws:///us-east-1a/i-0123"
    node["status"]["nodeInfo"]["systemUUID"] = uuid

    assert state_of(node).machine.system_id == "aws:///us-east-1a/i-0123"


def test_taints_without_effect_or_value_are_no_obstacle() -> None:
    state = state_of(raw_node(taints=[{"key": "a"}, {"key": "b", "effect": None}, "odd", OURS]))

    assert state.taints == (Taint("a", None, ""), Taint("b", None, ""), Taint(**OURS))
    assert list(state.as_read.taints or ()) == [{"key": "a"}, {"key": "b", "effect": None}, "odd", OURS]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "Ready"}], False),
        ([None, 3], False),
        ({}, False),
        (None, False),
    ],
    ids=str,
)
def test_ready_comes_from_the_condition(conditions: Any, ready: bool) -> None:
    node = raw_node()
    node["status"]["conditions"] = conditions

    assert state_of(node).ready is ready


@pytest.mark.parametrize(
    ("condition", "since_ns"),
    [
        ({"status": "True", "lastTransitionTime": "1970-01-01T00:00:07Z"}, 7_000_000_000),
        ({"status": "False", "lastTransitionTime": "1970-01-01T00:00:08Z"}, 8_000_000_000),
        ({"status": "True", "lastTransitionTime": "now"}, None),
        ({"status": "True"}, None),
    ],
    ids=str,
)
def test_since_when_a_node_is_ready_or_not_is_known(condition: dict[str, str], since_ns: int | None) -> None:
    node = raw_node()
    node["status"]["conditions"] = [{"type": "Ready", **condition}]

    assert state_of(node).ready_since_ns == since_ns


@pytest.mark.parametrize(
    ("condition", "reported_ns"),
    [
        ({"lastHeartbeatTime": "2026-03-04T12:00:00Z"}, 1_772_625_600_000_000_000),
        ({"lastHeartbeatTime": "yesterday"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_kubelets_last_report_comes_from_the_same_condition(
    condition: dict[str, str], reported_ns: int | None
) -> None:
    node = raw_node()
    other = {"type": "MemoryPressure", "lastHeartbeatTime": "2026-03-04T13:00:00Z"}
    node["status"]["conditions"] = [other, {"type": "Ready", "status": "False", **condition}]

    assert state_of(node).reported_ns == reported_ns


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, True, 1.5, "", "x", [], [None], {}, {"a": None}, {"key": []}]
)
PLACES = [
    ("metadata",),
    ("spec",),
    ("status",),
    *(
        ("metadata", name)
        for name in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields")
    ),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "annotations", RECORD_ANNOTATION),
    ("metadata", "labels", OPT_OUT_LABEL),
    ("spec", "taints"),
    ("spec", "unschedulable"),
    ("status", "capacity"),
    ("status", "conditions"),
    ("status", "nodeInfo"),
    ("status", "nodeInfo", "bootID"),
]


ODDITIES = st.lists(st.tuples(st.sampled_from(PLACES), ODD), max_size=4)


def odd_node(oddities: list[tuple[tuple[str, ...], Any]]) -> Any:
    node: Any = copy.deepcopy(make_node("gpu-1"))
    for place, value in oddities:
        inner = node
        for step in place[:-1]:
            inner = inner.get(step) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[place[-1]] = copy.deepcopy(value)  # the same value may be drawn twice, one inside the other
    return node


@given(ODDITIES)
def test_no_node_is_too_odd_to_be_decoded(oddities: list[tuple[tuple[str, ...], Any]]) -> None:
    assert isinstance(decode_node(odd_node(oddities)), NodeState)


def state_by_page(node: Any, settings: Settings | None = None) -> NodeState:
    """Return the state of a Node from the page of a list of which only some fields are parsed."""
    decode = node_decoder(settings)
    page = {"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [node]}
    (item,) = decode.parsed(json.dumps(page).encode())["items"]
    return decode(item)


@given(ODDITIES)
def test_a_page_that_is_parsed_in_part_has_the_same_states(
    oddities: list[tuple[tuple[str, ...], Any]],
) -> None:
    node = odd_node([*oddities, (("metadata", "managedFields"), None)])

    assert state_by_page(node) == decode_node(node)
    assert (
        "managedFields"
        not in PageDecoder(Reading()).parsed(json.dumps({"items": [make_node("gpu-1")]}).encode())["items"][
            0
        ]["metadata"]
    )


@pytest.mark.parametrize(
    "labels",
    [
        {"accelerator": "nvidia"},
        {"karpenter.azure.com/sku-gpu-count": "4"},
        {"pool": "render"},
        {"rack": "7", "part": "a"},
        {OPT_OUT_LABEL: "true", HEALTH_LABEL: "held"},
    ],
    ids=str,
)
def test_a_page_that_is_parsed_in_part_keeps_every_label_that_counts(labels: dict[str, str]) -> None:
    settings = Settings(gpu_node_selector="pool=render", pool_label="rack", domain_label="part")
    node = make_cpu_node("cpu-1", labels=labels)

    assert state_by_page(node, settings) == replace(node_decoder(settings)(node), last_writer=None)


def test_a_node_without_anything_is_decoded_too() -> None:
    assert decode_node({}).name == ""


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
        {"accelerator": "nvidia"},
        {"karpenter.k8s.aws/instance-gpu-count": "8"},
        {
            "karpenter.k8s.aws/instance-gpu-count": "8",
            "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
        },
        {"karpenter.azure.com/sku-gpu-count": "4"},
    ],
    ids=lambda labels: next(iter(labels)),
)
def test_these_labels_mark_a_gpu_node(labels: dict[str, str]) -> None:
    assert says_gpu(labels, {}, ())


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"nvidia.com/gpu.present": "false"},
        {"kubernetes.io/hostname": "nvidia-1"},
        {"kubernetes.azure.com/accelerator": "none"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd", "karpenter.k8s.aws/instance-gpu-count": "1"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "habana"},
        {"karpenter.k8s.aws/instance-gpu-count": "0"},
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
    ],
    ids=str,
)
def test_these_labels_do_not_mark_a_gpu_node(labels: dict[str, str]) -> None:
    assert not says_gpu(labels, {"cpu": "96", "memory": "1Ti"}, ())


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
@pytest.mark.parametrize("amount", ["0", "8"])
def test_a_capacity_key_marks_a_gpu_node_even_with_a_capacity_of_0(key: str, amount: str) -> None:
    assert says_gpu({}, {"cpu": "96", key: amount}, ())


@pytest.mark.parametrize("key", ["amd.com/gpu", "nvidia.com/gpus", "google.com/tpu"])
def test_other_resources_do_not_mark_a_gpu_node(key: str) -> None:
    assert not says_gpu({}, {key: "8"}, ())


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("pool=h100", True),
        ("pool", True),
        ("pool, zone=a", True),
        ("pool==h100", True),
        ("pool=a100", False),
        ("pool,zone=b", False),
        ("missing", False),
        ("", False),
        (" , ", False),
    ],
)
def test_the_users_own_selector_marks_further_gpu_nodes(selector: str, matches: bool) -> None:
    assert says_gpu({"pool": "h100", "zone": "a"}, {}, parse_selector(selector)) is matches


@pytest.mark.parametrize("selector", ["=h100", "pool!=a", "!pool", "pool in (a,b)", "a=b=c", "two words"])
def test_an_invalid_selector_is_named_in_the_error(selector: str) -> None:
    with pytest.raises(ValueError, match="is neither key nor key=value"):
        parse_selector(selector)


SPEC: dict[str, Any] = {"f:spec": {"f:taints": {}}}


def entry(manager: str, minute: int, **parts: Any) -> dict[str, Any]:
    """Return one entry of managedFields, ``minutes`` after noon."""
    return {
        "manager": manager,
        "operation": "Update",
        "time": f"2026-05-06T12:{minute:02}:00Z",
        "fieldsV1": SPEC,
        **parts,
    }


@pytest.mark.parametrize(
    "routine",
    [
        entry("kubelet", 9),
        entry("kube-controller-manager", 9),
        entry("k3s", 9),
        entry("gpu-agent", 9, subresource="status"),
        entry("prober", 9, fieldsV1={"f:status": {}}),
    ],
    ids=["kubelet", "node controller", "a distribution's one binary", "subresource", "status"],
)
def test_routine_writes_are_passed_over(routine: dict[str, Any]) -> None:
    assert last_writer([entry("kubectl-taint", 5), routine]) == "kubectl-taint"


STRANGE: list[object] = [None, {}, "x", [None, 3], [{}], [{"manager": 3}]]


@pytest.mark.parametrize(
    ("fields", "writer"),
    [
        ([entry("kubectl-edit", 5), entry("kubectl-taint", 9), entry("discovery", 2)], "kubectl-taint"),
        ([entry(FIELD_MANAGER, 9)], None),
        ([entry("kubectl-edit", 1), entry(FIELD_MANAGER, 5)], None),
        ([entry(FIELD_MANAGER, 5), entry("kubectl-taint", 5)], "kubectl-taint"),
        ([{"manager": "kubectl"}], None),
        ([{"manager": "kubectl", "time": "2026-05-06T12:00:00Z"}], "kubectl"),
        *((strange, None) for strange in STRANGE),
    ],
    ids=["latest", "ours", "before us", "in our second", "no time", "no fields", *"abcdef"],
)
def test_the_latest_writer_since_our_own_write_is_named(fields: object, writer: str | None) -> None:
    assert last_writer(fields) == writer
