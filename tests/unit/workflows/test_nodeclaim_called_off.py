"""What AWS calls off just as it is acted upon, on the real server: the time-skipping one may fail for good a task that
cancels what is just over (ACTIVITY_UNKNOWN), once in some thirty times on a busy machine."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.served import served_by_temporal
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, has_come, scheduled, state_of
from tests.support.workflows.noticed import notice, ready_under
from tests.unit.workflows.test_nodeclaim_cycled import CYCLE, in_service
from tests.unit.workflows.test_warned_at_any_time import held_for_a_person


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """For once it skips nothing."""
    async with served_by_temporal() as environment:
        yield environment


async def test_what_aws_withdraws_puts_the_node_back_into_service(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, scheduledChange=CYCLE)
    fake.pods.blocked["web"] = "a budget"
    await notice(fake, skipping, handle, starts=await skipping.get_current_time() + timedelta(hours=48))
    await eventually(lambda: blocked(handle, "is emptied to be stopped"))
    await notice(fake, skipping, handle, status="withdrawn")
    await eventually(lambda: untouched(handle))
    assert in_service(fake) and fake.instances.entered == [] and await has_come(handle, Phase.READY)


async def test_what_is_over_again_by_the_time_that_a_drain_hears_of_it_fails_no_life(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await held_for_a_person(fake, skipping)
    await notice(fake, skipping, handle, "instanceStatus", source="status")
    await eventually(lambda: _is_stopped(handle))
    await notice(fake, skipping, handle, "instanceStatus", source="status", status="over")
    await eventually(lambda: _drains_again(handle))
    with suppress(RPCError):
        await notice(fake, skipping, handle, "spotInterruption")
    await handle.result()
    assert "db" in {*fake.pods.evicted, *(name for name, _ in fake.pods.forced)}


async def _is_stopped(handle: Handle) -> bool:
    """A drain was asked to end; it hears so by its next heartbeat."""
    events = (await handle.fetch_history()).events
    return any(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED for event in events)


async def _drains_again(handle: Handle) -> bool:
    """The drain was told anew, or had come to its end."""
    return await scheduled(handle, "drain_node") > 2 or not await has_come(handle, Phase.DRAIN)


async def untouched(handle: Handle) -> bool:
    state = await state_of(handle)
    return state.stop is None and state.blocked_by == ""
