"""Another program's condition, from a Node's status to the record, with the real controller (rule 42)."""

from __future__ import annotations

from typing import Any

from konductor_like.model import IncidentState, MetBy
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.test_endings import boot
from tests.scenarios.words import gpu

NODE = gpu(2)


def says(site: Site, status: str, *, changed: bool = True) -> None:
    """Let node-problem-detector write its condition, as it does every five minutes."""

    def written(stored: dict[str, Any]) -> None:
        conditions = stored["status"]["conditions"]
        before = [each for each in conditions if each["type"] == "GPUProblem"]
        now = site.clock.moment().strftime("%Y-%m-%dT%H:%M:%SZ")
        stored["status"]["conditions"] = [
            *(each for each in conditions if each not in before),
            {
                "type": "GPUProblem",
                "status": status,
                "reason": "GPUsAreDown" if status == "True" else "NoGPUProblem",
                "message": f"written at {now}",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now if changed else before[0]["lastTransitionTime"],
            },
        ]

    site.kube.edit_node(NODE, written)


def test_a_condition_is_recorded_once_survives_restarts_and_ends_after_the_reboot(site_of: Opens) -> None:
    site = site_of(make_fleet(5))
    says(site, "False")
    site.run(300, step_seconds=60)
    assert site.labels == {}

    says(site, "True")
    for _ in range(3):
        site.run(300, step_seconds=60)
        says(site, "True", changed=False)
        site.restart(after_seconds=10)
    assert site.labels == {"suspect": 1}
    [incident] = site.record(NODE).incidents
    assert (incident.key.rule, incident.count) == ("condition.GPUProblem", 1)
    assert len(site.told("GPUFaultRecorded")) == 1
    assert any(row.split()[1] == "suspect" for row in site.cli("status").rows)

    boot(site, NODE)
    site.run(300, step_seconds=60)
    assert site.labels == {"suspect": 1}
    says(site, "False")
    site.run(300, step_seconds=60)
    assert site.labels == {}
    [incident] = site.record(NODE).incidents
    assert (incident.state, incident.met_by) == (IncidentState.RELEASED, MetBy.REBOOT)
    assert len(site.told("GPUFaultEnded")) == 1


def test_a_person_releases_a_node_whose_condition_stays_and_it_stays_released(site_of: Opens) -> None:
    site = site_of(make_fleet(5))
    says(site, "True")
    site.run(120, step_seconds=60)
    assert site.labels == {"suspect": 1}

    assert site.cli("reset", NODE, "--reason", "looked at it").code == 0
    for new_boot in (False, True):
        says(site, "True", changed=False)
        if new_boot:
            boot(site, NODE)
            site.run(60)
            says(site, "True", changed=False)
        site.restart(after_seconds=10)
        site.run(300, step_seconds=60)
        assert site.labels == {}

    says(site, "True")
    site.run(120, step_seconds=60)
    assert site.labels == {"suspect": 1}
