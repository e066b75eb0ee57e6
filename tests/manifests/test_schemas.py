"""Every field of the applied manifests is valid, and a server with strict validation accepts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.resources import RESOURCES
from tests.manifests.schema import problems
from tests.sandbox.kubectl import kubectl, needs_kubectl
from tools.manifests.manifests import MANIFESTS, OPTIONAL, documents, kubectl_manifests

DOCS = {name: documents(name) for name in (*kubectl_manifests(), *OPTIONAL)}


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer(schema=problems) as server:
        yield server


@needs_kubectl
@pytest.mark.parametrize(
    ("side", "outcomes"),
    [(["--server-side"], ("serverside-applied", "serverside-applied")), ([], ("created", "unchanged"))],
    ids=["on the server side", "on the client side"],
)
@pytest.mark.parametrize("name", DOCS)
def test_kubectl_applies_a_manifest_once_and_again(
    server: KubernetesServer, tmp_path: Path, name: str, side: list[str], outcomes: tuple[str, str]
) -> None:
    apply = ("apply", *side, "--validate=strict", "-f", str(MANIFESTS / name))
    if name in OPTIONAL:
        server.create_namespace("konductor-like")
        server.create_namespace("dmesg-logging")

    first = kubectl(server, tmp_path, *apply).splitlines()
    objects = stored(server)
    again = kubectl(server, tmp_path, *apply).splitlines()

    assert len(first) == len(again) == len(DOCS[name])
    assert {line.split()[-1] for line in first} == {outcomes[0]}, first
    assert {line.split()[-1] for line in again} == {outcomes[1]}, again
    assert stored(server) == objects  # and so were all versions


def stored(server: KubernetesServer) -> dict[str, list[dict[str, Any]]]:
    """Return all objects on the server."""
    return {resource.plural: server.objects(resource.plural) for resource in RESOURCES}
