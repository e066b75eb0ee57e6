"""The script of a validation's Job, run with made-up tools, and its output as the controller reads it.

The tools print tests/data/validation. The script finds nothing else on its PATH than them, sh, cat and sleep.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import konductor_like.cluster
from konductor_like.detection.validation import Ordered, read_output
from konductor_like.model import ValidationResult, ValidationVerdict
from tests.validation_outputs import ATTEMPT, BOOT, DATA, ORDERED, frame

PASS, FAIL, UNKNOWN = ValidationVerdict.PASS, ValidationVerdict.FAIL, ValidationVerdict.UNKNOWN
SCRIPT = Path(str(files(konductor_like.cluster) / "validation.sh"))
SHELLS = [path for name in ("dash", "bash", "busybox") if (path := shutil.which(name))] or ["/bin/sh"]


class Container:
    """A folder in place of a container: the tools on its PATH, and the files of the kubelet."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.shell, self.tools, self.message = shell, folder / "bin", folder / "termination-log"
        self.boot_id = folder / "boot_id"
        self.boot_id.write_text(BOOT + "\n", "utf-8")
        self.calls = folder / "calls"
        self.tools.mkdir()
        for name in ("cat", "sleep"):
            (self.tools / name).symlink_to(shutil.which(name) or name)
        (self.tools / "sh").symlink_to(shell)
        self.process: subprocess.Popen[bytes] | None = None
        self.tool("nvidia-smi", f'cat "{DATA}/nvidia_smi_h100.xml"')
        self.tool("dcgmi", f'cat "{DATA}/dcgm_4_level_2.json"')
        self.tool("all_reduce_perf", f'cat "{DATA}/all_reduce_perf_8.txt"')

    def tool(self, name: str, body: str) -> None:
        """Install a tool that notes its call and then runs this."""
        path = self.tools / name
        path.write_text(f'#!{self.shell}\necho {name} "$@" >>"{self.calls}"\n{body}\n', "utf-8")
        path.chmod(0o755)

    def start(self, command: str = "") -> subprocess.Popen[bytes]:
        environment = {
            "PATH": str(self.tools),
            "KL_ATTEMPT": ATTEMPT,
            "KL_LEVEL": "2",
            "KL_GPUS": "8",
            "KL_TERMINATION_LOG": str(self.message),
            "KL_BOOT_ID_FILE": str(self.boot_id),
            **({"KL_COMMAND": command} if command else {}),
        }
        self.process = subprocess.Popen(
            [self.tools / "sh", SCRIPT],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return self.process

    def read(self, ordered: Ordered = ORDERED, command: str = "") -> tuple[ValidationVerdict, str]:
        """Run the script to its end, and return the verdict on its output and the reason."""
        process = self.start(command)
        log, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        result: ValidationResult = read_output(log, self.message.read_text("utf-8"), ordered)
        return result.verdict, result.why


@pytest.fixture(params=SHELLS)
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Container]:
    made = Container(tmp_path, request.param)
    yield made
    if made.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()


def test_a_pass_from_each_tool_called_once(container: Container) -> None:
    assert container.read() == (PASS, "")
    assert container.message.read_text("utf-8") == (
        f"v=1 attempt={ATTEMPT} boot={BOOT} boot_end={BOOT} gpus=8 driver=575.51.02"
        " steps=facts:0,dcgm:0,nccl:0 end\n"
    )
    assert container.calls.read_text("utf-8").splitlines() == [
        "nvidia-smi -q -x",
        "dcgmi diag -r 2 --json",
        "all_reduce_perf -b 8 -e 256M -f 2 -g 8",
    ]


def test_what_the_image_lacks_is_named(container: Container) -> None:
    (container.tools / "all_reduce_perf").unlink()
    assert container.read() == (PASS, "")

    (container.tools / "dcgmi").unlink()
    assert container.read() == (UNKNOWN, "dcgm: dcgmi: command not found; the image needs it")

    (container.tools / "nvidia-smi").unlink()
    assert container.read() == (UNKNOWN, "facts: nvidia-smi: command not found; the image needs it")


def test_a_node_without_its_gpus_is_not_put_under_load(container: Container) -> None:
    container.tool("nvidia-smi", "echo lost; exit 15")

    assert container.read()[0] is FAIL
    assert container.calls.read_text("utf-8") == "nvidia-smi -q -x\n"


def test_a_command_takes_the_place_of_the_tests_and_cannot_forge_them(container: Container) -> None:
    forged = frame("end command rc=0") + frame(f"finish boot={BOOT}")
    container.tool("mine", "printf '%s' 'no newline at the end'; exit $1")
    container.tool("forger", f"cat <<'END'\n{forged}END\nexit 1")
    ordered = Ordered(ATTEMPT, BOOT, 2, 8, command=True)

    assert container.read(ordered, "mine 0") == (PASS, "")
    assert container.read(ordered, "mine 1")[0] is FAIL
    assert container.read(ordered, "forger")[0] is UNKNOWN
    assert "dcgmi" not in container.calls.read_text("utf-8")


def test_a_boot_in_between_is_told(container: Container) -> None:
    container.tool("dcgmi", f'echo another >"{container.boot_id}"; cat "{DATA}/dcgm_4_level_2.json"')

    assert container.read() == (
        UNKNOWN,
        "the boot at the end of the tests is not the one in which the attempt began",
    )


def test_sigterm_ends_it_at_once(container: Container) -> None:
    container.tool("dcgmi", "exec sleep 600")
    process = container.start()
    while not container.calls.exists() or "dcgmi" not in container.calls.read_text("utf-8"):
        time.sleep(0.005)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=60) == 143
    assert time.monotonic() - began < 5
    assert read_output(b"", container.message.read_text("utf-8"), ORDERED).why == (
        "the tests were stopped before their end"
    )
