"""`doctor` names the broken link of a site, and no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cli.doctor import log_facts
from konductor_like.cli.doctor.report import report_lines
from konductor_like.cli.output import PIPE, Screen
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.doctor.checkup import checkup, exit_of
from konductor_like.doctor.cluster_links import POLICY_DIGEST, digest_of
from konductor_like.doctor.facts import Beat, Cause, Facts, Heard, Unseen
from konductor_like.doctor.link import Link, State
from konductor_like.doctor.log_links import seconds_of
from konductor_like.exits import Exit
from konductor_like.model.controls import Control, ControlAct
from konductor_like.policy.config import PolicyConfig
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.kubernetes.errors import matching
from konductor_like.sandbox.kubernetes.fleet import make_cpu_node
from konductor_like.sandbox.loki import HTML_ANSWER
from konductor_like.sandbox.loki.limits import LokiLimits
from tests.cli.conftest import Run
from tests.cli.doctor_site import GPU_NODES, MANIFEST, Site, daemonset, deployment, facts_of, pod
from tests.cli.test_docs import described, names
from tests.cli.transcripts import forget_settings
from tests.manifests.manifests import documents, only

Damage = Callable[[Site], object]
FIRST, SECOND, THIRD = GPU_NODES
POLICY, BINDING = (f"validatingadmissionpolic{end}/konductor-like" for end in ("ies", "ybindings"))


def change(**parts: Any) -> Damage:
    """Return a damage that sets these parts of the site."""

    def damage(site: Site) -> None:
        for name, value in parts.items():
            setattr(site, name, value)

    return damage


def put(key: str, thing: dict[str, Any]) -> Damage:
    """Return a damage that puts an object in place of another, or adds it."""
    return lambda site: site.objects.update({key: thing})


def remove(*keys: str) -> Damage:
    """Return a damage that removes objects."""
    return lambda site: [site.objects.pop(key) for key in keys]


def kube(act: Callable[[Any], object]) -> Damage:
    """Return a damage that changes the API server when it runs."""
    return change(before=lambda kube, _loki: act(kube))


def loki(act: Callable[[Any], object]) -> Damage:
    """Return a damage that changes Loki when it runs."""
    return change(before=lambda _kube, loki: act(loki))


def limits(**limits: Any) -> Damage:
    """Return a damage that sets limits of Loki."""
    return change(limits=LokiLimits(**limits))


def both(*damages: Damage) -> Damage:
    """Return one fault that shows in two places."""
    return lambda site: [damage(site) for damage in damages]


def policy_with(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Return a damage that edits a copy of the admission policy."""

    def damage(site: Site) -> None:
        copy = json.loads(json.dumps(site.objects[POLICY]))
        change(copy["spec"])
        site.objects[POLICY] = copy

    return damage


@dataclass(frozen=True)
class Case:
    """One broken site."""

    fault: str
    damage: Damage
    link: str
    state: State
    says: str
    """A part of the text or the advice."""
    also: tuple[str, ...] = ()
    """Other links that the same fault breaks."""


def broken(fault: str, damage: Damage, link: str, says: str, *also: str) -> Case:
    return Case(fault, damage, link, State.BROKEN, says, also)


def warned(fault: str, damage: Damage, link: str, says: str, *also: str) -> Case:
    return Case(fault, damage, link, State.WARN, says, also)


def rename(node: str, name: str) -> Damage:
    return lambda site: site.names.update({node: name})


NOT_SERVED = Mishap(
    status=404,
    body='{"kind":"Status","message":"the server could not find the requested resource","code":404}',
    content_type="application/json",
)
PAUSE = ControlAct(Control.PAUSE, datetime.now(UTC), "kim", "driver roll-out")
NO_DRY_RUN = deployment("konductor-like", "konductor-like", "run", "--dry-run")
REFUSE_TEAM_A = kube(lambda kube: kube.access.deny("list", "pods", "", "", "team-a"))
AUTOSCALER = ("deployments/ca", "kube-system", "cluster-autoscaler")

