"""An alert of Prometheus, from the first answer to the surfaces, with the real controller (rule 44)."""

from __future__ import annotations

from konductor_like.model import AlertKey, IncidentState, MetBy
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.chaos.prometheus import MemoryPrometheus
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_endings import boot
from tests.scenarios.words import gpu

NODE = gpu(2)
KEY = AlertKey("KonductorGPURowRemapPending", NODE, "0000:4e:00")
RULE = f"alert.{KEY.name}"


def prometheus_of(site: Site) -> MemoryPrometheus:
    assert site.prometheus is not None
    return site.prometheus


def test_an_alert_is_recorded_once_survives_restarts_and_ends_after_the_reboot(site_of: Opens) -> None:
    site = site_of(make_fleet(5), alerts=True)
    prometheus = prometheus_of(site)
    site.run(300, step_seconds=60)
    assert site.labels == {}

    prometheus.firing = {KEY}
    for error in ("", "Prometheus answered 503", ""):
        prometheus.error = error
        site.run(600, step_seconds=60)
        site.restart(after_seconds=10)
    assert site.labels == {"suspect": 1}
    [incident] = site.record(NODE).incidents
    assert (incident.key, incident.count) == ((RULE, KEY.gpu), 1)
    assert len(site.told("GPUFaultRecorded")) == 1

    prometheus.firing = set()
    boot(site, NODE)
    site.run(1500, step_seconds=60)
    assert site.labels == {"suspect": 1}
    site.run(600, step_seconds=60)
    assert site.labels == {}
    [incident] = site.record(NODE).incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)
    assert len(site.told("GPUFaultEnded")) == 1


def test_every_surface_names_the_alert_and_a_prometheus_that_is_silent(site_of: Opens) -> None:
    site = site_of(make_fleet(5), alerts=True)
    prometheus_of(site).firing = {KEY}
    site.run(180, step_seconds=60)

    [row] = [each for each in site.cli("status").rows if each.startswith(NODE)]
    assert "suspect" in row
    assert "alert KonductorGPURowRemapPending" in row
    told = " ".join(site.cli("explain", "node", NODE).out.split())
    assert "alert KonductorGPURowRemapPending on GPU 0000:4e:00" in told
    assert "KonductorGPURowRemapPending fires (gpu 3)" in told
    [found] = [each for each in site.cli("status", "-o", "json").document["nodes"] if each["name"] == NODE]
    assert [each["rule"] for each in found["faults"]] == [RULE]
    assert [each["source"] for each in found["faults"]] == [None]

    prometheus_of(site).error = "Prometheus answered 503"
    site.run(180, step_seconds=60)
    assert "Prometheus answered 503" in site.cli("status").out


def test_a_person_releases_a_node_whose_alert_fires_on_and_it_stays_released(site_of: Opens) -> None:
    site = site_of(make_fleet(5), alerts=True)
    prometheus = prometheus_of(site)
    prometheus.firing = {KEY}
    site.run(180, step_seconds=60)
    assert site.labels == {"suspect": 1}

    done = site.cli("reset", NODE, "--reason", "the row is spare")
    assert done.code == 0
    for told in (done.out + done.err, site.cli("explain", "node", NODE).out):
        assert "While it fires on, nothing more is said of alert" in " ".join(told.split())
    for _ in range(2):
        site.restart(after_seconds=10)
        site.run(3000, step_seconds=60)
        assert site.labels == {}

    prometheus.firing = set()
    site.run(2100, step_seconds=60)
    prometheus.firing = {KEY}
    site.run(120, step_seconds=60)
    assert site.labels == {"suspect": 1}


def test_without_an_endpoint_nobody_is_asked(site_of: Opens) -> None:
    site = site_of(make_fleet(5))
    site.run(180, step_seconds=60)

    assert site.prometheus is None
    assert "alerts" not in site.cli("status").out
