"""Search attributes of workflows at their start and in each state, and workflow IDs for activities."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio.common import SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from tenure.model.disruption.commands import CommandState, Step
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tenure.model.rollout import RolloutState
from tenure.policy.lifecycle.verdict import verdict_of
from workflows import ids, search_attributes


def claim_start(identity: NodeClaimIdentity, deadline: datetime | None = None) -> TypedSearchAttributes:
    """Attributes in the start request cost no history event. `deadline`: of launch."""
    until = [SearchAttributePair(search_attributes.DEADLINE, deadline)] if deadline else []
    return TypedSearchAttributes(
        [
            *until,
            SearchAttributePair(search_attributes.NODE_POOL, identity.pool or "-"),
            SearchAttributePair(search_attributes.PHASE, Phase.LAUNCH.value),
            SearchAttributePair(search_attributes.PHASE_SINCE, identity.created),
            SearchAttributePair(search_attributes.OVERDUE, False),
        ]
    )


def nodeclaim_attributes(state: NodeClaimState) -> dict[str, SearchAttributeUpdate[Any]]:
    """All attributes of a state, by name. The caller upserts the changed ones in one batch."""
    launched, verdict = state.launched, verdict_of(state)
    deadline = state.deadline or state.waits_until
    values: list[SearchAttributeUpdate[Any]] = [
        search_attributes.PHASE.value_set(state.phase.value),
        search_attributes.OVERDUE.value_set(state.overdue),
        search_attributes.PAUSED.value_set(True) if state.pause else search_attributes.PAUSED.value_unset(),
        search_attributes.BLOCKED_BY.value_set(verdict.code) if verdict else search_attributes.BLOCKED_BY.value_unset(),
        search_attributes.NODE_NAME.value_set(state.node_name)
        if state.node_name
        else search_attributes.NODE_NAME.value_unset(),
        search_attributes.DEADLINE.value_set(deadline) if deadline else search_attributes.DEADLINE.value_unset(),
    ]
    if state.since:
        values.append(search_attributes.PHASE_SINCE.value_set(state.since))
    if launched:
        values += [
            search_attributes.INSTANCE_TYPE.value_set(launched.instance_type),
            search_attributes.ZONE.value_set(launched.zone),
            search_attributes.CAPACITY_TYPE.value_set(launched.capacity_type),
            search_attributes.INSTANCE_ID.value_set(launched.instance_id),
        ]
        if launched.price:
            values.append(search_attributes.PRICE.value_set(launched.price))
    return {update.key.name: update for update in values}


def command_start(pool: str, now: datetime) -> TypedSearchAttributes:
    """`pool`: the NodePool of the first candidate."""
    pairs = (
        SearchAttributePair(search_attributes.PHASE, "Permit"),
        SearchAttributePair(search_attributes.PHASE_SINCE, now),
    )
    return TypedSearchAttributes([SearchAttributePair(search_attributes.NODE_POOL, pool), *pairs])


def rollout_attributes(overdue: bool, state: RolloutState) -> list[SearchAttributeUpdate[Any]]:
    """Attributes of a NodePool. `overdue`: its rollout waits for an operator."""
    code = "RolloutHalted" if state.halted else "RolloutWaits"
    blocked = search_attributes.BLOCKED_BY.value_set(code) if overdue else search_attributes.BLOCKED_BY.value_unset()
    return [search_attributes.OVERDUE.value_set(overdue), blocked]


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
    since = [search_attributes.PHASE_SINCE.value_set(state.since)] if state.since else []
    return [
        search_attributes.PHASE.value_set(state.step),
        search_attributes.BLOCKED_BY.value_set(COMMAND_BLOCKERS[state.step])
        if state.blocked_by
        else search_attributes.BLOCKED_BY.value_unset(),
        search_attributes.DEADLINE.value_set(state.deadline)
        if state.deadline
        else search_attributes.DEADLINE.value_unset(),
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
