"""Lifecycle conditions of a Node for the AWS events of its instance."""

from typing import Final

from tenure.apis import labels
from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import Event
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.provider_results import ConditionPatch
from tenure.policy.interruption.decision import describe_event, is_under_way, live_events

_SHUTDOWN_KINDS: Final[tuple[EventKind, ...]] = ("instanceStopping", "instanceTerminating")


def maintenance_conditions(state: NodeClaimState) -> dict[str, str]:
    """The message of each condition that is True now."""
    found: dict[str, str] = {}
    for event in live_events(state):
        for condition in _conditions_of(state, event):
            found.setdefault(condition, describe_event(event))
    return found


def _conditions_of(state: NodeClaimState, event: Event) -> list[str]:
    found = []
    if event.kind == "scheduledChange":
        is_started = is_under_way(state, event)
        found.append(labels.MAINTENANCE_IN_PROGRESS if is_started else labels.MAINTENANCE_PLANNED)
    stops_now = state.stop is not None and state.stop.key == event.key and state.stop.step == "stop"
    if event.kind in _SHUTDOWN_KINDS or stops_now:
        found.append(labels.GRACEFUL_SHUTDOWN)
    return found


def condition_changes(state: NodeClaimState) -> tuple[ConditionPatch, ...]:
    """The patches from the published conditions to the current ones."""
    current, published = maintenance_conditions(state), state.node_conditions
    return tuple(
        ConditionPatch(
            type=one,
            status="True" if one in current else "",
            reason=labels.NODE_MAINTENANCE if one in current else "",
            message=current.get(one, ""),
        )
        for one in labels.NODE_LIFECYCLE_CONDITIONS
        if current.get(one) != published.get(one)
    )
