"""Search attributes of workflows at their start and in each state, and workflow IDs for activities."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio.common import SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from tenure.model.disruption.commands import CommandState, Step
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tenure.model.rollout import RolloutState
from tenure.policy.lifecycle.verdict import verdict_of
from workflows import ids
from workflows.search_attributes import (
    BLOCKED_BY,
    CAPACITY_TYPE,
    DEADLINE,
    INSTANCE_ID,
    INSTANCE_TYPE,
    NODE_NAME,
    NODE_POOL,
    OVERDUE,
    PAUSED,
    PHASE,
    PHASE_SINCE,
    PRICE,
    ZONE,
)


def claim_start(identity: NodeClaimIdentity, deadline: datetime | None = None) -> TypedSearchAttributes:
    """Attributes in the start request cost no history event. `deadline`: of launch."""
    until = [SearchAttributePair(DEADLINE, deadline)] if deadline else []
    return TypedSearchAttributes(
        [
            *until,
            SearchAttributePair(NODE_POOL, identity.pool or "-"),
            SearchAttributePair(PHASE, Phase.LAUNCH.value),
            SearchAttributePair(PHASE_SINCE, identity.created),
            SearchAttributePair(OVERDUE, False),
        ]
    )


def nodeclaim_attributes(state: NodeClaimState) -> dict[str, SearchAttributeUpdate[Any]]:
    """All attributes of a state, by name. The caller upserts the changed ones in one batch."""
    launched, verdict = state.launched, verdict_of(state)
    deadline = state.deadline or state.waits_until
    values: list[SearchAttributeUpdate[Any]] = [
        PHASE.value_set(state.phase.value),
        OVERDUE.value_set(state.overdue),
        PAUSED.value_set(True) if state.pause else PAUSED.value_unset(),
        BLOCKED_BY.value_set(verdict.code) if verdict else BLOCKED_BY.value_unset(),
        NODE_NAME.value_set(state.node_name) if state.node_name else NODE_NAME.value_unset(),
        DEADLINE.value_set(deadline) if deadline else DEADLINE.value_unset(),
    ]
    if state.since:
        values.append(PHASE_SINCE.value_set(state.since))
    if launched:
        values += [
            INSTANCE_TYPE.value_set(launched.instance_type),
            ZONE.value_set(launched.zone),
            CAPACITY_TYPE.value_set(launched.capacity_type),
            INSTANCE_ID.value_set(launched.instance_id),
        ]
        if launched.price:
            values.append(PRICE.value_set(launched.price))
    return {update.key.name: update for update in values}


def command_start(pool: str, now: datetime) -> TypedSearchAttributes:
    """`pool`: the NodePool of the first candidate."""
    pairs = (SearchAttributePair(PHASE, "Permit"), SearchAttributePair(PHASE_SINCE, now))
    return TypedSearchAttributes([SearchAttributePair(NODE_POOL, pool), *pairs])


def rollout_attributes(overdue: bool, state: RolloutState) -> list[SearchAttributeUpdate[Any]]:
    """Attributes of a NodePool. `overdue`: its rollout waits for an operator."""
    code = "RolloutHalted" if state.halted else "RolloutWaits"
    blocked = BLOCKED_BY.value_set(code) if overdue else BLOCKED_BY.value_unset()
    return [OVERDUE.value_set(overdue), blocked]


COMMAND_BLOCKERS: dict[Step, str] = {
    "Permit": "PermitDenied",
    "Begin": "NotTainted",
    "Replace": "PlannerUnavailable",
    "Wait": "ReplacementsNotReady",
    "Finish": "LiveStateDiffers",
    "Undo": "RollbackFailed",
}
"""The blocker code of a command, by step."""


def command_attributes(state: CommandState) -> list[SearchAttributeUpdate[Any]]:
    since = [PHASE_SINCE.value_set(state.since)] if state.since else []
    return [
        PHASE.value_set(state.step),
        BLOCKED_BY.value_set(COMMAND_BLOCKERS[state.step]) if state.blocked_by else BLOCKED_BY.value_unset(),
        DEADLINE.value_set(state.deadline) if state.deadline else DEADLINE.value_unset(),
        *since,
    ]


@dataclass(frozen=True)
class WorkflowNames:
    cluster: str

    def nodeclaim_workflow_id(self, claim_name: str, uid: str) -> str:
        return ids.nodeclaim(self.cluster, claim_name, uid)

    def provisioning_id(self) -> str:
        return ids.provisioning(self.cluster)

    def task_queue(self) -> str:
        return ids.task_queue(self.cluster)

    def search_attributes(self, identity: NodeClaimIdentity) -> TypedSearchAttributes:
        return claim_start(identity)
