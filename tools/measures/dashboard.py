"""Runs every query of the dashboard and every alert on a real Prometheus that scrapes a demo's controller.

``python -m tools.measures.dashboard`` needs ``prometheus`` (Debian: the package prometheus). It
prints the number of series and the values of each query; a wrong query or rule ends it with an error.

``--loki http://127.0.0.1:3100`` also runs the queries of the log panels and of ``docs/use/audit-trail.md``
on a real Loki, which gets the demo's lines. The demo's own Loki knows neither ``json`` nor ``line_format``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_31, XID_63, XID_79
from tools.generate_docs import DOCS
from tools.manifests.manifests import documents, panels

BEFORE_SECONDS, AFTER_SECONDS = 8.0, 12.0
"""Seconds of scrapes before the faults and after them."""
VALUES = {
    "$cluster": ".*",
    "$log_cluster": ".*",
    "$__rate_interval": "10s",
    "$__range": "1m",
    "[7d:5m]": "[1m:5s]",  # a demo is over before Prometheus samples it once in five minutes
}
"""By variable of the dashboard, or span, what stands for it in the queries."""
ACTS = (
    ("reset", "gpu-10", "--yes", "--reason", "new riser"),
    ("taint", "gpu-01", "--reason", "it is noisy"),
    ("pause", "--for", "1h", "--reason", "new driver"),
)
"""What people do in the demo, for the audit trail."""
INDEX = ("k8s_cluster_name", "k8s_container_name", "k8s_namespace_name", "k8s_node_name", "k8s_pod_name")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loki", metavar="URL", help="a real Loki; it gets the demo's lines")
    loki: str | None = parser.parse_args().loki
    program = shutil.which("prometheus")
    if program is None:
        sys.stderr.write("prometheus is not installed\n")
        return 1
    target, port = f"127.0.0.1:{free_port()}", free_port()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), target)
        server = subprocess.Popen(
            [
                *(program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"),
                "--storage.tsdb.path=data",  # Debian's default is one folder for every run
            ],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with Stage(gpu_nodes=10) as stage:
                stage.start_controller(KONDUCTOR_LISTEN=target, KONDUCTOR_POLL_INTERVAL_SECONDS="0.5")
                time.sleep(BEFORE_SECONDS)
                for node, line in zip(stage.gpu_nodes[::-1], (*[XID_79] * 3, XID_63, XID_31), strict=False):
                    stage.kernel(node, line)
                time.sleep(AFTER_SECONDS)
                for act in ACTS:
                    stage.run(*act).check_returncode()
                time.sleep(AFTER_SECONDS)
                if loki is None:
                    say("without --loki the queries of the log panels are not run")
                else:
                    copy_lines(stage.loki.url, loki)
                    show_logs(loki)
                return show(f"http://127.0.0.1:{port}/api/v1")
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def write_files(folder: Path, target: str) -> None:
    """Write the configuration and the alerts, scraped and evaluated every second."""
    [rule] = documents("prometheus_rule.yaml")
    groups = [{**group, "interval": "1s"} for group in rule["spec"]["groups"]]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}), "utf-8")
    job = {"job_name": "demo", "honor_labels": True, "static_configs": [{"targets": [target]}]}
    config = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yml"], "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")


def show(api: str) -> int:
    """Print each query's answer and each alert; return 1 if Prometheus refuses a query or a rule."""

    def ask(path: str, **parameters: str) -> Any:
        return httpx.get(f"{api}/{path}", params=parameters).raise_for_status().json()["data"]

    for panel in panels():
        for query in panel.get("targets", ()):
            if query["datasource"]["type"] != "prometheus":
                continue
            found = ask("query", query=with_values(query["expr"]))["result"]
            values = [series["value"][1] for series in found]
            say(f"{len(values):3} {panel['title']}, {query['legendFormat']}: {', '.join(values[:6])}")
    for alert in ask("alerts")["alerts"]:
        say(f"{alert['state']} {alert['labels']['alertname']}: {alert['annotations']['summary']}")
    bad = [each for group in ask("rules")["groups"] for each in group["rules"] if each["health"] != "ok"]
    say(f"{len(bad)} rules failed {bad or ''}")
    return 1 if bad else 0


def with_values(expression: str) -> str:
    """Return the query with :data:`VALUES`."""
    for variable, value in VALUES.items():
        expression = expression.replace(variable, value)
    return expression


def copy_lines(demo: str, loki: str) -> None:
    """Send all lines of the demo to another Loki, with the labels that the shipped Loki has as its index."""
    streams = [
        {
            "stream": {name: text for name, text in each["stream"].items() if name in INDEX},
            "values": each["values"],
        }
        for each in lines(demo, '{k8s_namespace_name=~".+"}')
    ]
    httpx.post(f"{loki}/loki/api/v1/push", json={"streams": streams}).raise_for_status()


def lines(loki: str, query: str) -> Any:
    """Return the streams that a query finds in the last hour.

    Raises httpx.HTTPStatusError if Loki refuses the query.
    """
    now_ns = time.time_ns()
    span = {"start": str(now_ns - 3600 * 10**9), "end": str(now_ns), "limit": "5000"}
    answer = httpx.get(f"{loki}/loki/api/v1/query_range", params={"query": query} | span)
    if answer.is_error:
        say(f"{query}: {answer.text}")
    return answer.raise_for_status().json()["data"]["result"]


def show_logs(loki: str) -> None:
    """Print what each log panel shows, and how many lines each query of the audit trail's page finds."""
    shown = [
        (panel["title"], query["expr"])
        for panel in panels()
        for query in panel.get("targets", ())
        if panel["type"] == "logs"
    ]
    [block] = re.findall(
        r"```logql\n(.*?)```", (DOCS / "use" / "audit-trail.md").read_text("utf-8"), re.DOTALL
    )
    shown += [("docs/use/audit-trail.md", query) for query in block.splitlines()]
    for title, query in shown:
        found = [line for stream in lines(loki, with_values(query)) for _, line in stream["values"]]
        say(f"{len(found):3} lines, {title}: {query}")
        for line in sorted(found):
            say(f"      {line[:150]}")


if __name__ == "__main__":
    sys.exit(main())
