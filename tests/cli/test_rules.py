"""``rules`` lists every rule, shows each in the form of a rules file, and compares files on logs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konductor_like.catalog import load_catalog
from konductor_like.cli.rules import rule_yaml
from konductor_like.cluster.node.decoder import says_gpu
from konductor_like.selectors import parse_selector
from tests.catalog.user_files import OWN_RULE, POD_RULE, read
from tests.cli.conftest import Run
from tests.cli.transcripts import forget_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


def listed(run: Run, *arguments: str) -> dict[str, dict[str, str]]:
    rows = run("rules", "list", "-o", "json", *arguments).document["rules"]
    assert len({row["rule"] for row in rows}) == len(rows)
    return {row["rule"]: row for row in rows}


def test_every_rule_is_listed_with_what_it_does(run: Run) -> None:
    rules, catalog = listed(run), load_catalog()

    names = {entry.rule for entry in (*catalog.xids.values(), *catalog.sxids.values())}
    names |= {rule.id for rule in (*catalog.kernel_rules, *catalog.pod_rules)}
    names |= {entry.rule for entry in catalog.named_entries.values()}
    assert rules.keys() == names - {"xid", "sxid"}
    assert rules["xid.79"] == {
        "rule": "xid.79",
        "source": "kernel",
        "severity": "fatal",
        "mode": "enforce",
        "from": "built-in",
        "title": catalog.xid(79).title,
    }
    assert {rule["severity"] for rule in rules.values() if rule["rule"] == "cuda.error"} == {"by code"}


def test_a_file_shows_in_the_list_by_flag_and_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        OWN_RULE + "overrides:\n  xid.mode: shadow\n  xid.63.mode: 'off'\n  sxid.12028.title: Ours\n"
    )
    rules = listed(run, "--file", str(file))

    assert (rules["xid.79"]["mode"], rules["xid.63"]["mode"]) == ("shadow", "off")
    assert (rules["sxid.12028"]["title"], rules["sxid.12028"]["from"]) == ("Ours", "rules.yaml")
    assert rules["site.nic_down"]["from"] == "rules.yaml"
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(file))
    assert listed(run) == rules


def test_the_yaml_of_a_rule_can_be_pasted_and_changes_no_result() -> None:
    rules = read(
        OWN_RULE + POD_RULE.removeprefix("\nrules:\n") + "overrides:\n  xid.94.advice: Ask the site.\n"
    )
    catalog = rules.catalog
    entries = {entry.rule for entry in (*catalog.xids.values(), *catalog.sxids.values())}
    names = entries | {rule.id for rule in (*catalog.kernel_rules, *catalog.pod_rules)}
    pasted = {name: read("\n".join(rule_yaml(catalog, name) or ["nothing"])) for name in names}

    assert pasted["site.flux"].own["site.flux"] == rules.own["site.flux"]
    assert pasted["site.nic_down"].own["site.nic_down"] == rules.own["site.nic_down"]
    for name in entries:
        before, after = catalog.entry(name), pasted[name].catalog.entry(name)
        assert before is not None
        assert after is not None
        assert (after.severity, after.mode, after.title) == (before.severity, before.mode, before.title)
        assert after.advice.text == before.advice.text
        assert after.line_decides == before.line_decides


def test_an_unlisted_code_can_be_shown() -> None:
    assert any("xid.999.severity: suspect" in line for line in rule_yaml(load_catalog(), "xid.999") or [])
    assert rule_yaml(load_catalog(), "xid.many") is None


@pytest.mark.parametrize("words", [["xid", "94"], ["94"], ["XID-94"]])
def test_a_rule_is_shown_by_any_spelling_of_its_name(words: list[str], run: Run) -> None:
    assert run("rules", "show", *words) == run("rules", "show", "xid.94")


@pytest.mark.parametrize(("text", "hint"), [("nccl.sockt", "rules list"), ("\x1b[2J" * 9**4, "rules list")])
def test_an_unknown_rule_is_one_short_error(text: str, hint: str, run: Run) -> None:
    done = run("rules", "show", text)

    assert (done.code, done.out) == (2, "")
    assert hint in done.err
    assert len(done.err) < 400
    assert "\x1b" not in done.err


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(OWN_RULE)

    done = run("rules", "test", str(file), str(tmp_path / "no.log"))

    assert done.code == 1
    assert "no.log: No such file" in done.err


def test_a_rule_is_shown_in_every_format(run: Run) -> None:
    assert run("rules", "show", "79", "-o", "json").document["overrides"]["xid.79.severity"] == "fatal"
    assert run("rules", "show", "79", "-o", "name").out == "xid.79\n"
    assert (
        run("rules", "show", "xid 999", "-o", "table")
        .out.splitlines()[1]
        .startswith("xid.999   kernel   suspect")
    )
    assert "xid.79" in run("rules", "list", "-o", "name").out.splitlines()
    assert run("rules", "list", "-o", "yaml").out.startswith("rules:\n- rule: xid.1\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("folder", None, "/folder: is a directory, not a file"),
        ("binary", b"\xff\xfe\x00", "/binary: is not UTF-8 at byte 0"),
        ("large", b"#" * 2_000_000, "large, size: is more than 1 MiB"),
        ("escape", b"rules: \x1b[2J\n", "escape, syntax: "),
    ],
)
def test_a_file_that_is_no_rules_file_is_one_short_error(
    name: str, content: bytes | None, said: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / name
    file.mkdir() if content is None else file.write_bytes(content)
    for command in (("test", str(file)), ("list", "-f", str(file))):
        done = run("rules", *command)

        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 2)
        assert said in done.err
        assert "\x1b" not in done.err


def test_an_empty_rules_file_is_a_warning_because_a_running_controller_refuses_it(
    tmp_path: Path, run: Run
) -> None:
    (tmp_path / "rules.yaml").write_text("\n")

    done = run("rules", "test", str(tmp_path / "rules.yaml"))

    assert done.code == 0
    assert "warning: rules.yaml is empty: a running controller refuses it" in done.err


def test_the_rule_for_missing_gpus_is_listed_and_its_overrides_show(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("overrides: {node.gpus_missing.severity: fatal, node.gpus_missing.mode: shadow}\n")
    plain, changed = listed(run)["node.gpus_missing"], listed(run, "--file", str(file))["node.gpus_missing"]

    assert (plain["source"], plain["severity"], plain["mode"]) == ("node", "suspect", "enforce")
    assert (changed["severity"], changed["mode"], changed["from"]) == ("fatal", "shadow", file.name)
    assert "node.gpus_missing.threshold" not in run("rules", "show", "node.gpus_missing").out


def test_the_pages_rule_for_amdgpu_finds_its_line_on_nodes_that_the_pages_selector_selects(
    tmp_path: Path, run: Run
) -> None:
    page = Path("docs/use/own-rules.md").read_text("utf-8").partition("## An example: AMD GPUs")[2]
    [example] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [line] = re.findall(r"^\[ 2301.*", page, re.MULTILINE)
    [selector] = re.findall(r"`KONDUCTOR_GPU_NODE_SELECTOR=(\S+)`", page)
    (tmp_path / "rules.yaml").write_text(example.replace("    mode: shadow\n", ""), "utf-8")
    (tmp_path / "kern.log").write_text(f"{line}\n", "utf-8")

    status, out, err = run("rules", "test", str(tmp_path / "rules.yaml"), str(tmp_path / "kern.log"))

    assert status == 0
    assert re.search(r"site\.amdgpu_memory .*fatal|fatal.* site\.amdgpu_memory", out + err)
    assert "Loki is asked for one more literal in kernel lines, 'new uncorrectable hardware error'" in err
    labels = dict([selector.split("=")])
    assert says_gpu(labels, {"amd.com/gpu": "8"}, parse_selector(selector))
    assert not says_gpu(labels, {"amd.com/gpu": "8"}, ())
