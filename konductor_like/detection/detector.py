"""Detection by one set of rules. The rules of a detector never change: other rules make another detector."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from konductor_like.catalog import Catalog, load_catalog
from konductor_like.detection.continuation import CONTINUED_ANCHORS
from konductor_like.detection.entry import has_newline, kernel_lines
from konductor_like.detection.kernel import kernel_finder
from konductor_like.detection.pod import pod_finder
from konductor_like.detection.wrapper import BYTES_ANCHORS
from konductor_like.jobs import job_of
from konductor_like.model import Fault, Finding, LogLine, Severity, Source

_ORDER = {severity: place for place, severity in enumerate(Severity)}


class Detector:
    """Finds faults by the rules of one catalogue. Pure; may be used from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.find_in_kernel_log = kernel_finder(catalog)
        """Finds a fault in the text of a kernel log's line; returns None where there is no fault."""
        self.find_in_pod_log = pod_finder(catalog)
        """Does the same for a pod's line."""

    def find(self, text: str, source: Source) -> Finding | None:
        """Return the finding in a text; None where there is no fault. Raises nothing.

        Of several records of the kernel in one text the gravest counts.
        """
        if source is Source.POD:
            return self.find_in_pod_log(text)
        if not has_newline(text):
            return self.find_in_kernel_log(text)
        return gravest(self.find_in_kernel_log(each) for each in kernel_lines(text))

    def detect(self, line: LogLine) -> Fault | None:
        """Return the fault that a line of Loki reports, with place and time; None where there is no fault."""
        finding = self.find(line.text, line.source)
        if finding is None:
            return None
        place = (line.node, line.namespace, line.pod, line.container)
        job = job_of(line.labels, line.namespace, line.pod) if line.source is Source.POD else None
        return Fault(finding, line.source, line.timestamp_ns, *place, job=job)

    def anchors(self, source: Source) -> tuple[str, ...]:
        """Return the literals that Loki is asked for; a line without any of them is never a fault.

        Some of these lines only go on the line before them.
        """
        of_rules = self.catalog.anchors(source)
        return (*of_rules, *BYTES_ANCHORS, *CONTINUED_ANCHORS) if source is Source.KERNEL else of_rules


def gravest(findings: Iterable[Finding | None]) -> Finding | None:
    """Return the first of the gravest findings; None if there is none."""
    return min(filter(None, findings), key=lambda finding: _ORDER[finding.severity], default=None)


@cache
def packaged() -> Detector:
    """Return the detector with the packaged rules, made once."""
    return Detector(load_catalog())
