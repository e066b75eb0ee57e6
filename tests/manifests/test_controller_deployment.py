"""`controller_deployment.yaml` agrees with the code: names, ports, settings, labels, rights."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like import __version__
from konductor_like.cli.app import build
from konductor_like.cluster.api.client import KUBE_TIMEOUT_SECONDS
from konductor_like.cluster.lease.election import own_identity
from konductor_like.cluster.node.decoder import _ACCELERATORS, _COUNTS, _PRESENT
from konductor_like.cluster.node.patch import OUR_TAINT
from konductor_like.controller.loop.leadership import JOIN_SECONDS
from konductor_like.settings import PREFIX, Settings, parse_listen
from tests.manifests.roles import CONTROLLER
from tools.manifests.manifests import MANIFESTS, byte_count, documents, only

NAME = "konductor-like"
TEXT = (MANIFESTS / "controller_deployment.yaml").read_text(encoding="utf-8")
DOCS = documents("controller_deployment.yaml")
SETTINGS = Settings.model_construct()
DEPLOYMENT = only(DOCS, "Deployment")["spec"]
POD = DEPLOYMENT["template"]["spec"]
[CONTAINER] = POD["containers"]
MEASURED_BYTES = 115 * 1024 * 1024
"""Bytes of the highest memory use of the controller that was measured, with 5,000 nodes."""
SERVICE = only(DOCS, "Service")
_COMMENTED_SETTING = re.compile(rf"^(  )# ({PREFIX}\w+: )", re.MULTILINE)


def all_settings() -> dict[str, str]:
    """Return the ConfigMap's data with every commented setting active."""
    [text] = [part for part in TEXT.split("\n---\n") if "\nkind: ConfigMap\n" in part]
    alive: dict[str, str] = yaml.safe_load(_COMMENTED_SETTING.sub(r"\1\2", text))["data"]
    assert all(isinstance(value, str) for value in alive.values())  # a ConfigMap has only strings
    assert len(alive) == len(_COMMENTED_SETTING.findall(text)) + len(only(DOCS, "ConfigMap")["data"])
    return alive


def field_of(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def test_the_namespace_comes_first_and_is_the_one_that_the_code_names() -> None:
    assert (DOCS[0]["kind"], DOCS[0]["metadata"]["name"]) == ("Namespace", NAME)
    elsewhere = {doc["metadata"]["namespace"] for doc in DOCS if "namespace" in doc["metadata"]} - {NAME}
    assert elsewhere == {"default"}  # the Events
    assert SETTINGS.namespace == SETTINGS.lease_name == NAME
    assert NAME in SETTINGS.excluded_namespaces  # our own log quotes fault lines


def test_the_role_for_the_lease_names_the_controllers_lease() -> None:
    rules = only(DOCS, "Role", NAME)["rules"]
    named = {rule["resources"][0]: rule["resourceNames"] for rule in rules if "resourceNames" in rule}

    assert named == {"leases": [SETTINGS.lease_name], "namespaces": [SETTINGS.namespace]}


@pytest.mark.parametrize("kind", ["ClusterRoleBinding", "RoleBinding"])
def test_every_binding_binds_only_the_account_of_the_pod(kind: str) -> None:
    bindings = [doc for doc in DOCS if doc["kind"] == kind]

    assert bindings
    for binding in bindings:
        account = {"kind": "ServiceAccount", "name": POD["serviceAccountName"], "namespace": NAME}
        assert binding["subjects"] == [account]
    assert f"system:serviceaccount:{NAME}:{POD['serviceAccountName']}" == CONTROLLER


def test_the_pod_runs_an_installed_command_of_this_version() -> None:
    assert CONTAINER["image"] == f"{NAME}:{__version__}"

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    command, *arguments = CONTAINER["command"]

    assert command in project["project"]["scripts"]
    assert arguments == ["run"]
    assert "run" in {each.name for each in build().registered_commands}


def test_the_service_leads_to_the_port_of_the_pod_and_prometheus_finds_it() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]

    assert DEPLOYMENT["selector"]["matchLabels"] == labels == SERVICE["spec"]["selector"]

    _, listened = parse_listen(SETTINGS.listen)
    [port] = CONTAINER["ports"]
    [served] = SERVICE["spec"]["ports"]

    assert port == {"name": "metrics", "containerPort": listened}
    assert served == {"name": "metrics", "port": listened, "targetPort": port["name"]}
    assert SERVICE["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(SERVICE["spec"]["ports"][0]["port"]),
        "prometheus.io/path": "/metrics",
    }
    assert SERVICE["spec"]["publishNotReadyAddresses"] is True


