"""The values that all parts of konductor-like use.

Frozen data and nothing else: no I/O, no clock, no logging. Loki timestamps are integer nanoseconds since the
Unix epoch and end in ``_ns``; kernel stamps are integer microseconds since boot and end in ``_us``; datetimes
are aware and UTC.
"""

from konductor_like.model.brake import BrakeState, Held, Pace, PoolBrake, SkipReason
from konductor_like.model.controls import Control, ControlAct, Controls, TaintedNode
from konductor_like.model.escalation import (
    NO_ESCALATION,
    Distinct,
    Escalation,
    Same,
    Threshold,
    Together,
)
from konductor_like.model.faults import (
    APPLICATION_XIDS,
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
    OPERATOR_RULE,
    OPT_OUT_LABEL,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    Ack,
    Act,
    AsRead,
    Incident,
    IncidentState,
    Machine,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    Role,
    Taint,
)
from konductor_like.model.plans import (
    Change,
    DroppedFault,
    EventReason,
    Growth,
    Plan,
    SkippedTaint,
    Snapshot,
    Verb,
)
from konductor_like.model.progress import (
    Checkpoint,
    Coverage,
    CoverageState,
    Gap,
    Loss,
    Misnamed,
    Unparsed,
)
from konductor_like.model.window import Episode, RecentEvidence, Trace, TraceKey
