"""``test NODE`` says beforehand what would stop the test, and writes nothing then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from konductor_like.cli import session
from konductor_like.cli.chain_test.forecast import line_of
from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.node.record import decode, encode
from konductor_like.cluster.published import SETTINGS_ANNOTATION, encode_settings
from konductor_like.model import OPT_OUT_LABEL, Severity
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.endings import seconds_of_test
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.exec import Outcome
from konductor_like_sandbox.kubernetes.fleet import make_cpu_node, make_node, make_reader_pod
from tests.cli import scenes
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import NOW, OUR_TAINT, faulty, note_on_the_lease, settings_of
from tests.cluster.scenes import incident, record
from tests.cluster.test_pods import pod

READER = make_reader_pod("gpu-1")["metadata"]["name"]


class Place(NamedTuple):
    """What a test of the table may spoil."""

    server: KubernetesServer
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    run: Run

    def publish(self, policy: PolicyConfig, **settings: str) -> None:
        note_on_the_lease(self.folder, SETTINGS_ANNOTATION, encode_settings(settings_of(policy, **settings)))

    def rules(self, text: str) -> None:
        (self.folder / "rules.yaml").write_text(text)
        self.monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(self.folder / "rules.yaml"))


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Place:
    server = cluster("healthy")
    server.put_pod(make_reader_pod("gpu-1"))
    server.exec.run = lambda _: Outcome(1, stderr=b"must not run")
    return Place(server, tmp_path, monkeypatch, run)


def labelled(place: Place) -> None:
    place.server.edit_node("gpu-1", lambda node: node["metadata"]["labels"].update({OPT_OUT_LABEL: "true"}))


def paused(place: Place) -> None:
    assert place.run("pause", "--reason", "driver roll-out").code == 0


def tainted_by_another(place: Place) -> None:
    place.server.edit_node(
        "gpu-1", lambda node: node["spec"].update({"taints": [{**OUR_TAINT, "value": "other"}]})
    )


def tested(place: Place) -> None:
    node = make_node("gpu-1")
    test = scenes.incident("xid.14", severity=Severity.TEST, boot=scenes.boot_of(node))
    place.server.put_node(scenes.with_record(node, test, tainted=True))


def stopped(place: Place) -> None:
    place.monkeypatch.setattr(session, "now", lambda: NOW + timedelta(seconds=120))


def blind(place: Place) -> None:
    place.monkeypatch.setattr("konductor_like.cli.session.ControllerReport.alive", lambda *_: True)
    place.monkeypatch.setattr(session, "now", lambda: NOW + timedelta(hours=1))


def without_lease(place: Place) -> None:
    with closing(KubeClient.connect(str(place.folder / "kubeconfig"), None, 10)) as client:
        client._transport.ask("delete", "DELETE", lease_path("konductor-like", "konductor-like"))


STOPS: list[tuple[str, Callable[[Place], object], str]] = [
    ("opt-out label", labelled, "the node has the label trainy.konduktor.ai/ignore"),
    ("pause", paused, "tainting is paused by kim@example.com: driver roll-out"),
    ("another's taint", tainted_by_another, "another tool's taint has the same key and effect"),
    ("tainted already", lambda p: p.server.put_node(faulty("gpu-1")), "tainted already, for xid 79 on GPU"),
    ("tested already", tested, "another test of it is running, begun"),
    ("brake full", lambda p: p.server.put_node(faulty("gpu-2")), "1 of 2 GPU nodes are out of service"),
    ("brake 0", lambda p: p.publish(PolicyConfig(brake_max_nodes=0)), "the limit is 0"),
    ("rate", lambda p: p.publish(PolicyConfig(brake_rate_nodes=0)), "rate limit: 0 taints"),
    ("node selector", lambda p: p.publish(PolicyConfig(), node_selector="pool=a"), "KONDUCTOR_NODE_SELECTOR"),
    (
        "user-written lines ignored",
        lambda p: p.publish(PolicyConfig(count_user_written=False)),
        "KONDUCTOR_USER_WRITTEN=ignore",
    ),
    ("shadow", lambda p: p.rules("overrides:\n  xid.14.mode: shadow\n"), "a rule in shadow mode of"),
    ("rule off", lambda p: p.rules("overrides:\n  xid.14.mode: 'off'\n"), "the rules make nothing of"),
    ("severity", lambda p: p.rules("overrides:\n  xid.14.severity: info\n"), "the rules make info of"),
    ("no GPU", lambda p: p.server.put_node(make_cpu_node("gpu-1")), "it has no GPU"),
    ("controller stopped", stopped, "the controller does not run; kernel logs were read up to"),
    ("controller never ran", without_lease, "the controller does not run"),
    ("controller blind", blind, "the controller has not read the kernel logs since"),
    ("Lease forbidden", lambda p: p.server.access.deny("get", "leases", "*"), "runs is not known"),
    ("no reader", lambda p: p.server.delete_pod("dmesg-logging", READER), "no kernel-log reader runs on it"),
    (
        "reader waits",
        lambda p: p.server.put_pod(make_reader_pod("gpu-1", "Pending")),
        f"pod {READER} in dmesg-logging, is Pending (ImagePullBackOff)",
    ),
    ("no exec", lambda p: p.server.access.deny("create", "pods/exec"), "may not create pods/exec in"),
    ("no release", lambda p: p.server.access.deny("patch", "nodes"), "you may not patch nodes"),
    (
        "jobs",
        lambda p: p.server.put_pod(pod("train-0", labels={"batch.kubernetes.io/job-name": "train"})),
        "jobs use its GPUs: ml/Job/train.",
    ),
    ("pod", lambda p: p.server.put_pod(pod("train-0")), "jobs use its GPUs: ml/Pod/train-0."),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "says"), [each[1:] for each in STOPS], ids=[each[0] for each in STOPS])
def test_what_would_stop_a_test_is_said_beforehand(
    spoil: Callable[[Place], object], says: str, place: Place
) -> None:
    spoil(place)

    done = place.run("test", "gpu-1")

    assert done.code == 1
    assert "node/gpu-1 not tested: " in done.err
    assert says in done.err
    assert place.server.calls("get", "pods/exec") == []


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: note_on_the_lease(p.folder, SETTINGS_ANNOTATION, None), "the settings allow is not known"),
        (lambda p: p.publish(PolicyConfig(), rules_digest="other"), "the controller runs other rules"),
        (lambda p: p.server.edit_node("gpu-1", lambda n: n["spec"].update(unschedulable=True)), "cordoned"),
    ],
    ids=["settings unknown", "other rules", "cordon"],
)  # fmt: skip
def test_what_may_matter_is_said_and_does_not_stop_the_test(
    spoil: Callable[[Place], object], says: str, place: Place
) -> None:
    spoil(place)

    done = place.run("test", "gpu-1", "--dry-run")

    assert done.code == 0
    assert says in done.err
    assert f"would get by pod {READER}: NVRM: Xid (PCI:0000:ff:1f): 14" in done.out
    assert place.server.calls("get", "pods/exec") == []


@pytest.mark.parametrize(("keep", "ends"), [(False, 120), (True, 3600)])
def test_a_line_that_a_full_record_has_cut_still_has_its_token_and_its_end(keep: bool, ends: float) -> None:
    incidents = [incident(line=line_of("a1b2c3", keep=keep), gpu=f"0000:{n:02x}:00") for n in range(90)]

    found = decode(encode(record(*incidents)))[0].incidents

    assert 0 < len(found) < 90
    assert all(each.evidence.endswith(" a1b2c3") for each in found)
    assert {seconds_of_test(each.evidence, PolicyConfig()) for each in found} == {ends}


def test_jobs_do_not_stop_a_test_that_is_meant(place: Place) -> None:
    place.server.put_pod(pod("train-0", labels={"batch.kubernetes.io/job-name": "train"}))

    assert place.run("test", "gpu-1", "--with-jobs", "--dry-run").code == 0


def test_a_node_that_does_not_exist_is_not_found(place: Place) -> None:
    done = place.run("test", "gpu-9")

    hint = "hint: kubectl get nodes lists the names of the nodes\n"
    assert (done.code, done.err) == (1, f"error: node/gpu-9 not found\n{hint}")