# Settings.


@pytest.mark.parametrize("variable", [name for name in all_settings() if name.startswith(PREFIX)])
def test_every_offered_setting_exists_and_shows_its_default(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, default = all_settings()[variable], Settings.model_fields[field_of(variable)].default
    monkeypatch.setenv(variable, shown)

    read = getattr(Settings(), field_of(variable))

    if default in (None, ""):
        assert read not in (None, "")  # an example
    else:
        assert read == default


def test_the_lease_gets_the_name_of_the_pod() -> None:
    fields = [each for each in CONTAINER["env"] if "valueFrom" in each]
    given = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in fields}

    assert given == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    assert own_identity(given) == "metadata.name_metadata.uid"


@pytest.mark.parametrize(
    ("setting", "source", "created"),
    [
        (
            "rules_file",
            {"configMap": {"name": "konductor-like-rules", "optional": True}},
            "create configmap konductor-like-rules --from-file=rules.yaml",
        ),
        (
            "notify_slack_file",
            {"secret": {"secretName": "konductor-like-slack", "optional": True}},
            "create secret generic konductor-like-slack --from-file=url",
        ),
        ("notify_webhook_file", {"secret": {"secretName": "konductor-like-webhook", "optional": True}}, ""),
        (
            "recovery_file",
            {"configMap": {"name": "konductor-like-recovery", "optional": True}},
            "",
        ),
    ],
)
def test_a_file_of_the_users_comes_from_an_optional_volume(
    setting: str, source: dict[str, Any], created: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    file: Path = getattr(Settings(), setting)
    [mount] = [each for each in CONTAINER["volumeMounts"] if each["mountPath"] == str(file.parent)]
    [volume] = [each for each in POD["volumes"] if each["name"] == mount["name"]]

    assert len(given) == len(CONTAINER["volumeMounts"]) == len(POD["volumes"]) == 4
    assert mount["readOnly"]
    assert "subPath" not in mount  # such a file would never be updated
    assert volume == {"name": mount["name"], **source}
    assert created in TEXT
    assert created.endswith(file.name) or not created


# Scheduling and resources.


def test_the_pod_avoids_gpu_nodes_and_tolerates_our_taint() -> None:
    [(affinity, terms)] = POD["affinity"]["nodeAffinity"].items()
    [expressions] = [term["preference"]["matchExpressions"] for term in terms]

    assert affinity == "preferredDuringSchedulingIgnoredDuringExecution"
    assert {each["operator"] for each in expressions} == {"DoesNotExist"}
    assert {each["key"] for each in expressions} == {
        *_PRESENT,
        *_ACCELERATORS,
        *_COUNTS,
    }

    tolerations: list[dict[str, Any]] = POD["tolerations"]
    assert {**OUR_TAINT, "operator": "Equal"} in tolerations
    assert all("key" in toleration for toleration in tolerations)  # not simply everything


def test_the_deployment_is_one_small_pod_with_time_to_release_the_lease() -> None:
    assert set(CONTAINER["resources"]["requests"]) == {"cpu", "memory"}
    assert set(CONTAINER["resources"]["limits"]) == {"memory"}
    assert byte_count(CONTAINER["resources"]["requests"]["memory"]) >= MEASURED_BYTES
    assert byte_count(CONTAINER["resources"]["limits"]["memory"]) >= 2 * MEASURED_BYTES
    assert (DEPLOYMENT["replicas"], DEPLOYMENT["strategy"]) == (1, {"type": "Recreate"})

    release_seconds = 3 * SETTINGS.lease_duration_seconds * 2 / 3 / 4  # three requests at most
    needed_seconds = KUBE_TIMEOUT_SECONDS + JOIN_SECONDS + release_seconds

    assert POD["terminationGracePeriodSeconds"] >= needed_seconds


# Pod security, field by field of the standard `restricted`.


def test_the_pod_meets_the_security_standard_of_its_namespace() -> None:
    labels = DOCS[0]["metadata"]["labels"]
    modes = {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "warn", "audit")}

    assert modes == {"restricted"}
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }

    for field in ("hostNetwork", "hostPID", "hostIPC", "initContainers"):
        assert field not in POD
    assert not any("hostPath" in volume for volume in POD["volumes"])
    assert "hostPort" not in CONTAINER["ports"][0]
    assert only(DOCS, "ServiceAccount")["automountServiceAccountToken"] is False
    assert POD["automountServiceAccountToken"] is True
