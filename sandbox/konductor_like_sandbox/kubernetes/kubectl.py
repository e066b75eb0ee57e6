"""The answers that kubectl needs: version, groups, resources, the least of OpenAPI; and tables of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from konductor_like_sandbox.kubernetes.resources import PODS, RESOURCES, Resource

Item = Mapping[str, Any]
_POD_COLUMNS = ("Name", "Ready", "Status", "Node")


def as_table(resource: Resource, items: list[Item], meta: Item) -> dict[str, Any]:
    """Return a ``Table`` of ``items`` with the columns that our clients read, and each object's metadata."""
    columns = _POD_COLUMNS if resource is PODS else ("Name",)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(meta),
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
            for name in columns
        ],
        "rows": [
            {
                "cells": _cells(item)[: len(columns)],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": item["metadata"],
                },
            }
            for item in items
        ],
    }


def _cells(item: Item) -> list[str]:
    spec, status = item.get("spec", {}), item.get("status", {})
    ready = sum(each.get("ready", False) for each in status.get("containerStatuses", ()))
    return [
        item["metadata"]["name"],
        f"{ready}/{len(spec.get('containers', ()))}",
        status.get("phase", "Unknown"),
        spec.get("nodeName", "<none>"),
    ]


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
