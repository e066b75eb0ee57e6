"""Kernel lines with an Xid in an unknown form are counted, and the first of each node is logged."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from konductor_like.catalog import Catalog, Mode, load_catalog
from konductor_like.controller.fleet.fleet_monitor import UNPARSED_MOST, UnparsedLines
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import Fault, LogLine, Source, Unparsed

UNKNOWN = "NVRM: board 3: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."
KNOWN = "NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."


class Scene:
    """A counter of unparsed lines, with its metrics and its log."""

    def __init__(self, before: dict[str, Unparsed] | None = None, catalog: Catalog | None = None) -> None:
        self.metrics = Metrics()
        self.detector = Detector(catalog or load_catalog())
        self.logs = MultilineDetector(self.detector)
        self.lines = UnparsedLines(self.metrics, before or {}, self.detector.catalog)
        self.clock_ns = 100

    def told(self, text: str, node: str | None = "gpu-1", source: Source = Source.KERNEL) -> Fault | None:
        self.clock_ns += 1
        line = LogLine(source, self.clock_ns, text, {}, node)
        found = self.logs.detect(line)
        if found is None:
            self.lines.count([line])
        return found

    @property
    def counted(self) -> float | None:
        return self.metrics.registry.get_sample_value("konductor_like_kernel_lines_unparsed_total")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            UNKNOWN,
            "The message is quoted: a kernel message begins with its own words, and here 'NVRM: board 3:'",
        ),
        (
            "NVRM: Xid (PCI:0000:3d:00): many",
            "The line contains 'Xid (', but is not in the form of any known fault.",
        ),
        ("nvidia-nvswitch0: SXid (switch 3): 20034, Fatal", "not in the form of any known fault"),
        (f'{{"gpu": 3, "text": "{KNOWN}"}}', "comes from an unknown collector"),
        (f"         {KNOWN}", "so it goes on the record before it"),
        (f'{{"log": "{KNOWN}', "The JSON around the message is cut"),
        (f"NVRM: \u202e\x1b[31mboard Xid ({'x' * 20_000}", "The line contains 'Xid (', but"),
    ],
)
def test_unparsed_lines_are_counted_and_logged_with_the_reason(
    text: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    with caplog.at_level(logging.WARNING):
        assert scene.told(text) is None

    assert scene.counted == 1
    [said] = caplog.messages
    assert said.startswith("node gpu-1: a kernel line names an Xid")
    assert why in said
    assert said.isprintable()
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (KNOWN, Source.KERNEL),
        ("NVRM: Xid (PCI:0000:3d:00): 43, pid=7, name=a, Ch 00000008", Source.KERNEL),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Data {0x00000010}", Source.KERNEL),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", Source.KERNEL),
        (UNKNOWN, Source.POD),
        (KNOWN, Source.POD),
    ],
)
def test_parsed_lines_and_lines_of_pods_are_not_counted(
    text: str, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    scene.told(text, source=source)

    assert (scene.counted, caplog.messages) == (0, [])


def test_an_xid_that_is_switched_off_is_understood() -> None:
    catalog = load_catalog()
    one_off = replace(catalog, xids={**catalog.xids, 79: replace(catalog.xid(79), mode=Mode.OFF)})
    rules = tuple(
        replace(rule, mode=Mode.OFF) if rule.table == "xid" else rule for rule in catalog.pattern_rules
    )

    for given in (one_off, replace(catalog, pattern_rules=rules)):
        scene = Scene(catalog=given)
        assert scene.told(KNOWN) is None
        assert scene.counted == 0


def test_the_first_line_of_each_node_is_logged_and_all_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()

    for node in ("gpu-1", "gpu-2", "gpu-1", None, "gpu-1", None):
        scene.told(UNKNOWN, node)

    assert scene.counted == 6
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "node gpu-1",
        "node gpu-2",
        "node (no node)",
    ]
    known = {"gpu-1": Unparsed(3, 105), "gpu-2": Unparsed(1, 102)}
    assert scene.lines.since(0, {"gpu-1", "gpu-2", "gpu-3"}) == known

    caplog.clear()
    successor = Scene(before=known)
    successor.clock_ns = 104
    for _ in range(2):  # the first is read again: delivered twice, and shown once
        successor.told(UNKNOWN)
    assert (successor.counted, caplog.messages) == (2, [])
    assert successor.lines.since(102, {"gpu-1", "gpu-2"}) == {"gpu-1": Unparsed(4, 106)}
    successor.told(UNKNOWN, "gpu-2")
    assert len(caplog.messages) == 1


def test_the_number_of_remembered_names_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()

    for number in range(UNPARSED_MOST + 50):
        scene.told(UNKNOWN, f"made-up-{number}")
    caplog.clear()
    scene.told(UNKNOWN, f"made-up-{UNPARSED_MOST + 49}")

    assert caplog.messages == []
    assert len(scene.lines.since(0, [f"made-up-{n}" for n in range(UNPARSED_MOST + 50)])) == UNPARSED_MOST
