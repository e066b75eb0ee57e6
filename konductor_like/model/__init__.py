"""The values that all parts of konductor-like use.

Frozen data and nothing else: no I/O, no clock, no logging. Loki timestamps are integer nanoseconds since the
Unix epoch and end in ``_ns``; kernel stamps are integer microseconds since boot and end in ``_us``; datetimes
are aware and UTC.
"""

from konductor_like.model.alerts import AlertKey, AlertRule, AlertsAnswer, AlertsSeen, Firing, ToldAlert
from konductor_like.model.brake import BrakeState, Held, Pace, PoolBrake, SkipReason
from konductor_like.model.conditions import (
    ConditionRule,
    ConditionsSeen,
    PlannedWork,
    ReportedCondition,
)
from konductor_like.model.controls import Control, ControlAct, Controls, ReturnedNode, TaintedNode
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
    MET_BY_REBOOT,
    Fault,
    FaultKind,
    Finding,
    IncidentKey,
    KernelPosition,
    LogLine,
    Needs,
    Severity,
    Source,
)
from konductor_like.model.gpus import Gpu, GpuSource, SeenGpu
from konductor_like.model.kept import KeptRecord, kept_beside, with_kept
from konductor_like.model.life import (
    UNLABELLED,
    Covers,
    Hardware,
    Life,
    Quarantine,
    Release,
    ReleaseHow,
    Stage,
)
from konductor_like.model.memory import (
    Episode,
    GpuCounts,
    Growth,
    NodeGpus,
    RecentEvidence,
    Trace,
    TraceKey,
)
from konductor_like.model.nodes import (
    CONDITION_MARK,
    HEALTH_LABEL,
    NEEDS_LABEL,
    NO_GPUS,
    OPERATOR_RULE,
    OPT_OUT_LABEL,
    PERSONS_TAINT,
    RECORD_ANNOTATION,
    SUSPECT_TAINT_EFFECT,
    SUSPECT_TAINT_KEY,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    UNSHARED,
    Act,
    AsRead,
    Condition,
    Doubt,
    GpuCount,
    Incident,
    IncidentState,
    Machine,
    MetBy,
    NodeRecord,
    NodeState,
    Role,
    Taint,
    Writer,
)
from konductor_like.model.plans import (
    Change,
    DroppedFault,
    EventReason,
    Hearing,
    Plan,
    SkippedTaint,
    Snapshot,
    Standing,
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
from konductor_like.model.validation import (
    JobReport,
    Validation,
    ValidationJobs,
    ValidationResult,
    ValidationStage,
    ValidationVerdict,
)
