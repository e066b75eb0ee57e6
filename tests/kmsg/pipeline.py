"""A line's way from the dmesg pod to Loki: reader, CRI log file, the collector's operator, OTLP."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from konductor_like_sandbox.loki import LokiServer, otlp_body, otlp_record
from tests.kmsg.process import AS_A_FILE

_PATH = re.compile(
    r"/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/_]+)/(?P<container>[^/]+)/(?P<restart>\d+)\.log$"
)
_CRI = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(?P<ns>\d{9})Z (?P<stream>stdout|stderr) (?P<tag>[FP]) "
    r"(?P<line>.*)"
)


class DmesgPod:
    """One run of the dmesg container, whose output goes to a file in the kubelet's format."""

    def __init__(self, logs: Path, node: str, restart: int) -> None:
        self.log = logs / f"dmesg-logging_dmesg-{node}_0e6f-uid" / "dmesg" / f"{restart}.log"
        self._runtime = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self.process = subprocess.Popen(AS_A_FILE, stdout=subprocess.PIPE, text=True, encoding="ascii")
        self._runtime.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.code = self.process.wait(timeout=30)
        self._runtime.join()

    def _keep(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines, self.log.open("a", encoding="ascii") as file:
            for line in lines:
                now = datetime.now(UTC)
                file.write(f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {line}")
                file.flush()


class Collector:
    """Follows log files and pushes their lines; ``shipped`` has the pushed lines in order."""

    def __init__(self, loki: LokiServer, node: str) -> None:
        self.shipped: list[str] = []
        self._loki = loki
        self._node = node
        self._offsets: dict[Path, int] = {}

    def ship(self, log: Path) -> None:
        """Push the new lines of a file."""
        with log.open("rb") as file:
            file.seek(self._offsets.get(log, 0))
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[log] = self._offsets.get(log, 0) + len(whole)
        if whole:
            self._push(log, whole.decode("ascii").splitlines())

    def _push(self, log: Path, lines: Sequence[str]) -> None:
        path = _PATH.search(str(log))
        assert path is not None
        records = []
        for text in lines:
            entry = _CRI.fullmatch(text)
            assert entry is not None, text
            assert entry["tag"] == "F", "no line is so long that a runtime splits it"
            seconds = int(datetime.fromisoformat(entry["time"] + "+00:00").timestamp())
            time_ns = seconds * 1_000_000_000 + int(entry["ns"])
            attributes = {"log.iostream": entry["stream"], "logtag": entry["tag"], "log.file.path": str(log)}
            records.append(otlp_record(entry["line"], time_ns, time_ns + 200_000_000, attributes))
            self.shipped.append(entry["line"])
        resource = {
            "k8s.namespace.name": path["namespace"],
            "k8s.pod.name": path["pod"],
            "k8s.pod.uid": path["uid"],
            "k8s.container.name": path["container"],
            "k8s.container.restart_count": path["restart"],
            "k8s.daemonset.name": "dmesg",
            "k8s.node.name": self._node,
            "k8s.cluster.name": "test",
        }
        self._loki.push_otlp(otlp_body(resource, records))
