"""Overdue commands and rollouts, from visibility."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecution
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from tenure.cli.nodes.stuck import BlockedState, StuckItem, command_item, rollout_item
from tests.unit.cli.nodes.test_workflows import START, execution
from workflows import ids, search_attributes


def workflow_execution(workflow_id: str, **values: Any) -> WorkflowExecution:
    pairs = [SearchAttributePair(getattr(search_attributes, name), value) for name, value in values.items()]
    attrs = TypedSearchAttributes(pairs)
    return dataclasses.replace(execution("x", Status.RUNNING), id=workflow_id, typed_search_attributes=attrs)


COMMAND = ids.disruption("demo", "12ab")
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("values", "is_overdue"),
    [
        ({"PHASE": "Wait", "DEADLINE": START + MINUTE}, False),
        ({"PHASE": "Wait", "DEADLINE": START - MINUTE}, True),
        ({"PHASE": "Undo", "PHASE_SINCE": START - 9 * MINUTE}, False),
        ({"PHASE": "Undo", "PHASE_SINCE": START - 11 * MINUTE, "BLOCKED_BY": "no answer"}, True),
        ({"PHASE": "Permit"}, False),
    ],
)
def test_command_past_deadline_or_with_long_rollback_is_overdue(values: dict[str, Any], is_overdue: bool) -> None:
    found = command_item(workflow_execution(COMMAND, **values), None, START)
    assert (found is not None) == is_overdue
    if found:
        assert found == StuckItem(
            "command 12ab",
            values["PHASE"],
            values.get("PHASE_SINCE"),
            values.get("BLOCKED_BY", "-"),
            values.get("BLOCKED_BY", ""),
        )


def test_rollout_names_its_blocker() -> None:
    execution = workflow_execution(ids.nodepool("demo", "web"), BLOCKED_BY="RolloutHalted")
    for state, message, sentence in (
        (None, "RolloutHalted", ""),
        (BlockedState(rollout_blocked_by="it is halted"), "needs attention: it is halted", "it is halted"),
    ):
        assert rollout_item(execution, state) == StuckItem(
            "rollout of NodePool web", "-", None, message, "RolloutHalted", sentence
        )


def test_overdue_command_names_blocker_from_query() -> None:
    execution = workflow_execution(COMMAND, PHASE="Wait", DEADLINE=START - MINUTE, BLOCKED_BY="ReplacementsNotReady")
    found = command_item(execution, BlockedState(blocked_by="waits for web-1"), START)
    assert found == StuckItem("command 12ab", "Wait", None, "waits for web-1", "ReplacementsNotReady")
