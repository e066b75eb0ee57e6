"""What kubectl asks before it asks for anything: version, groups, resources and just enough of OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from konductor_like.sandbox.kubernetes.resources import RESOURCES, Resource

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
                "verbs": ["patch", "update"],
            }
            listed.append({**part, "namespaced": resource.namespaced, "kind": resource.kind})
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": listed}


def _openapi(resources: Iterable[Resource]) -> dict[str, Any]:
    """Paths without schemas: it tells kubectl that the server validates fields itself, so it need not."""
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
    """The discovery document at ``path``, if there is one."""
    return _DOCUMENTS.get(path.rstrip("/"))
