"""The guides name only what the manifests, the charts and the code have."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like import __version__
from konductor_like.cluster.events import ACT_ANNOTATION
from konductor_like.cluster.lease.annotations import CONTROLS_ANNOTATION
from konductor_like.cluster.node.decoder import says_gpu
from konductor_like.detection import find, parse_heartbeat
from konductor_like.model import (
    HEALTH_LABEL,
    NEEDS_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    Severity,
    Source,
)
from konductor_like.settings import Settings
from tools.generate_docs import DOCS, families
from tools.manifests.manifests import MANIFESTS, documents, kubectl_manifests

INSTALL = (DOCS / "start" / "cluster.md").read_text(encoding="utf-8")
UPGRADE = (DOCS / "use" / "upgrade-and-uninstall.md").read_text(encoding="utf-8")
TOLERATIONS = (DOCS / "use" / "daemonsets-and-autoscalers.md").read_text(encoding="utf-8")
KERNEL_LOG = (DOCS / "kernel-log-reader.md").read_text(encoding="utf-8")
GUIDES = {
    page.relative_to(DOCS.parent).as_posix(): page.read_text(encoding="utf-8")
    for page in (
        DOCS.parent / "README.md",
        *sorted(DOCS.glob("start/*.md")),
        *sorted(DOCS.glob("use/*.md")),
        DOCS / "kernel-log-reader.md",
        DOCS / "pipeline.md",
    )
}
CHARTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("chart_keys.toml").read_text(encoding="utf-8")
)
ALL = [document for manifest in kubectl_manifests() for document in documents(manifest)]
PODS = [document["spec"]["template"] for document in ALL if "template" in document.get("spec", {})]
each_guide = pytest.mark.parametrize("guide", GUIDES.values(), ids=list(GUIDES))


def printed_name(document: dict[str, Any]) -> str:
    """Return an object's name as kubectl prints it after an apply."""
    group, _, _ = document["apiVersion"].rpartition("/")
    kind = document["kind"].lower() + (f".{group}" if group else "")
    return f"{kind}/{document['metadata']['name']}"


def blocks(guide: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)


def variables() -> set[str]:
    """Every environment variable that a setting is read from."""
    named = {f"KONDUCTOR_{name.upper()}" for name in Settings.model_fields}
    return {"LOG_ENDPOINT", "WATCHED_NAMESPACES", "KONDUCTOR_RETURN", *named}


@each_guide
def test_every_manifest_that_a_guide_names_exists(guide: str) -> None:
    named = re.findall(r"manifests/[\w-][\w.-]+", guide)

    assert all((MANIFESTS.parent / name.rstrip(".")).exists() for name in named)


def test_the_guide_builds_the_image_and_shows_kubectls_output_for_the_manifests() -> None:
    [shown] = re.findall(r"\$ kubectl apply -k \.\n((?:\S+ created\n)+)", INSTALL)

    assert sorted(shown.splitlines()) == sorted(f"{printed_name(document)} created" for document in ALL)
    assert f"registry.example.com/konductor-like:{__version__}" in INSTALL
    assert f"image: konductor-like:{__version__}" in (MANIFESTS / "controller_deployment.yaml").read_text(
        encoding="utf-8"
    )


