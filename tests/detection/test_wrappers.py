"""Records of collectors are opened; what a program logs in the same formats stays a quotation."""

from __future__ import annotations

import json

import pytest

from konductor_like.detection import find, parse_heartbeat
from konductor_like.model import KernelPosition, Source
from tests.detection.test_records import BOOT, JOURNAL, MESSAGE, found

COLLECTED = {
    "CRI with a tag": f"2026-03-03T10:00:00.1Z stdout F:x [812.300441] {MESSAGE}",
    "Fluent Bit, tail": json.dumps({"log": MESSAGE}),
    "Fluent Bit, Kubernetes": json.dumps({"log": f"{MESSAGE}\n", "kubernetes": {"pod_name": "dmesg-x"}}),
    "Fluent Bit, kmsg": json.dumps(
        {"priority": 3, "sequence": 5512, "sec": 812, "usec": 300441, "msg": MESSAGE}
    ),
    "Vector, journald": json.dumps(
        {
            **{key: value for key, value in JOURNAL.items() if key != "MESSAGE"},
            "message": MESSAGE,
            "host": "gpu-9",
            "source_type": "journald",
        }
    ),
    "Vector, Kubernetes": json.dumps(
        {"message": f"[812.300441] {MESSAGE}", "source_type": "kubernetes_logs", "stream": "stdout"}
    ),
    "Vector, file": json.dumps(
        {"message": f"Mar  3 10:00:00 gpu-9 kernel: [812.300441] {MESSAGE}", "source_type": "file"}
    ),
    "Promtail, pack": json.dumps({"_entry": f"[812.300441] {MESSAGE}", "container": "dmesg"}),
    "lokiexporter": json.dumps(
        {
            "body": MESSAGE,
            "severity": "err",
            "attributes": {"log.iostream": "stdout"},
            "resources": {"a": "b"},
        }
    ),
    "lokiexporter, the body alone": json.dumps({"body": f"[812.300441] {MESSAGE}"}),
    "lokiexporter, journald": json.dumps({"body": JOURNAL, "attributes": {}}),
    "lokiexporter, CRI inside": json.dumps({"body": f"2026-03-03T10:00:00Z stdout F {MESSAGE}\n"}),
    "Talos": json.dumps(
        {
            "facility": "kern",
            "priority": "err",
            "seq": 5512,
            "clock": 812_300_441,
            "msg": MESSAGE,
            "talos-level": "error",
            "talos-time": "2026-03-03T10:00:00.1Z",
        }
    ),
    "Vector, syslog": json.dumps(
        {
            "appname": "kernel",
            "facility": "kern",
            "hostname": "gpu-9",
            "message": MESSAGE,
            "severity": "err",
            "source_type": "syslog",
        }
    ),
    "Filebeat, journal": json.dumps(
        {
            "ecs": {"version": "8.0.0"},
            "message": MESSAGE,
            "systemd": {"transport": "kernel"},
            "syslog": {"identifier": "kernel", "facility": 0},
        }
    ),
    "ECS, syslog": json.dumps(
        {
            "agent": {"type": "filebeat"},
            "log": {"syslog": {"appname": "kernel", "facility": {"code": 0, "name": "kernel"}}},
            "message": MESSAGE,
        }
    ),
    "Cloud Logging": json.dumps(
        {"insertId": "a", "logName": "projects/p/logs/journal", "jsonPayload": JOURNAL}
    ),
    "logfmt with a time": f'ts=2026-03-03T10:00:00.1Z level=err facility=kern msg="{MESSAGE}"',
    "logfmt": f'msg="{MESSAGE}"',
    "logfmt with a level": f'level=err msg="{MESSAGE}"',
    "logfmt of lokiexporter": f'msg="[812.300441] {MESSAGE}" severity=err attribute_log.iostream=stdout '
    'resource_k8s.node.name=gpu-9 resource_note="a \\"b\\" c"',
    "logfmt in CRI": f'2026-03-03T10:00:00Z stdout F level=crit facility=kern msg="{MESSAGE}"\n',
}


@pytest.mark.parametrize("line", COLLECTED.values(), ids=COLLECTED)
def test_the_record_of_a_collector_is_opened(line: str) -> None:
    finding = found(line)

    assert (finding.rule, finding.gpu, finding.text) == ("xid.79", "0000:c7:00", MESSAGE)
    assert not finding.user_written


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("Fluent Bit, kmsg", KernelPosition(None, 5512, 812_300_441)),
        ("Vector, journald", KernelPosition(BOOT, None, 812_300_441)),
        ("Vector, file", KernelPosition(stamp_us=812_300_441)),
        ("lokiexporter, journald", KernelPosition(BOOT, None, 812_300_441)),
        ("Cloud Logging", KernelPosition(BOOT, None, 812_300_441)),
        ("Talos", KernelPosition(None, 5512, 812_300_441)),
        ("logfmt of lokiexporter", KernelPosition(stamp_us=812_300_441)),
    ],
)
def test_the_record_of_a_collector_has_the_position_of_the_line(name: str, position: KernelPosition) -> None:
    assert found(COLLECTED[name]).position == position


@pytest.mark.parametrize("facility", ["user", "daemon", "KERN", ""])
def test_what_a_user_wrote_is_marked_in_what_talos_ships(facility: str) -> None:
    record = json.loads(COLLECTED["Talos"])

    assert found(json.dumps({**record, "facility": facility})).user_written


_SEQUENCES = ("1", -1, 2**63, True, 1.5, None)


