"""The kernel-log reader's manifest: its script, its nodes and its minimal rights."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like import kmsg
from konductor_like.cluster.node.decoder import says_gpu
from konductor_like.selectors import parse_matchers
from konductor_like.settings import Settings
from tools.manifests.embed import HASH, MANIFEST, embedded, script, script_hash
from tools.manifests.manifests import byte_count, documents, only

DOCUMENTS = documents(MANIFEST.name)
DAEMONSET = only(DOCUMENTS, "DaemonSet")
TEMPLATE = DAEMONSET["spec"]["template"]
POD = TEMPLATE["spec"]
[CONTAINER] = POD["containers"]
MEASURED_BYTES = 13 * 1024 * 1024
"""Bytes of the highest memory use of the reader that `make bench` measured, rounded up."""


def test_the_script_in_the_config_map_is_the_module_and_a_new_one_rolls_the_pods() -> None:
    assert only(DOCUMENTS, "ConfigMap")["data"]["kmsg.py"] == script(), "run make docs"
    assert TEMPLATE["metadata"]["annotations"][HASH] == script_hash(), "run make docs"

    kinds = [document["kind"] for document in DOCUMENTS]
    assert kinds.index("Namespace") < kinds.index("ConfigMap") < kinds.index("DaemonSet")


def test_embedding_replaces_an_old_script_and_its_hash_and_nothing_else() -> None:
    manifest = MANIFEST.read_text(encoding="utf-8")
    old = manifest.replace("    import select\n", "").replace(script_hash(), "0")

    assert old != manifest
    assert embedded(old) == manifest
    assert embedded(manifest) == manifest


def test_the_container_runs_the_mounted_script_on_the_device_of_the_node() -> None:
    [script_mount] = [mount for mount in CONTAINER["volumeMounts"] if mount["name"] == "script"]
    [script_volume] = [volume for volume in POD["volumes"] if volume["name"] == "script"]

    assert CONTAINER["command"] == ["python3", "-I", f"{script_mount['mountPath']}/kmsg.py"]
    assert script_volume["configMap"]["name"] == only(DOCUMENTS, "ConfigMap")["metadata"]["name"]
    assert script_mount["readOnly"] is True

    [mount] = [mount for mount in CONTAINER["volumeMounts"] if mount["name"] == "kmsg"]
    [volume] = [volume for volume in POD["volumes"] if volume["name"] == "kmsg"]

    assert mount["mountPath"] == volume["hostPath"]["path"] == kmsg.DEVICE
    assert volume["hostPath"]["type"] == "CharDevice"
    assert not mount.get("readOnly"), "the fake Xid is echoed into it"


def test_the_controller_s_kernel_selector_selects_exactly_these_pods() -> None:
    selector = parse_matchers(Settings.model_fields["kernel_selector"].default)

    assert {(matcher.name, matcher.op, matcher.value) for matcher in selector} == {
        ("k8s_namespace_name", "=", DAEMONSET["metadata"]["namespace"]),
        ("k8s_container_name", "=", CONTAINER["name"]),
    }


def test_the_reader_is_privileged_in_a_namespace_that_admits_it_and_nothing_beyond() -> None:
    assert CONTAINER["securityContext"] == {
        "privileged": True,
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
    }
    assert POD["automountServiceAccountToken"] is False
    assert POD["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & POD.keys()
    labels = only(DOCUMENTS, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert only(DOCUMENTS, "NetworkPolicy")["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }


def test_no_taint_and_no_job_keeps_the_reader_from_a_node() -> None:
    assert POD["tolerations"] == [{"operator": "Exists"}]

    quota = only(DOCUMENTS, "ResourceQuota")["spec"]
    [scope] = quota["scopeSelector"]["matchExpressions"]

    assert POD["priorityClassName"] == "system-node-critical"
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": [POD["priorityClassName"]]}
    assert quota["hard"] == {"pods": "100k"}
    assert byte_count(CONTAINER["resources"]["limits"]["memory"]) >= 2 * MEASURED_BYTES
    assert byte_count(CONTAINER["resources"]["requests"]["memory"]) >= MEASURED_BYTES


_KARPENTER = ("karpenter.k8s.aws/instance-gpu", "karpenter.azure.com/sku-gpu")


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        *(
            {f"feature.node.kubernetes.io/pci-{each}.present": "true"}
            for each in ("10de", "0302_10de", "0300_10de")
        ),
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
        {"accelerator": "nvidia"},
        *({f"{each}-count": "8", f"{each}-manufacturer": "nvidia"} for each in _KARPENTER),
    ],
    ids=lambda labels: next(iter(labels)),
)
def test_the_reader_runs_wherever_a_label_makes_the_controller_see_a_gpu_node(labels: dict[str, str]) -> None:
    assert says_gpu(labels, {}, ())
    assert runs_on(labels)


def test_the_reader_stays_away_from_other_nodes() -> None:
    others: list[dict[str, str]] = [
        {},
        {"nvidia.com/gpu.present": "false"},
        {f"{_KARPENTER[0]}-manufacturer": "amd"},
    ]
    assert not any(map(runs_on, others))


def runs_on(labels: dict[str, str]) -> bool:
    """Whether the node affinity matches, as the scheduler evaluates it: all expressions of any term."""
    affinity = POD["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(
        all(_matches(expression, labels) for expression in term["matchExpressions"])
        for term in affinity["nodeSelectorTerms"]
    )


def _matches(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    if expression["operator"] == "Exists":
        return expression["key"] in labels
    assert expression["operator"] == "In"
    return labels.get(expression["key"]) in expression["values"]
