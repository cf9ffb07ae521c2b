"""A node's life in many runs, on the real server: the time-skipping one may lose what is told to a run that is just
being continued."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.served import served_by_temporal
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_phase, latest, rolled
from tests.support.workflows.lives import BUSY, JOINED, WHOLE_LIFE, delete, launched, ready


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """For once it skips nothing."""
    async with served_by_temporal() as environment:
        yield environment


async def test_a_long_life_continues_as_new_and_goes_on(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 60)
    handle = await ready(fake, skipping)
    for number in range(30):
        await fake.see(handle, **{**BUSY, "node_ready": bool(number % 2)})
    await eventually(lambda: rolled(fake.client, handle))
    follower = latest(fake.client, handle)
    await delete(fake, follower)
    outcome = await follower.result()
    assert [step.phase for step in outcome.story] == WHOLE_LIFE
    assert len(fake.instances.terminated) == 1


async def test_continuing_as_new_in_every_phase_buys_nothing_twice(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of a few events each run is left at its first calm wait."""
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 12)
    first = await launched(fake, skipping)
    handle = latest(fake.client, first)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.see(handle, **JOINED)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    await delete(fake, handle)
    outcome = await first.result()
    assert await rolled(fake.client, first)
    assert [step.phase for step in outcome.story] == WHOLE_LIFE
    assert len(fake.fleet.calls) == 1 and len(fake.instances.terminated) == 1
