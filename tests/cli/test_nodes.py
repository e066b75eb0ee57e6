"""``reset`` and ``taint`` beyond their transcripts: writes, questions and conflicts."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.cli.options import with_plain_dry_run
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.lease.annotations import view
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.cluster.node.record import decode, encode
from konductor_like.model import (
    HEALTH_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    Controls,
    IncidentState,
    MetBy,
    NodeRecord,
    Severity,
    Source,
)
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, OTHER_BOOT, OUR_TAINT, ago, ago_ns, boot_of, faulty, incident, with_record

TAINT = ("taint", "gpu-2", "--reason", "riser swap")


def record_of(server: KubernetesServer, name: str) -> NodeRecord:
    """Return the record on a node."""
    record, problem = decode(server.node(name)["metadata"]["annotations"][RECORD_ANNOTATION])
    assert problem is None
    return record


def controls_of(server: KubernetesServer) -> Controls:
    """Return the acts that people wrote on the Lease."""
    [lease] = server.objects("leases", "konductor-like")
    return view(lease).controls


def test_after_two_dashes_dry_run_is_a_name() -> None:
    assert with_plain_dry_run(["--dry-run", "--", "--dry-run"]) == ["--dry-run=client", "--", "--dry-run"]


def test_a_dry_run_of_a_purge_says_what_would_be_lost(cluster: Cluster, run: Run) -> None:
    cluster("one faulty")

    assert "of 1 node would be lost" in run("reset", "--all", "--purge", "--yes", "--dry-run").err


def test_the_release_has_person_reason_and_cursor_by_the_clusters_clock(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubeClient, "clock_ahead_seconds", -5.0)
    server = cluster("one faulty")

    assert run("reset", "gpu-1", "--yes", "--reason", "riser swapped").code == 0

    record = record_of(server, "gpu-1")
    release = record.releases[0]
    assert (release.by, release.reason, release.how) == ("kim@example.com", "riser swapped", "reset")
    assert release.at == NOW - timedelta(seconds=5)  # not by the laptop's clock, which runs ahead
    assert release.read_ns == {Source.KERNEL: ago_ns(9), Source.POD: ago_ns(11)}
    assert [each.state for each in record.incidents] == [IncidentState.RELEASED]
    assert HEALTH_LABEL not in server.node("gpu-1")["metadata"]["labels"]
    [event] = server.objects("events", "default")
    assert event["reason"] == "GPUFaultReleased"
    assert record.act is not None
    assert event["message"].endswith(f"(audit id {record.act.id})")


@pytest.mark.parametrize(
    "command",
    [
        ("reset", "gpu-1", "--yes"),
        TAINT,
        ("pause", "--reason", "driver"),
        ("brake", "reset"),
    ],
    ids=" ".join,
)
def test_every_write_names_the_user_whom_the_api_server_knows(
    command: tuple[str, ...], cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ceo")
    server = cluster("one faulty")

    assert run(*command).code == 0

    assert person_of(server, command) == "kim@example.com"
    assert "ceo@" not in str(server.objects("nodes"))


def person_of(server: KubernetesServer, command: tuple[str, ...]) -> str:
    """Return the person whom the record or the Lease names after this command."""
    controls = controls_of(server)
    match command[0]:
        case "reset":
            return record_of(server, "gpu-1").releases[0].by
        case "taint":
            return record_of(server, "gpu-2").incidents[0].title.removeprefix("Tainted by ")
        case "pause":
            return controls.pause.by if controls.pause else ""
        case _:
            return controls.brake_reset.by if controls.brake_reset else ""


@pytest.mark.parametrize(
    ("status", "options", "by"),
    [
        (None, ("--by", "alice"), "alice (claimed, as kim@example.com)"),
        (None, ("--by", "kim@example.com"), "kim@example.com"),
        (404, (), "ceo@laptop (claimed)"),
        (403, ("--by", "alice"), "alice (claimed)"),
    ],
    ids=["a claim", "the same name", "an old server", "a server that refuses"],
)
def test_a_name_that_the_api_server_does_not_confirm_is_a_claim(
    status: int | None,
    options: tuple[str, ...],
    by: str,
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGNAME", "ceo")
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    server = cluster("one faulty")
    if status is not None:
        server.mishaps.add(refusal(status), when=matching("POST", "/selfsubjectreviews"))

    assert run("reset", "gpu-1", "--yes", *options).code == 0

    assert record_of(server, "gpu-1").releases[0].by == by


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x\x1b[2J", "x" * 61], ids=repr)
def test_a_claimed_name_is_one_short_line(name: str, cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")

    assert run("reset", "gpu-1", "--by", name).code == 2
    assert server.calls() == []


@pytest.mark.parametrize("reason", ["x" * 501, "a\nb", "\x1b[2J"], ids=["long", "two lines", "control"])
@pytest.mark.parametrize(
    "command",
    [("reset", "gpu-1"), ("taint", "gpu-1"), ("pause",), ("brake", "reset")],
    ids=" ".join,
)
def test_a_reason_is_one_line_that_the_record_can_hold(
    command: tuple[str, ...], reason: str, cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")

    done = run(*command, "--reason", reason)

    assert (done.code, done.out) == (2, "")
    assert "a reason is one line of at most 500 characters, without control characters" in done.err
    assert server.calls() == []


def test_names_may_have_the_prefix_of_kubectl_and_repeat(cluster: Cluster, run: Run) -> None:
    cluster("one faulty")

    done = run("reset", "node/gpu-1", "gpu-1", "nodes/gpu-1", "-y")

    assert (done.code, done.out) == (0, "node/gpu-1 untainted\n")


@pytest.mark.parametrize(
    "name",
    ["\x1b[2J", "Gpu-1", "../leases/x", "node/", "x" * 10_000_000],
    ids=lambda name: name[:9],
)
@pytest.mark.parametrize("command", [("reset",), ("taint", "--reason", "x")], ids=" ".join)
def test_a_text_that_cannot_be_a_nodes_name_is_one_short_message(
    command: tuple[str, ...], name: str, cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")

    done = run(*command, "--", name)

    assert done.code == 2
    assert server.calls() == []
    assert "cannot be the name of a node" in done.err
    assert len(done.err) < 300
    assert "\x1b" not in done.err


def test_an_event_that_cannot_be_sent_does_not_fail_the_reset(cluster: Cluster, run: Run) -> None:
    cluster("one faulty").access.deny("create", "events")

    assert run("reset", "gpu-1", "-y").code == 0


@pytest.mark.parametrize("how", ["--dry-run", "--dry-run=server"])
@pytest.mark.parametrize(
    "command",
    [
        ("reset", "--all", "--yes"),
        ("reset", "--all", "--yes", "--purge"),
        TAINT,
    ],
    ids=" ".join,
)
def test_a_dry_run_changes_nothing(command: tuple[str, ...], how: str, cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    before = server.objects("nodes")

    assert run(*command, how).code == 0

    assert server.objects("nodes") == before
    assert server.objects("events", "default") == []
    assert controls_of(server).purge is None
    sent = [call.request.params["dryRun"] for call in server.calls("patch")]
    assert bool(sent) is ("server" in how)
    assert all(value == ["All"] for value in sent)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (409, "node/gpu-1 keeps changing and was not released; try again"),
        (404, "node/gpu-1 not found"),
    ],
)
def test_a_node_that_cannot_be_written_is_reported(
    status: int, said: str, cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")
    server.mishaps.add(refusal(status), times=None, when=matching("PATCH", "/nodes/gpu-1"))

    done = run("reset", "gpu-1", "-y")

    assert done.code == 1
    assert said in done.err


def test_a_node_that_fails_does_not_stop_the_others(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.put_node(faulty("gpu-3"))
    server.access.deny("patch", "nodes", name="gpu-1")

    assert run("reset", "--all", "--yes").code == 3
    assert not decode_node(server.node("gpu-3")).tainted


def test_a_warning_about_many_nodes_is_one_line(cluster: Cluster, run: Run) -> None:
    cluster("brake full")

    done = run("reset", "--all", "--yes")

    assert len(done.out.splitlines()) == 8
    assert [line.split(": Unmet need")[0] for line in done.err.splitlines()] == [
        "warning: node/gpu-1",
        "warning: node/gpu-2, node/gpu-3, node/gpu-4, node/gpu-5, node/gpu-6 and 2 more",
    ]


def test_a_reset_of_a_node_with_too_few_gpus_says_so(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.edit_node("gpu-1", lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": "7"}))

    assert "warning: node/gpu-1: it has 7 of 8 GPUs\n" in run("reset", "gpu-1", "--yes").err


def test_a_record_mangled_by_hand_is_replaced_with_a_warning(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.edit_node("gpu-1", lambda node: node["metadata"]["annotations"].update({RECORD_ANNOTATION: "{"}))

    assert "node/gpu-1: its record was replaced" in run("reset", "gpu-1").err
    assert record_of(server, "gpu-1").releases


class Keyboard(io.StringIO):
    """A terminal on which a person types this text."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "typed", "status", "untainted"),
    [
        ([], "y\n", 0, True),
        ([], "n\n", 1, False),
        ([], "", 1, False),
        (["-y"], "y\n", 2, False),
        (["--all"], "y\n", 0, True),
        (["--all", "-y"], "", 0, True),
        (["--purge"], "y\n", 2, False),
        (["gpu-1"], "", 1, False),
        (["gpu-1"], "y\n", 0, True),
        (["gpu-1", "-y"], "", 0, True),
        (["gpu-1", "--purge"], "", 1, False),
        (["--dry-run"], "", 0, False),
    ],
    ids=[
        "yes",
        "no",
        "no input",
        "-y alone",
        "all",
        "all, -y",
        "purge alone",
        "by name",
        "by name, yes",
        "by name, -y",
        "a purge",
        "dry run",
    ],
)
def test_on_a_terminal_a_reset_asks_first_of_all_nodes_and_of_one_that_nobody_has_repaired(
    arguments: list[str],
    typed: str,
    status: int,
    untainted: bool,
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard(typed))

    assert run("reset", *arguments).code == status
    assert decode_node(server.node("gpu-1")).tainted is not untainted


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 2),
        ({"needs": "inspection"}, 2),
        ({"boot": OTHER_BOOT, "needs": "inspection"}, 2),
        ({"boot": OTHER_BOOT}, 0),
        ({"boot": OTHER_BOOT, "met_by": MetBy.REBOOT, "met_ns": ago_ns(60)}, 0),
        ({"severity": Severity.TEST}, 0),
        ({"needs": "none"}, 0),
    ],
    ids=[
        "not rebooted",
        "inspection",
        "inspection after a reboot",
        "rebooted since",
        "met by the reboot",
        "a test",
        "no need",
    ],
)
def test_without_a_terminal_a_node_that_nobody_has_repaired_is_reset_with_yes_only(
    changes: dict[str, Any], code: int, cluster: Cluster, run: Run
) -> None:
    server, node = cluster("healthy"), make_node("gpu-1")
    found = incident(boot=changes.pop("boot", boot_of(node)))
    server.put_node(with_record(node, replace(found, **changes), tainted=True))

    done = run("reset", "gpu-1")

    assert done.code == code
    assert decode_node(server.node("gpu-1")).tainted is (code != 0)
    if code:
        needs = changes.get("needs", "reboot")
        assert done.err == (
            f"warning: node/gpu-1: Unmet need: {needs} (xid 79 on GPU 0000:9b:00).\n"
            "error: nothing was changed: there is no terminal to ask on\n"
            "hint: repair the nodes first (`konductor-like explain NODE`), or give --yes\n"
        )
        assert run("reset", "gpu-1", "--yes").code == 0


