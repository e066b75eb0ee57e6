"""``taint`` and ``ack`` beyond their transcripts: one guarded patch, an Event, and the words for a rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from konductor_like.cli.ack import rule_of
from konductor_like.cli.app import execute
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.node_decoder import decode_node
from konductor_like.model import HEALTH_LABEL
from konductor_like.sandbox.kubernetes import KubernetesServer
from tests.cli.scenes import NOW, OUR_TAINT

Cluster = Callable[[str], KubernetesServer]
TAINT = ["taint", "gpu-2", "--reason", "riser swap"]


def run(*arguments: str) -> int:
    return execute(list(arguments), "konductor-like")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ([], None),
        (["xid", "63"], "xid.63"),
        (["XID.63"], "xid.63"),
        (["nvrm fallen off bus"], "nvrm.fallen_off_bus"),
        (["operator"], "operator"),
    ],
    ids=str,
)
def test_a_rule_may_be_named_as_people_write_it(words: list[str], rule: str | None) -> None:
    assert rule_of(words) == rule


def test_a_taint_is_one_patch_with_its_tests_and_an_event_of_the_same_name(cluster: Cluster) -> None:
    server = cluster("one faulty")

    assert run(*TAINT) == 0

    assert len(server.calls("patch")) == 1
    state = decode_node(server.node("gpu-2"))
    [event] = server.objects("events", "default")
    assert server.node("gpu-2")["spec"]["taints"] == [OUR_TAINT]
    assert server.node("gpu-2")["metadata"]["labels"][HEALTH_LABEL] == "faulty"
    assert state.record.act is not None
    assert state.record.tainted_at == NOW
    assert event["metadata"]["annotations"] == {"trainy.konduktor.ai/act": state.record.act.id}
    assert event["message"].endswith(f"act {state.record.act.id}")


def test_a_change_in_between_is_decided_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    server = cluster("one faulty")
    patch = KubeClient.patch
    theirs = {"key": "team", "value": "a", "effect": "NoSchedule"}

    def late(self: KubeClient, *arguments: object, **options: object) -> object:
        monkeypatch.setattr(KubeClient, "patch", patch)
        server.edit_node("gpu-2", lambda node: node["spec"].update(taints=[theirs]))
        return patch(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(KubeClient, "patch", late)

    assert run(*TAINT) == 0
    assert server.node("gpu-2")["spec"]["taints"] == [theirs, OUR_TAINT]


def test_verbose_names_the_act(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    server = cluster("one faulty")

    assert run(*TAINT, "-v") == 0

    act = decode_node(server.node("gpu-2")).record.act
    assert act is not None
    assert f"node/gpu-2: act {act.id}" in capsys.readouterr().err


def test_a_reset_is_named_in_its_event_too(cluster: Cluster) -> None:
    server = cluster("one faulty")

    assert run("reset", "gpu-1") == 0

    act = decode_node(server.node("gpu-1")).record.act
    [event] = server.objects("events", "default")
    assert act is not None
    assert event["message"].endswith(f"act {act.id}")


@pytest.mark.parametrize("dry_run", ["--dry-run", "--dry-run=server"])
@pytest.mark.parametrize("command", [TAINT, ["ack", "gpu-1", "--reason", "x"]], ids=["taint", "ack"])
def test_a_dry_run_changes_nothing(command: list[str], dry_run: str, cluster: Cluster) -> None:
    server = cluster("one faulty")
    before = server.objects("nodes")

    assert run(*command, dry_run) == 0

    assert server.objects("nodes") == before
    assert server.objects("events", "default") == []


def test_anothers_taint_in_our_place_is_left_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    theirs = [{**OUR_TAINT, "value": "someone-elses"}]
    server.edit_node("gpu-2", lambda node: node["spec"].update(taints=theirs))

    assert run(*TAINT) == 1

    assert server.node("gpu-2")["spec"]["taints"] == theirs
    assert "is there already" in capsys.readouterr().err


def test_an_acknowledgement_takes_the_label_off(cluster: Cluster) -> None:
    server = cluster("every state")
    server.edit_node("gpu-3", lambda node: node["metadata"]["labels"].update({HEALTH_LABEL: "suspect"}))

    assert run("ack", "gpu-3", "--reason", "seen at the burn-in") == 0

    assert HEALTH_LABEL not in server.node("gpu-3")["metadata"]["labels"]
    [incident] = decode_node(server.node("gpu-3")).record.incidents
    assert incident.ack is not None
    assert (incident.ack.at, incident.ack.reason) == (NOW, "seen at the burn-in")


def test_a_node_that_may_not_be_looked_at_is_a_failure_and_not_a_wrong_word(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster("one faulty")
    server.access.deny("list", "nodes")

    assert run("explain", "gpu-2") == 1

    assert "to check: kubectl auth can-i list nodes" in capsys.readouterr().err


def test_until_a_span_points_to_the_option_for_spans(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster("one faulty")

    assert run("pause", "--reason", "x", "--until", "2h") == 2

    assert "for a span there is --for 2h" in capsys.readouterr().err
