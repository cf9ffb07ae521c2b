"""The spans of a node's startup: their IDs, parents, times and attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from tenure.model.launch import JOINED_PREFIX, LaunchGroup
from tenure.model.nodeclaim.history import Phase
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState
from tenure.model.plan import LaunchDraft, PlanOutcome

STARTUP_PHASES: Final = (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION)
_FAILED: Final = (Phase.DRAIN, Phase.TERMINATION, Phase.DELETED)
_MAX_NAMED: Final = 20
"""Names in one attribute."""


@dataclass(frozen=True, slots=True)
class SpanKey:
    """Names a span: its IDs are hashes of the keys. Spans with the same `trace` belong to one trace."""

    trace: str
    span: str

    @property
    def trace_id(self) -> int:
        return int.from_bytes(sha256(f"trace/{self.trace}".encode()).digest()[:16])

    @property
    def span_id(self) -> int:
        return int.from_bytes(sha256(f"span/{self.span}".encode()).digest()[:8])


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    name: str
    key: SpanKey
    parent: SpanKey | None
    start: datetime
    end: datetime
    attributes: Mapping[str, str | int | Sequence[str]] = field(default_factory=dict)
    error: str = ""
    """Why the operation failed; empty if it succeeded."""


def key_of_pending_pods(plan_id: str) -> SpanKey:
    """The root of a plan's trace."""
    return SpanKey(f"plan/{plan_id}", f"pods/{plan_id}")


def key_of_plan(plan_id: str) -> SpanKey:
    return SpanKey(f"plan/{plan_id}", f"plan/{plan_id}")


def key_of_group(group_id: str) -> SpanKey:
    """A group that no plan created is the root of its trace."""
    span = f"group/{group_id}"
    return SpanKey(span, span) if group_id.startswith(JOINED_PREFIX) else SpanKey(_plan_of(group_id).trace, span)


def key_of_nodeclaim(identity: NodeClaimIdentity) -> SpanKey:
    """A NodeClaim that no plan created is the root of its trace."""
    span = f"nodeclaim/{identity.uid}"
    return SpanKey(_plan_of(identity.group_id).trace if identity.group_id else span, span)


def key_of_phase(identity: NodeClaimIdentity, phase: Phase) -> SpanKey:
    nodeclaim = key_of_nodeclaim(identity)
    return SpanKey(nodeclaim.trace, f"{nodeclaim.span}/{phase}")


def _plan_of(group_id: str) -> SpanKey:
    return key_of_plan(group_id.rpartition("-")[0])


def span_of_pending_pods(
    plan_id: str, created: Mapping[str, datetime], *, began: datetime, end: datetime
) -> FinishedSpan:
    """`created`: creation times of the pods for which the plan creates nodes, by `namespace/name`. Without pods, the
    span starts with the plan (`began`)."""
    pods = sorted(created, key=lambda pod: (created[pod], pod))
    return FinishedSpan(
        "pending pods",
        key_of_pending_pods(plan_id),
        None,
        created[pods[0]] if pods else began,
        end,
        {"tenure.plan": plan_id, "tenure.pods": len(pods), "tenure.pod_names": pods[:_MAX_NAMED]},
    )


def span_of_plan(outcome: PlanOutcome, start: datetime, end: datetime) -> FinishedSpan:
    return FinishedSpan(
        "plan",
        key_of_plan(outcome.plan_id),
        key_of_pending_pods(outcome.plan_id),
        start,
        end,
        {
            "tenure.plan": outcome.plan_id,
            "tenure.nodeclaims": outcome.created,
            "tenure.unschedulable_pods": outcome.unschedulable,
        },
    )


def span_of_group(group: LaunchDraft | LaunchGroup, start: datetime, end: datetime) -> FinishedSpan:
    key = key_of_group(group.group_id)
    members = [one.name for one in group.members]
    return FinishedSpan(
        "launch group",
        key,
        None if key.trace == key.span else _plan_of(group.group_id),
        start,
        end,
        {
            "tenure.launch_group": group.group_id,
            "tenure.nodepool": group.pool,
            "tenure.nodeclaims": len(members),
            "tenure.nodeclaim_names": members[:_MAX_NAMED],
        },
    )


def is_starting(state: NodeClaimState) -> bool:
    """Whether the node has not been Ready before, and was not recovered from an existing node."""
    return (
        state.phase in STARTUP_PHASES
        and tuple(step.phase for step in state.history) == STARTUP_PHASES[: len(state.history)]
    )


def startup_spans(state: NodeClaimState, next_phase: Phase, cause: str, now: datetime) -> list[FinishedSpan]:
    """The spans that end with the transition to `next_phase`: the phase, and at the end the startup of the node.

    `state`: before the transition."""
    expected = (*STARTUP_PHASES, Phase.READY)[len(state.history)] if is_starting(state) else None
    if expected is None or next_phase not in (expected, *_FAILED):
        return []
    identity = state.identity
    error = f"{next_phase}: {cause}" if next_phase in _FAILED else ""
    nodeclaim = key_of_nodeclaim(identity)
    attributes = _describe_nodeclaim(state)
    phase = FinishedSpan(
        state.phase.value,
        key_of_phase(identity, state.phase),
        nodeclaim,
        state.since or identity.created,
        now,
        attributes,
        error,
    )
    if next_phase is expected and next_phase is not Phase.READY:
        return [phase]
    parent = key_of_group(identity.group_id) if identity.group_id else None
    return [phase, FinishedSpan("NodeClaim startup", nodeclaim, parent, identity.created, now, attributes, error)]


def _describe_nodeclaim(state: NodeClaimState) -> dict[str, str | int | Sequence[str]]:
    launched = state.launched
    found = {
        "tenure.nodeclaim": state.identity.name,
        "tenure.nodepool": state.identity.pool,
        "k8s.node.name": state.node_name,
        "host.type": launched.instance_type if launched else "",
        "cloud.availability_zone": launched.zone if launched else "",
        "tenure.capacity_type": launched.capacity_type if launched else "",
    }
    return {name: value for name, value in found.items() if value}
