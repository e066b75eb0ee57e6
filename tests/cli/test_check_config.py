"""``check-config`` and messages about settings: each problem has its variable's name, no secret is shown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from konductor_like import settings_report
from konductor_like.catalog import CatalogError
from konductor_like.cli import check_config
from konductor_like.cli.app import execute
from konductor_like.cli.check_config import inspect
from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.settings import EVERYDAY, Settings
from konductor_like.settings_report import HIDDEN, REMOVED, effective, explain_settings_error, without_effect
from konductor_like_sandbox.loki import LokiServer
from tests.cli.conftest import Run
from tests.cli.transcripts import forget_settings
from tests.loki.scripted_server import ScriptedServer, respond


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


def problems(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> list[str]:
    """Return the messages about these variables."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    return explain_settings_error(caught.value, environ)


NO_HOST = "has no valid host and port, as in http://localhost:3100"


NO_PATTERN = "is neither the name of a namespace nor a pattern such as team-*"

NOT_OURS = (
    "choose a name in CamelCase such as TrainyGPUFaulty: not one that ends with Ready, because True must "
    "mean faulty, and not one that another program writes"
)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("KONDUCTOR_POLL_INTERVAL_SECONDS", "0", "must be at least 0.05"),
        ("KONDUCTOR_BRAKE_MAX_NODES", "", "must be a whole number"),
        ("KONDUCTOR_LEASE_DURATION_SECONDS", "7.5", "must be a whole number"),
        ("LOG_ENDPOINT", "http://loki:99999", NO_HOST),
        ("LOG_ENDPOINT", "http://[::1", NO_HOST),
        ("LOG_ENDPOINT", "http://:3100", "names no host, as in http://localhost:3100"),
        ("KONDUCTOR_NODE_LABEL", "a-b", "'a-b' is not a Loki label name"),
        ("KONDUCTOR_NAMESPACE", "a/../b", "'a/../b' is not a namespace name"),
        ("WATCHED_NAMESPACES", "-*", f"'-*' {NO_PATTERN}"),
        ("WATCHED_NAMESPACES", "a,!!b", f"'!!b' {NO_PATTERN}"),
        ("WATCHED_NAMESPACES", "team-[ab]", f"'team-[ab]' {NO_PATTERN}"),
        ("WATCHED_NAMESPACES", "a" * 60 + "-?*?", f"'{'a' * 60}-?*?' {NO_PATTERN}"),
        (
            "WATCHED_NAMESPACES",
            "!a,!b-*",
            "has only exclusions; to watch all other namespaces write *,!a,!b-*",
        ),
        ("KONDUCTOR_EXCLUDED_NAMESPACES", "!a", f"'!a' {NO_PATTERN}"),
        ("konductor_brake_max_nodes", "x", "must be a whole number"),
        ("KONDUCTOR_GPU_NODE_SELECTOR", "a b", "'a b' is neither key nor key=value"),
        ("KONDUCTOR_NODE_SELECTOR", "a!=b", "'a!=b' is neither key nor key=value"),
        (
            "KONDUCTOR_LISTEN",
            "80x",
            "'80x' is not an address such as :8080 or 127.0.0.1:8080 (or off for none)",
        ),
        ("KONDUCTOR_VALIDATION_LEVEL", "1", "must be at least 2"),
        ("KONDUCTOR_VALIDATION_LEVEL", "5", "must be at most 4"),
        ("KONDUCTOR_VALIDATION_NAMESPACE", "Tests", "'Tests' is not a namespace name"),
        ("KONDUCTOR_RETURN", "validate", "must be 'ask', 'reboot' or 'validated'"),
        ("KONDUCTOR_RECOVERY", "off", "must be 'on' or 'rehearse'"),
        ("KONDUCTOR_RECOVERY_NODE_SELECTOR", "a!=b", "'a!=b' is neither key nor key=value"),
        ("KONDUCTOR_NODE_CONDITION", "gpu_faulty", NOT_OURS),
        ("KONDUCTOR_NODE_CONDITION", "GPU", NOT_OURS),
        ("KONDUCTOR_NODE_CONDITION", "AcceleratedHardwareReady", NOT_OURS),
        ("KONDUCTOR_NODE_CONDITION", "MemoryPressure", NOT_OURS),
    ],
)
def test_a_wrong_value_is_reported_with_its_variable(
    variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(monkeypatch, {variable: value}) == [f"{variable}={value!r}: {reason}"]


def test_loki_is_asked_for_the_bytes_of_each_watched_namespace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATCHED_NAMESPACES", "team-*,!team-z")
    monkeypatch.setenv("KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE", "1")
    monkeypatch.setattr(check_config, "_SHOWN", 1)
    with LokiServer() as loki:
        monkeypatch.setenv("LOG_ENDPOINT", loki.url)
        assert execute(["check-config", "--loki", "-o", "json"], "konductor-like") == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["podLogs"] == {"bytesPerMinute": {}, "budgetUsed": 0.0}
        assert (
            "warning: Loki has no pod log of the watched namespaces from the last 10 minutes." in printed.err
        )

        at_ns = time.time_ns() - 60 * 10**9
        for name, count in {"other": 3, "team-z": 3, "team-a": 3, "team-b": 5, "team-c": 1}.items():
            lines = [(at_ns + number, f"{number:204800}") for number in range(count)]
            loki.push({"k8s_namespace_name": name}, lines)
        assert execute(["check-config", "--loki"], "konductor-like") == 0

    printed = capsys.readouterr()
    assert printed.out.rpartition("\n\n")[2].splitlines() == [
        "NAMESPACE    MIB/MINUTE",
        "team-b       0.1",
        "(2 others)   0.1",
        "(all 3)      0.2",
    ]
    assert "takes about 88 % of the controller's budget for Loki." in printed.err
    assert (
        "warning: Above 70 % of KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE the controller polls pod" in printed.err
    )


@pytest.mark.parametrize(
    ("setting", "value", "manifest"),
    [
        ("KONDUCTOR_JOB_EVENTS", "true", "job_events.yaml"),
        ("KONDUCTOR_NODE_CONDITION", "Other1", "node_condition.yaml"),
        ("KONDUCTOR_ALERTS_ENDPOINT", "http://prometheus:9090/", "gpu_alerts.yaml"),
    ],
)
def test_a_part_that_needs_objects_of_the_cluster_comes_with_a_word_about_them(
    setting: str,
    value: str,
    manifest: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(setting, value)

    assert execute(["check-config", "-o", "json"], "konductor-like") == 0

    printed = capsys.readouterr()
    [said] = json.loads(printed.out)["warnings"]
    assert said.startswith(f"{setting} needs what is in manifests/{manifest}; `konductor-like doctor` says ")
    assert said in printed.err


def test_the_file_of_an_earlier_version_is_a_warning_only_where_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recovery.yaml"
    monkeypatch.setenv("KONDUCTOR_RECOVERY_FILE", str(file))
    assert inspect(os.environ).warnings == []

    file.write_text("return: oops\n")
    assert execute(["check-config", "-o", "json"], "konductor-like") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["warnings"] == [f"KONDUCTOR_RECOVERY_FILE={file}: {BY_FILE}"]
    assert found["switches"] == []


@pytest.mark.parametrize(("image", "pinned"), [("dcgm:4", False), (f"dcgm@sha256:{'0' * 64}", True)])
def test_validations_come_with_words_about_rights_digest_and_what_was_never_run(
    image: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONDUCTOR_VALIDATION_IMAGE", image)
    monkeypatch.setenv("KONDUCTOR_VALIDATION_NAMESPACE", "tests")

    found = inspect(os.environ)

    said = "\n".join(found.notes)
    assert found.problems == []
    assert "KONDUCTOR_VALIDATION_IMAGE needs what is in manifests/validation.yaml" in said
    assert "never run on a GPU" in said
    assert ("names no digest" in "".join(found.warnings)) is not pinned


def test_without_an_image_there_is_no_word_about_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONDUCTOR_VALIDATION_LEVEL", "3")

    found = inspect(os.environ)
    assert [*found.notes, *found.warnings] == []


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "endpoint",
    [
        f"http://user:{SECRET}/1@127.0.0.1:9/x",
        f"http://user:{SECRET} 1@127.0.0.1:9/x",
        f"http://user:{SECRET}#1@127.0.0.1:9/x",
        f"http://user:1/{SECRET}@127.0.0.1:9/x",
        f"http://user:{SECRET}@1@127.0.0.1:9/x?y=1",
        f"http://user:{SECRET}@127.0.0.1:port",
        f"user:{SECRET}@127.0.0.1:9",
        f"http:/user:{SECRET}@127.0.0.1:9",
        f"http://user:{SECRET}",
        f"user:{SECRET}",
    ],
    ids=[
        "slash",
        "blank",
        "hash",
        "slash before",
        "at",
        "port",
        "no scheme",
        "one slash",
        "no host",
        "short",
    ],
)
def test_a_password_in_a_wrong_url_stays_hidden_whatever_is_in_it(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [said] = problems(monkeypatch, {"LOG_ENDPOINT": endpoint})

    assert SECRET not in said
    assert HIDDEN in said
    for command in (["check-config"], ["-v", "run", "--once"], ["status"], ["-v", "status"]):
        assert execute(command, "konductor-like") == 2
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err


def test_an_address_with_a_correctly_encoded_password_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"LOG_ENDPOINT": f"https://user:{SECRET}%2F%40@[::1]:3100/base"}
    monkeypatch.setenv("LOG_ENDPOINT", environ["LOG_ENDPOINT"])

    shown = {line.name: line.value for line in effective(Settings(), environ)}

    assert shown["LOG_ENDPOINT"] == f"https://{HIDDEN}@[::1]:3100/base"


def test_a_long_value_is_cut_and_a_control_character_is_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said = problems(monkeypatch, {"KONDUCTOR_BRAKE_MAX_NODES": "\x1b[2J" + "9x" * 500})

    assert "\\x1b" in said[0]
    assert len(said[0]) < 200


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("KONDUCTOR_POLL_INTERVAL", "KONDUCTOR_POLL_INTERVAL_SECONDS"),
        ("KONDUKTOR_BRAKE_MAX_NODES", "KONDUCTOR_BRAKE_MAX_NODES"),
        ("konductor_brake_max_node", "KONDUCTOR_BRAKE_MAX_NODES"),
        ("LOG_ENDPONT", "LOG_ENDPOINT"),
        ("LOG_ENDPOINTS", "LOG_ENDPOINT"),
        ("WATCHED_NAMESPACE", "WATCHED_NAMESPACES"),
        ("watched_namspaces", "WATCHED_NAMESPACES"),
        ("KONDUCTOR_XYZZY", ""),
    ],
)
def test_a_misspelt_variable_is_reported_with_the_nearest_name(written: str, meant: str) -> None:
    hint = f"; did you mean {meant}?" if meant else ""
    environ = {written: "1", "PATH": "/bin", "KONDUCTOR_BRAKE_MAX_NODES": "1"}

    assert without_effect(environ) == [f"{written}: no such setting{hint}"]


