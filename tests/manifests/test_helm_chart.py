"""The Helm chart says what the manifests say: its copies, its goldens by the real Helm, what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.catalog.user_rules import read_user_rules
from konductor_like.settings import Settings
from konductor_like.settings_report import REMOVED
from konductor_like_sandbox.kubernetes import Review
from tests.manifests.policy import Policy
from tests.manifests.schema import problems
from tests.manifests.test_guides import GUIDES, INSTALL, blocks
from tools.manifests.helm_chart import (
    AS_TEXT,
    CHART,
    DASHBOARD,
    GOLDENS,
    REFUSED,
    RELEASES,
    copies,
    goldens,
    head,
    names,
    number_as_text,
)
from tools.manifests.manifests import MONITORING, OPTIONAL, dashboard, documents, kubectl_manifests, only

Key = tuple[str, str | None, str]
PROJECT = "https://git.example.com/gpu/konductor-like"
REMOVED_VALUES = {"refusedPods"}
"""Values of an earlier version that are accepted without effect, so that ``--reuse-values`` works."""
SETTINGS_HASH = "trainy.konduktor.ai/settings-sha256"


def keyed(objects: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Return the objects by kind, namespace and name."""
    return {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in objects}


@cache
def rendered(name: str) -> list[dict[str, Any]]:
    """Return the objects of a golden."""
    text = (GOLDENS / f"{name}.yaml").read_text("utf-8")
    return [each for each in yaml.safe_load_all(text) if each is not None]


def pod_of(name: str, kind: str = "Deployment") -> Any:
    """Return the pod template of the controller, or of the reader, in a golden."""
    return only(rendered(name), kind)["spec"]["template"]


MANIFEST_OBJECTS = keyed([each for name in kubectl_manifests() for each in documents(name)])


def test_the_copies_in_the_chart_are_those_of_their_sources() -> None:
    written = dict(copies())

    assert {path for path, text in written.items() if path.read_text("utf-8") != text} == set(), (
        "run make chart"
    )
    assert set((CHART / "files").iterdir()) == {path for path in written if path.parent.name == "files"}


@pytest.mark.parametrize("file", [*(f"{name}.yaml" for name in goldens()), "refused.txt"])
def test_a_golden_was_rendered_from_the_present_chart_and_values(file: str) -> None:
    with (GOLDENS / file).open(encoding="utf-8") as golden:
        assert golden.readline() == head(Path(file).stem), "run make chart; it needs helm"


def test_the_default_rendering_is_the_manifests_object_by_object() -> None:
    expected = keyed(json.loads(json.dumps(list(MANIFEST_OBJECTS.values()))))
    # Helm creates the namespace of a release (--create-namespace). A chart cannot contain it.
    del expected["Namespace", None, "konductor-like"]
    # A change of the settings restarts the pod. With the manifests a person does that.
    pod = expected["Deployment", "konductor-like", "konductor-like"]["spec"]["template"]
    pod["metadata"]["annotations"] = {
        SETTINGS_HASH: pod_of("default")["metadata"]["annotations"][SETTINGS_HASH]
    }

    assert keyed(rendered("default")) == expected


def test_each_optional_value_adds_the_objects_of_its_manifest_and_no_other() -> None:
    optional = keyed([each for name in (*OPTIONAL, *MONITORING) for each in documents(name)])
    added = {
        key: each
        for key, each in keyed(rendered("everything")).items()
        if key not in keyed(rendered("default"))
    }
    del added["ConfigMap", "konductor-like", "konductor-like-rules"]
    if DASHBOARD.exists():
        [shown] = added.pop(("ConfigMap", "konductor-like", "konductor-like-dashboard"))["data"].values()
        assert shown.replace(PROJECT, "PROJECT_URL") == DASHBOARD.read_text("utf-8")

    for key in [key for key in added if key[0] == "PrometheusRule"]:
        added[key] = json.loads(json.dumps(added[key]).replace(PROJECT, "PROJECT_URL"))
    assert added == optional


