"""``python -m tools.measures.path`` prints the files and functions that one fatal line passes.

The real controller runs in this process with a profiler, over both stand-ins, and gets one Xid 79 in steady
state. The command counts the functions that it calls from the poll of Loki that returns the line until it
sends the PATCH of the Node. ``--list`` prints them in the order of their first call.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from konductor_like.controller.launch import main as controller
from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_79

PRODUCT = str(Path(__file__).parents[2] / "konductor_like") + os.sep
THREADS = ("read-kernel", "controller", "write")
NODE = "gpu-03"
SETTLED_SECONDS, PATIENCE_SECONDS = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function of the product."""

    thread: str
    file: str
    function: str


class Trace:
    """The calls of the controller's threads while ``recording``, until the PATCH of the Node."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.recording = False
        self.patched = threading.Event()

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """See :func:`threading.setprofile`."""
        if event != "call" or not self.recording or self.patched.is_set():
            return
        code = frame.f_code
        if code.co_name == "putrequest" and _patches_a_node(frame):
            self.patched.set()
        elif code.co_filename.startswith(PRODUCT):
            thread = threading.current_thread().name
            if thread.startswith(THREADS):
                name = code.co_filename.removeprefix(PRODUCT)
                self.calls.append(Call(thread, name, code.co_qualname))

    def of_the_line(self) -> list[Call]:
        """Return the calls since the last poll of the kernel source, which returned the line."""
        polls = [
            at
            for at, call in enumerate(self.calls)
            if call.thread == "read-kernel" and call.function.endswith("SourceReader.poll")
        ]
        return self.calls[polls[-1] :]


def _patches_a_node(frame: FrameType) -> bool:
    asked = frame.f_locals
    return asked.get("method") == "PATCH" and f"/api/v1/nodes/{NODE}" in str(asked.get("url"))


def traced() -> list[Call]:
    """Run the controller until it has patched the Node."""
    trace = Trace()
    with Stage() as stage:
        os.environ |= stage.environment | {"KONDUCTOR_LISTEN": "off", "KONDUCTOR_LOG_LEVEL": "error"}
        stage.keep_beating()

        def drive() -> None:
            time.sleep(SETTLED_SECONDS)
            trace.recording = True
            stage.kernel(NODE, XID_79)
            trace.patched.wait(PATIENCE_SECONDS)
            trace.recording = False
            os.kill(os.getpid(), signal.SIGTERM)

        threading.setprofile(trace.profile)
        driver = threading.Thread(target=drive, name="driver")
        driver.start()
        controller([])
        driver.join()
        threading.setprofile(None)
    if not trace.patched.is_set():
        raise SystemExit("The Node was not patched in time.")
    return trace.of_the_line()


def main() -> int:
    """Print the figures."""
    calls = traced()
    functions = dict.fromkeys((call.file, call.function) for call in calls if not call.function.endswith(">"))
    if "--list" in sys.argv[1:]:
        sys.stdout.write("".join(f"{file} {function}\n" for file, function in functions))
    files = {file for file, _ in functions}
    sys.stdout.write(f"{len(files)} files, {len(functions)} functions, {len(calls)} calls\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
