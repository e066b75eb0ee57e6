"""The rules of ``gpu_alerts.yaml`` name metrics and labels that their exporters have.

promtool, if it is installed, proves that each alert fires when it should, and is silent otherwise.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like.catalog import load_catalog
from konductor_like.policy.node.alerts import OVER_NS
from tools.generate_docs import DOCS
from tools.manifests.manifests import documents, seconds

PROMTOOL = shutil.which("promtool")
UNIT_TESTS = Path(__file__).with_name("gpu_alerts_test.yaml")
EXPOSITIONS = Path(__file__).parents[1] / "data" / "expositions"
OPTIONAL = "dcgm_exporter_optional.prom"
"""The metrics that a user of dcgm-exporter must enable."""
PAGE = DOCS / "use" / "gpu-alert-rules.md"
[PROMETHEUS_RULE] = documents("gpu_alerts.yaml")
GROUPS = PROMETHEUS_RULE["spec"]["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {
    "konductor_gpus": {"cluster", "node"},
    "konductor_efa_adapters": {"cluster", "node"},
    "konductor_exporter_up": {"cluster", "node", "exporter"},
    "konductor_gpu_nvlink_down": {"cluster", "node", "gpu", "UUID", "pci_bus_id"},
    "konductor_rdma_port_down": {"cluster", "node", "device", "port"},
    "konductor_node_exporter_node": {"cluster", "job", "instance", "node"},
    "konductor_gpu_pods_failing": {"cluster", "node", "namespace"},
}
"""The labels of each series that the rules record."""
OF_TARGETS = {"cluster", "job", "instance", "node"}
"""Labels that Prometheus adds, or that a user adds by relabelling."""
NODE_OF = {
    "dcgm": '"node", ";", "node", "Hostname", "hostname"), "node", "$1", "node", ";*([^;]*).*")',
    "node": '"node", ";", "node", "nodename"), "node", "$1", "node", ";*([^;]*).*")',
}
"""How a rule finds the Node: the first label that is not empty. dcgm-exporter renamed `Hostname`. The metrics
of kube-state-metrics have the label `node`."""
PARTS = {"dcgm": ["gpu", "UUID", "pci_bus_id"], "node": ["device", "port"], "kube": []}
"""Labels that say which part of the node an alert is about."""
WHOLE_NODE = {"KonductorGPUsMissing", "KonductorEFAMissing"}
"""Alerts that compare a series that a rule records for each node."""
METRIC = r"\b(?:DCGM_(?:FI|EXP)_|node_(?=\w*_)|kube_|konductor_)\w+"


def exposed(file: str) -> dict[str, set[str]]:
    """Return the labels of each metric of a recorded exposition."""
    found = defaultdict[str, set[str]](set)
    text = (EXPOSITIONS / file).read_text("utf-8")
    for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
        found[name] |= set(re.findall(r'(\w+)="', labels))
    return found


LABELS = {
    name: labels | OF_TARGETS
    for file in sorted(path.name for path in EXPOSITIONS.iterdir())
    for name, labels in exposed(file).items()
} | RECORDED


def metrics_of(expression: str) -> set[str]:
    """Return the metrics of an expression."""
    return set(re.findall(METRIC, expression))


def sources(expression: str) -> set[str]:
    """Return the exporters' metrics that an expression reads, also through a series that a rule records."""
    names = metrics_of(expression)
    recorded = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
    recorded.pop("konductor_node_exporter_node")
    deeper = [sources(recorded[name].replace(name, "")) for name in names if name in recorded]
    return {name for name in names if name not in RECORDED}.union(*deeper)


def exporter_of(expression: str) -> str:
    """Return the exporter whose metrics the expression reads."""
    names = metrics_of(expression)
    if any(name.startswith(("kube_", "konductor_gpu_pods")) for name in names):
        return "kube"
    return "dcgm" if any(name.startswith(("DCGM_", "konductor_gpu")) for name in names) else "node"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_metrics_and_labels_that_the_exporters_have(rule: dict[str, Any]) -> None:
    expression = rule["expr"]
    names = metrics_of(expression)
    known = {label for name in names for label in LABELS[name]}
    matched = re.findall(rf"({METRIC})\{{(.*?)\}}", expression)
    grouped = re.findall(r"\b(?:by|on|group_left) \((.*?)\)", expression)

    assert names <= set(LABELS)
    for name, matchers in matched:
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers)) <= LABELS[name]
    assert {label for labels in grouped for label in re.findall(r"\w+", labels)} <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_rule_finds_the_node_in_the_same_way(rule: dict[str, Any]) -> None:
    expression = " ".join(rule["expr"].split())
    exporter = exporter_of(expression)
    selected = [part for part in re.split(r"\b(?:max|min|group) by ", expression) if "DCGM_" in part]

    found = expression.count(NODE_OF[exporter]) if exporter in NODE_OF else 0
    assert expression.count("label_join(") == found
    assert all(part.count("label_join(") == 1 for part in selected)