CASES = [
    broken("the API server is down", kube(lambda kube: kube.stop()), "API server", "cannot be reached"),
    broken(
        "the token has expired",
        kube(lambda kube: [kube.access.revoke(token) for token in list(kube.access._users)]),
        "API server",
        "log in again",
    ),
    broken(
        "another program answers",
        kube(lambda kube: kube.mishaps.add(Mishap(status=404), None)),
        "API server",
        "cannot list the API groups",
    ),
    broken(
        "there is no kubeconfig", change(environment={"KUBECONFIG": "/nowhere"}), "API server", "kubeconfig"
    ),
    warned(
        "the caller may not read Nodes",
        kube(lambda kube: kube.access.deny("list", "nodes")),
        "rights",
        "list nodes",
    ),
    broken("no controller ever ran", change(lease=False), "controller", "no controller ever ran"),
    broken(
        "nothing is installed",
        both(change(lease=False), remove("deployments/konductor-like")),
        "controller",
        "no controller is installed",
    ),
    broken("the controller is dead", change(renewed_seconds=400.0), "controller", "it is dead or stuck"),
    broken("nobody holds the Lease", change(holder=""), "controller", "nobody holds the Lease"),
    broken(
        "the Deployment is scaled down",
        both(
            change(renewed_seconds=400.0),
            put("deployments/konductor-like", deployment("konductor-like", "konductor-like", replicas=0)),
        ),
        "controller",
        "--replicas=1",
    ),
    warned(
        "the controller only pretends",
        both(change(lease=False), put("deployments/konductor-like", NO_DRY_RUN)),
        "controller",
        "--dry-run",
    ),
    warned("somebody paused it", change(pause=PAUSE), "controller", "paused by kim: driver roll-out"),
    warned(
        "the brake holds everything",
        change(policy=PolicyConfig(brake_max_nodes=0)),
        "controller",
        "KONDUCTOR_BRAKE_MAX_NODES is 0",
    ),
    broken("the controller is blind", change(kernel_read_seconds=900.0), "reading", "blind: kernel logs"),
    warned("pods' logs are not read", change(pods_read_seconds=900.0), "reading", "pod logs were read"),
    broken("the policy is missing", remove(POLICY, BINDING), "admission policy", "kubectl apply"),
    broken("the policy is not bound", remove(BINDING), "admission policy", "no binding"),
    broken(
        "the policy only audits",
        lambda site: site.objects.update(
            {BINDING: {**site.objects[BINDING], "spec": {"validationActions": ["Audit"]}}}
        ),
        "admission policy",
        "does not deny: validationActions is Audit",
    ),
    warned(
        "the policy is old",
        policy_with(
            lambda spec: spec.update(documents("../tests/manifests/policy_without_needs.yaml")[0]["spec"])
        ),
        "admission policy",
        "older than the label trainy.konduktor.ai/needs",
    ),
    warned(
        "somebody edited the policy",
        policy_with(lambda spec: spec["validations"].pop(0)),
        "admission policy",
        "kubectl diff",
    ),
    warned(
        "Kubernetes is too old",
        kube(lambda kube: kube.mishaps.add(NOT_SERVED, None, matching(path="admissionregistration"))),
        "admission policy",
        "Kubernetes 1.30",
    ),
    broken(
        "no node counts as a GPU node",
        change(nodes=[make_cpu_node(name) for name in GPU_NODES]),
        "GPU nodes",
        "KONDUCTOR_GPU_NODE_SELECTOR",
    ),
    broken("the reader is not installed", change(pods=[]), "readers", "dmesg_daemonset.yaml"),
    broken(
        "one node has no reader",
        both(lambda site: site.pods.pop(0), lambda site: site.names.pop(FIRST)),
        "readers",
        f"1 of 3 GPU nodes: {FIRST}",
    ),
    broken(
        "a reader crashes",
        lambda site: site.pods.__setitem__(1, pod("dmesg-logging", "dmesg-b", SECOND, ready=False)),
        "readers",
        f"not ready on 1 of 3 GPU nodes: {SECOND}",
    ),
    broken(
        "the collector is not ready",
        put("daemonsets/otel", daemonset("otel-collector", "otel-collector-agent", "otel/x", ready=2)),
        "collector",
        "2 of 3 pods ready",
    ),
    broken(
        "Loki is down",
        both(loki(lambda loki: loki.stop()), change(kernel_read_seconds=900.0)),
        "Loki",
        "cannot connect",
        "reading",
    ),
    warned(
        "Loki cannot be reached from here", loki(lambda loki: loki.stop()), "Loki", "does not answer here"
    ),
    warned(
        "the address is a login page",
        loki(lambda loki: loki.fail(HTML_ANSWER, None)),
        "Loki",
        "LOG_ENDPOINT may point at another server",
    ),
    broken("no tenant is set", change(tenants=True), "tenant and login", "KONDUCTOR_LOKI_TENANT"),
    broken(
        "the password is wrong",
        loki(lambda loki: loki.fail(Mishap(status=401, body="unauthorized"), None)),
        "tenant and login",
        "KONDUCTOR_LOKI_BEARER_TOKEN",
    ),
    warned("few lines", limits(max_entries_limit_per_query=500), "limits", "500 lines at most"),
    warned("short queries", limits(max_query_length_seconds=1800), "limits", "over one hour is refused"),
    warned("small messages", limits(grpc_message_bytes=1 << 20), "limits", "less than 4 MiB"),
    warned("patient Loki", limits(query_timeout_seconds=120.0), "limits", "query_timeout"),
    warned("short lookback", limits(max_query_lookback_seconds=7200), "limits", "older than 2 h"),
    broken(
        "the kernel log does not arrive",
        change(beats=False, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "has no line in the last hour",
    ),
    broken(
        "the kernel log has another name",
        change(kernel={"namespace": "gpu-logs"}, unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "KONDUCTOR_KERNEL_SELECTOR",
    ),
    warned(
        "the reader is a plain dmesg",
        change(line="[12.5] usb 1-1: new device", unheard=frozenset(GPU_NODES)),
        "kernel stream",
        "no heartbeat",
    ),
    broken(
        "the lines name no node",
        change(environment={"KONDUCTOR_NODE_LABEL": "node"}),
        "node label",
        "no heartbeat has node",
    ),
    broken("short names", rename(FIRST, "gpu-1"), "node names", f"the lines say gpu-1, the Node is {FIRST}"),
    broken("capitals", rename(FIRST, FIRST.upper()), "node names", "the lines say GPU-1"),
    broken("another domain", rename(FIRST, "gpu-1.other.net"), "node names", "gpu-1.other.net"),
    broken("a cluster prefix", rename(FIRST, f"prod-{FIRST}"), "node names", f"prod-{FIRST}"),
    warned(
        "another cluster's nodes",
        lambda site: site.names.update({"stray-9": ""}),
        "node names",
        "heartbeats of stray-9",
    ),
    broken("a silent node", lambda site: site.names.pop(THIRD), "heartbeats", f"1 of 3 GPU nodes: {THIRD}"),
    broken(
        "a namespace is not shipped", change(shipped_namespaces=()), "namespaces", "Loki has no line: team-a"
    ),
    warned(
        "a namespace may be idle",
        both(
            change(shipped_namespaces=()),
            kube(lambda kube: kube.access.deny("list", "pods", "", "", "team-a")),
        ),
        "namespaces",
        "normal if no pod runs there",
    ),
    warned("a node's clock is fast", change(ahead_seconds=300.0), "clocks", f"{FIRST} is 5 min ahead"),
    warned(
        "Loki deletes early", limits(retention_period_seconds=21_600), "retention", "deletes lines after 6 h"
    ),
    warned(
        "Loki deletes early and shows no configuration",
        both(
            change(oldest_seconds=4000.0),
            loki(lambda loki: loki.fail(Mishap(status=404), None, matching(path="/config"))),
        ),
        "retention",
        "the controller started 3 days ago",
    ),
    warned(
        "Karpenter",
        put("deployments/k", deployment("kube-system", "karpenter")),
        "other tools",
        "Karpenter acts",
    ),
    warned(
        "an autoscaler that does not know the taint",
        put(AUTOSCALER[0], deployment(*AUTOSCALER[1:])),
        "other tools",
        "--status-taint",
    ),
    warned(
        "a tool that left only a taint",
        lambda site: site.nodes[0]["spec"].update(
            taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
        ),
        "other tools",
        f"taint karpenter.sh/disrupted on {FIRST}",
    ),
]


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], Facts]:
    """Return a function that runs a site and gathers its facts."""
    forget_settings(monkeypatch)

    def gathered(site: Site) -> Facts:
        with site.serving(tmp_path) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            return facts_of()

    return gathered


