"""The alerts, the ServiceMonitor and the dashboard name only metrics, labels and ports that exist.

promtool, if it is installed, proves that each alert fires when it should.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like.controller.reporting.metrics import Metrics
from tools.generate_docs import DOCS, families
from tools.manifests.manifests import MANIFESTS, documents, only

PROMTOOL = shutil.which("promtool")
UNIT_TESTS = Path(__file__).with_name("prometheus_rule_test.yaml")
[PROMETHEUS_RULE] = documents("prometheus_rule.yaml")
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in PROMETHEUS_RULE["spec"]["groups"] for rule in group["rules"]
}
DASHBOARD: dict[str, Any] = json.loads((MANIFESTS / "grafana_dashboard.json").read_text("utf-8"))
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for panel in DASHBOARD["panels"]}
QUERIES = {
    f"{title}, {target['refId']}": target
    for title, panel in PANELS.items()
    for target in panel.get("targets", ())
}
LABELS = {
    **{family.name: family.labels for family in families()},
    **{
        f"{family.name}{suffix}": (*family.labels, "le")
        for family in families()
        if family.kind == "histogram"
        for suffix in ("_bucket", "_sum", "_count")
    },
    "loki_discarded_samples_total": ("reason",),
    "otelcol_exporter_queue_size": (),
    "otelcol_exporter_queue_capacity": (),
}
"""The labels of each metric of the controller, of Loki and of the collector."""
OF_TARGETS = {"cluster"}
"""Labels that Prometheus adds."""
FUNCTIONS = {"label_replace", "histogram_quantile", "count_over_time", "last_over_time"}


def problems(expression: str) -> Iterator[str]:
    """Yield each metric and each label of a PromQL expression that does not exist."""
    texts = re.findall(r'label_replace\(.*?"(\w+)", ".*?", "", ""\)', " ".join(expression.split()))
    known = OF_TARGETS | set(texts)
    for name, matchers in re.findall(r"\b([a-z]\w*_\w+)\b(?:\{(.*?)\})?", expression):
        if name in FUNCTIONS:
            continue
        if name not in LABELS:
            yield f"no metric {name}"
            continue
        known |= set(LABELS[name])
        named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        yield from (f"{name} has no label {label}" for label in named - {*LABELS[name], *OF_TARGETS})
    for grouping in re.findall(r"\b(?:by|ignoring|without|on)\s*\((.*?)\)", expression):
        yield from (f"no label {label}" for label in set(re.findall(r"\w+", grouping)) - known)


def labels_of(expression: str) -> set[str]:
    """Return the labels that the series of an expression may have."""
    made = re.findall(r'"(\w+)", ".*?", "", ""\)', expression)
    names = re.findall(r"\b[a-z]\w*_\w+\b", expression)
    return OF_TARGETS | set(made) | {label for name in names for label in LABELS.get(name, ())}


def test_a_wrong_metric_or_label_is_found() -> None:
    wrong = 'sum by (sauce) (konductor_like_fault_total) or konductor_like_unread_seconds{sourced="kernel"}'

    assert set(problems(wrong)) == {
        "no metric konductor_like_fault_total",
        "konductor_like_unread_seconds has no label sourced",
        "no label sauce",
    }


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_names_metrics_and_labels_that_exist(alert: str) -> None:
    rule = RULES[alert]
    used = {label for text in rule["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}

    assert list(problems(rule["expr"])) == []
    assert used <= labels_of(rule["expr"])


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_how_grave_it_is_and_where_its_runbook_is(alert: str) -> None:
    rule = RULES[alert]
    page = f"docs/runbooks/{alert}.md"

    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"PROJECT_URL/blob/main/{page}"
    assert (DOCS.parent / page).exists()


def test_the_guide_names_each_alert_and_no_other() -> None:
    guide = (DOCS / "use" / "metrics-and-alerts.md").read_text("utf-8")

    assert set(re.findall(r"`((?:KonductorLike|Loki|Collector)\w+)`", guide)) == set(RULES)


def test_the_counters_of_the_alerts_exist_before_they_count_first() -> None:
    """Otherwise ``increase()`` does not see the first increment."""
    samples = [
        (sample.name, sample.labels) for each in Metrics().registry.collect() for sample in each.samples
    ]
    late = [
        (name, matchers)
        for rule in RULES.values()
        for name, matchers in re.findall(r"increase\((konductor_like_\w+)(?:\{(.*?)\})?\[", rule["expr"])
        if not any(
            found == name and dict(re.findall(r'(\w+)="(.*?)"', matchers)).items() <= labels.items()
            for found, labels in samples
        )
        and name
        != "konductor_like_notifications_total"  # the notifier makes those of its receivers at its start
    ]

    assert late == []


def test_each_alert_has_unit_tests_of_firing_and_of_not_firing() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]

    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(RULES)
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == set(RULES)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus)")
def test_promtool_accepts_the_alerts_and_their_unit_tests_pass(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(PROMETHEUS_RULE["spec"]))
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    for group in spec["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # promtool would compare them word for word
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    shutil.copy(UNIT_TESTS, tmp_path)

    for arguments in (("check", "rules", "full.yaml"), ("test", "rules", UNIT_TESTS.name)):
        done = subprocess.run(
            [str(PROMTOOL), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_monitor_selects_the_port_of_the_metrics() -> None:
    docs = documents("controller_deployment.yaml")
    [monitor], [policy] = documents("service_monitor.yaml"), documents("network_policy.yaml")
    service = only(docs, "Service")
    [endpoint] = monitor["spec"]["endpoints"]
    [port] = [each for each in service["spec"]["ports"] if each["name"] == endpoint["port"]]

    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": port["targetPort"], "protocol": "TCP"}]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_dashboard_names_metrics_and_labels_that_exist(query: str) -> None:
    target = QUERIES[query]
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__range", "__rate_interval"}

    assert list(problems(target["expr"])) == []
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels_of(target["expr"])
    assert used <= variables
    assert target["expr"].count("{") == target["expr"].count('{cluster=~"$cluster"')
    assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_two_clusters_with_equal_node_names_are_not_added_up() -> None:
    grouped = [re.findall(r"\bby \((.*?)\)", target["expr"]) for target in QUERIES.values()]
    by_node = [labels.split(", ") for each in grouped for labels in each if re.search(r"\bnode\b", labels)]

    assert by_node
    assert all("cluster" in labels for labels in by_node)


def test_the_dashboard_names_commands_that_exist() -> None:
    commands = re.findall(r"`konductor-like (\w+)", PANELS["What to do"]["options"]["content"])

    assert set(commands) == {"status", "explain"}
    assert "`KonductorLikeBlind`" in PANELS["What to do"]["options"]["content"]
    assert "KonductorLikeBlind" in RULES


def test_the_panels_of_the_dashboard_have_places_and_names_of_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    overlapping = [
        (a, b)
        for a, b in combinations(places, 2)
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
        if a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    ]

    assert overlapping == []
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(PANELS) == len(DASHBOARD["panels"])
    assert all(panel["type"] == "row" or panel["description"] for panel in DASHBOARD["panels"])