def test_the_recorded_expositions_have_no_metric_that_no_rule_reads() -> None:
    read = {name for rule in RULES for name in metrics_of(rule["expr"])}

    assert read == set(LABELS) - {"konductor_exporter_up"}


def test_the_page_has_a_line_for_each_metric_that_a_user_must_enable() -> None:
    lines = re.findall(r"^(DCGM_\w+), +(?:gauge|counter), ", PAGE.read_text("utf-8"), re.MULTILINE)

    assert set(lines) | {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"} == set(exposed(OPTIONAL))
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("alert", ALERTS)
def test_the_page_says_of_an_alert_what_it_needs(alert: str) -> None:
    section = PAGE.read_text("utf-8").partition(f"\n### {alert}\n")[2].partition("\n#")[0]
    own = sources(ALERTS[alert]["expr"])

    assert section, f"{PAGE.name} has no section ### {alert}"
    for name in own - {"node_infiniband_info", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"}:
        assert f"`{name}" in section
    assert ("*Enable" in section) == bool(own & set(exposed(OPTIONAL)))


def test_the_catalogue_and_the_rules_name_the_same_alerts_and_exporters() -> None:
    catalogue = {name: rule.exporter for name, rule in load_catalog().alerts.items()}

    assert catalogue == {name: exporter_of(rule["expr"]) for name, rule in ALERTS.items()}
    assert {rule["labels"]["exporter"] for rule in RULES if "exporter" in rule.get("labels", {})} == set(
        PARTS
    )


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_the_node_and_the_part_and_nothing_that_changes_with_pods(alert: str) -> None:
    rule = ALERTS[alert]
    exporter = exporter_of(rule["expr"])
    outermost = re.findall(r"^(or |and |- |)(\w+) by \((.*?)\)", rule["expr"], re.MULTILINE)
    counts = {"sum", "count"} if exporter == "kube" else {"max"}

    if alert in WHOLE_NODE:
        [name] = metrics_of(rule["expr"])
        assert RECORDED[name] == {"cluster", "node"}
    else:
        assert {labels for _, _, labels in outermost} == {", ".join(["cluster", "node", *PARTS[exporter]])}
        assert {name for sign, name, _ in outermost if sign != "- "} <= counts
        assert {name for sign, name, _ in outermost if sign == "- "} <= {"min"}
    assert rule["labels"] == {"severity": "warning"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_to_know_and_links_to_its_section(alert: str) -> None:
    rule = ALERTS[alert]
    parts = {"node"} if alert in WHOLE_NODE else {"node", *PARTS[exporter_of(rule["expr"])]}
    notes = rule["annotations"]
    used = {label for text in notes.values() for label in re.findall(r"\$labels\.(\w+)", text)}

    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"PROJECT_URL/blob/main/docs/use/{PAGE.name}#{alert.lower()}"
    assert "$labels.node" in notes["summary"]
    assert used <= parts


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_again_after_a_gap_before_the_controller_takes_it_for_another(alert: str) -> None:
    """Each gap of the metrics begins the wait anew, while the exporter counts as up."""
    [interval] = [seconds(group["interval"]) for group in GROUPS if ALERTS[alert] in group["rules"]]

    assert 0 < seconds(ALERTS[alert]["for"]) + 2 * interval < OVER_NS / 1e9 - 600


def test_prometheus_evaluates_often_enough_that_a_query_finds_an_alert_that_fires() -> None:
    """A query looks back five minutes."""
    assert {seconds(group["interval"]) for group in GROUPS} <= {60, 120}


def test_each_alert_has_unit_tests_of_firing_and_of_not_firing() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", ())]

    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(ALERTS)
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == set(ALERTS)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus)")
def test_promtool_accepts_the_rules_and_their_unit_tests_pass(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(PROMETHEUS_RULE["spec"]))
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    for rule in (rule for group in spec["groups"] for rule in group["rules"]):
        rule.pop("annotations", None)  # promtool would compare them word for word
        rule["expr"] = re.sub(r"(?<=\[|\s)1d\b", "3h", rule["expr"])  # a day would take promtool long
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    shutil.copy(UNIT_TESTS, tmp_path)

    for arguments in (("check", "rules", "full.yaml"), ("test", "rules", UNIT_TESTS.name)):
        done = subprocess.run(
            [str(PROMTOOL), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
