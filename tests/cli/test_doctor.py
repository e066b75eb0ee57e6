"""`doctor` names the broken link of a site, and no other."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like import settings_report
from konductor_like.cli.doctor import facts as requests
from konductor_like.cli.doctor.facts import Facts, Heard
from konductor_like.cli.doctor.gather import gather
from konductor_like.cli.doctor.link import Link, State, Unseen, seen
from konductor_like.cli.doctor.log_links import seconds_of
from konductor_like.cli.doctor.report import checkup, exit_of, report_lines
from konductor_like.cli.output import PIPE, Screen
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.exits import Exit
from konductor_like.settings import Settings
from tests.cli.conftest import Run
from tests.cli.doctor_cases import CASES
from tests.cli.doctor_damages import BINDING, THIRD, Case, remove
from tests.cli.doctor_site import GPU_NODES, Site, facts_of, pod
from tests.cli.test_docs import described, names
from tests.cli.transcripts import forget_settings
from tests.manifests.roles import CONTROLLER
from tools.manifests.embed import ADMISSION, admission


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
    assert (exit_of(tuple(links.values())) is Exit.FOUND) == any(
        link.state is State.BROKEN for link in links.values()
    )
    guilty = {name for name, link in links.items() if link.state in (State.WARN, State.BROKEN)}
    assert guilty == {case.link, *case.also}, [links[name] for name in guilty]


def test_a_reader_of_somebody_else_is_of_no_build(facts: Callable[[Site], Facts]) -> None:
    site = Site()
    site.pods = [pod("dmesg-logging", f"dmesg-{name}", name) for name in GPU_NODES]

    assert by_name(checkup(facts(site)))["readers"].state is State.OK


def test_a_person_without_rights_learns_which_right_each_link_needs(facts: Callable[[Site], Facts]) -> None:
    links = by_name(checkup(facts(Site(rules=()))))

    unknown = {name: link.seen for name, link in links.items() if link.state is State.UNKNOWN}
    assert [link for link in links.values() if link.state is State.BROKEN] == []
    assert "you may not list nodes" in unknown["GPU nodes"]
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
    away = Unseen("the host name cannot be resolved", state=State.BROKEN)
    settings = Settings()

    link = by_name(checkup(replace(whole, settings=settings, labels=away)))["Loki"]

    assert (link.state, "; Loki answered the controller " in link.seen) == (State.UNKNOWN, True)
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
        (0.0, 60.0, State.WARN, "Loki's clock is 60s ahead, compared with the API server's"),
        (0.0, -1200.0, State.BROKEN, "Loki's clock is 20m behind"),
        (300.0, 300.0, State.WARN, "this machine's clock is 5m behind"),
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
    monkeypatch.setattr(requests, "labels", lambda _loki: over.wait())
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
    late = Unseen("no answer within 8 s", "try again")
    every: Any = {each.name: late for each in fields(Facts) if "Unseen" in str(each.type)}

    links = checkup(replace(whole, **every))

    assert {link.state for link in links} == {State.UNKNOWN}
    assert exit_of(links) is Exit.UNKNOWN


def test_what_only_this_machine_sees_is_no_proof_while_the_controller_does_not_read(whole: Facts) -> None:
    links = checkup(replace(whole, controller=Unseen("you may not get leases")))

    from_here = [link.name for link in links if link.seen.startswith("seen from here only: ")]
    assert from_here == [
        *("Loki", "tenant and login", "limits", "kernel stream", "node label", "node names", "heartbeats"),
        *("namespaces", "retention"),
    ]


def test_names_cannot_control_the_terminal(whole: Facts) -> None:
    evil = "gpu-\x1b[2J\u202e\n9"
    ours = replace(whole, heard=Heard({evil: whole.now}), labels=(evil,))

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
        writes = [call for call in calls[0].calls() if call.verb not in ("get", "list")]

    reviews = {"selfsubjectaccessreviews", "selfsubjectreviews"}
    stored = [call for call in writes if call.request.params.get("dryRun") != ["All"]]
    assert {call.resource for call in stored} == reviews
    assert {call.request.headers["impersonate-user"] for call in writes if call not in stored} == {CONTROLLER}


def test_the_exit_status_tells_the_result_when_the_reader_closes_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    def closed(_lines: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("konductor_like.cli.doctor.command.say", closed)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("LOG_ENDPOINT", "http://127.0.0.1:1")

    assert run("doctor").code == Exit.FOUND


@pytest.mark.parametrize("here", [True, False])
def test_a_setting_of_an_earlier_version_is_a_warning_here_and_in_the_controllers_settings(
    here: bool, facts: Callable[[Site], Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_report, "REMOVED", {"KONDUCTOR_OLD": "do that instead"})

    site = Site(environment={"KONDUCTOR_OLD": "1"} if here else {})
    if not here:
        site.objects["configmaps/konductor-like"] = {
            "metadata": {"namespace": "konductor-like", "name": "konductor-like"},
            "data": {"KONDUCTOR_OLD": "1", "LOG_ENDPOINT": "http://loki:3100"},
        }

    link = by_name(checkup(facts(site)))["settings"]

    assert (link.state, link.seen) == (
        State.WARN,
        "KONDUCTOR_OLD: this version has no such setting; do that instead",
    )


@pytest.mark.parametrize("here", [True, False])
def test_a_removed_rule_in_the_rules_file_is_a_warning_here_and_in_the_controllers(
    here: bool, facts: Callable[[Site], Facts], tmp_path: Path
) -> None:
    text = "overrides: {amd.ras.mode: enforce}"
    (tmp_path / "rules.yaml").write_text(text, "utf-8")
    site = Site(environment={"KONDUCTOR_RULES_FILE": str(tmp_path / "rules.yaml")} if here else {})
    if not here:
        site.objects["configmaps/konductor-like-rules"] = {
            "metadata": {"namespace": "konductor-like", "name": "konductor-like-rules"},
            "data": {"rules.yaml": text, "notes.txt": "[no: rules"},
        }

    link = by_name(checkup(facts(site)))["settings"]

    assert (
        link.state,
        link.seen.startswith("rules.yaml:1, amd.ras.mode: this version has no amd.ras; "),
    ) == (
        State.WARN,
        True,
    )


def test_a_wrong_setting_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    forget_settings(monkeypatch)
    monkeypatch.setenv("LOG_ENDPOINT", "loki:3100")

    assert run("doctor").code == Exit.USAGE


def test_the_policy_that_doctor_knows_is_the_manifests() -> None:
    assert ADMISSION.read_text("utf-8") == admission(), "run make docs"


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
    assert links["clocks"].state is State.OK
    assert links["clocks"].seen == "this machine, Loki and the nodes agree within 10 s"
    assert links["retention"].seen == "seen from here only: Loki keeps lines without end"


@pytest.mark.parametrize(
    ("watching", "streams", "running", "state", "says"),
    [
        ("*,!ci-*", {"team-a", "team-b"}, {}, State.OK, "lines of 2 namespaces in the last day"),
        (
            "team-*,web",
            {"team-a"},
            {"web": False},
            State.OK,
            "lines of 1 namespace in the last day, no pod runs in web",
        ),
        ("team-*,web", {"team-a"}, {"web": True}, State.BROKEN, "has no line: web"),
        ("team-*,ml-?", {"team-a", "ml-10"}, {}, State.WARN, "no line of ml-?; normal if no pod runs there"),
        ("", set(), {}, State.OK, "lines of 0 namespaces"),
    ],
)
def test_a_pattern_of_namespaces_needs_lines_of_one_of_them(
    whole: Facts, watching: str, streams: set[str], running: dict[str, bool], state: State, says: str
) -> None:
    settings = Settings(watched_namespaces=watching)

    link = by_name(checkup(replace(whole, settings=settings, streams=streams, running=running)))["namespaces"]

    assert (link.state, says in link.seen) == (state, True), link


def test_loki_is_asked_for_the_patterns_of_the_controller(facts: Callable[[Site], Facts]) -> None:
    site = Site(shipped_namespaces=("team-a", "ci-1", "web"), watched=("*", "!ci-*"))

    found = facts(site)

    assert set(seen(found.streams)) == {"team-a", "web"}


def test_with_both_servers_stalled_only_the_deadline_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_settings(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as never_answers:
        url = f"http://127.0.0.1:{never_answers.getsockname()[1]}"
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        kubeconfig = tmp_path / "kubeconfig"
        parts = {
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {}}],
        }
        kubeconfig.write_text(json.dumps({"contexts": [context], "current-context": "it", **parts}))
        settings = Settings(log_endpoint=url, loki_timeout_seconds=3000)
        end = time.monotonic() + 0.3

        # Each request alone may take 3000 s, which no test may.
        links = checkup(
            gather(settings, str(kubeconfig), None, 3000, lambda: max(0.0, end - time.monotonic()))
        )

    assert {link.state for link in links if link.name != "settings"} == {State.UNKNOWN}
    assert "no answer within 3000 s" in by_name(links)["API server"].seen
    assert "no answer within 3000 s" in by_name(links)["Loki"].seen
