"""What a node needs, as the commands show it and write it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.record import encode
from konductor_like.model import (
    HEALTH_LABEL,
    NEEDS_LABEL,
    RECORD_ANNOTATION,
    MetBy,
    Needs,
    NodeRecord,
    Severity,
)
from konductor_like_sandbox.kubernetes import Denial, KubernetesServer, Review
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import GPU, ago, ago_ns, boot_of, incident, with_record


def labels(server: KubernetesServer, name: str = "gpu-1") -> tuple[str | None, str | None]:
    """The labels for health and needs."""
    found = server.node(name)["metadata"]["labels"]
    return found.get(HEALTH_LABEL), found.get(NEEDS_LABEL)


def labelled(server: KubernetesServer, needs: str = "reboot") -> None:
    """Label ``gpu-1`` as the controller does."""
    server.edit_node("gpu-1", lambda node: node["metadata"]["labels"].update({NEEDS_LABEL: needs}))


def recorded(server: KubernetesServer, record: NodeRecord) -> None:
    """Replace the record of ``gpu-1``."""
    text = encode(record)
    server.edit_node("gpu-1", lambda node: node["metadata"]["annotations"].update({RECORD_ANNOTATION: text}))


def record_of(server: KubernetesServer) -> NodeRecord:
    return decode_node(server.node("gpu-1")).record


def test_status_shows_the_need_the_gravest_severity_and_no_met_need(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    suspicion = incident("xid.63", severity=Severity.SUSPECT)
    record = record_of(server)
    recorded(server, replace(record, incidents=(suspicion, *record.incidents)))

    [node] = run("status", "gpu-1", "-o", "json").document["nodes"]

    assert (node["needs"], node["severity"], node["needsMet"]) == ("reboot", "fatal", None)


def test_a_met_need_is_shown_with_its_time_and_asks_for_a_test_and_a_reset(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")
    record = record_of(server)
    met = [replace(each, met_by=MetBy.REBOOT, met_ns=ago_ns(60)) for each in record.incidents]
    recorded(server, replace(record, incidents=tuple(met)))
    at = "2026-05-06T11:59:00Z"

    [node] = run("status", "gpu-1", "-o", "json").document["nodes"]
    assert (node["needs"], node["needsMet"]) == ("none", {"by": "reboot", "at": at})
    assert [(each["metBy"], each["metAt"]) for each in node["faults"]] == [("reboot", at)]

    text, page = run("status").out, run("explain", "gpu-1").out
    for shown in (text, page):
        assert f"Its need was met by the reboot seen at {at}. Run diagnostics" in " ".join(shown.split())
        assert "Drain the node and reboot it." not in shown
    assert f"none: met by the reboot seen at {at}" in page
    assert f"its need, reboot, was met by the reboot seen at {at}" in page


def test_yaml_has_the_values_of_json_when_a_need_was_met(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    record = record_of(server)
    met = [replace(each, met_by=MetBy.REBOOT, met_ns=ago_ns(60)) for each in record.incidents]
    recorded(server, replace(record, incidents=tuple(met)))

    for command in (("status",), ("explain", "gpu-1")):
        assert yaml.safe_load(run(*command, "-o", "yaml").out) == run(*command, "-o", "json").document


def test_explain_names_the_fault_that_asks(cluster: Cluster, run: Run) -> None:
    cluster("one faulty")

    assert f"Needs:        reboot (xid 79 on GPU {GPU})\n" in run("explain", "gpu-1").out


def test_a_node_marked_for_replacement_is_never_told_to_reboot(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    known = record_of(server)
    recorded(server, replace(known, life=replace(known.life, replace_since=ago(60))))

    told = [run("status", *form).out for form in ([], ["-o", "wide"])]
    told += [run("explain", "gpu-1").out, run("reset", "gpu-1", "--yes", "--dry-run").err]

    for text in told:
        assert "reboot" not in text.lower(), text
    assert "replacement" in told[1]
    assert "have the hardware checked or replaced" in told[0]


def test_a_reset_and_a_purge_remove_the_label(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    labelled(server)
    assert run("reset", "gpu-1", "--yes").code == 0
    assert labels(server) == (None, None)

    labelled(server)
    assert "purged" in run("reset", "gpu-1", "--purge", "--yes").out
    assert labels(server) == (None, None)


def test_a_persons_taint_sets_the_label(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.put_node(with_record(make_node("gpu-5"), incident("xid.64", severity=Severity.SUSPECT)))

    assert run("taint", "gpu-5", "--reason", "riser swap").code == 0
    assert labels(server, "gpu-5") == ("faulty", "inspection")


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid"])
def test_where_a_policy_refuses_the_label_the_command_works_without_it(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    server = cluster("healthy")

    def admission(review: Review) -> str:
        labels = dict((review.object or {}).get("metadata", {}).get("labels", {}))
        why = "ValidatingAdmissionPolicy 'site' with binding 'site' denied request: no label of that name"
        return Denial(why, reason) if NEEDS_LABEL in labels else ""

    monkeypatch.setattr(server._writes, "_admission", admission)

    done = run("taint", "gpu-2", "--reason", "riser swap")

    assert (done.code, done.out) == (0, "node/gpu-2 tainted\n")
    assert labels(server, "gpu-2") == ("faulty", None)


@pytest.mark.parametrize("tainted", [True, False], ids=["tainted", "held"])
@pytest.mark.parametrize("needs", [each.value for each in Needs if each is not Needs.NONE])
def test_a_node_that_is_released_with_a_need_says_so_on_every_surface(
    needs: str, tainted: bool, cluster: Cluster, run: Run
) -> None:
    server, node = cluster("healthy"), make_node("gpu-1")
    failed = replace(incident(boot=boot_of(node)), needs=needs)
    server.put_node(with_record(node, failed, tainted=tainted))
    words = f"Unmet need: {needs} (xid 79 on GPU {GPU})."

    asked, dry = run("reset", "gpu-1"), run("reset", "gpu-1", "--dry-run")
    assert (asked.code, asked.err) == (dry.code, dry.err)
    assert (asked.code, f"warning: node/gpu-1: {words}\n" in asked.err) == (2, True)
    assert words in run("reset", "gpu-1", "--yes", "--dry-run").err
    assert run("reset", "gpu-1", "--yes").err == f"warning: node/gpu-1: {words}\n"

    [event] = server.objects("events", "default")
    assert words in event["message"]
    mark = f"healthy (released with need: {needs})"
    assert mark in run("status", "gpu-1").out
    page = run("explain", "gpu-1").out
    assert f"gpu-1 is {mark}\n" in page
    assert f"Warning: {words}" in " ".join(page.split())
    document = run("status", "gpu-1", "-o", "json").document
    assert document["summary"]["releasedWithNeed"] == 1
    assert document["summary"]["notRebooted"] == (needs == "reboot")
    [shown] = document["nodes"]
    assert (shown["releasedWith"], shown["warnings"]) == ([needs], [words])


def test_the_warning_of_a_release_is_printed_before_the_node_is_written(
    cluster: Cluster, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("one faulty")
    told: list[str] = []
    patch = KubeClient.patch

    def late(self: KubeClient, *arguments: object, **options: object) -> object:
        told.append(capsys.readouterr().err)
        return patch(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(KubeClient, "patch", late)

    assert run("reset", "gpu-1", "--yes").code == 0
    assert told == [f"warning: node/gpu-1: Unmet need: reboot (xid 79 on GPU {GPU}).\n"]
