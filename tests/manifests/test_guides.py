"""The installation and operation guides name what the manifests, the charts and the code really hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like import __version__
from konductor_like.controller.metrics import Metrics
from konductor_like.detection import find, parse_heartbeat
from konductor_like.model import OPT_OUT_LABEL, TAINT_EFFECT, TAINT_KEY, Severity, Source
from konductor_like.settings import Settings
from tests.generate_docs import DOCS
from tests.manifests.manifests import MANIFESTS, documents, kubectl_manifests

README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
INSTALL = (DOCS / "install.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
GUIDES = {"README.md": README, "install.md": INSTALL, "operations.md": OPERATIONS}
CHARTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("chart_keys.toml").read_text(encoding="utf-8")
)
each_guide = pytest.mark.parametrize("guide", GUIDES.values(), ids=list(GUIDES))


def spoken(document: dict[str, Any]) -> str:
    """An object as kubectl names it after an apply."""
    group, _, _ = document["apiVersion"].rpartition("/")
    kind = document["kind"].lower() + (f".{group}" if group else "")
    return f"{kind}/{document['metadata']['name']}"


def variables() -> set[str]:
    """Every environment variable that a setting is read from."""
    return {
        "LOG_ENDPOINT",
        "WATCHED_NAMESPACES",
        *(f"KONDUCTOR_{name.upper()}" for name in Settings.model_fields),
    }


@each_guide
def test_every_manifest_that_a_guide_names_exists(guide: str) -> None:
    named = re.findall(r"manifests/[\w.-]+", guide)

    assert named
    assert all((MANIFESTS.parent / name.rstrip(".")).exists() for name in named)


@pytest.mark.parametrize("manifest", kubectl_manifests())
def test_the_guide_shows_what_kubectl_says_when_it_applies_a_manifest(manifest: str) -> None:
    created = "\n".join(f"{spoken(document)} created" for document in documents(manifest))

    assert f"$ kubectl apply -f manifests/{manifest}\n{created}\n" in INSTALL


@pytest.mark.parametrize("chart", sorted(CHARTS))
def test_the_guides_install_the_versions_that_were_checked(chart: str) -> None:
    about = CHARTS[chart]
    row = re.search(rf"^\| chart `{chart}`.*$", OPERATIONS, re.MULTILINE)

    assert f"{about['reference']} --version {about['version']} " in INSTALL
    assert f"-f manifests/{about['values']}" in INSTALL
    assert row
    assert about["version"] in row[0]
    assert about["app_version"] in row[0]


def test_the_guide_s_namespaces_and_releases_are_those_that_the_parts_expect() -> None:
    endpoint = Settings.model_fields["log_endpoint"].default

    assert endpoint.startswith("http://loki.loki.svc.")
    assert "helm install loki " in INSTALL
    assert "--namespace loki " in INSTALL
    assert "helm install otel-collector " in INSTALL
    assert "--namespace otel-collector " in INSTALL


def test_the_volume_in_the_guide_is_the_one_that_is_asked_for() -> None:
    [values] = documents("loki-values.yaml")

    assert f"a {values['singleBinary']['persistence']['size']} volume" in INSTALL


@each_guide
def test_every_setting_that_a_guide_names_exists(guide: str) -> None:
    named = set(re.findall(r"\bKONDUCTOR_(?!TEST_)[A-Z_]*[A-Z]\b", guide))

    assert named <= variables()


def test_every_metric_in_the_guide_exists() -> None:
    described = [value.describe()[0] for value in vars(Metrics()).values() if hasattr(value, "describe")]
    exposed = {metric.name + ("_total" if metric.type == "counter" else "") for metric in described}
    named = set(re.findall(r"\bkonductor_like_\w+", OPERATIONS))

    assert named
    assert named <= exposed


def test_the_alerts_are_a_rule_file_that_prometheus_reads() -> None:
    [block] = re.findall(r"```yaml\n(groups:.*?)```", OPERATIONS, re.DOTALL)
    [group] = yaml.safe_load(block)["groups"]

    assert all({"alert", "expr", "annotations"} <= rule.keys() for rule in group["rules"])


@each_guide
def test_a_guide_names_our_taint_and_no_other(guide: str) -> None:
    keys = set(re.findall(r"trainy\.konduktor\.ai/[\w-]+", guide))

    assert keys <= {TAINT_KEY, "trainy.konduktor.ai/record", OPT_OUT_LABEL}


def test_the_toleration_in_the_guide_tolerates_our_taint() -> None:
    snippets = [line for line in OPERATIONS.splitlines() if "- {key: trainy" in line]
    tolerations = [yaml.safe_load(line)[0] for line in snippets]

    assert len(tolerations) == 3
    assert all(
        toleration == {"key": TAINT_KEY, "operator": "Exists", "effect": TAINT_EFFECT}
        for toleration in tolerations
    )


def test_the_fake_xid_in_the_guide_taints_and_is_marked_as_a_test() -> None:
    [line] = re.findall(r"'echo \"(.*?)\" > /dev/kmsg'", INSTALL)
    finding = find(line, Source.KERNEL)

    assert finding
    assert finding.severity is Severity.TEST


def test_the_fake_xid_in_the_readme_taints() -> None:
    [line] = re.findall(r"# echo \"(.*?)\" > /dev/kmsg", README)
    finding = find(line, Source.KERNEL)

    assert finding
    assert finding.severity is Severity.FATAL


def test_the_heartbeat_in_the_guide_is_one() -> None:
    [line] = re.findall(r"^kmsg/1 heartbeat .*$", INSTALL, re.MULTILINE)

    assert parse_heartbeat(line)


def test_the_guide_builds_the_image_that_the_manifest_names() -> None:
    assert f"registry.example.com/konductor-like:{__version__}" in INSTALL
    assert f"image: konductor-like:{__version__}" in (MANIFESTS / "controller_deployment.yaml").read_text(
        encoding="utf-8"
    )


def test_kubectl_finds_what_the_guide_asks_it_for() -> None:
    objects = {
        (document["metadata"].get("namespace"), document["kind"].lower(), document["metadata"]["name"])
        for manifest in kubectl_manifests()
        for document in documents(manifest)
    }
    short = {"deploy": "deployment"}
    asked = re.findall(
        r"kubectl -n (konductor-like|dmesg-logging) [^\n]*?\b(deploy|deployment|daemonset)[/ ](\w[\w-]*)",
        INSTALL + OPERATIONS,
    )

    assert asked
    assert {(namespace, short.get(kind, kind), name) for namespace, kind, name in asked} <= objects
