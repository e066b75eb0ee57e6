"""The demo's simulated GPU test: the controller reads its output as a pass, and nothing less strictly."""

from __future__ import annotations

from konductor_like.detection.validation import Ordered, read_output
from konductor_like.model import ValidationVerdict
from konductor_like.settings import Settings
from konductor_like_sandbox.demo import validation
from konductor_like_sandbox.kubernetes.jobs import Started

BOOT = "b2000000-0000-4000-8000-000000000002"


def test_the_simulated_test_of_a_node_reads_as_a_pass_and_of_another_boot_as_unknown() -> None:
    started = Started("gpu-06", "pod", (), {"KL_ATTEMPT": "7f3k9q2m", "KL_GPUS": "8"})
    ended = validation.passing(lambda _: BOOT)(started)

    def verdict(boot: str) -> ValidationVerdict:
        return read_output(ended.output, ended.message, Ordered("7f3k9q2m", boot, 3, 8, command=True)).verdict

    assert verdict(BOOT) is ValidationVerdict.PASS
    assert verdict("another") is ValidationVerdict.UNKNOWN


def test_the_demo_has_settings_for_validations_only_where_somebody_wants_them() -> None:
    assert validation.settings_of({"KONDUCTOR_RETURN": "reboot"}) == {}
    added = validation.settings_of({"KONDUCTOR_RETURN": "validated"})
    settings = {name.removeprefix("KONDUCTOR_").lower(): value for name, value in added.items()}
    policy = Settings(log_endpoint="http://loki.test", return_by="validated", **settings).policy()  # type: ignore[arg-type]  # texts, as in the environment
    assert (policy.returns_by_validation, policy.validates, policy.return_quiet_seconds) == (True, True, 0)
