"""The answers that kubectl needs: version, groups, resources, the least of OpenAPI, and tables to print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from konductor_like_sandbox.kubernetes.resources import RESOURCES, Resource

Item = Mapping[str, Any]
Cells = Callable[[Item, datetime], list[Any]]


def human_duration(seconds: float) -> str:
    """Return a duration in kubectl's form: ``45s``, ``3m12s``, ``5h``, ``2d3h``, ``40d``."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 120:
        return f"{max(total, 0)}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(big: int, unit: str, small: int, small_unit: str) -> str:
    return f"{big}{unit}{small}{small_unit}" if small else f"{big}{unit}"


def _ago(text: str | None, now: datetime) -> str:
    if not text:
        return "<unknown>"
    return human_duration((now - datetime.fromisoformat(text).astimezone(UTC)).total_seconds())


def _age(item: Item, now: datetime) -> str:
    return _ago(item["metadata"].get("creationTimestamp"), now)


def _node(node: Item, now: datetime) -> list[Any]:
    status, info = node["status"], node["status"]["nodeInfo"]
    ready = next((c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    addresses = {a["type"]: a["address"] for a in reversed(status.get("addresses", ()))}
    kernel = info["kernelVersion"] or "<unknown>"
    return [
        node["metadata"]["name"],
        ",".join(words),
        ",".join(filter(None, roles)) or "<none>",
        _age(node, now),
        info["kubeletVersion"],
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info["osImage"] or "<unknown>",
        f"{kernel} ({info['architecture']})" if info["architecture"] else kernel,
        info["containerRuntimeVersion"] or "<unknown>",
    ]


def _event(event: Item, now: datetime) -> list[Any]:
    about, source, series = event["involvedObject"], event["source"], event.get("series")
    first = _ago(event["firstTimestamp"] or event["eventTime"], now)
    last = _ago(event["lastTimestamp"], now) if event["lastTimestamp"] else first
    if series:
        last = _ago(series.get("lastObservedTime"), now)
    told_by = [source.get("component") or event["reportingComponent"]]
    told_by.append(source.get("host") or event["reportingInstance"])
    return [
        *(last, event.get("type", ""), event.get("reason", "")),
        "/".join(filter(None, (about.get("kind", "").lower(), about.get("name")))),
        *(about.get("fieldPath", ""), ", ".join(filter(None, told_by)), event.get("message", "").strip()),
        *(first, (series or event).get("count") or 1, event["metadata"]["name"]),
    ]


def _lease(lease: Item, now: datetime) -> list[Any]:
    return [lease["metadata"]["name"], lease["spec"].get("holderIdentity", ""), _age(lease, now)]


def _namespace(namespace: Item, now: datetime) -> list[Any]:
    return [namespace["metadata"]["name"], namespace["status"].get("phase", ""), _age(namespace, now)]


def _pod(pod: Item, now: datetime) -> list[Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    containers = status.get("containerStatuses", ())
    ready = sum(each.get("ready", False) for each in containers)
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers', ()))}",
        status.get("phase", "Unknown"),
        str(sum(each.get("restartCount", 0) for each in containers)),
        _age(pod, now),
        *(status.get("podIP", "<none>"), spec.get("nodeName", "<none>"), "<none>", "<none>"),
    ]


_NODE_COLUMNS = (
    "Name,Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime"
)
_EVENT_COLUMNS = "Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name"
_TABLES: dict[str, tuple[str, Cells]] = {
    "nodes": (_NODE_COLUMNS, _node),
    "events": (_EVENT_COLUMNS, _event),
    "leases": ("Name,Holder,Age", _lease),
    "namespaces": ("Name,Status,Age", _namespace),
    "pods": ("Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates", _pod),
}
"""Columns and the cells of a row; only ``-o wide`` shows columns with a plus."""


def _plain(item: Item, now: datetime) -> list[Any]:
    return [item["metadata"]["name"], _age(item, now)]


def as_table(resource: Resource, items: list[Item], meta: Item, now: datetime) -> dict[str, Any]:
    """Return a ``Table`` of ``items`` (in their stored form); each row has its object's metadata."""
    columns, cells = _TABLES.get(resource.plural, ("Name,Age", _plain))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(meta),
        "columnDefinitions": [
            {
                "name": name.removeprefix("+"),
                "type": "string",
                "format": "name" if name in ("Name", "+Name") else "",
                "description": "",
                "priority": int(name.startswith("+")),
            }
            for name in columns.split(",")
        ],
        "rows": [
            {
                "cells": cells(item, now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": item["metadata"],
                },
            }
            for item in items
        ],
    }


VERSION: dict[str, Any] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


def _group_versions() -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for resource in RESOURCES:
        found.setdefault(resource.api_version, []).append(resource)
    return found


def _group(resource: Resource) -> dict[str, Any]:
    version = {"groupVersion": resource.api_version, "version": resource.version}
    return {"name": resource.group, "versions": [version], "preferredVersion": version}


_SUBRESOURCE_VERBS = {"exec": ["create", "get"], "log": ["get"]}


def _resource_list(api_version: str, resources: Iterable[Resource]) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for resource in resources:
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        listed.append(entry)
        for subresource in resource.subresources:
            part = {
                "name": f"{resource.plural}/{subresource}",
                "singularName": "",
                "verbs": _SUBRESOURCE_VERBS.get(subresource, ["patch", "update"]),
            }
            listed.append({**part, "namespaced": resource.namespaced, "kind": resource.kind})
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": listed}


def _openapi(resources: Iterable[Resource]) -> dict[str, Any]:
    """Paths without schemas. From them kubectl sees that the server validates fields itself."""
    paths: dict[str, Any] = {}
    for resource in resources:
        prefix = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        patch = {"parameters": parameters, "x-kubernetes-action": "patch", "responses": {}}
        paths[f"{prefix}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {**patch, "x-kubernetes-group-version-kind": kind}
        }
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _documents() -> dict[str, dict[str, Any]]:
    versions = _group_versions()
    roots = {version: f"apis/{version}" if "/" in version else f"api/{version}" for version in versions}
    groups = [_group(resources[0]) for version, resources in versions.items() if "/" in version]
    addresses = {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots.values()}
    documents: dict[str, dict[str, Any]] = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/openapi/v3": {"paths": addresses},
    }
    for group in groups:
        documents[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    for version, resources in versions.items():
        documents[f"/{roots[version]}"] = _resource_list(version, resources)
        documents[f"/openapi/v3/{roots[version]}"] = _openapi(resources)
    return documents


_DOCUMENTS = _documents()


def document(path: str) -> dict[str, Any] | None:
    """Return the discovery document at ``path``, or None."""
    return _DOCUMENTS.get(path.rstrip("/"))
