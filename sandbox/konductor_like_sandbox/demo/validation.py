"""Validations in the demo. GPUs and their tests are simulated: each scripted test passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

from konductor_like.cluster.preflight import VALIDATION_POLICY, admission_objects
from konductor_like.cluster.validation_jobs import PRIORITY_CLASS
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.jobs import Ended, Started

NAMESPACE = "konductor-like-validation"
DRIVER = "570.172.08"
SETTINGS = {
    "KONDUCTOR_VALIDATION_IMAGE": "demo.invalid/simulated-gpu-test@sha256:" + "0" * 64,
    "KONDUCTOR_VALIDATION_COMMAND": "simulated-gpu-test",
    "KONDUCTOR_RETURN_QUIET_SECONDS": "0",
}
"""The settings of a demo that returns nodes after a validation, unless the person gives others.

The kernel log is heard for one heartbeat only after the test, so that nobody waits for two minutes.
"""

_HEALTHY = (
    "<ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable>"
    "<dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>"
    "<remapped_rows><remapped_row_pending>No</remapped_row_pending>"
    "<remapped_row_failure>No</remapped_row_failure></remapped_rows>"
)


def settings_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the demo adds to those that the person has given."""
    return dict(SETTINGS) if given.get("KONDUCTOR_RETURN") == "validated" else {}


def prepare(cluster: KubernetesServer) -> None:
    """Apply ``manifests/validation.yaml``, as far as the stand-in needs it."""
    cluster.create_namespace(NAMESPACE)
    cluster.put(
        "priorityclasses",
        {"metadata": {"name": PRIORITY_CLASS}, "value": -1000, "preemptionPolicy": "Never"},
    )
    policy, binding = admission_objects()[VALIDATION_POLICY]
    cluster.put("validatingadmissionpolicies", policy)
    cluster.put("validatingadmissionpolicybindings", binding)


def passing(boot_of: Callable[[str], str]) -> Callable[[Started], Ended]:
    """Return the program of a validation's pod. ``boot_of`` returns the boot id of a node."""

    def run(started: Started) -> Ended:
        attempt, gpus = started.environment["KL_ATTEMPT"], int(started.environment["KL_GPUS"])
        boot = boot_of(started.node)

        def frame(words: str) -> str:
            return f"=== konductor-like {attempt} {words} ===\n"

        steps = {"facts": _facts(started.node, gpus), "command": "simulated: every GPU passed\n"}
        parts = [f"{frame(f'begin {name}')}{text}{frame(f'end {name} rc=0')}" for name, text in steps.items()]
        log = "".join([frame(f"start boot={boot}"), *parts, frame(f"finish boot={boot}")])
        message = (
            f"v=1 attempt={attempt} boot={boot} boot_end={boot} gpus={gpus} driver={DRIVER} "
            "steps=facts:0,command:0 end\n"
        )
        return Ended(0, log.encode(), message)

    return run


def _facts(node: str, gpus: int) -> str:
    """Return what ``nvidia-smi -q -x`` would print of healthy GPUs, as far as the controller reads it."""
    found = "".join(
        f'<gpu id="00000000:{0x18 + 8 * number:02X}:00.0">'
        f"<uuid>{_uuid(node, number)}</uuid>{_HEALTHY}</gpu>\n"
        for number in range(gpus)
    )
    return (
        f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>{DRIVER}</driver_version>\n'
        f"<attached_gpus>{gpus}</attached_gpus>\n{found}</nvidia_smi_log>\n"
    )


def _uuid(node: str, number: int) -> str:
    text = sha256(f"GPU {number} of {node}".encode()).hexdigest()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
