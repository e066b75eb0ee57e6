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
import typer
import yaml

from konductor_like.cli.app import build
from konductor_like.controller.reporting.audit import FIELDS, SCHEMA
from konductor_like.controller.reporting.metrics import HOWS, Metrics
from konductor_like.selectors import parse_matchers
from konductor_like.settings import Settings
from tools.generate_docs import DOCS, families
from tools.manifests.manifests import dashboard, documents, only, panels

PROMTOOL = shutil.which("promtool")
UNIT_TESTS = Path(__file__).with_name("prometheus_rule_test.yaml")
[PROMETHEUS_RULE] = documents("prometheus_rule.yaml")
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in PROMETHEUS_RULE["spec"]["groups"] for rule in group["rules"]
}
DASHBOARD = dashboard()
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for panel in panels()}
QUERIES = {
    f"{title}, {target['refId']}": target
    for title, panel in PANELS.items()
    if panel["type"] != "logs"
    for target in panel.get("targets", ())
}
LOGS = {title: panel["targets"] for title, panel in PANELS.items() if panel["type"] == "logs"}
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
    "ALERTS": ("alertname", "alertstate", "severity", "node", "rule", "gpu"),
}
"""The labels of each metric of the controller, of Loki, of the collector and of Prometheus itself."""
OF_TARGETS = {"cluster"}
"""Labels that Prometheus adds."""
FUNCTIONS = {"label_replace", "histogram_quantile", "count_over_time", "last_over_time", "sum_over_time"}
METRIC = r"\b(?:[a-z]\w*_\w+|ALERTS)\b"


def problems(expression: str) -> Iterator[str]:
    """Yield each metric and each label of a PromQL expression that does not exist."""
    texts = re.findall(r'label_replace\(.*?"(\w+)", ".*?", "", ""\)', " ".join(expression.split()))
    known = OF_TARGETS | set(texts)
    for name, matchers in re.findall(rf"({METRIC})(?:\{{(.*?)\}})?", expression):
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
    names = re.findall(METRIC, expression)
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
    texts = " ".join(panel["options"]["content"] for panel in PANELS.values() if panel["type"] == "text")
    commands = re.findall(r"`konductor-like (\w+)", texts)

    assert set(commands) == {"status", "explain", "history"}
    assert set(commands) <= typer.main.get_command(build()).commands.keys()  # type: ignore[attr-defined]  # a group
    assert "`KonductorLikeBlind`" in texts
    assert "KonductorLikeBlind" in RULES


def test_the_repair_time_leaves_out_ends_that_the_metric_knows() -> None:
    left_out = re.findall(r'how!="(.*?)"', QUERIES["Median repair time, A"]["expr"])

    assert left_out == ["time"]
    assert "time" in HOWS


def overlapping(panels: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (one["title"], other["title"])
        for one, other in combinations(panels, 2)
        for a, b in [(one["gridPos"], other["gridPos"])]
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
        if a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    ]


