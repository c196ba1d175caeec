"""The messages of Cairn: what is said, on which subject, by whom. No I/O and no torch."""

from schemas.event import Event, Struct
from schemas.operations import (
    Control,
    DeadLetter,
    Heartbeat,
    LineageStarted,
    RunCreated,
    RunEnded,
)
from schemas.rollouts import Completion, Proof, Rollouts, Score, Segment, Span
from schemas.tasks import Sampling, TaskClosed, TaskGranted, WorkRequested, WorkReturned
from schemas.training import (
    BatchFormed,
    EvalCompleted,
    GroupRef,
    PolicyPublished,
    StepCompleted,
    WriterStarted,
)
from schemas.verdicts import (
    AuditKeyCommitted,
    AuditKeyRevealed,
    Check,
    Credited,
    Judgement,
    Quarantined,
    Reinstated,
    Slashed,
    Standing,
    Verdict,
)
from schemas.weights import File, Manifest

EVENTS: dict[str, type[Event]] = {
    event.__name__: event
    for event in (
        RunCreated, LineageStarted, RunEnded, WriterStarted,
        WorkRequested, WorkReturned, TaskGranted, TaskClosed, Proof, Rollouts, Score, Verdict,
        BatchFormed, StepCompleted, PolicyPublished, EvalCompleted,
        Slashed, Quarantined, Reinstated, Credited, AuditKeyCommitted, AuditKeyRevealed,
        Heartbeat, Control, DeadLetter,
    )
}  # fmt: skip
"""Every event by the name that the wire's schema header carries."""

__all__ = [
    "EVENTS", "AuditKeyCommitted", "AuditKeyRevealed", "BatchFormed", "Check", "Completion", "Control",
    "Credited", "DeadLetter", "EvalCompleted", "Event", "File", "GroupRef", "Heartbeat", "Judgement",
    "LineageStarted", "Manifest", "PolicyPublished", "Proof", "Quarantined", "Reinstated", "Rollouts",
    "RunCreated", "RunEnded", "Sampling", "Score", "Segment", "Slashed", "Span", "Standing", "StepCompleted",
    "Struct", "TaskClosed", "TaskGranted", "Verdict", "WorkRequested", "WorkReturned", "WriterStarted",
]  # fmt: skip