def by_name(links: tuple[Link, ...]) -> dict[str, Link]:
    return {link.name: link for link in links}


def words(link: Link) -> str:
    return " ".join([link.seen, link.do, *link.details])


def test_every_link_of_a_whole_site_is_whole(facts: Callable[[Site], Facts]) -> None:
    links = checkup(facts(Site()))

    assert [link for link in links if link.state is not State.OK] == []
    assert len(links) == len({link.name for link in links}) == 19
    assert exit_of(links) is Exit.OK


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault.replace(" ", "-"))
def test_the_broken_link_is_named_and_no_other(case: Case, facts: Callable[[Site], Facts]) -> None:
    site = Site()
    case.damage(site)

    links = by_name(checkup(facts(site)))

    found = links[case.link]
    assert found.state is case.state, found
    assert case.says in words(found)
    assert found.do
    guilty = {name for name, link in links.items() if link.state in (State.WARN, State.BROKEN)}
    assert guilty == {case.link, *case.also}, [links[name] for name in guilty]


def test_an_autoscaler_that_knows_the_taint_is_no_warning(facts: Callable[[Site], Facts]) -> None:
    site = Site()
    known = deployment(*AUTOSCALER[1:], "--status-taint=trainy.konduktor.ai/faulty")
    site.objects[AUTOSCALER[0]] = known

    link = by_name(checkup(facts(site)))["other tools"]

    assert (link.state, link.details[0].split(" (")[0]) == (State.OK, "cluster-autoscaler")