def test_the_panels_of_the_dashboard_have_places_and_names_of_their_own() -> None:
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    every = panels()

    assert overlapping(DASHBOARD["panels"]) == []
    for row in rows:
        assert overlapping([row, *row["panels"]]) == []
        assert bool(row["panels"]) is row["collapsed"]  # those of an open row follow it in the list
        assert all(panel["gridPos"]["y"] > row["gridPos"]["y"] for panel in row["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in every)
    assert len({panel["id"] for panel in every}) == len(PANELS) == len(every)
    assert all(panel["type"] == "row" or panel["description"] for panel in every)


def test_the_numbers_for_managers_come_first_and_only_the_fleet_is_open_below() -> None:
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]

    assert DASHBOARD["panels"][0]["title"] == "The last seven days"
    assert [row["title"] for row in rows if not row["collapsed"]] == ["The last seven days", "Fleet"]


@pytest.mark.parametrize("title", LOGS)
def test_a_log_panel_reads_what_the_controller_reads_or_writes_of_the_chosen_clusters(title: str) -> None:
    [target] = LOGS[title]
    selector = re.findall(r"\{k8s.*?\}", target["expr"])[0]
    matchers = {(each.name, each.op, each.value) for each in parse_matchers(selector)}
    cluster = ("k8s_cluster_name", "=~", "$log_cluster")
    settings = Settings()
    wanted = {
        "Kernel lines with an Xid": settings.kernel_selector,
        "Audit trail": f'{{{settings.namespace_label}="{settings.namespace}"}}',
    }

    expected = {(each.name, each.op, each.value) for each in parse_matchers(wanted[title])}
    assert matchers == {*expected, cluster}
    assert target["datasource"] == PANELS[title]["datasource"] == {"type": "loki", "uid": "${loki}"}


def test_the_panel_of_the_audit_trail_shows_fields_that_its_lines_have() -> None:
    [target] = LOGS["Audit trail"]
    fields = set(re.findall(r"\{\{(?:or|with)? ?\.(\w+)", target["expr"]))

    assert fields - {"k8s_cluster_name"} <= set(FIELDS)
    assert {"node", "verb", "outcome", "by", "reason", "how"} <= fields
    assert f'`"audit": {json.dumps(SCHEMA)}` | json' in target["expr"]


def test_the_variables_of_the_logs_leave_lines_without_the_label_in() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

    assert variables["loki"]["query"] == "loki"
    assert variables["log_cluster"]["query"]["label"] == "k8s_cluster_name"
    assert variables["log_cluster"]["allValue"] == ".*"
    assert variables["log_cluster"]["current"]["value"] == ["$__all"]


def test_the_dashboard_leads_to_the_runbooks() -> None:
    [override] = PANELS["Alerts"]["fieldConfig"]["overrides"]
    [links] = override["properties"]
    [link] = links["value"]
    [all_runbooks] = DASHBOARD["links"]
    shown = re.findall(r'alertname=~"(.*?)"', QUERIES["Alerts, A"]["expr"])[0]

    assert override["matcher"] == {"id": "byName", "options": "alertname"}
    assert link["url"] == "PROJECT_URL/blob/main/docs/runbooks/${__value.raw}.md"
    assert all_runbooks["url"] == "PROJECT_URL/blob/main/docs/runbooks/README.md"
    assert (DOCS / "runbooks" / "README.md").exists()
    assert [alert for alert in RULES if not re.fullmatch(shown, alert)] == []


def test_the_numbers_for_managers_are_of_seven_days_or_of_now() -> None:
    first = DASHBOARD["panels"][: [each["title"] for each in DASHBOARD["panels"]].index("Fleet")]
    queries = [target["expr"] for panel in first for target in panel.get("targets", ())]

    assert {span for query in queries for span in re.findall(r"\[(.*?)\]", query)} == {"7d", "7d:5m"}
    assert all("instant" in target for panel in first for target in panel.get("targets", ()))


BUCKETS, HOURS = ("300", "900", "3600", "+Inf"), range(1, 7)
SERIES = {
    'gpus_out_of_service{cluster="a", pod="1"}': "0x1980 8x35",  # for three hours
    'gpus_out_of_service{cluster="a", pod="2"}': "0x2016",  # it does not lead
    'gpus_out_of_service{cluster="b", pod="1"}': "0x1980 4x35",
    'gpus{cluster="a", pod="1"}': "_x1981 80x35",
    'gpus{cluster="a", pod="2"}': "_x1981 0x35",
    'gpus{cluster="b", pod="1"}': "_x1981 40x35",
    'outages_total{cluster="a", pod="1"}': "0x100 3x200 stale",
    'outages_total{cluster="a", pod="2"}': "_x305 0x10 1x1700",
    **{
        f'out_of_service_seconds_bucket{{how="{how}", le="{le}"}}': f"0x1000 {count}x1015"
        for how, counts in {"reset": (0, 0, 2, 2), "time": (50, 50, 50, 50)}.items()
        for le, count in zip(BUCKETS, counts, strict=True)
    },
    **{
        f'node_state{{node="gpu-{hours}", state="faulty"}}': f"_x{2017 - 12 * hours} 1x{12 * hours - 1}"
        for hours in HOURS
    },
    'node_state{node="gpu-9", state="suspect"}': "1x2016",
    'node_need_since_timestamp_seconds{cluster="a", node="gpu-1", needs="reboot"}': "601200x2016",
    'node_need_since_timestamp_seconds{cluster="b", node="gpu-1", needs="reboot"}': "597600x2016",
    'node_need_since_timestamp_seconds{cluster="a", node="gpu-2", needs="reboot"}': "432000x2016",
    'node_need_since_timestamp_seconds{cluster="a", node="gpu-3", needs="replacement"}': "0x2016",
}
"""What two clusters recorded each five minutes of seven days, until the second 604,800."""
NUMBERS: dict[str, dict[str, float]] = {
    "GPU hours lost, A": {"{}": 8 * 3 + 4 * 3},
    "Availability, A": {"{}": 1 - 12 / 120},
    "Outages, A": {"{}": 3 + 1},
    "Median repair time, A": {"{}": (900 + 3600) / 2},
    "Top five nodes, A": {f'{{node="gpu-{hours}"}}': hours for hours in HOURS[1:]},
    "Open needs by age, A": {'{needs="reboot"}': 2},
    "Open needs by age, B": {'{needs="reboot"}': 1},
    "Open needs by age, C": {'{needs="replacement"}': 1},
    "Open needs by age, D": {'{needs="reboot"}': 2 * 86_400, '{needs="replacement"}': 7 * 86_400},
}
"""What each query must find in these series, by labels."""


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus)")
def test_promtool_finds_the_right_numbers_for_managers(tmp_path: Path) -> None:
    cases = [
        {
            # promtool loads 10,000 samples at most; before the last day no GPU was out of service
            "expr": QUERIES[query]["expr"].replace("$cluster", ".*").replace("[7d:5m]", "[1d:5m]"),
            "eval_time": "7d",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in answer.items()],
        }
        for query, answer in NUMBERS.items()
    ]
    series = [{"series": f"konductor_like_{name}", "values": values} for name, values in SERIES.items()]
    tests = [{"interval": "5m", "input_series": series, "promql_expr_test": cases}]
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"tests": tests}), "utf-8")

    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
