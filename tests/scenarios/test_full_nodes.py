"""Nodes whose annotations have no room for the record, or whose record a policy refuses (rule 21)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from konductor_like.cluster.lease.checkpoint import CURSOR_ANNOTATION, decode_checkpoint
from konductor_like.cluster.lease.kept import KEPT_ANNOTATION, KEPT_BYTES, KEPT_MOST
from konductor_like.cluster.node.record import decode
from konductor_like.model import HEALTH_LABEL, NEEDS_LABEL, RECORD_ANNOTATION, Source
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from konductor_like_sandbox.kubernetes.validation import ANNOTATIONS_BYTES
from tests.chaos.process import NAMESPACE
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import LOST, gpu, gpus

NODE = gpu(2)
FILLER = "filler.example.com/reason"
EXTRA: dict[str, Any] = {"brake_max_percent": 100.0}
SOME_ROOM, NO_ROOM = 1500, 60


def opened(site_of: Opens, count: int = 5, **settings: Any) -> Site:
    site = site_of(make_fleet(count), **{**EXTRA, **settings})
    site.hearts()
    site.run(130)
    return site


def fill(site: Site, name: str, left: int) -> None:
    """Let another program's annotation leave only so many bytes."""

    def filled(node: dict[str, Any]) -> None:
        notes = node["metadata"].setdefault("annotations", {})
        notes.pop(FILLER, None)
        used = sum(len(key.encode()) + len(text.encode()) for key, text in notes.items())
        notes[FILLER] = "x" * (ANNOTATIONS_BYTES - used - len(FILLER) - left)

    site.kube.edit_node(name, filled)


def clean_up(site: Site, name: str) -> None:
    site.kube.edit_node(name, lambda node: node["metadata"]["annotations"].pop(FILLER))


def annotation(site: Site, name: str) -> str | None:
    notes = site.kube.node(name)["metadata"].get("annotations", {})
    text: str | None = notes.get(RECORD_ANNOTATION)
    return text


def kept(site: Site) -> dict[str, dict[str, Any]]:
    """The entries of the Lease, by node."""
    [lease] = site.kube.objects("leases", NAMESPACE)
    text = lease["metadata"]["annotations"].get(KEPT_ANNOTATION, '{"nodes":[]}')
    found = {each["node"]: each for each in json.loads(text)["nodes"]}
    assert all(len(json.dumps(each, separators=(",", ":")).encode()) <= KEPT_BYTES for each in found.values())
    assert len(found) <= KEPT_MOST
    return found


def cursor_ns(site: Site) -> int:
    """Up to when the kernel's lines were read and acted upon, by the Lease."""
    [lease] = site.kube.objects("leases", NAMESPACE)
    found, _ = decode_checkpoint(lease["metadata"]["annotations"][CURSOR_ANNOTATION])
    assert found is not None
    return found.read_ns[Source.KERNEL]


def fails(site: Site, *names: str, text: str = LOST) -> None:
    for name in names:
        site.kernel(name, text)
    site.run(20)


def labels(site: Site, name: str) -> tuple[str | None, str | None]:
    found = site.kube.node(name)["metadata"]["labels"]
    return found.get(HEALTH_LABEL), found.get(NEEDS_LABEL)


def refuse_records(site: Site) -> None:
    """Let an admission policy of somebody else refuse each write that changes our annotation."""
    denial = "ValidatingAdmissionPolicy 'no-strangers' with binding 'no-strangers' denied request: unknown"

    def notes(item: Any) -> Any:
        return (item or {}).get("metadata", {}).get("annotations", {}).get(RECORD_ANNOTATION)

    site.kube._writes._admission = lambda review: (
        denial if review.resource == "nodes" and notes(review.object) != notes(review.old_object) else ""
    )


@pytest.mark.parametrize("left", [NO_ROOM, 400, SOME_ROOM, 9000])
def test_a_node_without_room_for_the_record_is_tainted_and_shows_its_fault(site_of: Opens, left: int) -> None:
    site = opened(site_of)
    fill(site, NODE, left)
    fault_ns = site.clock.true_ns

    fails(site, NODE)
    site.run(30)

    assert site.tainted == {NODE}
    assert labels(site, NODE) == ("faulty", "reboot")
    assert (annotation(site, NODE) is None) == (left == NO_ROOM)
    assert cursor_ns(site) > fault_ns, "the cursor waits for a node"
    row = next(row for row in site.cli("status").rows if row.startswith(NODE))
    assert "faulty" in row
    assert "xid 79" in row
    assert "reboot" in site.cli("explain", "node", NODE).out
    shown = " ".join(site.cli("explain", "node", NODE).out.split())
    assert ("make room in the Node's annotations" in shown) == (left in (NO_ROOM, 400))


@pytest.mark.parametrize("left", [NO_ROOM, 400])
def test_the_next_leader_knows_the_fault_of_a_node_without_room(site_of: Opens, left: int) -> None:
    site = opened(site_of)
    fill(site, NODE, left)
    fails(site, NODE)

    site.restart(5)
    site.run(300)

    assert set(kept(site)) == {NODE}
    assert labels(site, NODE) == ("faulty", "reboot")
    assert "xid 79" in site.cli("explain", "node", NODE).out
    assert "unknown reason" not in site.cli("explain", "node", NODE).out


def test_the_lease_is_renewed_at_once_when_a_record_is_only_there(site_of: Opens) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)
    leadership, asked = site.process._leadership, list[int]()
    assert leadership is not None
    leadership.renew_soon = lambda: asked.append(site.clock.true_ns)

    fails(site, NODE)

    assert asked, "a release before the next renewal would not know what was read"
    asked.clear()
    site.run(60)
    assert asked == []