def test_a_person_without_rights_learns_which_right_each_link_needs(facts: Callable[[Site], Facts]) -> None:
    links = by_name(checkup(facts(Site(rules=()))))

    unknown = {name: link.seen for name, link in links.items() if link.state is State.UNKNOWN}
    assert [link for link in links.values() if link.state is State.BROKEN] == []
    assert "you may not list nodes" in unknown["GPU nodes"]
    assert "you may not list daemonsets.apps" in unknown["collector"]
    assert "you may not list pods in namespace dmesg-logging" in unknown["readers"]
    assert "you may not get leases.coordination.k8s.io in namespace konductor-like" in unknown["controller"]
    assert "ask for the ClusterRole konductor-like-viewer" in links["admission policy"].do
    assert links["rights"].state is State.WARN
    assert exit_of(tuple(links.values())) is Exit.UNKNOWN


def test_without_loki_the_controllers_view_counts(facts: Callable[[Site], Facts]) -> None:
    site = Site(unheard=frozenset({THIRD}))
    site.before = lambda _kube, loki: loki.stop()

    links = by_name(checkup(facts(site)))

    assert f"no heartbeat from 1 of 3 GPU nodes: {THIRD}" in links["heartbeats"].seen
    assert "the controller hears 2 of 3 GPU nodes" in links["kernel stream"].seen
    assert links["retention"].seen == "cannot be checked: Loki does not answer here"


def test_the_default_address_is_only_for_pods(whole: Facts) -> None:
    away = Unseen(Cause.FAILED, "the host name cannot be resolved")
    expected = replace(whole.expected, endpoint_given=False)

    link = by_name(checkup(replace(whole, expected=expected, labels=away)))["Loki"]

    assert (link.state, "the controller reads it" in link.seen) == (State.UNKNOWN, True)
    assert "port-forward" in link.do


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The facts of a whole site, for tests that change a fact."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        forget_settings(monkeypatch)
        with Site().serving(tmp_path_factory.mktemp("whole")) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            return facts_of()


@pytest.mark.parametrize(
    ("server", "loki", "state", "says"),
    [
        (0.0, 60.0, State.WARN, "Loki's clock is 60 s ahead, compared with the API server's"),
        (0.0, -1200.0, State.BROKEN, "Loki's clock is 20 min behind"),
        (300.0, 300.0, State.WARN, "this machine's clock is 5 min behind"),
    ],
)
def test_clocks_that_differ_are_told_apart(
    whole: Facts, server: float, loki: float, state: State, says: str
) -> None:
    assert not isinstance(whole.cluster, Unseen)
    cluster = replace(whole.cluster, ahead_seconds=server)
    at = whole.now + timedelta(seconds=server)
    ours = replace(whole, cluster=cluster, loki_ahead_seconds=loki, now=at, heard=Heard({}))

    link = by_name(checkup(ours))["clocks"]

    assert (link.state, says in link.seen) == (state, True), link