@pytest.mark.parametrize(
    ("name", "family"), [("konductor-like", ""), ("konductor-like-gpu-alerts", "alert.")]
)
def test_without_a_repository_each_alert_names_the_command_that_explains_it(name: str, family: str) -> None:
    groups = only(rendered("renamed"), "PrometheusRule", name)["spec"]["groups"]

    for rule in (each for group in groups for each in group["rules"] if "alert" in each):
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert rule["annotations"]["runbook"] == f"konductor-like explain {family}{rule['alert']}"


def test_without_a_repository_the_dashboard_has_no_links() -> None:
    """No golden has such a dashboard, because it is long: the pattern is the template's, for Go's engine."""
    [pattern] = re.findall(r"\$links := `(.*)`", (CHART / "templates" / "_helpers.tpl").read_text("utf-8"))

    text = re2.sub(pattern, r'"\1": []', DASHBOARD.read_text("utf-8"))

    shown = json.loads(text)
    [alerts] = [panel for panel in shown["panels"] if panel["title"] == "Alerts"]
    assert "PROJECT_URL" not in text
    assert shown["links"] == alerts["fieldConfig"]["overrides"][0]["properties"][0]["value"] == []
    assert {**shown, "links": dashboard()["links"], "panels": []} == {**dashboard(), "panels": []}


def test_every_object_of_the_goldens_has_valid_fields() -> None:
    known = [each for name in goldens() for each in rendered(name) if "coreos" not in each["apiVersion"]]

    assert [problem for each in known for problem in problems(each)] == []


def test_the_values_reach_the_pods() -> None:
    controller, reader = pod_of("everything")["spec"], pod_of("everything", "DaemonSet")["spec"]
    [container], [kmsg] = controller["containers"], reader["containers"]

    assert container["image"] == f"konductor-like@sha256:{'0' * 64}"
    assert kmsg["image"] == "docker.io/library/python:3.13-slim"
    assert container["imagePullPolicy"] == kmsg["imagePullPolicy"] == "Always"
    assert controller["imagePullSecrets"] == reader["imagePullSecrets"] == [{"name": "registry"}]
    assert (controller["nodeSelector"], reader["nodeSelector"]) == ({"pool": "cpu"}, {"pool": "gpu"})
    assert controller["affinity"] == {"podAffinity": {}}
    assert controller["priorityClassName"] == "system-cluster-critical"
    assert [each["key"] for each in controller["tolerations"]][-1] == "nvidia.com/gpu"
    assert len(controller["tolerations"]) == 1 + len(pod_of("default")["spec"]["tolerations"])
    assert "HTTPS_PROXY" in {each["name"] for each in container["env"]}
    mounts = ["rules", "notify-slack", "notify-webhook", "recovery", "ca"]
    assert [each["name"] for each in container["volumeMounts"]] == mounts
    assert [each["secret"]["secretName"] for each in controller["volumes"][1:3]] == ["slack", "webhook"]
    assert [each["name"] for each in controller["volumes"]] == mounts
    assert pod_of("everything")["metadata"]["annotations"]["example.com/team"] == "gpu"
    assert settings_of("everything")["KONDUCTOR_NODE_CONDITION"] == "TrainyGPUFaulty"


def settings_of(name: str) -> dict[str, str]:
    """Return the settings that the chart writes into the ConfigMap."""
    data: dict[str, str] = only(
        [each for each in rendered(name) if each["metadata"].get("namespace") != "dmesg-logging"],
        "ConfigMap",
        "konductor-like",
    )["data"]
    return data


