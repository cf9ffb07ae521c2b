"""The step that initializes a node is cut off after it has written, and repeated when the node looks otherwise."""

from collections.abc import Sequence
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import TryLater
from tenure.model.nodeclaim_state import Phase
from tenure.model.provider_results import ConditionPatch
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, in_phase, in_time, state_of
from tests.support.workflows.lives import BUSY, joined, ready


async def test_what_was_written_is_not_undone_by_a_node_that_is_not_ready_since(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    lose_the_answer(fake)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    assert fake.claims.condition("a", "Initialized").startswith("True")
    state = await state_of(handle)
    assert state.initialized and state.flaps == 0
    assert fake.nodes.found["node-a"].ready is False, "as it was when the step was repeated"


async def test_a_machine_that_rebooted_is_not_ready_for_what_was_written_before(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    fake.nodes.change("node-a", boot_id="boot-2", ready=False)
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2"})
    await eventually(lambda: blocked(handle, "NodeNotReady"))
    assert (await state_of(handle)).phase is Phase.INITIALIZATION
    assert fake.claims.condition("a", "Initialized").startswith("True"), "it never reverts"
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2", "node_ready": False})
    await in_time(skipping, lambda: told(fake), seconds=5)
    assert fake.claims.condition("a", "Initialized").startswith("True")


async def told(fake: World) -> bool:
    return any(reason == "Rebooted" and "NodeNotReady" in message for _, reason, message in fake.events.said)


def lose_the_answer(fake: World) -> None:
    """Of the call that says Initialized=True: it is done, the kubelet stops reporting, and the caller hears a fault."""
    patch = fake.claims.patch

    async def once(*args: Any, conditions: Sequence[ConditionPatch] = (), **kwargs: Any) -> Any:
        answer = await patch(*args, conditions=conditions, **kwargs)
        if any((one.type, one.status) == ("Initialized", "True") for one in conditions):
            fake.claims.patch = patch  # type: ignore[method-assign]
            fake.nodes.change("node-a", ready=False)
            raise TryLater("the connection was cut")
        return answer

    fake.claims.patch = once  # type: ignore[method-assign]
