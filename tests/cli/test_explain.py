"""``explain`` beyond its transcripts: forms of the argument, the document, the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from konductor_like.cli.errors import CommandError
from konductor_like.cli.explain.fault import Answer, document, explain_text, paragraphs
from konductor_like.cli.explain.runbook import Runbook, runbooks
from konductor_like.cli.output import plain_paragraphs
from konductor_like.detection import packaged
from konductor_like.exits import Exit
from konductor_like.model import Source
from tests.catalog.test_descriptions import ENTRIES
from tests.cli.conftest import Run
from tools.generate_docs import runbooks as runbooks_in_docs

USER_WRITTEN = (
    "<12>NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
LINK_DOWN = "NVRM: Xid (PCI:0000:2a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00000000 0x00000000 0x0)"


def answer_to(text: str, source: Source | None = None) -> Answer:
    return explain_text(text, source, packaged())


def told(text: str, source: Source | None = None) -> list[str]:
    """Return the lines of the text output."""
    return plain_paragraphs(paragraphs(answer_to(text, source)))


def rule_of(text: str) -> str:
    explanation = answer_to(text).explanation
    assert explanation is not None
    return explanation.entry.rule


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("xid 79", "xid.79"),
        ("79", "xid.79"),
        ("CUDA 719", "cuda.719"),
        ("NCCL watchdog timeout", "nccl.watchdog_timeout"),
        ("xid 99999", "xid.99999"),
        ("node gpus missing", "node.gpus_missing"),
    ],
)
def test_a_rule_may_be_named_as_people_and_status_write_it(asked: str, rule: str) -> None:
    assert rule_of(asked) == rule


@pytest.mark.parametrize("asked", ["cuda 5", "nccl.nothing", "sxid", "nccl", "no.such", "gpu-7", "x", ""])
def test_a_text_that_is_neither_rule_nor_line_is_a_usage_error_with_a_hint(asked: str) -> None:
    with pytest.raises(CommandError) as refused:
        answer_to(asked)

    assert (refused.value.status, bool(refused.value.hint)) == (2, True)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("719", "cuda 719"),
        ("54321", "xid 54321 or sxid 54321"),
        ("xid 94 RST", "xid 94"),
        ("what is xid 79?", "xid 79"),
    ],
)
def test_the_command_that_was_probably_meant_is_shown(asked: str, meant: str, run: Run) -> None:
    _, out, err = run("explain", asked)

    assert f"Did you mean: konductor-like explain {meant}?" in out + err


@pytest.mark.parametrize("asked", ["xid 0", "xid -1", "xid 145.4", "xid 94 RST"])
def test_an_impossible_code_is_not_a_rule(asked: str, run: Run) -> None:
    status, out, err = run("explain", asked)

    assert (status, out) == (2, "")
    assert f"error: there is no rule {asked}\n" in err


BY_LINE = "Severity:     depends on the line ({} without details)"
XID_74 = "NVRM: Xid (PCI:0000:2a:00): 74, pid=1, name=a, NVLink: error"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("xid.154", BY_LINE.format("suspect")),
        ("xid.149", BY_LINE.format("suspect")),
        ("xid.74", BY_LINE.format("fatal")),
        ("sxid 99999", BY_LINE.format("suspect")),
        (
            "xid.74",
            "Controller:   depends on the line (see Details); without details, it taints the node at once",
        ),
        (XID_74, "Controller:   taints the node at once, unless the brake holds it back"),
        (USER_WRITTEN, "Written by:   a user"),
        (LINK_DOWN, "Port:         7"),
        (LINK_DOWN, "Sub-code:     NETIR_LINK_EVT.0"),
        ("fm.topology", "Controller:   never taints for it: only `konductor-like scan` looks for such lines"),
    ],
)
def test_the_explanation_has_this_line(asked: str, line: str) -> None:
    assert any(each.startswith(line) for each in told(asked))


@pytest.mark.parametrize(
    "asked",
    [
        "fm 20034",
        "[ERROR] [tid 5] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 0000:a4:00.0",
    ],
)
def test_an_sxid_that_fabric_manager_repeats_is_found_only_by_scan(asked: str) -> None:
    answer = answer_to(asked)
    shown = document(answer)["rule"]

    assert (shown["rule"], shown["kind"], shown["onlyScan"]) == ("fm.20034", "fm", True)
    assert shown["change"] == "sxid.20034.severity: suspect"
    assert not any("taint the node" in line for line in plain_paragraphs(paragraphs(answer)))


def test_no_setting_but_the_rules_file_counts(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOG_ENDPOINT", "garbage")
    assert run("explain", "xid 79")[0] == 0

    rules = tmp_path / "rules.yaml"
    rules.write_text("overrides:\n  xid.79.severity: deadly\n", "utf-8")
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(rules))
    status, _, err = run("explain", "xid 79")

    assert (status, "'deadly' is not one of" in err) == (2, True)


def test_a_rule_that_is_off_says_so_and_how_to_turn_it_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("overrides: {nccl.socket.mode: off}\n", "utf-8")
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(rules))

    status, out, _ = run("explain", "nccl.socket")

    assert status == 0
    assert "Controller:   ignores such lines: the rule is off" in out
    assert "To change:    nccl.socket.mode: enforce   (under `overrides:` in the rules file)" in out


def test_every_rule_of_the_catalogue_is_explained_in_full() -> None:
    for rule in ENTRIES:
        lines = told(rule)
        labels = {line.partition(":")[0] for line in lines if not line.startswith(" ")}
        assert any(line.startswith("Page:         https://") for line in lines)
        assert {"Fault", "What", "Usual cause", "Severity", "Controller", "To do", "Needs", "Page"} <= labels
        assert ("To change" in labels) is (rule not in ("xid.13", "xid.31", "xid.43", "xid.45"))


def test_a_line_may_come_in_by_standard_input(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n  {USER_WRITTEN}\nanother\n"))
    status, out, _ = run("explain", "-", "-o", "json")

    line = json.loads(out)["line"]
    assert (status, line["text"], line["gpu"]) == (0, USER_WRITTEN, "0000:2a:00")


def test_a_line_needs_no_quotation_marks(run: Run) -> None:
    status, out, _ = run(
        "explain", "RuntimeError:", "CUDA", "error:", "device-side", "assert", "triggered", "-o", "json"
    )

    assert (status, json.loads(out)["rule"]["rule"]) == (0, "cuda.710")


@pytest.mark.parametrize(
    "word", ["x" * 100_000, "\x1b[2J\x1b]0;owned\x07", "xid.79; reboot", "$(reboot)", "\u202exid"]
)
def test_a_hostile_word_is_one_short_error(word: str, run: Run, tmp_path: Path) -> None:
    status, out, err = run("explain", word, "--kubeconfig", str(tmp_path / "nowhere"))

    assert status in (0, 2)
    assert len(out + err) < 1000
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 2),
        (b"\n \n", 2),
        (b"\xff\xfe NVRM: Xid\n", 0),
        (b"a " * 5_000_000, 0),
        (b"\x1b[2J NVRM: Xid (PCI:0000:9b:00): 79, x\n", 0),
    ],
    ids=["empty", "blank", "not UTF-8", "10 MB", "control characters"],
)
def test_a_hostile_line_on_standard_input_gets_one_short_answer(
    content: bytes, status: int, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    code, out, err = run("explain", "-")

    assert code == status
    assert len(out + err) < 4000
    assert "\x1b" not in out + err


def test_every_format_of_the_other_commands_is_known(run: Run) -> None:
    assert run("explain", "79", "-o", "name").out == "xid.79\n"
    assert run("explain", "79", "-o", "yaml").out.startswith("apiVersion: ")
    assert run("explain", "79").out.startswith("Fault: ")


def test_the_line_of_a_fault_has_one_severity_one_advice_and_one_need() -> None:
    lines = told("NVRM: Xid (PCI:0000:2a:00): 94, pid=1, name=a, Contained: SM (0x1). RST: Yes, D-RST: No")
    labels = [line.partition(":")[0] for line in lines if not line.startswith(" ")]

    assert "Severity:     fatal" in lines
    assert "Needs:        gpu-reset" in lines
    assert any(line.startswith("To change:    xid.94.severity: suspect ") for line in lines)
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ("xid 63", "no action"),
        ("xid 94", "at once: restart the application; later: nothing"),
        ("sxid 20034", "the jobs on the port or link end: reset its GPUs and NVSwitches"),
    ],
)
def test_the_vendors_advice_says_what_is_urgent(asked: str, advice: str) -> None:
    assert f"NVIDIA says:  {advice}" in told(asked)


def test_two_names_are_no_line_of_a_log(run: Run) -> None:
    status, out, err = run("explain", "gpu-05", "gpu-08")

    assert (status, out) == (2, "")
    assert "hint: for a node: konductor-like explain gpu-05;" in err
    assert run("explain", "gpu-05 gpu-08").code == 0
    done = run("explain", "what", "is", "xid", "79", "gpu-03")
    assert done.code == Exit.USAGE
    assert "for a fault: konductor-like explain xid 79; for a node: konductor-like explain what; " in done.err


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal)", "PCIe device:  0000:00:01"),
        ("nvidia 0000:3d:00.0: PCIe Bus Error: severity=Uncorrected (Fatal)", "GPU:          0000:3d:00"),
        (
            "mlx5_core 0000:3d:00.0: 252 Gb/s available PCIe bandwidth, limited by 8.0 GT/s",
            "Adapter:      0000:3d:00",
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal", "Switch:       0000:c1:00"),
    ],
)
def test_only_the_address_of_a_gpu_is_called_a_gpu(line: str, row: str) -> None:
    assert row in told(line)


def test_the_word_node_alone_asks_which_node(run: Run) -> None:
    done = run("explain", "node")
    assert (done.code, done.err) == (
        Exit.USAGE,
        "error: which node?\nhint: name it: konductor-like explain node gpu-03\n",
    )


def test_each_alert_and_each_reason_of_an_event_has_its_runbook(run: Run) -> None:
    pages = {name: f"docs/runbooks/{page.link}" for name, page in runbooks_in_docs().items()}

    assert {name: each.path for name, each in runbooks().items()} == pages
    blind = run("explain", "konductorlikeblind").out
    assert "Runbook:      docs/runbooks/KonductorLikeBlind.md\n\n## What it means\n" in blind
    assert "(../" not in blind
    assert run("explain", "GPUFaultTainted", "-o", "name").out == "GPUFaultTainted\n"


def test_a_runbook_in_a_terminal_names_commands_and_paths_and_no_links() -> None:
    def plain(text: str) -> str:
        return Runbook("", "", text).plain

    assert plain("Follow [GPUFaultReadLate](GPUFaultReadLate.md).") == (
        "Follow `konductor-like explain GPUFaultReadLate`."
    )
    assert plain("([its\nend](other-events.md#gpufaultended))") == (
        "(its\nend: `konductor-like explain GPUFaultEnded`)"
    )
    assert plain("[needs](docs/use/needs.md#all)") == "needs (docs/use/needs.md#all)"
    assert not any("](" in each.plain for each in runbooks().values())


def test_a_fault_without_a_line_is_explained_as_what_the_node_shows() -> None:
    text = "\n".join(told("node.gpus_missing"))

    assert "No line of a log reports it" in text
    assert "Controller:   records the fault; it does not taint the node" in text
    assert "To change:    node.gpus_missing.severity: fatal" in text