def test_an_existing_loki_needs_its_address_its_tenant_and_the_name_of_a_secret() -> None:
    changed = {
        key: each
        for key, each in keyed(rendered("existing-loki")).items()
        if each != keyed(rendered("default"))[key]
    }
    [container] = pod_of("existing-loki")["spec"]["containers"]

    assert {kind for kind, _, _ in changed} == {"ConfigMap", "DaemonSet", "Deployment"}
    assert settings_of("existing-loki") == {
        "LOG_ENDPOINT": "https://logs.example.com/loki-prod",
        "KONDUCTOR_LOKI_TENANT": "gpu",
        "WATCHED_NAMESPACES": "team-a,team-b",
    }
    assert container["envFrom"][1] == {"secretRef": {"name": "loki-credentials"}}  # not optional
    # A tag of the reader alone is one of the controller's repository.
    [kmsg] = pod_of("existing-loki", "DaemonSet")["spec"]["containers"]
    assert kmsg["image"] == "registry.example.com/konductor-like:1.2.3-reader"


def test_settings_arrive_as_the_controller_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings_of("own-rules").items():
        monkeypatch.setenv(name, value)
    read = Settings()

    assert (read.brake_max_nodes, read.brake_max_percent, read.loki_limit) == (0, 12.5, 1_000_000)
    assert read.tail is False
    assert read.extra_matchers == 'k8s_cluster_name="prod"'


def test_a_change_of_settings_restarts_the_pod_and_a_change_of_rules_does_not() -> None:
    hashes = {name: pod_of(name)["metadata"]["annotations"][SETTINGS_HASH] for name in goldens()}

    assert len({*hashes.values()}) == len(hashes)

    without = json.dumps(pod_of("own-rules")).replace(hashes["own-rules"], hashes["default"])
    assert without == json.dumps(pod_of("default"))


