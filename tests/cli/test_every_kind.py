"""Every command, in every format, with a node of every odd kind: no traceback, and one word for one state."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cli.conftest import Cluster, Done, Run
from tests.cli.kinds import kinds
from tests.cli.scenes import DEAD_GPU, SCENES

KINDS = kinds()
FORMATS = {
    "status": ["table", "wide", "name", "json", "yaml"],
    "brake status": ["table", "name", "json", "yaml"],
    "rules list": ["table", "name", "json", "yaml"],
    "rules show xid.79": ["table", "name", "json", "yaml"],
    "check-config": ["table", "name", "json", "yaml"],
    "explain xid 79": ["table", "name", "json", "yaml"],
    "explain KonductorLikeBlind": ["table", "name", "json", "yaml"],
    "scan LOG": ["table", "name", "json", "yaml"],
    "backtest LOG": ["table", "name", "json", "yaml"],
    "doctor": ["table", "json"],
}
WRITES = ("reset --yes", "reset --yes --purge", "taint")


@pytest.fixture
def server(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> KubernetesServer:
    monkeypatch.setitem(SCENES, "every kind", lambda: [each.node for each in kinds().values()])
    return cluster("every kind")


def checked(done: Done, output: str) -> object:
    """The document of a command that ended without a traceback; for a text None."""
    assert done.code in (0, 1, 2, 3, 4, 5), done
    assert "Traceback" not in done.err
    assert done.out or done.err
    assert not re.search(r"\b(None|NaN)\b|Health\.|<[a-z_.]+ object", done.out), done.out
    if output not in ("json", "yaml") or not done.out:
        return None
    return json.loads(done.out) if output == "json" else yaml.safe_load(done.out)


def without_time(document: object) -> object:
    return (
        {key: value for key, value in document.items() if key != "time"}
        if isinstance(document, dict)
        else document
    )


@pytest.mark.usefixtures("server")
def test_every_command_prints_every_format(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("logs") / "dmesg.txt"
    log.write_text(f"[ 81234.512345] {DEAD_GPU}\n")
    for command, formats in FORMATS.items():
        words = [str(log) if word == "LOG" else word for word in command.split()]
        found = {output: checked(run(*words, "-o", output), output) for output in formats}
        if "yaml" in found:
            assert without_time(found["yaml"]) == without_time(found["json"]), command


@pytest.mark.usefixtures("server")
def test_the_state_of_a_node_is_one_word_in_all_formats_of_status(run: Run) -> None:
    shown = {
        output: run("status", "--show-healthy", "-o", output) for output in ("table", "wide", "name", "json")
    }
    nodes = {each["name"]: each for each in json.loads(shown["json"].out)["nodes"]}
    assert set(nodes) == set(KINDS)
    assert set(shown["name"].out.split()) == {f"node/{name}" for name in KINDS}

    for name, kind in KINDS.items():
        assert (name, nodes[name]["state"]) == (name, kind.state)
        words = nodes[name]["qualifier"] or ""
        assert kind.words in words, name
        cell = kind.state + (f" ({words})" if words else "")
        for output in ("table", "wide"):
            [row] = [line for line in shown[output].out.splitlines() if line.startswith(f"{name} ")]
            assert re.split(r" {3,}", row)[1] == cell
    counted = {
        word: number
        for number, word in re.findall(r"(\d+) ([a-z ]+?)(?: \(|,|$)", shown["table"].out.split("\n")[0])
    }
    assert {state: int(counted[state]) for state in {kind.state for kind in KINDS.values()}} == {
        state: sum(kind.state == state for kind in KINDS.values())
        for state in {kind.state for kind in KINDS.values()}
    }


@pytest.mark.usefixtures("server")
def test_explain_tells_every_node_as_status_does(run: Run) -> None:
    nodes = {each["name"]: each for each in json.loads(run("status", "-o", "json").out)["nodes"]}
    for number, (name, kind) in enumerate(KINDS.items()):
        output = ("table", "json", "yaml")[number % 3]
        done = run("explain", "node", name, "-o", output)
        document = checked(done, output)
        if isinstance(document, dict):
            assert {**document["node"], "jobsNow": nodes[name]["jobsNow"]} == nodes[name]
        else:
            assert re.search(rf"^Node: +{name} is (on )?{kind.state}\b", done.out), done.out
    assert run("explain", "node", "held", "-o", "name").out == "node/held\n"


@pytest.mark.parametrize("command", WRITES)
def test_a_dry_run_names_every_node_and_writes_none(command: str, server: KubernetesServer, run: Run) -> None:
    verb, *options = command.split()
    reason = [] if "--purge" in options else ["--reason", "swap"]
    outputs = ("text", "name", "json")
    for output in outputs:
        done = run(verb, *KINDS, *options, *reason, "--dry-run", "-o", output)
        checked(done, output)
        assert all(name in done.out + done.err for name in KINDS), done
    assert not server.calls("patch", "nodes")