def test_a_variable_of_an_earlier_version_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_report, "REMOVED", {"KONDUCTOR_GONE": "leave it out"})
    monkeypatch.setenv("konductor_gone", "1")

    found = inspect(os.environ)

    assert found.problems == []
    assert found.warnings[0] == "konductor_gone: this version has no such setting; leave it out"


def test_every_removed_setting_at_once_stops_no_controller_and_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in REMOVED:
        monkeypatch.setenv(name, "no number")

    found = inspect(os.environ)

    assert (found.settings, found.problems) == (Settings(), [])
    assert [line.partition(":")[0] for line in found.warnings] == sorted(REMOVED)


def test_no_setting_is_among_the_removed_and_the_changelog_has_each_that_is() -> None:
    log = Path("CHANGELOG.md").read_text("utf-8")

    assert not {f"KONDUCTOR_{name.upper()}" for name in Settings.model_fields} & REMOVED.keys()
    assert [name for name in REMOVED if f"`{name}`" not in log] == []


@pytest.mark.parametrize(
    "name",
    [
        *("LOG_ENDPOINT", "log_endpoint", "WATCHED_NAMESPACES", "Konductor_Brake_Max_Nodes"),
        *("LOG_LEVEL", "LOKI_ENDPOINT", "ENDPOINT", "WATCH_NAMESPACE", "POD_NAMESPACE", "NAMESPACE"),
        *("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "LOG_ENDPOINT_PORT", "LOG_ENDPOINT_SERVICE_HOST", "LISTEN"),
    ],
)
def test_a_variable_of_ours_or_of_another_program_is_not_misspelt(name: str) -> None:
    assert without_effect({name: "1"}) == []


@pytest.mark.parametrize("name", ["WATCHED_NAMESPACES", "konductor_watched_namespaces"])
def test_kube_system_is_never_watched_and_stops_no_controller(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "default, kube-system")

    found = inspect(os.environ)

    assert found.problems == [f"{name}: kube-system is left out; its pods run no jobs, and some quote faults"]
    assert found.settings  # the controller starts, and logs the line as a warning
    assert found.settings.watched_namespaces == ("default",)
    assert without_effect({name: "*,!kube-system,kube-*"}) == []


def test_the_ten_everyday_settings_are_settings() -> None:
    assert len(set(EVERYDAY)) == 10
    assert set(EVERYDAY) <= Settings.model_fields.keys()


@pytest.mark.parametrize("variable", ["KONDUCTOR_LOKI_BEARER_TOKEN", "KONDUCTOR_LOKI_PASSWORD"])
def test_no_secret_is_ever_shown(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {variable: "hunter2"}
    if "PASSWORD" in variable:
        environ["KONDUCTOR_LOKI_USERNAME"] = "reader"
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    shown = {line.name: line.value for line in effective(Settings(), environ)}

    assert shown[variable] == HIDDEN
    assert "hunter2" not in str(shown)


def test_the_lease_is_in_the_pods_own_namespace_unless_the_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().lease_namespace("gpu-ops") == "gpu-ops"
    assert Settings().lease_namespace(None) == "konductor-like"

    monkeypatch.setenv("KONDUCTOR_NAMESPACE", "elsewhere")
    assert Settings().lease_namespace("gpu-ops") == "elsewhere"


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"KONDUCTOR_LOKI_TENANT": "team\nb"}, "KONDUCTOR_LOKI_TENANT"),
        (
            {"KONDUCTOR_LOKI_CA_FILE": "nowhere.pem", "LOG_ENDPOINT": "https://loki"},
            "KONDUCTOR_LOKI_CA_FILE nowhere.pem cannot be used: No such file",
        ),
        (
            {"KONDUCTOR_LOKI_CA_FILE": "no.pem", "LOG_ENDPOINT": "https://loki"},
            "KONDUCTOR_LOKI_CA_FILE no.pem cannot be used: ",
        ),
        ({"LOG_ENDPOINT": "http://lo\x01ki"}, "LOG_ENDPOINT is not a usable address"),
        ({"LOG_ENDPONT": "http://x"}, "LOG_ENDPONT: no such setting; did you mean LOG_ENDPOINT?"),
    ],
    ids=["header", "file", "no certificate", "address", "misspelt"],
)
def test_a_problem_that_appears_only_in_use_is_found(
    environ: dict[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no.pem").write_text("not a certificate")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = inspect(os.environ)

    assert found.in_effect
    assert len(found.problems) == 1
    assert found.problems[0].startswith(problem)


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


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALERTS_ENDPOINT", "prometheus:9090", "http:// or https://"),
        ("ALERTS_ENDPOINT", "http://prometheus:9090/api/v1/query", "before /api/v1"),
        ("ALERTS_MATCHERS", "cluster=prod", "not a matcher"),
        ("ALERTS_TENANT", "two\nlines", "HTTP header"),
        ("ALERTS_BEARER_TOKEN_FILE", "/nowhere/token", "cannot be read: No such file"),
        ("ALERTS_CA_FILE", "/nowhere/ca.pem", "cannot be used: No such file"),
    ],
)
def test_what_the_alerts_cannot_be_read_with_is_found(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONDUCTOR_ALERTS_ENDPOINT", "https://prometheus:9090")
    monkeypatch.setenv(f"KONDUCTOR_{name}", value)

    assert says in " ".join(inspect(os.environ).problems)


def test_probes_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONDUCTOR_LISTEN", "off")

    assert inspect(os.environ).problems == []


def test_a_broken_catalogue_is_a_problem_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise CatalogError("xid.csv", "row 7", "severity", "'grave' is none")

    monkeypatch.setattr("konductor_like.catalog.load_catalog", broken)

    assert inspect(os.environ).problems == ["xid.csv, row 7, severity: 'grave' is none"]


def test_a_wrong_value_does_not_hide_an_error_in_the_rules_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    (tmp_path / "rules.yaml").write_text("overrides:\n  xid.13.severity: worse\n")
    monkeypatch.setenv("KONDUCTOR_RULES_FILE", str(tmp_path / "rules.yaml"))
    monkeypatch.setenv("KONDUCTOR_BRAKE_MAX_NODES", "x")

    done = run("check-config")

    assert done.code == 2
    value, rule, hint = done.err.splitlines()
    assert value.startswith("error: KONDUCTOR_BRAKE_MAX_NODES='x'")
    assert rule.startswith("error: rules.yaml:2, overrides, xid.13.severity")
    assert hint.startswith("hint: some combinations are checked only after these errors are corrected")


@pytest.mark.parametrize(
    ("text", "problems", "warnings"),
    [
        ("overrides:\n  xid.63.severity: fatal\n", [], []),
        ("overrides:\n  xid.13.severity: fatal\n", [], ["rules.yaml:2, xid.13.severity: a bug in a job"]),
        (
            "overrides:\n  amd.ras.mode: enforce\n  xid.63.severity: fatal\n",
            [],
            ["rules.yaml:2, amd.ras.mode: this version has no"],
        ),
        ("overrides:\n  xid.13.severity: worse\n", ["rules.yaml:2, overrides, xid.13.severity: 'worse'"], []),
        (None, [], ["KONDUCTOR_RULES_FILE=rules.yaml: no such file"]),
    ],
    ids=["good", "doubtful", "removed", "bad", "none"],
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
    assert {"name": "KONDUCTOR_RULES_FILE", "value": "rules.yaml", "from": "environment"} in document[
        "settings"
    ]


def test_no_variable_is_folded_on_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konductor_like.cli.output.is_terminal", lambda _: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")

    lines = run("check-config").out.partition("\n\n")[0].splitlines()[1:]
    shown = {line.split()[0] for line in lines if not line.startswith(" ")}

    assert shown == {setting.name for setting in effective(Settings(), {})}


def test_the_settings_are_printed_in_the_formats_of_the_other_commands(run: Run) -> None:
    names = run("check-config", "-o", "name").out.splitlines()

    as_json, as_yaml = (run("check-config", "-o", each).out for each in ("json", "yaml"))

    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert [each["name"] for each in json.loads(as_json)["settings"]] == names


def test_a_large_bound_is_shown_in_full(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONDUCTOR_PROBATION_SECONDS", "inf")

    assert "KONDUCTOR_PROBATION_SECONDS='inf': must be at most 2678400\n" in run("check-config").err


def test_notify_sends_a_test_message_and_names_a_receiver_that_refuses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def notified() -> tuple[int, str]:
        status = execute(["check-config", "--notify", "-o", "json"], "konductor-like")
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        return status, printed.err

    assert "neither KONDUCTOR_NOTIFY_SLACK_FILE nor" in notified()[1]
    slack = tmp_path / "slack"
    monkeypatch.setenv("KONDUCTOR_NOTIFY_SLACK_FILE", str(slack))

    no_file = f"there is no file {slack}. No test message was sent there.\n"
    assert notified() == (2, f"error: KONDUCTOR_NOTIFY_SLACK_FILE: {no_file}")
    with ScriptedServer(respond(b"ok"), respond(b"no_service", "404 Gone")) as server:
        slack.write_text(f"{server.url}/{SECRET}")
        monkeypatch.setenv("KONDUCTOR_NOTIFY_WEBHOOK_FILE", str(tmp_path / "webhook"))
        status, said = notified()
        assert (status, said.splitlines()[0]) == (0, "A test message was sent to slack.")
        assert "warning: KONDUCTOR_NOTIFY_WEBHOOK_FILE: there is no file" in said
        monkeypatch.delenv("KONDUCTOR_NOTIFY_WEBHOOK_FILE")
        status, said = notified()

    refused = "error: No test message was sent to slack: the receiver answered 404: no_service"
    assert (status, said.splitlines()[0]) == (2, refused)
