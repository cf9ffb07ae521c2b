"""A registered Node that no longer exists: its report, and the deletion of its NodeClaim.

A kubelet does not register again by itself. A Node comes back only if the kubelet restarts.
"""

from datetime import datetime, timedelta
from typing import Final

from tenure.apis import labels
from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules, Overdue
from tenure.model.nodeclaim.requests import InstanceStatus
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tenure.policy.interruption.decision import maintenance_until

DEFAULT_DEADLINE: Final = timedelta(minutes=15)
"""The time in which a Node must register after its launch (reference 3.5) is enough for a restarted kubelet."""
_PHASES: Final = (Phase.INITIALIZATION, Phase.READY)


def is_node_missing(state: NodeClaimState) -> bool:
    return state.node_missing_since is not None and state.phase in _PHASES


def missing_since(state: NodeClaimState, observed: ObservedNodeClaim, now: datetime) -> datetime | None:
    """When the Node was first missing, after this observation; None if it exists or the NodeClaim ends."""
    if not state.registered or observed.node_name or observed.deleting or not observed.exists:
        return None
    return state.node_missing_since or observed.not_ready_since or now


def describe_missing_node(state: NodeClaimState) -> str:
    """For the condition NodeMissing; empty if the Node exists, or before its instance was checked."""
    if not is_node_missing(state) or not state.instance_status.state:
        return ""
    return f"Node {state.node_name} no longer exists; {state.instance_status.describe()}"


def deletion_due_at(state: NodeClaimState, now: datetime) -> datetime | None:
    """When the NodeClaim of a missing Node is deleted. None: its policy keeps it, or its instance is stopped for
    maintenance. A stopped instance cannot bring its Node back, so its NodeClaim is deleted at once."""
    if not is_node_missing(state) or maintenance_until(state) is not None:
        return None
    if missing_node_action(state.observed.rules) == "alarm":
        return None
    if state.instance_status.is_stopped:
        return now
    return (state.node_missing_since or now) + missing_node_deadline(state.observed.rules)


def missing_node_action(rules: LifecycleRules | None) -> Overdue:
    return (rules.node_missing.when_overdue if rules and rules.node_missing else None) or "replace"


def missing_node_deadline(rules: LifecycleRules | None) -> timedelta:
    text = rules.node_missing.deadline if rules and rules.node_missing else None
    return parse_duration_or_none(text) or DEFAULT_DEADLINE


def blocker_of(status: InstanceStatus) -> str:
    return f"{labels.NODE_NOT_FOUND}: the Node no longer exists, and its instance is {status.state or 'gone'}"