def test_the_overlay_in_the_guide_fits_the_manifests() -> None:
    [overlay] = [yaml.safe_load(block) for block in blocks(INSTALL, "yaml") if "kind: Kustomization" in block]
    images = {each["image"].rpartition(":")[0] for pod in PODS for each in pod["spec"]["containers"]}
    [patch] = [yaml.safe_load(each["patch"]) for each in overlay["patches"]]
    patched = [
        document
        for document in ALL
        if (document["kind"], document["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])
    ]

    assert overlay["resources"] == [MANIFESTS.name]
    assert {image["name"] for image in overlay["images"]} == images
    assert {image.get("newTag", __version__) for image in overlay["images"]} == {__version__}
    assert [document["metadata"]["namespace"] for document in patched] == [patch["metadata"]["namespace"]]
    assert patch["data"].keys() <= variables()


@pytest.mark.parametrize("chart", sorted(CHARTS))
def test_the_guides_install_the_versions_that_were_checked(chart: str) -> None:
    about = CHARTS[chart]
    row = re.search(rf"^\| chart `{chart}`.*$", INSTALL, re.MULTILINE)

    for guide in (INSTALL, UPGRADE):
        assert f"{about['reference']} --version {about['version']} " in guide
        assert f"-f manifests/{about['values']}" in guide
    assert row
    assert about["version"] in row[0]
    assert about["app_version"] in row[0]


@each_guide
def test_every_name_of_ours_in_a_guide_exists(guide: str) -> None:
    named = set(re.findall(r"\bKONDUCTOR_(?!TEST_)[A-Z_]*[A-Z]\b", guide))

    assert named <= variables()

    keys = set(re.findall(r"trainy\.konduktor\.ai/\w+", guide))
    on_nodes = {TAINT_KEY, SUSPECT_TAINT_KEY, HEALTH_LABEL, NEEDS_LABEL, OPT_OUT_LABEL, RECORD_ANNOTATION}
    assert keys <= {*on_nodes, CONTROLS_ANNOTATION, ACT_ANNOTATION}

    [values] = documents("otel-values.yaml")
    processors = values["config"]["processors"]
    set_here = {each["key"] for each in processors["resource"]["attributes"]}
    from_the_path = {"k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "k8s.daemonset.name"}
    known = {name.replace(".", "_") for name in set_here | from_the_path}

    assert set(re.findall(r"\bk8s_\w+", guide)) <= known


def test_the_metrics_in_the_guides_exist() -> None:
    named = set(re.findall(r"\bkonductor_like_\w+", "".join(GUIDES.values())))

    assert named
    assert named <= {family.name for family in families()}


def test_the_toleration_in_the_guide_tolerates_our_taint() -> None:
    snippets = [line for line in TOLERATIONS.splitlines() if "- {key: trainy" in line]
    tolerations = [yaml.safe_load(line)[0] for line in snippets]

    assert tolerations == [{"key": TAINT_KEY, "operator": "Exists", "effect": TAINT_EFFECT}] * 2


def test_the_fake_xids_of_the_guides_have_the_described_effect() -> None:
    [line] = re.findall(r"'echo \"(.*?)\" > /dev/kmsg'", INSTALL)
    finding = find(line, Source.KERNEL)

    assert finding
    assert finding.severity is Severity.TEST

    [line] = re.findall(r"# echo \"(.*?)\" > /dev/kmsg", KERNEL_LOG)
    finding = find(line, Source.KERNEL)

    assert finding
    assert finding.severity is Severity.FATAL

    [line] = re.findall(r"^kmsg/1 heartbeat .*$", INSTALL, re.MULTILINE)
    assert parse_heartbeat(line)


@each_guide
def test_the_kubectl_commands_of_a_guide_fit_the_objects(guide: str) -> None:
    loki = {("statefulset", "loki"), ("statefulset", "loki-ingester"), ("svc", "loki")}
    objects = {("loki", *each) for each in loki} | {
        (document["metadata"].get("namespace"), document["kind"].lower(), document["metadata"]["name"])
        for document in ALL
    }
    long = {"deploy": "deployment"}
    named = re.findall(r"kubectl -n ([\w-]+)[^\n`]*? ([a-z]+)/([\w-]+)", guide)
    asked = {(namespace, long.get(kind, kind), name) for namespace, kind, name in named}

    assert asked <= objects

    for key, value in re.findall(r" pods? -l ([\w./-]+)=([\w.-]+)", guide):
        assert any(pod["metadata"]["labels"].get(key) == value for pod in PODS), f"{key}={value}"

    named = re.findall(r"kubectl label node \S+ ([\w./-]+)=(\w+)", guide)

    assert all(says_gpu({key: value}, {}, ()) or key == OPT_OUT_LABEL for key, value in named)
