"""``check-config`` finds what would stop the controller, before it does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from konductor_like.catalog import CatalogError
from konductor_like.cli.check_config import inspect
from tests.cli.conftest import Run
from tests.cli.transcripts import forget_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"KONDUCTOR_GPU_NODE_SELECTOR": "a b"}, "KONDUCTOR_GPU_NODE_SELECTOR='a b': "),
        ({"KONDUCTOR_LISTEN": "8080"}, "KONDUCTOR_LISTEN='8080': "),
        ({"KONDUCTOR_LOKI_TENANT": "team\nb"}, "KONDUCTOR_LOKI_TENANT"),
        (
            {"KONDUCTOR_LOKI_CA_FILE": "nowhere.pem", "LOG_ENDPOINT": "https://loki"},
            "KONDUCTOR_LOKI_CA_FILE nowhere.pem cannot be used: No such file",
        ),
        ({"LOG_ENDPOINT": "http://lo\x01ki"}, "LOG_ENDPOINT is no address that can be asked"),
        ({"LOG_ENDPONT": "http://x"}, "LOG_ENDPONT: no such setting; did you mean LOG_ENDPOINT?"),
    ],
    ids=["selector", "listen", "header", "file", "address", "misspelt"],
)
def test_what_only_shows_in_use_is_found(
    environ: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = inspect(os.environ)

    assert found.in_effect
    assert len(found.problems) == 1
    assert found.problems[0].startswith(problem)


def test_a_certificate_file_without_a_certificate_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    monkeypatch.setenv("LOG_ENDPOINT", "https://loki.example.com")
    monkeypatch.setenv("KONDUCTOR_LOKI_CA_FILE", str(tmp_path / "ca.pem"))

    assert inspect(os.environ).problems[0].startswith("KONDUCTOR_LOKI_CA_FILE ")


@pytest.mark.parametrize("variable", ["KONDUCTOR_KERNEL_SELECTOR", "KONDUCTOR_EXTRA_MATCHERS"])
def test_an_expression_that_only_python_knows_is_found(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, '{a="b", k8s_container_name=~"dmesg(?=$)"}')

    [problem] = inspect(os.environ).problems

    assert problem.startswith(f"{variable}=")
    assert "'dmesg(?=$)' is no regular expression of RE2, which Loki uses" in problem


@pytest.mark.parametrize("token", ["s3cr3t\nX: y", "s3crét"])
@pytest.mark.parametrize("in_file", [False, True], ids=["variable", "file"])
def test_a_token_that_no_header_can_carry_is_found_and_not_shown(
    token: str, in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_file:
        (tmp_path / "token").write_text(token)
        monkeypatch.setenv("KONDUCTOR_LOKI_BEARER_TOKEN_FILE", str(tmp_path / "token"))
    else:
        monkeypatch.setenv("KONDUCTOR_LOKI_BEARER_TOKEN", token)

    [problem] = inspect(os.environ).problems

    assert problem.startswith("KONDUCTOR_LOKI_BEARER_TOKEN")
    assert "s3cr" not in problem


def test_probes_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONDUCTOR_LISTEN", "off")

    assert inspect(os.environ).problems == []


def test_a_broken_catalogue_is_a_problem_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise CatalogError("xid.csv", "row 7", "severity", "'grave' is none")

    monkeypatch.setattr("konductor_like.catalog.load_catalog", broken)

    assert inspect(os.environ).problems == ["xid.csv, row 7, severity: 'grave' is none"]


def test_json_holds_settings_and_problems(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("KONDUCTOR_LISTEN", "8080")
    done = run("check-config", "-o", "json")
    document = done.document

    assert done.code == 2
    assert {"name": "KONDUCTOR_LISTEN", "value": "8080", "from": "environment"} in document["settings"]
    assert len(document["problems"]) == 1


@pytest.mark.parametrize(
    ("text", "problems", "warnings"),
    [
        ("overrides:\n  xid.63.severity: fatal\n", [], []),
        ("overrides:\n  xid.13.severity: fatal\n", [], ["rules.yaml:2, xid.13.severity: a bug in a job"]),
        ("overrides:\n  xid.13.severity: worse\n", ["rules.yaml:2, overrides, xid.13.severity: 'worse'"], []),
        (None, [], ["KONDUCTOR_RULES_FILE=rules.yaml: no such file"]),
    ],
    ids=["good", "doubtful", "bad", "none"],
)
def test_the_rules_file_is_checked_too(
    text: str | None,
    problems: list[str],
    warnings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", "rules.yaml")
    if text is not None:
        Path("rules.yaml").write_text(text)

    done = run("check-config", "-o", "json")
    document = done.document

    assert done.code == (2 if problems else 0)
    for found, said in ((document["problems"], problems), (document["warnings"], warnings)):
        assert [any(each.startswith(part) for each in found) for part in said] == [True] * len(found)
    assert ("rules.yaml: 1 override, 0 rules" in done.err) == (text is not None and not problems)
