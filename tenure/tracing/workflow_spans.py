"""Spans that workflows record. A replay records nothing, as for metrics and logs, and reads no tracing state."""

from datetime import datetime

from temporalio import workflow

from tenure.model.launch import LaunchGroup
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.plan import LaunchDraft, PlanOutcome
from tenure.tracing import spans
from tenure.tracing.recorder import TRACES


def record_transition(before: NodeClaimState, next_phase: Phase, cause: str) -> None:
    """`before`: the state before the transition."""
    for span in spans.startup_spans(before, next_phase, cause, workflow.now()):
        _record(span)


def record_plan(outcome: PlanOutcome, start: datetime) -> None:
    """A blocked pass is repeated with the same ID, so only its end is recorded."""
    if not outcome.blocked:
        _record(spans.span_of_plan(outcome, start, workflow.now()))


def record_group(group: LaunchDraft | LaunchGroup, start: datetime) -> None:
    _record(spans.span_of_group(group, start, workflow.now()))


def _record(span: spans.FinishedSpan) -> None:
    if not workflow.unsafe.is_replaying():
        TRACES.record(span)
