"""The question to Prometheus as PromQL, and what its answers mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from konductor_like.model import AlertKey, Gpu
from konductor_like.prometheus.answer import NODES_NAMED, NotPrometheusAnswerError, parse, question
from konductor_like.selectors import parse_matchers

RECORDED = (Path(__file__).parents[1] / "data" / "prometheus" / "answer.json").read_bytes()
NAME = "KonductorGPURowRemapFailed"


def answer(*series: dict[str, Any], **more: Any) -> bytes:
    result = [{"metric": metric, "value": [1795510756.7, "1"]} for metric in series]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return json.dumps(body).encode()


def test_a_quiet_fleet_is_asked_for_its_alerts_and_for_the_number_of_its_nodes() -> None:
    asked = question(["KonductorB", "KonductorA"], (), ())

    assert asked == (
        'ALERTS{alertstate="firing",alertname=~"KonductorA|KonductorB"}'
        " or count by (exporter) (konductor_exporter_up{})"
    )


def test_the_exporters_of_some_nodes_are_asked_for_by_name_with_the_matchers_in_each_part() -> None:
    asked = question(["KonductorA"], {"gpu-7.example", "gpu-1"}, parse_matchers('cluster="a\\"b"'))

    assert asked == (
        'ALERTS{alertstate="firing",alertname=~"KonductorA",cluster="a\\"b"}'
        ' or konductor_exporter_up{node=~"gpu-1|gpu-7\\\\.example",cluster="a\\"b"}'
        ' or count by (exporter) (konductor_exporter_up{cluster="a\\"b"})'
    )


def test_a_name_that_is_not_ascii_stays_valid_promql() -> None:
    assert 'node=~"gpü-😀"' in question(["KonductorA"], ["gpü-😀"], ())


def test_the_exporters_of_very_many_nodes_are_asked_for_without_names() -> None:
    nodes = {f"gpu-{number}" for number in range(NODES_NAMED + 1)}

    assert " or konductor_exporter_up{} or " in question(["KonductorA"], nodes, ())


def test_a_recorded_answer_is_understood() -> None:
    found = parse(RECORDED, 7)

    [(key, (text, gpu))] = found.alerts.firing.items()
    assert key == AlertKey(NAME, "gpu-7.example", "0000:4e:00")
    assert text == f"{NAME} fires (gpu 3, UUID GPU-6b1f4a1e-0a7c-4d8b-8f5e-3c2d1b0a9f87)"
    assert gpu == Gpu("0000:4e:00", "GPU-6b1f4a1e-0a7c-4d8b-8f5e-3c2d1b0a9f87")
    assert (found.alerts.at_ns, found.alerts.complete) == (7, True)
    assert found.alerts.up == {("dcgm", "gpu-7.example")}
    assert (found.watched, found.warnings, found.skipped) == ({"dcgm": 2}, (), 0)


def test_replicas_of_an_alert_are_one_and_an_alert_without_a_node_is_counted() -> None:
    one = {"alertname": NAME, "node": "gpu-1"}
    found = parse(answer({**one, "replica": "a"}, {**one, "replica": "b"}, {"alertname": NAME}), 0)

    assert list(found.alerts.firing) == [AlertKey(NAME, "gpu-1", None)]
    assert found.skipped == 1


@pytest.mark.parametrize(
    ("address", "gpu"),
    [
        ("00000000:4E:00.0", "0000:4e:00"),
        ("0000:4e:00", "0000:4e:00"),
        ("0001:00:00.0", "0001:00:00"),
        ("4E:00.0", None),
        ("nonsense", None),
        (7, None),
    ],
)
def test_only_a_whole_pci_address_names_a_gpu(address: object, gpu: str | None) -> None:
    found = parse(answer({"alertname": NAME, "node": "gpu-1", "pci_bus_id": address}), 0)

    assert [key.gpu for key in found.alerts.firing] == [gpu]


def test_labels_cannot_control_the_terminal_or_flood_it() -> None:
    labels = {"alertname": NAME, "node": "gpu-1", "gpu": "\x1b[2J", "UUID": "u" * 4000}
    [(text, gpu)] = parse(answer(labels), 0).alerts.firing.values()

    assert gpu is None
    assert text.isprintable()
    assert len(text) < 200


def test_an_answer_with_warnings_may_lack_alerts() -> None:
    found = parse(answer(warnings=["store 10.0.0.1 is down"]), 0)

    assert (found.alerts.complete, found.warnings) == (False, ("store 10.0.0.1 is down",))
    assert parse(answer(infos=["metric might not be a counter"]), 0).alerts.complete


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>login</html>", "no JSON"),
        (b"[]", "no answer to a query"),
        (b'{"status": "error", "data": {}}', "no answer to a query"),
        (b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no vector"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": {}}}', "no vector"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": [{}]}}', "without labels"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": [7]}}', "without labels"),
        (answer({}).replace(b'"1"', b'"NaN"'), "without labels"),
        (answer({}).replace(b'"1"', b"Infinity"), "without labels"),
        (b"[" * 100_000, "no JSON"),
        (answer(warnings={"a": 1}), "no list"),
    ],
)
def test_whatever_else_answers_is_told(body: bytes, says: str) -> None:
    with pytest.raises(NotPrometheusAnswerError, match=says):
        parse(body, 0)
