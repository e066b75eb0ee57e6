"""The controller's settings on the Lease: the ones that commands need, and no secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from konductor_like.build import Program
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.cluster.lease.election import LeaderLease, read_lease
from konductor_like.cluster.published import (
    BUILD_ANNOTATION,
    BYTES_MOST,
    LOKI_NAMES,
    NAMESPACES_MOST,
    SETTINGS_ANNOTATION,
    Published,
    decode_program,
    decode_settings,
    encode_program,
    encode_settings,
    published,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.cluster.lease_scenes import NAME, NAMESPACE, PATH, Clock, candidate

REALS = st.floats(0, 1e9, allow_nan=False)
COUNTS = st.integers(0, 10**6)
PUBLISHED_NAMES = {
    "gpu_node_selector",
    "node_selector",
    "pool_label",
    "domain_label",
    "watched_namespaces",
    "node_condition",
    "recovery_node_selector",
    "validation_namespace",
    "rack_label",
    *LOKI_NAMES,
}
"""The settings whose text every reader of the Lease may see."""


def of(settings: Settings) -> Published:
    return published(settings, by="pod-1", version="1.2.3", rules_digest="5f2c01d4")


@given(
    st.builds(
        Published,
        st.text(),
        st.text(),
        st.text(),
        st.builds(
            PolicyConfig,
            brake_max_percent=REALS,
            brake_max_nodes=st.none() | COUNTS,
            brake_pool_max_percent=st.none() | REALS,
            brake_rate_nodes=st.none() | COUNTS,
            brake_count_unavailable=st.booleans(),
            repeat_count=COUNTS,
            repeat_days=REALS,
        ),
        REALS,
        st.from_regex(r"[a-z]{1,9}(=[a-z]{1,9})?", fullmatch=True),
        namespaces=st.lists(st.from_regex(r"[a-z]{1,9}", fullmatch=True), max_size=4).map(tuple),
        further_namespaces=COUNTS,
    )
)
def test_the_settings_survive_the_lease(settings: Published) -> None:
    assert decode_settings(encode_settings(settings)) == (settings, None)


def test_the_settings_of_validations_survive_the_lease() -> None:
    ours = of(
        Settings(
            validation_image="registry.example.com/secret:4",
            validation_command="secret",
            validation_level=3,
            validation_namespace="tests",
            recovery_node_selector="pool=a",
            return_by="validated",
            recovery="rehearse",
        )
    )

    found, problem = decode_settings(encode_settings(ours))

    assert (found, problem) == (ours, None)
    assert found is not None
    assert (found.validation_namespace, found.recovery_node_selector) == ("tests", "pool=a")
    policy = found.policy
    assert (policy.validates, policy.returns_by_validation, policy.rehearses) == (True, True, True)
    assert policy.validation_level == 3
    assert not policy.recovery_by_file
    assert "secret" not in encode_settings(ours)


def test_settings_of_a_controller_that_publishes_fewer_are_known_all_the_same() -> None:
    ours = Settings(
        node_condition="Broken",
        recovery_node_selector="pool=a",
        validation_image="dcgm:4",
        validation_namespace="tests",
        validation_level=4,
        return_by="validated",
        recovery="rehearse",
    )
    found = json.loads(encode_settings(of(ours)))
    for name in ("poll_interval_seconds", "ask_for_pods", "job_events", "node_condition"):
        del found[name]
    for name in ("recovery_node_selector", "validation_namespace"):
        del found[name]
    for name in ("validates", "returns_by_validation", "rehearses", "validation_level", "recovery_by_file"):
        del found["policy"][name]

    assert decode_settings(json.dumps(found)) == (of(Settings()), None)


def test_a_command_of_an_earlier_version_finds_the_numbers_that_it_cannot_do_without() -> None:
    policy = json.loads(encode_settings(of(Settings())))["policy"]
    gone = {"common_node_jobs": 0, "record_interval_seconds": 600.0, "suspect_taint": False}

    assert {name: policy[name] for name in gone} == gone
    assert policy.keys() >= {
        *("brake_cooldown_seconds", "brake_count_unavailable", "brake_max_nodes", "brake_max_percent"),
        *("brake_pool_max_percent", "brake_rate_nodes", "brake_rate_window_seconds", "correlation_seconds"),
        *("count_user_written", "gpu_count_seconds", "gpus_missing", "hold_base_seconds", "hold_max_seconds"),
        *("probation_seconds", "repeat_count", "repeat_days", "return_quiet_seconds", "returns_by_reboot"),
        *("returns_per_hour", "suspect_days", "test_seconds"),
    }


def test_every_number_of_the_policy_is_published() -> None:
    """A new setting must be published, or be left out on purpose."""
    here = json.loads(encode_settings(of(Settings())))["policy"]

    assert {field.name for field in fields(PolicyConfig)} - here.keys() == {
        *("version", "escalations", "conditions", "alerts", "node_condition", "persons")
    }


def _secrets() -> Iterator[tuple[str, Any]]:
    """Return a value with a secret for every setting that can contain one."""
    for name, field in Settings.model_fields.items():
        kind, secret = str(field.annotation), f"s3cret-{name.replace('_', '-')}"
        if name == "log_endpoint":
            yield name, f"https://user:{secret}@loki.example:3100/{secret}"
        elif name == "kernel_selector":
            yield name, f'{{app="{secret}"}}'
        elif name == "extra_matchers":
            yield name, f'cluster="{secret}"'
        elif name.endswith("_label") and name != "pool_label" and name != "domain_label":
            yield name, secret.replace("-", "_")
        elif name == "namespace":
            yield name, secret
        elif "SecretStr" in kind:
            yield name, SecretStr(secret)
        elif "Path" in kind:
            yield name, Path("/etc") / secret
        elif "tuple" in kind:
            yield name, (secret,)
        elif "str" in kind and "Literal" not in kind:
            yield name, secret


SECRETS = dict(_secrets())


def settings_with(names: set[str]) -> Settings:
    given = {name: SECRETS[name] for name in names}
    return Settings.model_construct(**{**Settings().model_dump(), **given})


def test_there_is_a_secret_for_every_setting_that_is_text() -> None:
    kinds = {name: str(field.annotation) for name, field in Settings.model_fields.items()}
    words = ("str", "Path", "Secret")
    numbers = {
        name for name, kind in kinds.items() if "Literal" in kind or not any(word in kind for word in words)
    }

    assert SECRETS.keys() | numbers == Settings.model_fields.keys()


def lease_with(client: KubeClient, clock: Clock, settings: Published) -> LeaderLease:
    return candidate(client, clock, notes=lambda: {SETTINGS_ANNOTATION: encode_settings(settings)})


def on_the_lease(client: KubeClient) -> Published | None:
    seen = read_lease(client, NAMESPACE, NAME)
    assert seen is not None
    return seen.settings


def test_no_secret_of_any_setting_reaches_the_lease(client: KubeClient, clock: Clock) -> None:
    lease = lease_with(client, clock, of(settings_with(SECRETS.keys() - PUBLISHED_NAMES)))

    assert lease.try_acquire().is_ours
    lease.renew(LeasePayload())

    stored = json.dumps(client.get(PATH))
    assert "s3cret" not in stored
    assert SETTINGS_ANNOTATION in stored


def test_the_published_settings_are_the_controllers() -> None:
    text = encode_settings(of(settings_with(PUBLISHED_NAMES)))

    assert all(f"s3cret-{name.replace('_', '-')}" in text.replace("_", "-") for name in PUBLISHED_NAMES)


def test_of_many_namespaces_some_are_named_and_the_rest_counted() -> None:
    many = tuple(f"{'a' * 58}-{number:04}" for number in range(1000))
    text = encode_settings(of(Settings(watched_namespaces=many)))

    assert len(text) <= BYTES_MOST
    found, _ = decode_settings(text)
    assert found is not None
    assert (found.namespaces, found.further_namespaces) == (many[:NAMESPACES_MOST], 1000 - NAMESPACES_MOST)


def test_a_selector_that_is_too_long_is_reported_and_not_cut() -> None:
    text = encode_settings(of(Settings(node_selector=",".join(f"key-{number}=x" for number in range(1000)))))

    assert len(text) <= BYTES_MOST
    assert decode_settings(text) == (None, "the controller's selectors are too long for the Lease annotation")


TYPED = st.text(max_size=60) | st.dictionaries(
    st.sampled_from(["policy", "nodes", "by"]), st.none() | st.integers() | st.text()
).map(json.dumps)


@given(TYPED)
def test_whatever_a_person_typed_raises_nothing_and_is_no_settings(text: str) -> None:
    found, problem = decode_settings(text)

    assert found is None
    assert problem is not None


def test_stream_selectors_that_are_too_long_cost_only_themselves() -> None:
    matchers = ",".join(f'label_{number}="x"' for number in range(1000))
    settings = Settings(extra_matchers=matchers)

    found, problem = decode_settings(encode_settings(of(settings)))

    assert problem is None
    assert found is not None
    assert {getattr(found, name) for name in LOKI_NAMES} == {""}
    assert found.namespaces == settings.watched_namespaces


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"stale_seconds": None}, "stale_seconds is missing"),
        ({"policy": {"brake_max_percent": "20"}}, "policy.brake_max_percent is not a number"),
        ({"policy": {"brake_max_nodes": -1}}, "policy.brake_max_nodes is not a whole number"),
        ({"nodes": {"node_selector": "a!=b"}}, "node_selector: 'a!=b' is neither key nor key=value"),
    ],
)
def test_a_setting_that_cannot_be_read_is_not_guessed_at(change: dict[str, Any], problem: str) -> None:
    written = json.loads(encode_settings(of(Settings())))
    for name, value in change.items():
        written[name] = {**written[name], **value} if isinstance(value, dict) else value

    found, told = decode_settings(json.dumps(written))

    assert found is None
    assert problem in (told or "")


@pytest.mark.parametrize("text", ["oops", "{}", '{"by": "a", "version": 1, "build": "b"}'])
def test_a_build_that_cannot_be_read_is_reported(text: str) -> None:
    found, problem = decode_program(text)

    assert found is None
    assert problem


def test_a_new_leader_reads_the_program_of_the_leader_before_it(client: KubeClient, clock: Clock) -> None:
    old, new = Program("1.2.3", "3f2a91c0d4e5"), Program("1.2.3", "91c03f2ad4e5")
    first = candidate(client, clock, "a", notes=lambda: {BUILD_ANNOTATION: encode_program(old, by="a")})
    second = candidate(client, clock, "b", notes=lambda: {BUILD_ANNOTATION: encode_program(new, by="b")})
    assert first.try_acquire().program is None

    assert second.try_acquire().program == old  # stands by
    first.release(LeasePayload())
    assert second.try_acquire().program == old
    seen = read_lease(client, NAMESPACE, NAME)
    assert seen is not None
    assert seen.program == new


def test_the_program_of_a_holder_that_did_not_write_it_is_not_known(client: KubeClient, clock: Clock) -> None:
    ours = Program("1.2.3", "3f2a91c0d4e5")
    lease = candidate(client, clock, "a", notes=lambda: {BUILD_ANNOTATION: encode_program(ours, by="older")})
    assert lease.try_acquire().is_ours

    seen = read_lease(client, NAMESPACE, NAME)
    assert seen is not None
    assert (seen.program, seen.problem) == (None, None)


def test_the_settings_are_written_with_each_write_of_the_lease(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    digests = ["5f2c01d4"]

    def notes() -> dict[str, str]:
        ours = replace(of(Settings()), rules_digest=digests[-1])
        return {SETTINGS_ANNOTATION: encode_settings(ours)}

    lease = candidate(client, clock, notes=notes)
    assert lease.try_acquire().is_ours  # with --once there is no renewal
    assert on_the_lease(client) == of(Settings())

    digests.append("00000000")  # the rules file was read again
    server.clear_calls()
    lease.renew(LeasePayload())

    assert [call.verb for call in server.calls()] == ["update"]
    assert on_the_lease(client) == replace(of(Settings()), rules_digest="00000000")