@pytest.mark.parametrize("left", [NO_ROOM, 400, SOME_ROOM])
@pytest.mark.parametrize("fills_later", [False, True])
def test_a_person_releases_a_node_without_room_and_nobody_undoes_it(
    site_of: Opens, left: int, fills_later: bool
) -> None:
    site = opened(site_of)
    if not fills_later:
        fill(site, NODE, left)
    fails(site, NODE)
    if fills_later:
        fill(site, NODE, left)
        site.run(60)

    printed = site.cli("reset", NODE, "--yes", "--reason", "GPU replaced")
    site.run(300)
    site.restart(5)
    site.run(300)

    assert printed.code == 0, printed.err
    assert site.tainted == set()
    assert labels(site, NODE)[0] is None
    assert not decode(annotation(site, NODE) or '{"v":2}')[0].life.claimed, "the Node claims a taint"
    record = kept(site)[NODE]["record"] if NODE in kept(site) else json.loads(annotation(site, NODE) or "{}")
    assert record["quarantines"], "the node's past is lost"
    device = site._log(NODE)
    device.sequence -= 2
    fails(site, NODE)
    assert site.tainted == set(), "a line from before the release taints again"
    device.sequence += 10
    fails(site, NODE)
    assert site.tainted == {NODE}


def test_a_person_taints_a_node_without_room_and_the_controller_knows_the_reason(site_of: Opens) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)

    printed = site.cli("taint", NODE, "--reason", "riser swap, ticket 4711")
    site.run(60)

    assert printed.code == 0, printed.err
    assert site.tainted == {NODE}
    assert "Tainted by kim@laptop" in site.cli("explain", "node", NODE).out
    site.restart(5)
    site.run(300)
    assert "Tainted by kim@laptop" in site.cli("explain", "node", NODE).out
    assert site.cli("reset", NODE, "--yes").code == 0
    site.run(300)
    assert site.tainted == set()


def test_a_policy_that_refuses_the_record_keeps_no_node_in_service_and_none_out(site_of: Opens) -> None:
    site = opened(site_of)
    refuse_records(site)

    fails(site, NODE)

    assert site.tainted == {NODE}
    assert labels(site, NODE) == ("faulty", "reboot")
    assert annotation(site, NODE) is None
    assert "xid 79" in site.cli("explain", "node", NODE).out
    printed = site.cli("reset", NODE, "--yes", "--reason", "GPU replaced")
    site.run(300)
    assert (printed.code, site.tainted) == (0, set()), printed.err


def test_the_record_goes_back_onto_the_node_when_there_is_room(site_of: Opens) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)
    fails(site, NODE)
    site.run(60)
    assert set(kept(site)) == {NODE}

    clean_up(site, NODE)
    site.run(200)

    record, problem = decode(annotation(site, NODE) or "")
    assert (problem, [each.key.rule for each in record.incidents]) == (None, ["xid.79"])
    assert record.incidents[0].evidence
    assert record.life.claimed
    assert kept(site) == {}


def test_a_node_without_room_is_written_rarely(site_of: Opens) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)
    fails(site, NODE)
    site.run(60)
    site.writes.clear()

    site.run(1200)

    assert site.writes[NODE] <= 2 * 1200 / 120 + 2


def test_more_nodes_without_room_than_the_lease_has_places_are_all_tainted(site_of: Opens) -> None:
    count = KEPT_MOST + 3
    site = opened(site_of, count)
    for name in gpus(count):
        fill(site, name, NO_ROOM)
    fault_ns = site.clock.true_ns

    fails(site, *gpus(count))
    site.run(60)

    assert site.tainted == set(gpus(count))
    assert {labels(site, name) for name in gpus(count)} == {("faulty", "reboot")}
    assert len(kept(site)) == KEPT_MOST
    assert cursor_ns(site) > fault_ns
    for restarts in range(2):
        if restarts:
            site.restart(5)
            site.run(60)
        shown = site.cli("status").rows
        for name in gpus(count):
            row = next(row for row in shown if row.startswith(name))
            assert "faulty" in row
            assert "xid 79" in row
    assert {labels(site, name) for name in gpus(count)} == {("faulty", "reboot")}
    assert site.cli("reset", gpu(count), "--yes", "--reason", "GPU replaced").code == 0
    site.run(300)
    assert site.tainted == set(gpus(count - 1))


def test_a_purge_leaves_nothing_of_a_node_without_room(site_of: Opens) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)
    fails(site, NODE)
    site.run(60)

    printed = site.cli("reset", NODE, "--purge", "--yes")
    site.run(300)

    assert printed.code == 0, printed.err
    assert site.tainted == set()
    assert kept(site) == {}
    assert labels(site, NODE) == (None, None)
    assert "no faults recorded" in site.cli("explain", "node", NODE).out


def test_a_node_without_room_returns_by_a_reboot(site_of: Opens) -> None:
    site = opened(site_of, return_by="reboot", return_quiet_seconds=120.0)
    fill(site, NODE, NO_ROOM)
    fails(site, NODE)
    site.run(60)

    site.reboot(NODE, "0b0b0b0b-0000-4000-8000-000000000002")
    site.run(3600)

    assert site.tainted == set()
    assert "probation" in site.cli("status").out


@pytest.mark.parametrize(("command", "tainted"), [("reset", False), ("taint", True)])
def test_a_command_notes_on_the_lease_what_counts_once_the_node_shows_it(
    site_of: Opens, command: str, tainted: bool
) -> None:
    site = opened(site_of)
    fill(site, NODE, NO_ROOM)
    if not tainted:
        fails(site, NODE)
    site.run(60)
    site.kill()

    assert site.cli(command, NODE, "--yes", "--reason", "riser swap").code == 0

    assert kept(site)[NODE]["ahead"] is True
    assert (NODE in site.tainted) == tainted