def test_a_loki_that_stalls_costs_the_links_of_loki_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(log_facts, "labels", lambda _loki: over.wait())
    forget_settings(monkeypatch)
    with Site().serving(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        links = by_name(checkup(facts_of(seconds=1.0)))
        over.set()

    unknown = [name for name, link in links.items() if link.state is State.UNKNOWN]
    assert unknown == ["limits", "node label", "node names", "namespaces", "retention"]
    assert "no answer within 1 s" in links["Loki"].details[0]
    assert links["readers"].state is State.OK


def test_every_link_that_is_late_says_so(whole: Facts) -> None:
    late = Unseen(Cause.TIME, "no answer within 8 s", "try again")
    every: Any = {each.name: late for each in fields(Facts) if "Unseen" in str(each.type)}

    links = checkup(replace(whole, **every))

    assert {link.state for link in links} == {State.UNKNOWN}
    assert exit_of(links) is Exit.UNKNOWN


def test_names_cannot_control_the_terminal(whole: Facts) -> None:
    evil = "gpu-\x1b[2J\u202e\n9"
    beat = Beat(whole.now, whole.now)
    ours = replace(whole, heard=Heard({evil: beat}), groups=frozenset({evil}), labels=(evil,))

    lines = list(report_lines(checkup(ours), Screen(80), verbose=True))

    assert all(line.isprintable() for line in lines)
    assert "gpu-\\x1b[2J\\u202e\\n9" in "".join(lines)


def test_the_output_fits_80_columns(whole: Facts) -> None:
    lines = list(report_lines(checkup(whole), Screen(80)))

    assert len(lines) == 20
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "19 links: 19 ok, 0 warn, 0 broken, 0 unknown."


def test_details_of_whole_links_need_verbose(whole: Facts) -> None:
    links = checkup(whole)
    short, long = (list(report_lines(links, PIPE, verbose=verbose)) for verbose in (False, True))

    ready = " " * 27 + "DaemonSet dmesg-logging/dmesg: 3 of 3 pods ready"
    assert ready in long
    assert ready not in short


def test_the_command_prints_json_and_its_exit_status_is_the_worst_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    forget_settings(monkeypatch)
    site = Site()
    remove(BINDING)(site)
    with site.serving(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        done = run("doctor", "-o", "json")

    links = {link["name"]: link for link in done.document["links"]}
    assert (done.code, done.err, done.document["result"]) == (Exit.FOUND, "", "broken")
    assert links["admission policy"]["state"] == "broken"
    assert links["API server"]["do"] is None
    assert names(done.document) - described("Checkup") <= {"apiVersion", "kind"}


def test_the_doctor_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)
    calls: list[Any] = []
    site = Site()
    site.before = lambda kube, _loki: calls.append(kube)
    with site.serving(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        calls[0].clear_calls()
        facts_of()
        asked = {(call.verb, call.resource) for call in calls[0].calls()}

    assert {resource for verb, resource in asked if verb not in ("get", "list")} == {
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
    }


def test_a_wrong_setting_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    forget_settings(monkeypatch)
    monkeypatch.setenv("LOG_ENDPOINT", "loki:3100")

    assert run("doctor").code == Exit.USAGE


def test_the_policy_that_doctor_knows_is_the_manifests() -> None:
    assert digest_of(only(MANIFEST, "ValidatingAdmissionPolicy")["spec"]) == POLICY_DIGEST, (
        "the policy has changed: set POLICY_DIGEST to its new digest"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86_400), ("30d1h", 2_595_600), ("1m0s", 60), ("0s", 0), (None, 0), (7, 0)]
)
def test_durations_of_lokis_configuration(text: object, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_a_login_command_that_hangs_costs_the_links_of_the_cluster_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    forget_settings(monkeypatch)
    with Site().serving(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(ReadOnlyKubeClient, "connect", lambda *_: over.wait())
        links = by_name(checkup(facts_of(seconds=1.0)))
        over.set()

    assert "no answer within 1 s" in links["API server"].seen
    assert links["readers"].seen.endswith("the link `API server` must be whole first")
    assert links["retention"].state is State.OK


def test_a_pattern_of_namespaces_is_no_namespace_without_lines(whole: Facts) -> None:
    assert not isinstance(whole.controller, Unseen)
    controller = replace(whole.controller, namespaces=("team-*", "!team-b", "team-a"))

    link = by_name(checkup(replace(whole, controller=controller)))["namespaces"]

    assert (link.state, link.seen) == (State.OK, "lines arrive from 1 of 1")
