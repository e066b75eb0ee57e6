"""Runs every query of the dashboard and every alert on a real Prometheus that scrapes a demo's controller.

``python -m tools.measures.dashboard`` needs ``prometheus`` (Debian: the package prometheus). It
prints the number of series and the values of each query; a wrong query or rule ends it with an error.
"""

from __future__ import annotations

import json
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

from konductor_like.demo.stage import Stage
from konductor_like.demo.story import XID_31, XID_63, XID_79
from tools.manifests.manifests import MANIFESTS, documents

BEFORE_SECONDS, AFTER_SECONDS = 8.0, 12.0
"""Seconds of scrapes before the faults and after them."""
VARIABLES = {"$cluster": ".*", "$__rate_interval": "10s", "$__range": "1m"}


def main() -> int:
    program = shutil.which("prometheus")
    if program is None:
        sys.stderr.write("prometheus is not installed\n")
        return 1
    target, port = f"127.0.0.1:{free_port()}", free_port()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), target)
        server = subprocess.Popen(
            [program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with Stage(gpu_nodes=10) as stage:
                stage.start_controller(KONDUCTOR_LISTEN=target, KONDUCTOR_POLL_INTERVAL_SECONDS="0.5")
                time.sleep(BEFORE_SECONDS)
                for node, line in zip(stage.gpu_nodes, (*[XID_79] * 3, XID_63, XID_31), strict=False):
                    stage.kernel(node, line)
                time.sleep(AFTER_SECONDS)
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

    dashboard = json.loads((MANIFESTS / "grafana_dashboard.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        for query in panel.get("targets", ()):
            expression = query["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            values = [series["value"][1] for series in ask("query", query=expression)["result"]]
            say(f"{len(values):3} {panel['title']}, {query['legendFormat']}: {', '.join(values[:6])}")
    for alert in ask("alerts")["alerts"]:
        say(f"{alert['state']} {alert['labels']['alertname']}: {alert['annotations']['summary']}")
    bad = [each for group in ask("rules")["groups"] for each in group["rules"] if each["health"] != "ok"]
    say(f"{len(bad)} rules failed {bad or ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
