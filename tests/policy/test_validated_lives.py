"""Over random lives, our taint goes only for one of five reasons, and a validation means what it says."""

from __future__ import annotations

import os
from collections import Counter

from tests.policy.validated_lives import OWN, ValidatedLife

LIVED = {
    *("returned: validated", "returned: reboot", "returned: time", "reset of a validated node", "by hand"),
    *("ended: pass", "ended: fail", "ended: unknown", "asked: unknown", "asked: None", "running: None"),
    *(f"{each} reported" for each in ("pass", "fail", "unknown", "gone", "refused")),
}
LIVES = int(os.environ.get("KONDUCTOR_TEST_LIVES", "35"))
STEPS = 30


def test_the_taint_goes_only_for_a_reason_and_no_pass_comes_from_an_unknown_result() -> None:
    happened: Counter[str] = Counter()
    for seed in range(LIVES):
        life = ValidatedLife(seed)
        for number in range(STEPS):
            life.step(number)
        happened += life.happened

    assert {*OWN, *LIVED} <= {*happened}, {*OWN, *LIVED} - {*happened}
    assert happened["returned: validated"] >= LIVES / 2, happened
