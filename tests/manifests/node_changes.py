"""Changes of a Node that the admission policy must allow, and changes that it must refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from konductor_like.cluster.node.patch import OUR_TAINT, SUSPECT_TAINT
from konductor_like.model import HEALTH_LABEL, NEEDS_LABEL, RECORD_ANNOTATION

Operations = list[dict[str, Any]]
Build = Callable[[Mapping[str, Any]], Operations]
"""Makes a JSON Patch from the Node."""

LABEL, ANNOTATION = "policy.example/a", "policy.example/b"
OTHERS = (
    {"key": "policy.example/team", "value": "a", "effect": "NoSchedule"},
    {"key": "policy.example/drain", "effect": "PreferNoSchedule"},
)


def node(name: str, *, ours: bool) -> dict[str, Any]:
    """A Node with labels, annotations and taints of others, and with ``ours`` also ours, old and new."""
    labels, annotations = {LABEL: "x", f"{LABEL}2": "x"}, {ANNOTATION: "y", f"{ANNOTATION}2": "y"}
    metadata: dict[str, Any] = {"name": name, "labels": labels, "annotations": annotations}
    taints = [dict(taint) for taint in OTHERS]
    if ours:
        metadata["labels"] |= {HEALTH_LABEL: "faulty", NEEDS_LABEL: "reboot"}
        metadata["annotations"][RECORD_ANNOTATION] = "{}"
        taints[1:1] = [dict(OUR_TAINT), dict(SUSPECT_TAINT)]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}}


def _at(parent: str, key: str) -> str:
    return f"/metadata/{parent}/{key.replace('/', '~1')}"


def _add(path: str, value: Any) -> Build:
    return lambda _node: [{"op": "add", "path": path, "value": value}]


def _append(taint: Mapping[str, Any]) -> Build:
    return _add("/spec/taints/-", dict(taint))


def _remove(path: str) -> Build:
    return lambda _node: [{"op": "remove", "path": path}]


def _taints(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Build:
    return lambda node: [{"op": "add", "path": "/spec/taints", "value": change(list(node["spec"]["taints"]))}]


def _all_of(*builds: Build) -> Build:
    return lambda node: [operation for build in builds for operation in build(node)]


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return bool(taint["key"] == OUR_TAINT["key"])


def _without(*gone: Mapping[str, Any]) -> Build:
    return _taints(lambda taints: [taint for taint in taints if taint not in gone])


TO_FAULTY: Mapping[str, Build] = {
    "our taint at the end": _append(OUR_TAINT),
    "our taint at the start": _add("/spec/taints/0", dict(OUR_TAINT)),
    "our taint with another effect": _append({**OUR_TAINT, "effect": "NoExecute"}),
    "the softer effect on our taint": _append({**OUR_TAINT, "effect": SUSPECT_TAINT["effect"]}),
    "our label": _add(_at("labels", HEALTH_LABEL), "held"),
    "our label for needs": _add(_at("labels", NEEDS_LABEL), "reboot"),
    "our annotation": _add(_at("annotations", RECORD_ANNOTATION), '{"v":1}'),
    "all of it at once": _all_of(
        _append(OUR_TAINT),
        _add(_at("labels", HEALTH_LABEL), "faulty"),
        _add(_at("labels", NEEDS_LABEL), "reboot"),
        _add(_at("annotations", RECORD_ANNOTATION), '{"v":1}'),
    ),
    "nothing": lambda _node: [],
}
"""Changes that are allowed on a Node without marks of ours."""

TO_HEALTHY: Mapping[str, Build] = {
    "our taint off": _without(OUR_TAINT),
    "the suspect taint off": _without(SUSPECT_TAINT),
    "both taints off": _without(OUR_TAINT, SUSPECT_TAINT),
    "our taint's effect put right": _taints(
        lambda taints: [{**each, "effect": "NoExecute"} if _is_ours(each) else each for each in taints]
    ),
    "our taint elsewhere in the list": _taints(lambda taints: sorted(taints, key=_is_ours)),
    "our label changed": _add(_at("labels", HEALTH_LABEL), "suspect"),
    "our label off": _remove(_at("labels", HEALTH_LABEL)),
    "our label for needs changed": _add(_at("labels", NEEDS_LABEL), "none"),
    "our label for needs off": _remove(_at("labels", NEEDS_LABEL)),
    "our annotation changed": _add(_at("annotations", RECORD_ANNOTATION), '{"v":1}'),
    "our annotation off": _remove(_at("annotations", RECORD_ANNOTATION)),
    "every trace of us off": _all_of(
        _without(OUR_TAINT, SUSPECT_TAINT),
        _remove(_at("labels", HEALTH_LABEL)),
        _remove(_at("labels", NEEDS_LABEL)),
        _remove(_at("annotations", RECORD_ANNOTATION)),
    ),
}
"""Changes that are allowed on a Node that the controller tainted."""

_TAINT, _LABEL, _ANNOTATION = "no other taint", "no other label", "no other annotation"
_METADATA, _SPEC = "nothing in a Node's metadata", "nothing in a Node's spec"
_OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "9cf96c90-a9de-47db-8773-f3fa8c21e505"}
_ANOTHER_TAINT = {"key": "policy.example/c", "effect": "NoExecute"}

FORBIDDEN: Mapping[str, tuple[Build, str]] = {
    "another's taint on": (_append(_ANOTHER_TAINT), _TAINT),
    "another's taint off": (_taints(lambda taints: taints[:-1]), _TAINT),
    "another's taint with another value": (_add("/spec/taints/0/value", "b"), _TAINT),
    "another's taint with another effect": (_add("/spec/taints/0/effect", "NoExecute"), _TAINT),
    "others' taints in another order": (_taints(lambda taints: taints[::-1]), _TAINT),
    "every taint off": (_remove("/spec/taints"), _TAINT),
    "our taint with another value": (_append({**OUR_TAINT, "value": "maybe"}), _TAINT),
    "the suspect taint on": (_append(SUSPECT_TAINT), _TAINT),
    "the suspect taint with another effect": (_append({**SUSPECT_TAINT, "effect": "NoSchedule"}), _TAINT),
    "our taint with no value": (_append({name: OUR_TAINT[name] for name in ("key", "effect")}), _TAINT),
    "a new label": (_add(_at("labels", "policy.example/c"), "d"), _LABEL),
    "another's label changed": (_add(_at("labels", LABEL), "z"), _LABEL),
    "another's label off": (_remove(_at("labels", LABEL)), _LABEL),
    "every label off": (_remove("/metadata/labels"), _LABEL),
    "the opt-out label": (_add(_at("labels", "trainy.konduktor.ai/ignore"), "true"), _LABEL),
    "our annotation's name as a label": (_add(_at("labels", RECORD_ANNOTATION), "x"), _LABEL),
    "a new annotation": (_add(_at("annotations", "policy.example/c"), "d"), _ANNOTATION),
    "another's annotation changed": (_add(_at("annotations", ANNOTATION), "z"), _ANNOTATION),
    "another's annotation off": (_remove(_at("annotations", ANNOTATION)), _ANNOTATION),
    "a label with a longer name than ours": (_add(_at("labels", f"{NEEDS_LABEL}-x"), "x"), _LABEL),
    "our label's name as an annotation": (_add(_at("annotations", HEALTH_LABEL), "x"), _ANNOTATION),
    "a finalizer": (_add("/metadata/finalizers", ["policy.example/c"]), _METADATA),
    "an owner": (_add("/metadata/ownerReferences", [_OWNER]), _METADATA),
    "a cordon": (_add("/spec/unschedulable", True), _SPEC),
    "a provider's name": (_add("/spec/providerID", "policy://c"), _SPEC),
    "addresses for pods": (
        _all_of(_add("/spec/podCIDR", "10.9.0.0/24"), _add("/spec/podCIDRs", ["10.9.0.0/24"])),
        _SPEC,
    ),
    "a cordon hidden in a change of ours": (
        _all_of(_append(OUR_TAINT), _add("/spec/unschedulable", True)),
        _SPEC,
    ),
}
"""Changes that are refused on a Node without marks of ours, each with a part of the message."""