@pytest.mark.parametrize(("options", "code"), [([], 2), (["--yes"], 0)], ids=str)
def test_a_node_marked_for_replacement_is_reset_with_a_question_also_after_its_reboot(
    options: list[str], code: int, cluster: Cluster, run: Run
) -> None:
    server, node = cluster("healthy"), make_node("gpu-1")
    node = with_record(node, incident(boot=OTHER_BOOT), tainted=True)
    record = decode_node(node).record
    marked = replace(record, life=replace(record.life, replace_since=ago(600)))
    node["metadata"]["annotations"][RECORD_ANNOTATION] = encode(marked)
    server.put_node(node)

    done = run("reset", "gpu-1", *options)

    assert done.code == code
    assert "node/gpu-1: Unmet need: replacement (it failed 1 times in 7 days).\n" in done.err


def test_a_reset_without_names_leaves_an_ignored_node_without_the_taint_alone(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("healthy")
    for name, is_tainted in (("gpu-1", False), ("gpu-2", True)):
        node = make_node(name)
        node["metadata"]["labels"][OPT_OUT_LABEL] = "true"
        server.put_node(with_record(node, incident(boot=boot_of(node)), tainted=is_tainted))

    assert run("reset", "--all", "--yes", "--dry-run", "-o", "name").out == "node/gpu-2\n"
    assert run("reset", "gpu-1", "--yes", "--dry-run", "-o", "name").out == "node/gpu-1\n"


def test_many_nodes_that_nobody_has_repaired_are_ten_lines_and_a_number_the_gravest_first(
    cluster: Cluster, run: Run
) -> None:
    server, names = cluster("healthy"), [f"gpu-{number}" for number in range(1, 14)]
    for number, name in enumerate(names):
        node = make_node(name)
        found = incident(gpu=f"0000:{number:02x}:00", boot=boot_of(node))
        found = replace(found, needs="inspection" if name == "gpu-13" else "reboot")
        server.put_node(with_record(node, found, tainted=True))

    done = run("reset", *names)

    assert done.code == 2
    lines = done.err.splitlines()
    assert len(lines) == 13
    assert lines[0] == "warning: node/gpu-13: Unmet need: inspection (xid 79 on GPU 0000:0c:00)."
    assert lines[10] == "warning: and 3 more nodes: see `konductor-like status`"

    done = run("reset", *names, "--yes")

    assert (done.code, len(done.err.splitlines())) == (0, 11)  # nothing is told twice


@pytest.mark.parametrize("options", [[], ["--purge"]], ids=["reset", "purge"])
def test_a_node_that_fails_between_the_question_and_the_write_is_not_released(
    options: list[str], cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, patch = cluster("healthy"), KubeClient.patch
    server.put_node(with_record(make_node("gpu-1"), incident(severity=Severity.TEST), tainted=True))

    def late(self: KubeClient, *arguments: object, **options: object) -> object:
        monkeypatch.setattr(KubeClient, "patch", patch)
        server.put_node(faulty("gpu-1"))
        return patch(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(KubeClient, "patch", late)

    done = run("reset", "gpu-1", *options)

    assert done.code == 1
    needs = "it needs reboot (xid 79 on GPU 0000:9b:00)"
    assert (
        f"node/gpu-1 failed meanwhile and was not {'purged' if options else 'released'}: {needs}" in done.err
    )
    assert decode_node(server.node("gpu-1")).tainted


@pytest.mark.parametrize(
    ("arguments", "scene", "asked"),
    [
        ([], "brake full", ["8 nodes: 7 for xid 95, 1 for xid 79\n", "Release 8 nodes: gpu-1, gpu-2, "]),
        (
            ["--all", "--purge"],
            "every state",
            ["Purge 8 nodes: gpu-1, gpu-2, ", "is lost", "may taint them again"],
        ),
    ],
    ids=["reset", "purge"],
)
def test_the_question_names_the_nodes_and_what_is_lost(
    arguments: list[str],
    scene: str,
    asked: list[str],
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster(scene)
    monkeypatch.setattr("sys.stdin", Keyboard("n\n"))

    done = run("reset", *arguments)

    assert done.out == ""
    assert all(part in done.err for part in asked)


@pytest.mark.parametrize(
    ("arguments", "typed", "asks", "reason"),
    [
        (["gpu-1"], "y\nriser swapped \n", True, "riser swapped"),
        (["gpu-1"], "y\n\n", True, ""),
        (["gpu-1"], "y\n", True, ""),
        (["gpu-1", "--yes"], "riser swapped\n", False, ""),
        (["gpu-1", "--reason", "new riser"], "y\nriser swapped\n", False, "new riser"),
        ([], "y\nriser swapped\n", True, "riser swapped"),
    ],
    ids=["a reason", "Enter", "end of input", "--yes", "--reason", "all nodes"],
)
def test_on_a_terminal_the_release_of_a_failed_node_asks_for_the_reason(
    arguments: list[str],
    typed: str,
    asks: bool,
    reason: str,
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard(typed))

    done = run("reset", *arguments)

    assert ("Reason, for the record (Enter for none): " in done.err) is asks
    assert record_of(server, "gpu-1").releases[0].reason == reason


def test_no_reason_is_asked_for_the_end_of_a_test_or_for_a_purge(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    test = with_record(make_node("gpu-2"), incident(severity=Severity.TEST), tainted=True)
    server.put_node(test)
    monkeypatch.setattr("sys.stdin", Keyboard("y\nriser swapped\n"))

    assert "Reason" not in run("reset", "gpu-2").err
    assert "Reason" not in run("reset", "gpu-1", "--purge").err


def test_a_reason_that_is_no_line_of_text_releases_nothing(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard("y\nriser \x07swapped\n"))

    assert run("reset", "gpu-1").code == 2
    assert decode_node(server.node("gpu-1")).tainted


def test_a_purge_of_a_node_without_a_record_warns_of_no_loss(cluster: Cluster, run: Run) -> None:
    server = cluster("healthy")
    server.put_node(make_node("gpu-2", taints=(OUR_TAINT,)))

    assert "is lost" not in run("reset", "gpu-1", "gpu-2", "--purge", "--yes").err


def test_with_standard_input_closed_a_reset_without_names_needs_yes(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", None)

    assert run("reset").code == 2
    assert server.calls() == []
    assert run("reset", "--all", "--yes").code == 0
    assert not decode_node(server.node("gpu-1")).tainted


def test_purging_leaves_nothing_of_ours(cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    twin = server.node("gpu-7")["spec"]["taints"]

    assert run("reset", "--all", "--purge", "--yes").code == 0
    for node in server.objects("nodes"):
        assert "konduktor" not in str(_without_others(node))
    assert server.node("gpu-7")["spec"]["taints"] == twin


def _without_others(node: dict[str, Any]) -> dict[str, Any]:
    """Return what may be ours on a Node, without the opt-out label, others' taints and managedFields."""
    metadata = {key: value for key, value in node["metadata"].items() if key != "managedFields"}
    labels = {key: value for key, value in metadata["labels"].items() if not key.endswith("/ignore")}
    taints = [taint for taint in node["spec"].get("taints", ()) if taint == OUR_TAINT]
    return {"metadata": {**metadata, "labels": labels}, "taints": taints}


def test_a_purge_notes_on_the_lease_the_number_of_purged_nodes(cluster: Cluster, run: Run) -> None:
    server = cluster("every state")
    tainted = sum(OUR_TAINT in node["spec"].get("taints", ()) for node in server.objects("nodes"))
    assert tainted > 1

    assert run("reset", "--purge", "gpu-11").code == 0  # in service
    assert controls_of(server).purge is None
    assert run("reset", "--purge", "gpu-1", "-y").code == 0
    assert run("reset", "--all", "--purge", "--yes").code == 0

    purge = controls_of(server).purge
    assert purge is not None
    assert (purge.at, purge.nodes) == (NOW, tainted)


def test_a_purge_without_the_right_to_the_lease_goes_on_with_a_warning(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    server.access.deny("update", "leases", "*")

    done = run("reset", "gpu-1", "--purge", "-y")

    assert done.code == 0
    assert "the brake may taint other nodes at once" in done.err
    assert "taints" not in server.node("gpu-1")["spec"]


def test_a_taint_is_one_patch_with_its_tests_and_an_event_of_the_same_name(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("one faulty")

    done = run(*TAINT, "-v")

    assert done.code == 0
    assert len(server.calls("patch")) == 1
    record = record_of(server, "gpu-2")
    [event] = server.objects("events", "default")
    assert server.node("gpu-2")["spec"]["taints"] == [OUR_TAINT]
    assert server.node("gpu-2")["metadata"]["labels"][HEALTH_LABEL] == "faulty"
    assert record.act is not None
    assert record.life.tainted_at == NOW
    assert event["metadata"]["annotations"] == {"trainy.konduktor.ai/act": record.act.id}
    assert event["message"].endswith(f"(audit id {record.act.id})")
    assert f"node/gpu-2: audit id {record.act.id}" in done.err


def test_a_node_that_changed_meanwhile_is_decided_again(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster("one faulty")
    patch = KubeClient.patch
    theirs = {"key": "team", "value": "a", "effect": "NoSchedule"}

    def late(self: KubeClient, *arguments: object, **options: object) -> object:
        monkeypatch.setattr(KubeClient, "patch", patch)
        server.edit_node("gpu-2", lambda node: node["spec"].update(taints=[theirs]))
        return patch(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(KubeClient, "patch", late)

    assert run(*TAINT).code == 0
    assert server.node("gpu-2")["spec"]["taints"] == [theirs, OUR_TAINT]


def test_anothers_taint_in_our_place_is_left_alone(cluster: Cluster, run: Run) -> None:
    server = cluster("one faulty")
    theirs = [{**OUR_TAINT, "value": "someone-elses"}]
    server.edit_node("gpu-2", lambda node: node["spec"].update(taints=theirs))

    done = run(*TAINT)

    assert done.code == 1
    assert "has a taint with the controller's key" in done.err
    assert server.node("gpu-2")["spec"]["taints"] == theirs


@pytest.mark.parametrize(
    "arguments",
    [
        ("--yes",),
        ("--yes", "--purge"),
        ("", "--yes"),
        ("-l", "", "--yes"),
        ("-l", "--yes"),
        ("-l", "--reason=x", "--yes"),
        ("-l", "pool!=", "--yes"),
        ("-l", "pool!=,gpu", "--yes"),
        ("-l", "pool notin ()", "--yes"),
        ("gpu-1", "--all", "--yes"),
        ("-l", "pool=a", "--all", "--yes"),
    ],
    ids=" ".join,
)
def test_a_script_with_an_empty_variable_releases_nothing_and_is_told_what_to_type(
    arguments: tuple[str, ...], cluster: Cluster, run: Run
) -> None:
    server = cluster("brake full")

    done = run("reset", *arguments)

    assert (done.code, done.out) == (2, "")
    assert "--all" in done.err
    assert server.calls() == []


def test_a_selector_with_yes_is_a_choice_of_its_own(cluster: Cluster, run: Run) -> None:
    cluster("brake full")

    assert run("reset", "-l", "kubernetes.io/hostname in (gpu-2, gpu-3)", "--yes").code == 0


def test_all_leaves_nodes_without_the_taint_and_without_a_held_fault_alone(
    cluster: Cluster, run: Run
) -> None:
    server = cluster("every state")
    before = {node["metadata"]["name"]: node for node in server.objects("nodes")}

    done = run("reset", "--all", "--yes", "-o", "name")

    assert done.out.split() == ["node/gpu-1", "node/gpu-2", "node/gpu-6"]
    for node in server.objects("nodes"):
        name = node["metadata"]["name"]
        assert (node != before[name]) is (f"node/{name}" in done.out.split())


@pytest.mark.parametrize("answers", ["", "n\n", "y\n"], ids=repr)
@pytest.mark.parametrize("arguments", [(), ("--all",), ("gpu-1",), ("gpu-1", "--purge")], ids=" ".join)
def test_a_dry_run_shows_the_question_and_ends_like_the_answer_yes(
    arguments: tuple[str, ...], answers: str, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run does not wait for the answer."""
    server = cluster("one faulty")
    monkeypatch.setattr("sys.stdin", Keyboard(answers))
    dry = run("reset", *arguments, "--dry-run", "--reason", "x")
    assert dry.code == 0
    assert decode_node(server.node("gpu-1")).tainted

    monkeypatch.setattr("sys.stdin", Keyboard("y\n"))
    real = run("reset", *arguments, "--reason", "x")

    asked = [line for line in real.err.replace("[y/N] ", "[y/N] \n").splitlines() if "lost" not in line]
    assert asked == [line for line in dry.err.splitlines() if "lost" not in line]
    assert dry.out == real.out.replace("\n", " (dry run)\n")


WRITING = (
    ("reset", "gpu-1"),
    TAINT,
    ("validate", "gpu-1"),
    ("validate", "gpu-1", "--cancel"),
    ("test", "gpu-1"),
    ("pause",),
    ("resume",),
    ("brake", "reset"),
)


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_every_command_that_writes_takes_yes_and_a_reason(
    command: tuple[str, ...], cluster: Cluster, run: Run
) -> None:
    cluster("one faulty")

    assert run(*command, "--yes", "--reason", "seen").code != 2


def test_a_resume_keeps_its_reason_on_the_lease(cluster: Cluster, run: Run) -> None:
    server = cluster("healthy")

    assert run("resume", "--reason", "the switch is back").code == 0

    resumed = controls_of(server).resume
    assert resumed is not None
    assert resumed.reason == "the switch is back"


def test_a_reset_by_name_closes_the_suspicions_of_an_untainted_node(cluster: Cluster, run: Run) -> None:
    server = cluster("healthy")
    server.put_node(with_record(make_node("gpu-5"), incident("xid.63", severity=Severity.SUSPECT)))

    done = run("reset", "gpu-5", "--reason", "row remapping, watching it")

    assert done.code == 0, done.err
    assert [each.state for each in record_of(server, "gpu-5").incidents] == [IncidentState.RELEASED]
    assert HEALTH_LABEL not in server.node("gpu-5")["metadata"]["labels"]


@pytest.mark.parametrize("chosen", [("--all",), ("-l", "kubernetes.io/hostname=gpu-5")], ids=" ".join)
def test_a_reset_without_a_name_closes_no_suspicion(
    chosen: tuple[str, ...], cluster: Cluster, run: Run
) -> None:
    server = cluster("healthy")
    server.put_node(with_record(make_node("gpu-5"), incident("xid.63", severity=Severity.SUSPECT)))

    done = run("reset", *chosen, "--yes")

    assert (done.code, server.calls("patch")) == (0, []), done.err
