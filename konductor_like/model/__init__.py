"""The values that every part of konductor-like speaks in.

Frozen data and nothing else: no I/O, no clock, no logging. Loki timestamps are integer nanoseconds since the
Unix epoch and end in ``_ns``; kernel stamps are integer microseconds since boot and end in ``_us``; datetimes
are aware and UTC.
"""

from konductor_like.model.faults import (
    EVIDENCE_CHARS,
    Fault,
    FaultKind,
    Finding,
    IncidentKey,
    KernelPosition,
    LogLine,
    Severity,
    Source,
)
from konductor_like.model.nodes import (
    HEALTH_LABEL,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    AsRead,
    Incident,
    IncidentState,
    Machine,
    NodeRecord,
    NodeState,
    Release,
    Taint,
)
from konductor_like.model.plans import (
    BrakeState,
    Change,
    EventReason,
    Held,
    Ignored,
    Plan,
    Snapshot,
    TallyKey,
    Unsettled,
    Verb,
)
from konductor_like.model.progress import (
    Checkpoint,
    Coverage,
    CoverageState,
    Gap,
    Loss,
)

__all__ = [
    "EVIDENCE_CHARS",
    "HEALTH_LABEL",
    "OPT_OUT_LABEL",
    "RECORD_ANNOTATION",
    "TAINT_EFFECT",
    "TAINT_KEY",
    "TAINT_VALUE",
    "AsRead",
    "BrakeState",
    "Change",
    "Checkpoint",
    "Coverage",
    "CoverageState",
    "EventReason",
    "Fault",
    "FaultKind",
    "Finding",
    "Gap",
    "Held",
    "Ignored",
    "Incident",
    "IncidentKey",
    "IncidentState",
    "KernelPosition",
    "LogLine",
    "Loss",
    "Machine",
    "NodeRecord",
    "NodeState",
    "Plan",
    "Release",
    "Severity",
    "Snapshot",
    "Source",
    "Taint",
    "TallyKey",
    "Unsettled",
    "Verb",
]
