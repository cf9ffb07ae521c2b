"""What a replacement says of itself."""

from typing import Any

import pytest

from tenure.model.disruption.commands import ReplacementSaid
from tenure.model.launch import LaunchRefused
from tenure.model.nodeclaim_state import Phase
from tenure.policy.disruption.commands import replacement_says
from tests.unit.policy.builders import node

REFUSED = LaunchRefused(reason="InsufficientCapacity", message="no m5.large")
CASES: dict[str, tuple[dict[str, Any], ReplacementSaid | None]] = {
    "ready": ({"phase": Phase.READY}, ReplacementSaid(claim="a", ready=True)),
    "on its way": ({"phase": Phase.REGISTRATION}, None),
    "it came late": ({"phase": Phase.READY, "said_ready": True}, None),
    "it went later": ({"phase": Phase.DRAIN, "said_ready": True}, None),
    "deleted before": (
        {"phase": Phase.DRAIN, "disruption": "Deleted"},
        ReplacementSaid(claim="a", ready=False, why="Deleted"),
    ),
    "refused": (
        {"phase": Phase.TERMINATION, "disruption": "LaunchFailed", "refused": REFUSED},
        ReplacementSaid(claim="a", ready=False, why="LaunchFailed: InsufficientCapacity no m5.large"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_says(case: str) -> None:
    fields, said = CASES[case]
    state = node(**fields)
    assert replacement_says(state) is None, "it replaces none"
    identity = state.identity.model_copy(update={"replaces": "demo/disruption/1"})
    assert replacement_says(state.model_copy(update={"identity": identity})) == said