def container_settings(name: str) -> Settings:
    """Return the settings of the controller's container, in which ``env`` wins over the ConfigMap."""
    [container] = pod_of(name)["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in (settings_of(name) | given).items():
            patch.setenv(variable, value)
        return Settings()


def test_validations_arrive_as_the_controller_reads_them() -> None:
    read = container_settings("everything")
    assert read.validation_image
    assert (read.validation_tolerations, read.recovery_node_selector) == (("team", "dedicated"), "pool=a")

    read = container_settings("renamed")
    assert (read.validation_command, read.validation_level) == ("run.sh", 3)
    assert read.validation_namespace == "gpu-tests"


@pytest.mark.parametrize(
    ("name", "return_by", "recovery"), [("everything", "validated", "rehearse"), ("renamed", "ask", "on")]
)
def test_the_values_that_were_a_file_win_over_the_settings_and_there_is_no_file_any_more(
    name: str, return_by: str, recovery: str
) -> None:
    """With the values of an earlier version no node returns that its file kept out."""
    read = container_settings(name)

    assert (read.return_by, read.recovery) == (return_by, recovery)
    assert not read.policy().returns_by_reboot
    assert not read.policy().returns_by_validation or read.policy().rehearses
    assert "konductor-like-recovery" not in {each["metadata"]["name"] for each in rendered(name)}
    notes = (GOLDENS / f"{name}.yaml").read_text("utf-8").partition("# NOTES:\n")[2]
    assert "the next version refuses recovery.return and recovery.recovery" in notes


def test_by_default_there_is_no_right_and_no_setting_for_validations() -> None:
    found = json.dumps([each for each in rendered("default") if each["kind"] != "Deployment"])

    assert "VALIDATION" not in found
    assert "validation" not in found.replace("validationActions", "").replace('"validations"', "")
    assert '"batch"' not in found


@pytest.mark.parametrize(("name", "changes"), [("own-rules", 2), ("everything", 1)])
def test_the_rules_arrive_as_a_file_that_the_controller_accepts(name: str, changes: int) -> None:
    text = only(rendered(name), "ConfigMap", "konductor-like-rules")["data"]["rules.yaml"]

    assert len(read_user_rules(text, "rules.yaml", load_catalog()).overrides) == changes


def test_another_namespace_is_everywhere_and_the_reader_can_stay_away() -> None:
    objects = rendered("renamed")
    text = json.dumps(objects)

    namespaces = {each["metadata"].get("namespace") for each in objects}
    assert namespaces == {None, "default", "gpu-watch", "gpu-tests"}
    assert '"namespace": "konductor-like' not in text
    assert "serviceaccount:konductor-like" not in text
    assert only(objects, "Namespace")["metadata"]["name"] == "gpu-tests"
    assert '"kubernetes.io/metadata.name": "gpu-tests"' in text
    assert only(objects, "Role", "konductor-like")["rules"][-1]["resourceNames"] == ["gpu-watch"]
    assert settings_of("renamed")["KONDUCTOR_EXCLUDED_NAMESPACES"] == "gpu-watch"


@pytest.mark.parametrize(
    ("name", "namespace", "allowed"),
    [
        ("renamed", "gpu-watch", True),
        ("renamed", "default", True),
        ("renamed", "konductor-like", False),
        ("everything", "konductor-like", True),
        ("everything", "gpu-watch", False),
    ],
)
def test_the_policy_of_job_events_allows_the_events_on_the_lease_of_the_release(
    name: str, namespace: str, allowed: bool
) -> None:
    policy = Policy(
        [each for each in rendered(name) if each["metadata"]["name"] == "konductor-like-job-events"]
    )
    user = f"system:serviceaccount:{RELEASES.get(name, ('', 'konductor-like'))[1]}:konductor-like"
    event = {
        "metadata": {"name": "konductor-like.gpubrakeholding.1", "namespace": namespace},
        "reason": "GPUBrakeHolding",
        "type": "Warning",
        "message": "The brake holds",
        "involvedObject": {"kind": "Lease", "namespace": namespace, "uid": "u"},
    }

    denied = policy(Review(user, "CREATE", "", "events", "", "", event, None))

    assert denied.endswith("" if allowed else "no other Event about a job than GPUNodeFaulty")
    assert (not denied) == allowed, denied


def test_each_group_of_people_has_its_own_name_even_if_it_is_the_default_of_another() -> None:
    bound: dict[str, set[str]] = {}
    for each in rendered("renamed"):
        for subject in each.get("subjects", ()):
            if subject["kind"] == "Group":
                bound.setdefault(each["roleRef"]["name"], set()).add(subject["name"])

    assert bound == {
        "konductor-like-viewer": {"konductor-like-operators", "konductor-like-testers"},
        "konductor-like-operator": {"konductor-like-testers"},
        "konductor-like-tester": {"oidc:gpu testers"},
    }


# The values.


@pytest.mark.parametrize("what", REFUSED)
def test_helm_refuses(what: str) -> None:
    told = (GOLDENS / "refused.txt").read_text("utf-8").partition(f"# {what}\n")[2].partition("\n\n")[0]
    *parents, key = REFUSED[what].partition("=")[0].split(".")[:2]

    assert f"{'--set-string' if what in AS_TEXT else '--set'} {REFUSED[what]}\n- " in told
    assert key in told or parents[0] in told


BOUNDS = st.sampled_from([0, 0.05, 1, 2, 10, 16, 64, 100, 365, 600, 3600, 604800, 2678400, 70.25])


@given(
    st.dictionaries(st.sampled_from(["minimum", "exclusiveMinimum", "maximum"]), BOUNDS),
    BOUNDS,
    st.sampled_from([0, 1, -1, 0.5, -0.5, 0.01, -0.01, 0.001, -0.001]),
    st.sampled_from(["", "0", "00"]),
)
def test_a_number_as_text_has_the_bounds_of_the_number(
    bounds: dict[str, float], near: float, step: float, zeros: str
) -> None:
    number = Decimal(str(max(near + step, 0)))
    schema = number_as_text(bounds)
    within = (
        number >= Decimal(str(bounds.get("minimum", 0)))
        and number <= Decimal(str(bounds.get("maximum", 10**9)))
        and number > Decimal(str(bounds.get("exclusiveMinimum", -1)))
    )

    assert is_accepted(schema, f"{zeros}{number:f}") == within


@pytest.mark.parametrize("text", ["", "-1", "abc", "1.2.3", "1e3", ".", "5.", " 5"])
def test_a_text_that_is_no_number_is_refused(text: str) -> None:
    assert not is_accepted(number_as_text({"minimum": 0, "maximum": 100}), text)


def is_accepted(schema: Mapping[str, Any], text: str) -> bool:
    """Whether the text fits the patterns, as a JSON schema combines them."""
    wanted = [schema, *schema.get("allOf", ())]
    unwanted = schema.get("not", {}).get("anyOf", ())
    return all(re2.search(each["pattern"], text) for each in wanted) and not any(
        re2.search(each["pattern"], text) for each in unwanted
    )


def test_every_default_value_is_in_the_schema_and_nothing_else_is() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

    def compare(part: Mapping[str, Any], value: Mapping[str, Any], place: str) -> None:
        assert part["additionalProperties"] is False, place
        if place != ".settings":  # a user names those that differ
            assert part["properties"].keys() - {"global", *REMOVED_VALUES} == value.keys(), place
        for key, each in value.items():
            if "properties" in part["properties"][key] and isinstance(each, dict):
                compare(part["properties"][key], each, f"{place}.{key}")

    compare(schema, values, "")


def test_a_setting_wins_over_the_value_that_brings_it_and_the_right_stays() -> None:
    assert settings_of("renamed")["KONDUCTOR_NODE_CONDITION"] == ""
    assert only(rendered("renamed"), "ClusterRole", "konductor-like-node-condition")["rules"]


def test_every_setting_is_a_value_but_secrets_and_those_that_the_chart_fixes() -> None:
    assert "KONDUCTOR_BRAKE_MAX_NODES" in names()
    assert not {"KONDUCTOR_LOKI_PASSWORD", "KONDUCTOR_LOKI_BEARER_TOKEN"} & {*names()}
    [container] = pod_of("default")["spec"]["containers"]
    assert not {each["name"] for each in container["env"]} & {*names()}


def test_a_removed_setting_is_accepted_and_the_notes_say_what_to_do_instead() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert {*REMOVED} <= {*schema["properties"]["settings"]["properties"]}

    said = " ".join((GOLDENS / "own-rules.yaml").read_text("utf-8").split())
    for name in ("KONDUCTOR_COMMON_NODE_JOBS", "KONDUCTOR_SUSPECT_TAINT"):
        warning = f"WARNING: settings.{name} is set, and this version has no such setting: {REMOVED[name]}."
        assert warning in said


def test_a_removed_value_has_no_effect_and_the_notes_name_it() -> None:
    assert "refusedPods" in (GOLDENS / "renamed.values.yaml").read_text("utf-8")
    [with_it, without] = [(GOLDENS / f"{name}.yaml").read_text("utf-8") for name in ("renamed", "everything")]

    assert "WARNING: refusedPods.enabled is set, and this version has no such value." in with_it
    assert "refusedPods" not in without
    assert "refused-pods" not in with_it
    assert "KONDUCTOR_REFUSED_PODS" not in settings_of("renamed")


def test_the_values_in_the_guide_are_values_of_the_chart() -> None:
    [shown, pinned] = [yaml.safe_load(each) for each in blocks(INSTALL, "yaml") if "\nimage:" in f"\n{each}"]
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

    assert shown.keys() | pinned.keys() == {"image", "settings"}
    assert shown["image"].keys() | pinned["image"].keys() <= values["image"].keys()
    assert {*shown["settings"]} <= {*names()}
    for name, guide in GUIDES.items():
        for parent, key in re.findall(r"`(\w+)\.(\w+)(?:: true)?`", guide):
            assert not isinstance(values.get(parent), dict) or key in values[parent], (
                f"{name}: {parent}.{key}"
            )


# The other way of installing.


def test_the_kustomization_is_a_base_with_the_two_manifests() -> None:
    [base] = documents("kustomization.yaml")

    assert sorted(base["resources"]) == kubectl_manifests()