@pytest.mark.parametrize("sequence", _SEQUENCES)
def test_a_number_that_the_kernel_never_counts_to_is_no_position(sequence: object) -> None:
    talos = json.loads(COLLECTED["Talos"])
    assert found(json.dumps({**talos, "seq": sequence})).position.sequence is None
    fluent = json.loads(COLLECTED["Fluent Bit, kmsg"])
    assert find(json.dumps({**fluent, "sequence": sequence}), Source.KERNEL) is None


SAID_BY_A_PROGRAM: tuple[object, ...] = (
    {"message": MESSAGE},
    {"message": MESSAGE, "level": "info"},
    {"message": MESSAGE, "stream": "stdout"},
    {"message": MESSAGE, "source_type": "journald", "SYSLOG_IDENTIFIER": "gpud"},
    {"message": MESSAGE, "source_type": "http_server"},
    {"message": MESSAGE, "_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel"},
    {"message": MESSAGE, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "gpud"},
    {"message": MESSAGE, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "_PID": "812"},
    {"message": {"text": MESSAGE}, "_TRANSPORT": "kernel"},
    {"message": MESSAGE, "source_type": "syslog", "appname": "gpud", "facility": "kern"},
    {"message": MESSAGE, "source_type": "syslog", "appname": "kernel", "facility": "user"},
    {"message": {"text": MESSAGE}, "source_type": "syslog", "appname": "kernel", "facility": "kern"},
    {"message": MESSAGE, "appname": "kernel", "facility": "kern"},
    {"message": MESSAGE, "ecs": {"version": "8.0.0"}, "systemd": {"transport": "stdout"}},
    {"message": MESSAGE, "ecs": {"version": "8.0.0"}, "systemd": "kernel"},
    {"message": MESSAGE, "ecs": {}, "log": {"syslog": {"appname": "gpud", "facility": {"code": 0}}}},
    {"message": MESSAGE, "ecs": {}, "log": {"syslog": {"appname": "kernel", "facility": {"code": 1}}}},
    {"message": MESSAGE, "systemd": {"transport": "kernel"}},
    {"jsonPayload": {"message": MESSAGE}, "logName": "projects/p/logs/gpud"},
    {"jsonPayload": {**JOURNAL, "_TRANSPORT": "stdout"}, "logName": "projects/p/logs/journal"},
    {"jsonPayload": JOURNAL},
    {"textPayload": MESSAGE, "logName": "projects/p/logs/gpud"},
    {"MESSAGE": MESSAGE, "TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel"},
    {"MESSAGE": MESSAGE, "PID": "812", "SYSLOG_IDENTIFIER": "kernel"},
    {"msg": MESSAGE},
    {"msg": MESSAGE, "level": "warn", "ts": 1776394928.1},
    {"msg": MESSAGE, "priority": 3, "sequence": 12},
    {"msg": MESSAGE, "talos-service": "gpud", "talos-time": "2026-03-03T10:00:00Z"},
    {"msg": MESSAGE, "facility": "kern", "priority": "err"},
    {"log": MESSAGE, "level": "info"},
    {"log": {"text": MESSAGE}},
    {"log": f"seen: {MESSAGE}"},
    {"log": json.dumps({"msg": MESSAGE})},
    {"body": MESSAGE, "title": "GPU fault"},
    {"body": MESSAGE, "level": "info"},
    {"body": {"message": MESSAGE}},
    {"body": {**JOURNAL, "_TRANSPORT": "stdout"}},
    {"body": {"body": MESSAGE}},
    {"body": f"gpud: {MESSAGE}"},
    {"_entry": f"gpud: {MESSAGE}", "unit": "gpud.service"},
    {"text": MESSAGE},
    [MESSAGE],
    {},
)
QUOTED_IN_LOGFMT = (
    f'time="2026-03-03T10:00:00Z" level=err msg="{MESSAGE}"',
    f'level=warning msg="{MESSAGE}"',
    f'level=error msg="{MESSAGE}"',
    f'level=err ts=2026-03-03T10:00:00Z msg="{MESSAGE}"',
    f'ts=2026-03-03T10:00:00Z level=err msg="{MESSAGE}"',
    f'ts=2026-03-03T10:00:00Z facility=daemon msg="{MESSAGE}"',
    f'msg="{MESSAGE}" caller=xid.go:88',
    f'msg="{MESSAGE}" time=2026-03-03T10:00:00Z',
    f'msg="seen: {MESSAGE}"',
    f'msg="matched" line="{MESSAGE}"',
    f"msg={MESSAGE}",
    f'msg="{MESSAGE}',
    f'message="{MESSAGE}"',
    f'gpud: level=err msg="{MESSAGE}"',
    f'facility=daemon msg="{MESSAGE}"',
)


@pytest.mark.parametrize("line", [*map(json.dumps, SAID_BY_A_PROGRAM), *QUOTED_IN_LOGFMT])
@pytest.mark.parametrize("before", ["", "[812.300441] ", "2026-03-03T10:00:00Z stdout F "])
def test_what_a_program_logs_about_the_kernel_log_is_a_quotation(line: str, before: str) -> None:
    assert find(before + line, Source.KERNEL) is None


@pytest.mark.parametrize("name", [name for name in COLLECTED if "kmsg" not in name and name != "Talos"])
def test_a_heartbeat_is_read_in_every_wrapper_in_which_a_fault_is_found(name: str) -> None:
    beat = f"kmsg/1 heartbeat boot={BOOT} seq=5512 uptime=812.300441 wall=2026-03-03T10:00:00.250Z"
    line = COLLECTED[name].replace("[812.300441] ", "").replace("Mar  3 10:00:00 gpu-9 kernel: ", "")
    of_the_kernel = any(word in name for word in ("journal", "syslog", "Cloud"))

    assert (parse_heartbeat(line.replace(MESSAGE, beat)) is None) is of_the_kernel
