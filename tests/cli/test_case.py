"""``konductor-like case``: what a vendor gets, and what it never gets."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from konductor_like.cli.case.markdown import NOT_HERE, fenced, inline
from konductor_like.history import kernel
from konductor_like.model import (
    Gpu,
    Life,
    Quarantine,
    ReleaseHow,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.model.time import text_of
from konductor_like_sandbox.loki import LokiServer, shipped
from tests.cli.conftest import Cluster, Done, Run
from tests.cli.past import MODEL, SERIAL, UUID, Past
from tests.cli.scenes import DEAD_GPU, GPU, ago, ago_ns
from tests.cli.test_docs import names

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
HOSTILE = "```\n# Owned\n| a | b |\n<script>x</script> [x](http://evil) ~~~ * - 1. \x1b[31m\u202e &amp; $x$"


@pytest.fixture
def site(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Past]:
    with LokiServer(now_ns=lambda: ago_ns(0)) as loki:
        monkeypatch.setenv("LOG_ENDPOINT", loki.url)
        monkeypatch.chdir(tmp_path)
        past = Past(cluster("one faulty"), loki)
        past.fill()
        yield past


def undescribed(document: dict[str, Any], kind: str) -> set[str]:
    """Return the fields of a document that its part of the page on JSON does not name."""
    page = PAGE.read_text("utf-8").split(f"\n## {kind}\n")[1].split("\n## ")[0]
    common = {"apiVersion", "kind"}
    return {name for name in names(document) if f"`{name}`" not in page} - common


def made(run: Run, *options: str) -> tuple[Done, dict[str, str]]:
    done = run("case", "gpu-1", "-o", "case.zip", "--since", "1d", *options)
    with zipfile.ZipFile("case.zip") as archive:
        return done, {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.usefixtures("site")
def test_a_case_has_machine_gpu_fault_and_kernel_log(run: Run) -> None:
    done, files = made(run)

    assert done.code == 0, done.err
    assert "written: case.zip" in done.err
    assert list(files) == ["case.md", "kernel.log", "case.json"]
    page, found = files["case.md"], json.loads(files["case.json"])
    assert page.startswith(f"# gpu-1: xid 79, GPU {GPU}: The GPU is gone from the PCI bus\n")
    for part in ("metal:///gpu-1", MODEL, SERIAL, UUID, DEAD_GPU, NOT_HERE):
        assert part in page, part
    assert f"Out of service from {text_of(ago(192))}: still out." in page
    assert [gpu["serial"] for gpu in found["gpus"]] == [SERIAL]
    log = files["kernel.log"].splitlines()
    assert [line.split(" ", 1)[1] for line in log] == [
        "[600.0] nvme nvme0: a line that is no fault",
        f"[799.0] NVRM: GPU at PCI:{GPU}: {UUID}",
        f"[799.1] NVRM: GPU Board Serial Number: {SERIAL}",
        f"[799.2] {DEAD_GPU}",
    ]
    assert found["kernelLog"]["complete"]
    assert undescribed(found, "Case") == set()
    assert (found["acts"], found["missing"]) == ([], [])
    assert f"hint: not in it: {NOT_HERE}" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "kmsg/1 boot=5b0e9a52-0f7c-4d1c-9e56-6a1f1c2f7d10 seq=9 facility=1 priority=4 [799.15] {words}",
        "[799.15] a program quotes: {words}",
    ],
    ids=["written into /dev/kmsg", "quoted"],
)
def test_no_program_can_forge_which_gpu_it_is(site: Past, run: Run, text: str) -> None:
    words = f"NVRM: GPU at PCI:{GPU}: GPU-{'0' * 8}-{'0' * 4}-{'0' * 4}-{'0' * 4}-{'0' * 12}"
    site.kernel((200.2, text.format(words=words)))

    _, files = made(run)

    assert [(gpu["uuid"], gpu["serial"]) for gpu in json.loads(files["case.json"])["gpus"]] == [
        (UUID, SERIAL)
    ]


def test_nothing_of_tenants_pods_is_in_a_case(site: Past, run: Run) -> None:
    pod = shipped(
        "gpu-1", [(ago_ns(199), f"tenant-7 said: {DEAD_GPU}")], namespace="tenant-7", pod="x", container="x"
    )
    site.loki.push_otlp(pod)
    site.kernel((150, "[850.0] another node"), node="gpu-2")
    group = "tenant-7/Job/llama@2026-05-06T11:57:00Z"
    site.trail(
        190, why="GPUFaultRecorded", rule="nccl.system_error", failure_group=group, evidence="tenant-7"
    )
    site.edit_record(
        lambda record: replace(
            record,
            incidents=tuple(
                replace(each, job="tenant-7/Job/llama", failure_group=group) for each in record.incidents
            ),
            validation=Validation(
                ValidationStage.ASKED, 2, ago(100), "kim", waits="tenant-7/x uses GPUs", why="tenant-7"
            ),
        )
    )

    _, files = made(run)

    assert "nccl" not in files["case.md"]
    for name, text in files.items():
        assert "tenant-7" not in text, name
        assert "another node" not in text, name


def test_hostile_texts_change_neither_the_document_nor_the_log(site: Past, run: Run) -> None:
    def with_texts(text: str) -> dict[str, str]:
        site.loki.forget(ago_ns(0))
        site.kernel((199, f"[800.0] {DEAD_GPU} {text}"))
        site.trail(
            100, by=text, why="GPUFaultAcknowledged", reason=text, rule="xid.79", at=text_of(ago(100)),
            out_since=text_of(ago(192)), rack=text,
        )  # fmt: skip
        past = Quarantine(ago(20_000), ago(18_000), f"xid.{text}", ReleaseHow(text), gpu=GPU)
        site.edit_record(
            lambda record: replace(
                record,
                life=replace(record.life, model=text, driver=text, quarantines=(past,)),
                incidents=tuple(replace(each, title=text, evidence=text) for each in record.incidents),
            )
        )
        return made(run, "--force")[1]

    harmless, hostile = with_texts("harmless"), with_texts(HOSTILE)

    assert structure(hostile["case.md"]) == structure(harmless["case.md"])
    assert "Owned" in hostile["case.md"]
    assert {sign for text in hostile.values() for sign in text if not sign.isprintable()} == {"\n"}
    assert len(hostile["kernel.log"].splitlines()) == 1


def structure(page: str) -> list[str]:
    """Return the elements of a Markdown page: blocks, and what is in their text besides text."""
    found = []
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page):
        found.append(token.type)
        found += [each.type for each in token.children or () if each.type not in ("text", "softbreak")]
    return [name for name in found if name != "text_special"]


def test_a_fence_is_longer_than_any_in_its_lines() -> None:
    lines = fenced(["a", "`````", "# b", "~~~"])

    assert structure("\n".join(lines)) == ["fence"]


@pytest.mark.parametrize(
    "text", ["# h", "<b>", "[a](b)", "a | b", "*x*", "_x_", "`x`", "&lt;", "~~x~~", "\\"]
)
def test_a_text_stays_text(text: str) -> None:
    [line, *rest] = inline(f"x\n{text}").splitlines()

    assert not rest
    assert structure(f"- a: {line}") == structure("- a: x")


def test_a_file_is_replaced_only_with_force(site: Past, run: Run, tmp_path: Path) -> None:
    (tmp_path / "case.zip").write_text("mine")
    site.loki.clear_journal()

    done = run("case", "gpu-1", "-o", "case.zip")

    assert (done.code, done.err.splitlines()[0]) == (2, "error: case.zip exists")
    assert (tmp_path / "case.zip").read_text() == "mine"
    assert site.loki.journal == []
    assert made(run, "--force")[0].code == 0


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("target", "problem"), [("-", "the file needs a name"), ("no/case.zip", "no folder"), (".", "folder")]
)
def test_a_target_that_is_no_file_is_refused(run: Run, target: str, problem: str) -> None:
    done = run("case", "gpu-1", "-o", target)

    assert done.code == 2
    assert problem in done.err


def test_without_loki_the_case_is_made_from_the_record_and_says_so(site: Past, run: Run) -> None:
    site.loki.stop()

    done, files = made(run)

    assert done.code == 3
    assert files["kernel.log"] == ""
    assert "`kernel.log`: 0 lines, not all," in files["case.md"]
    assert not json.loads(files["case.json"])["kernelLog"]["complete"]
    assert "the audit trail cannot be read" in done.err
    assert DEAD_GPU in files["case.md"]  # from the record
    for text in files.values():
        assert site.loki.url.removeprefix("http://") not in text


@pytest.mark.usefixtures("site")
def test_without_a_cluster_the_case_is_made_from_the_trail(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("KONDUCTOR_NAMESPACE", "konductor-like")

    done, files = made(run)

    assert done.code == 3
    assert DEAD_GPU in files["kernel.log"]
    assert "| System UUID | not known |" in files["case.md"]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["gpu-2"], "gpu-2 was not out of service since "),
        (["gpu-9"], "node/gpu-9 not found, and no outage of it"),
        (["gpu-1", "--outage", "2"], "gpu-1 has 1 outage since 2026-04-06T12:00Z, so no outage 2"),
    ],
)
def test_without_such_an_outage_no_file_is_written(run: Run, words: list[str], problem: str) -> None:
    done = run("case", *words, "-o", "case.zip")

    assert done.code == 1
    assert problem in done.err
    assert not Path("case.zip").exists()


@pytest.mark.parametrize("name", ["gpu-2", "gpu-3"], ids=["held by the brake", "suspect"])
def test_a_fault_that_took_no_node_out_of_service_leads_to_the_commands_about_it(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    cluster("every state")
    monkeypatch.chdir(tmp_path)
    with LokiServer(now_ns=lambda: ago_ns(0)) as loki:
        monkeypatch.setenv("LOG_ENDPOINT", loki.url)
        done = run("case", name, "-o", "case.zip", "--since", "1d")
        saved = run("incident", "save", name, "--outage", "0", "-o", f"{name}.json", "--since", "1d")

    assert done.code == 1
    assert f"{name} was not out of service since" in done.err
    assert f"`konductor-like explain {name}` says why" in done.err
    assert f"`konductor-like incident save {name} --outage 0 -o {name}.json`" in done.err
    assert "--since 90d" not in done.err
    assert saved.code == 0


def test_outage_2_is_the_one_before(site: Past, run: Run) -> None:
    past = (
        Quarantine(ago(20_000), ago(18_000), "xid.48", ReleaseHow.RESET, gpu=GPU, driver="550.1"),
        Quarantine(ago(40_000), ago(38_000), "xid.94", ReleaseHow.REBOOT, gpu="0000:1b:00"),
    )
    site.edit_record(lambda record: replace(record, life=Life(ago(192), quarantines=past)))

    latest = made(run)[1]
    before = json.loads(made(run, "--force", "--outage", "2")[1]["case.json"])

    others = latest["case.md"].split("## Other outages of this node")[1]
    assert others.index("xid 48") < others.index("xid 94")
    assert (before["outage"]["rule"], before["outage"]["driver"]) == ("xid.48", "550.1")
    assert before["fault"] is None


def test_a_log_with_too_many_lines_is_cut_and_says_so(
    site: Past, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "LINES_MOST", 2)

    _, files = made(run)

    assert len(files["kernel.log"].splitlines()) == 2
    assert "`kernel.log`: 2 lines, not all," in files["case.md"]
    assert site.loki.line_count > 2


@pytest.mark.parametrize(("seconds_ago", "doubtful"), [(5000, False), (60, True)])
def test_a_serial_number_read_after_the_fault_may_be_of_another_gpu(
    site: Past, run: Run, seconds_ago: float, doubtful: bool
) -> None:
    site.loki.forget(ago_ns(0))
    tested = Validation(
        *(ValidationStage.ENDED, 2, ago(seconds_ago + 10), "kim"),
        ended_at=ago(seconds_ago),
        verdict=ValidationVerdict.PASS,
        gpus=(Gpu(GPU, UUID, SERIAL), Gpu("0000:1b:00", "GPU-20000000-0000-4000-8000-000000000002", "2")),
    )
    site.edit_record(lambda record: replace(record, validation=tested))

    _, files = made(run)

    assert [each["serial"] for each in json.loads(files["case.json"])["gpus"]] == [SERIAL]
    assert ("may have been swapped before" in files["case.md"]) is doubtful
    assert json.loads(files["case.json"])["gpus"][0]["doubtful"] is doubtful


def test_a_fault_that_was_held_for_long_has_its_lines(site: Past, run: Run) -> None:
    held = 2500
    site.kernel((held + 700, "[1.0] too early"), (held, f"[2.0] {DEAD_GPU}"), (1500, "[3.0] between"))
    site.edit_record(
        lambda record: replace(
            record, incidents=tuple(replace(each, first_ns=ago_ns(held)) for each in record.incidents)
        )
    )

    _, files = made(run)

    texts = [line.split(" ", 1)[1] for line in files["kernel.log"].splitlines()]
    assert texts[0] == f"[2.0] {DEAD_GPU}"
    assert "[3.0] between" not in texts


@pytest.mark.usefixtures("site")
def test_the_archive_is_for_its_owner_alone(run: Run, tmp_path: Path) -> None:
    made(run)

    assert (tmp_path / "case.zip").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".*part")) == []
