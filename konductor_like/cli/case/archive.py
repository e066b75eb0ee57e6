"""The archive of a case: three files with fixed names, whatever the case has in it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from konductor_like.build import this_program
from konductor_like.cli.case import markdown
from konductor_like.cli.columns import stamp, stamp_of_ns
from konductor_like.cli.output import API_VERSION, fields_of
from konductor_like.history.case import Case, first_ns, last_ns
from konductor_like.history.outages import Outage

MEMBERS = ("case.md", "kernel.log", "case.json")
_OUTAGE = (
    *("node", "gpu", "rule", "kind", "severity", "since", "until", "end", "how", "by", "reason", "begun_by"),
    *("relapse", "model", "driver", "rack", "gpus", "uuid", "serial"),
)
"""Fields of an outage. Without ``failure_group`` and ``evidence``: they may be of tenants' pods."""


def archive_of(case: Case) -> bytes:
    """Return the archive (zip)."""
    texts = (markdown.document(case), "".join(kernel_log(case)), json.dumps(document(case), indent=2) + "\n")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in zip(MEMBERS, texts, strict=True):
            member = zipfile.ZipInfo(name, case.made_at.timetuple()[:6])
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o600 << 16
            archive.writestr(member, text.encode("utf-8", "backslashreplace"))
    return content.getvalue()


def kernel_log(case: Case) -> Iterator[str]:
    """Yield the lines of the kernel log, each with its time in Loki."""
    for line in case.kernel.lines:
        yield f"{markdown.log_line(line.at_ns, line.text)}\n"


def document(case: Case) -> dict[str, Any]:
    """Return the case for programs."""
    kernel = case.kernel
    return {
        "apiVersion": API_VERSION,
        "kind": "Case",
        "madeAt": stamp(case.made_at),
        "madeBy": str(this_program()),
        "node": fields_of(
            case.node, "name", "exists", "provider_id", "system_uuid", "kernel", "os", "boot_id"
        ),
        "outage": {"number": case.number, "title": case.title, **_outage(case.outage)},
        "fault": case.fault
        and fields_of(case.fault, "count", "first_ns", "last_ns", "evidence", "user_written", "needs"),
        "gpus": [
            fields_of(each.gpu, "bus", "uuid", "serial") | fields_of(each, "told_by", "doubtful")
            for each in case.identities
        ],
        "kernelLog": {
            "lines": len(kernel.lines),
            "from": stamp_of_ns(first_ns(kernel)),
            "to": stamp_of_ns(last_ns(kernel)),
            "complete": kernel.is_whole,
            "overwrittenRecords": kernel.overruns,
        },
        "acts": [],
        "otherOutages": [_outage(each) for each in case.others],
        "missing": [],
    }


def _outage(outage: Outage) -> dict[str, Any]:
    return fields_of(outage, *_OUTAGE)
