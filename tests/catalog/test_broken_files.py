"""A broken catalogue is refused with file, entry, field and reason."""

from __future__ import annotations

import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from konductor_like.catalog import CatalogError, read_catalog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy the packaged files, so that a test can break them."""
    with as_file(files("konductor_like.catalog") / "data") as data:
        return Path(shutil.copytree(data, tmp_path / "data"))


def replace(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_copy_itself_is_sound(folder: Path) -> None:
    assert len(read_catalog(folder).xids) == 177


def refusal(folder: Path) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        read_catalog(folder)
    return caught.value


@pytest.mark.parametrize(
    ("file", "old", "new", "key", "field", "reason"),
    [
        ("xid.csv", "\n79,fatal", "\n79,fatl", "79", "severity", "'fatl' is not one of fatal, test"),
        ("xid.csv", "fatal,,lost", "fatal,,gone", "79", "advice", "'gone' is not in advice.toml"),
        ("xid.csv", "\n79,", "\nmany,", "many", "code", "'many' is not a number"),
        ("xid.csv", "\n79,", "\n78,", "78", "code", "78 is defined twice"),
        ("xid.csv", "recovery_action", "magic", "154", "detail", "'magic' is not one of"),
        ("xid.csv", "GPU has fallen off the bus", "", "79", "title", "is missing"),
        ("xid.csv", "\n79,fatal,", "\n79,fatal,,", "79", "columns", "12 instead of 11"),
        ("sxid.csv", "11001,fatal,decides", "11001,fatal,perhaps", "11001", "word", "'perhaps'"),
        ("nvlink5.csv", "0x00000021", "0x10000021", "144", "value", "never true"),
        ("nvlink5.csv", "0x03f003ff", "wide", "144", "mask_before", "'wide' is not a number"),
        ("cuda_errors.csv", "unknown,suspect", "unknown,fatal", "999", "severity", "never more than suspect"),
        ("recovery_actions.csv", "\n0,info", "\n,info", "", "value", "'' is not a number"),
        ("xid74_registers.csv", "\n0,0,suspect", "\n0,0,bad", "0", "severity", "'bad' is not one of"),
    ],
)
def test_an_error_in_a_table_names_line_and_column(
    folder: Path, file: str, old: str, new: str, key: str, field: str, reason: str
) -> None:
    replace(folder, file, old, new)
    match = re.fullmatch(rf"{file}, line (\d+) \({key}\), {field}: (.*)", str(refusal(folder)))
    assert match is not None
    assert (folder / file).read_text(encoding="utf-8").splitlines()[int(match[1]) - 1].startswith(f"{key},")
    assert reason in match[2]


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ('needs = "reboot"', 'needs = "luck"', "reboot, needs", "'luck' is not one of none"),
        ('[reboot]\ntext = "', '[reboot]\nwords = "', "reboot, words", "is not a known field"),
        ("[nothing]", "nothing = 1\n[nothing2]", "nothing, content", "is not a table"),
        ("[nothing]", "[nothing", "syntax", "line 8"),
    ],
)
def test_an_error_in_the_advice_names_its_key(
    folder: Path, old: str, new: str, place: str, reason: str
) -> None:
    replace(folder, "advice.toml", old, new)
    assert str(refusal(folder)).startswith(f"advice.toml, {place}: ")
    assert reason in str(refusal(folder))


RULE = """
  - id: nvrm.new
    kind: nvrm
    severity: suspect
    title: A new rule
    advice: init
    contains: ['NVRM']
    patterns: ['NVRM: test']
    match: ['NVRM: test']
    no_match: ['NVRM: other']
"""


@pytest.mark.parametrize(
    ("old", "new", "field", "reason"),
    [
        ("init", "luck", "advice", "'luck' is not in advice.toml"),
        ("kind: nvrm", "kind: disk", "kind", "'disk' is not one of xid, sxid"),
        ("title: A new rule", "title: [1, 2]", "title", "is not a text"),
        ("title: A new rule", "title:", "title", "must be a text or a list of texts"),
        ("title", "titel", "titel", "is not a known field"),
        ("severity: suspect", "table: yid", "table", "'yid' is not one of xid, sxid, cuda"),
        (
            "advice: init",
            "advice: init\n    scan_only: sometimes",
            "scan_only",
            "'sometimes' is not true or false",
        ),
        ("['NVRM']", "[]", "contains", "must be a list of texts"),
        ("['NVRM']", "['NVRM', '']", "contains", "has an empty text"),
        ("['NVRM']", "['NVRM']\n    anchor: GPU", "anchor", "no literal of it is in 'NVRM: test'"),
        ("patterns: ['NVRM: test']", "patterns: ['NVRM: (test']", "patterns", "missing )"),
    ],
)
def test_an_error_in_a_rule_names_rule_field_and_line(
    folder: Path, old: str, new: str, field: str, reason: str
) -> None:
    assert old in RULE
    path = folder / "kernel_rules.yaml"
    path.write_text(path.read_text(encoding="utf-8") + RULE.replace(old, new, 1), encoding="utf-8")
    error = refusal(folder)
    assert str(error).startswith(f"kernel_rules.yaml:{error.line}, rule 19 (nvrm.new), {field}: ")
    assert reason in str(error)
    assert error.line is not None
    assert field in path.read_text(encoding="utf-8").splitlines()[error.line - 1]
    assert "reinstall" in error.hint


def test_a_rule_about_pods_cannot_taint(folder: Path) -> None:
    replace(folder, "pod_rules.yaml", "severity: suspect", "severity: fatal")
    assert "rule 1 (nccl.ib_completion), severity: a pod's line is never more" in str(refusal(folder))


@pytest.mark.parametrize("file", ["xid.csv", "advice.toml", "pod_rules.yaml"])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(CatalogError, match=file):
        read_catalog(folder)


def test_an_empty_table_is_refused(folder: Path) -> None:
    (folder / "sxid.csv").write_text("# only a comment\n", encoding="utf-8")
    with pytest.raises(CatalogError, match=r"sxid\.csv, line 1, header: the file is empty"):
        read_catalog(folder)


@pytest.mark.parametrize(
    ("old", "new", "field", "reason"),
    [
        ('severity = "suspect"', 'severity = "fatal"', "severity", "never more than suspect (rule 42)"),
        ('bad = "False"', 'bad = "No"', "bad", "'No' is neither 'True' nor 'False'"),
        ('bad = "False"', "", "bad", "is missing"),
        ('reasons = "(', 'reasons = "((', "reasons", "missing ), unterminated subpattern"),
        ('["condition.Acc', '["conditions.Acc', "name", "is not like condition.GPUProblem"),
        ('["condition.AcceleratedHardwareReady"]', '["condition."]', "name", "is not like"),
        ('bad = "False"', 'bad = "False"\nmatch = "x"', "match", ""),
    ],
)
def test_a_condition_of_another_program_is_checked(
    folder: Path, old: str, new: str, field: str, reason: str
) -> None:
    replace(folder, "conditions.toml", old, new)

    message = str(refusal(folder))
    assert message.startswith("conditions.toml, ")
    assert f", {field}: " in message
    assert reason in message
