"""What a replacement says of itself."""

from typing import Any

import pytest

from tenure.model.disruption.commands import ReplacementMessage
from tenure.model.launch import LaunchRejection
from tenure.model.nodeclaim.state import Phase
from tenure.policy.disruption.commands import replacement_status
from tests.unit.policy.builders import node

REJECTED = LaunchRejection(reason="InsufficientCapacity", message="no m5.large")
CASES: dict[str, tuple[dict[str, Any], ReplacementMessage | None]] = {
    "ready": ({"phase": Phase.READY}, ReplacementMessage(claim="a", ready=True)),
    "on its way": ({"phase": Phase.REGISTRATION}, None),
    "it came late": ({"phase": Phase.READY, "reported_ready": True}, None),
    "it went later": ({"phase": Phase.DRAIN, "reported_ready": True}, None),
    "deleted before": (
        {"phase": Phase.DRAIN, "disruption": "Deleted"},
        ReplacementMessage(claim="a", ready=False, why="Deleted"),
    ),
    "refused": (
        {"phase": Phase.TERMINATION, "disruption": "LaunchFailed", "rejection": REJECTED},
        ReplacementMessage(claim="a", ready=False, why="LaunchFailed: InsufficientCapacity no m5.large"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_says(case: str) -> None:
    fields, expected = CASES[case]
    state = node(**fields)
    assert replacement_status(state) is None, "it replaces none"
    identity = state.identity.model_copy(update={"replaces": "demo/disruption/1"})
    assert replacement_status(state.model_copy(update={"identity": identity})) == expected
