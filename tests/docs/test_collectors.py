"""Each snippet and its settings on the page fit, and the lines of the kernel go through detection.

``tests/data/collectors/journal.jsonl`` is what ``journalctl -o json`` (systemd 252) printed of a journal that
``systemd-journal-remote`` wrote: lines of the kernel, and of programs that quote an Xid. Other files are what
a collector sent to Loki with the page's snippet; ``config`` is that snippet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from konductor_like.detection.detector import packaged
from konductor_like.loki.query.logql import kernel_matchers
from konductor_like.loki.query.response import Entry, log_line
from konductor_like.model import Fault, Source
from konductor_like.settings import Settings
from tools.generate_docs import DOCS

PAGE = (DOCS / "start" / "collectors.md").read_text(encoding="utf-8")
DATA = Path(__file__).parents[1] / "data" / "collectors"
JOURNAL = [json.loads(line) for line in (DATA / "journal.jsonl").read_text("utf-8").splitlines()]
NODE, BOOT = "gpu-04", "0b1c2d3e-0000-4000-8000-000000000001"
SECTIONS = dict(re.findall(r"^## (.+)\n((?:.*\n)*?)(?=^## |\Z)", PAGE, re.MULTILINE))
Labels = dict[str, str]
Sent = list[tuple[Labels, str]]
"""Labels and structured metadata of a line, and the line."""


def blocks(section: str) -> list[str]:
    """Return the code blocks of a section, without the fences."""
    return re.findall(r"^```\w+\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE)


def snippet(section: str) -> str:
    return next(block for block in blocks(section) if "# mine.yaml" not in block)


def all_settings(section: str) -> list[Settings]:
    """Return the settings of each ``mine.yaml`` of a section. Raises ValueError for a wrong one."""
    found = [yaml.safe_load(block)["settings"] for block in blocks(section) if "# mine.yaml" in block]
    values = [
        {name.removeprefix("KONDUCTOR_").lower(): value for name, value in each.items()} for each in found
    ]
    return [Settings.model_validate(each) for each in values]


def of_kernel() -> Iterator[dict[str, Any]]:
    """Yield the entries that a collector gets that asks for the transport of the kernel."""
    return (entry for entry in JOURNAL if entry["_TRANSPORT"] == "kernel")


def text_of(message: str | list[int]) -> str:
    return message if isinstance(message, str) else bytes(message).decode("utf-8", "replace")


def as_go(entry: Mapping[str, Any]) -> str:
    """Write an entry as Alloy and OpenTelemetry do: Go sorts the keys and escapes these three characters."""
    fields = {name: text_of(value) for name, value in entry.items() if not name.startswith("__")}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def by_vector(entry: Mapping[str, Any]) -> str:
    fields = {name: text_of(value) for name, value in entry.items() if name != "MESSAGE"}
    own = {
        "message": text_of(entry["MESSAGE"]),
        "host": entry["_HOSTNAME"],
        "source_type": "journald",
        "node": NODE,
    }
    return json.dumps({**fields, **own}, separators=(",", ":"))


def labels_in_alloy(config: str) -> Labels:
    found = re.search(r"labels +=\s*\{source = \"(\w+)\", (\w+) = sys.env\(\"HOSTNAME\"\)\}", config)
    assert found, config
    return {"source": found[1], found[2]: NODE, "job": "loki.source.journal.kernel"}


def labels_in_vector(config: str) -> Labels:
    sink = yaml.safe_load(config)["sinks"]["kernel_to_loki"]
    assert sink["encoding"] == {"codec": "json"}
    return {name: value.replace("{{ node }}", NODE) for name, value in sink["labels"].items()}


def labels_in_otel(config: str) -> Labels:
    attributes = yaml.safe_load(config)["config"]["processors"]["resource/kernel"]["attributes"]
    values = {each["key"].replace(".", "_"): each["value"] for each in attributes}
    return {name: value.replace("${env:OTEL_K8S_NODE_NAME}", NODE) for name, value in values.items()}


NOT_RUN: dict[str, tuple[Callable[[str], Labels], Callable[[Mapping[str, Any]], str]]] = {
    "Alloy": (labels_in_alloy, as_go),
    "Vector": (labels_in_vector, by_vector),
    "OpenTelemetry Collector": (labels_in_otel, as_go),
}
RUN = {"Promtail": "promtail.json", "Fluent Bit": "fluent_bit.json"}
EVERY = [*NOT_RUN, *RUN]


def sent(section: str) -> Sent:
    """Return what the collector sends to Loki for the journal."""
    if section in NOT_RUN:
        labels, write = NOT_RUN[section]
        return [(labels(snippet(section)), write(entry)) for entry in of_kernel()]
    recorded = json.loads((DATA / RUN[section]).read_text("utf-8"))
    assert recorded["config"] == snippet(section), (
        "the snippet changed: record it again, or say that it is not run"
    )
    return [(each["labels"], each["line"]) for each in recorded["sent"]]


def faults(lines: Sent, settings: Settings, source: Source = Source.KERNEL) -> list[Fault]:
    """Return the faults that the controller finds in these lines of Loki."""
    found = []
    for labels, text in lines:
        line = log_line(Entry(1, text, labels), source, settings)
        if line is not None and any(anchor in text for anchor in packaged().anchors(source)):
            found.append(packaged().detect(line))
    return [fault for fault in found if fault is not None]


@pytest.mark.parametrize("section", EVERY)
def test_the_kernels_faults_are_found_with_the_settings_of_the_page(section: str) -> None:
    found = faults(sent(section), all_settings(section)[0])

    assert [(each.finding.rule, each.node, each.finding.gpu) for each in found] == [
        ("xid.79", NODE, "0000:4e:00"),
        ("xid.31", NODE, "0000:5e:00"),
    ]
    positions = [each.finding.position for each in found]
    assert [(each.boot_id, each.stamp_us) for each in positions] == [(BOOT, 812_300_441), (BOOT, 812_400_000)]


@pytest.mark.parametrize("section", EVERY)
def test_the_collector_sends_entries_of_the_kernel_only(section: str) -> None:
    config = snippet(section)
    asks = "_TRANSPORT=kernel", "_TRANSPORT: [kernel]", "dmesg: true"

    assert any(words in config for words in asks)
    of_nodes = [labels for labels, _ in sent(section) if "namespace" not in labels]
    assert len(of_nodes) == len(list(of_kernel())) == 3


@pytest.mark.parametrize("section", NOT_RUN)
def test_a_programs_entry_is_no_kernel_line_even_without_the_collectors_filter(section: str) -> None:
    labels, write = NOT_RUN[section]
    others = [entry for entry in JOURNAL if entry["_TRANSPORT"] != "kernel"]

    found = faults([(labels(snippet(section)), write(entry)) for entry in others], all_settings(section)[0])

    assert len(others) == 3
    assert found == []


@pytest.mark.parametrize("section", [*EVERY, "With the kernel-log reader"])
def test_no_pod_can_have_the_labels_of_the_kernel_log(section: str) -> None:
    for settings in all_settings(section):
        matchers = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
        assert any(each.name == settings.namespace_label and each.op == "=" for each in matchers)


@pytest.mark.parametrize("section", ["Alloy", "Promtail", "Fluent Bit", "Vector"])
def test_the_snippet_gives_pods_the_labels_of_the_settings(section: str) -> None:
    settings, config = all_settings(section)[0], snippet(section)
    wanted = (settings.namespace_label, settings.pod_label, settings.container_label, settings.node_label)

    for name in wanted:
        assert re.search(
            rf'target_label *[:=] *"?{name}\b|(?:^|[ ,]){name}[:=] ?["$]', config, re.MULTILINE
        ), name


@pytest.mark.parametrize("section", ["Fluent Bit"])
def test_the_pods_faults_are_found_with_the_settings_of_the_page(section: str) -> None:
    found = faults(sent(section), all_settings(section)[0], Source.POD)

    assert [(each.finding.code, each.node, each.namespace, each.pod, each.container) for each in found] == [
        (700, NODE, "team-a", "train-0", "main")
    ]


def test_the_page_says_which_programs_were_not_run() -> None:
    assert {name for name in EVERY if "Not run." in SECTIONS[name]} == {*NOT_RUN}


def test_grafanas_chart_names_the_node_in_the_journal_and_in_the_logs_of_pods() -> None:
    values = next(yaml.safe_load(each) for each in blocks("Alloy") if "# values of k8s-monitoring" in each)
    name = all_settings("Alloy")[1].node_label

    for feature in ("nodeLogs", "podLogsViaLoki"):
        assert re.search(rf'target_label *= "{name}"', values[feature]["extraDiscoveryRules"]), feature
