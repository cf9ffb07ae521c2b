"""A NodeClaim workflow over many runs.

The tests use a real server: the time-skipping server may lose a signal to a run that is just continuing as new.
"""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.model.errors import TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.temporal_dev_server import served_by_temporal
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    has_continued_as_new,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
)
from tests.support.workflows.nodeclaim_workflows import (
    ALL_PHASES,
    BUSY,
    JOINED,
    delete_nodeclaim,
    launched_nodeclaim,
    ready_nodeclaim,
)


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A real server, which skips no time."""
    async with served_by_temporal() as environment:
        yield environment


async def test_long_running_workflow_continues_as_new_and_completes(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    handle = await ready_nodeclaim(fake)
    for number in range(30):
        await fake.signal_observed(handle, **{**BUSY, "node_ready": bool(number % 2)})
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    latest = latest_run(fake.client, handle)
    details = (await latest.query("__temporal_workflow_metadata")).current_details
    assert "node-a" in details.splitlines()[0] and "NodePool" in details and "EC2NodeClass" in details
    await delete_nodeclaim(fake, latest)
    outcome = await latest.result()
    assert [step.phase for step in outcome.history] == ALL_PHASES
    assert len(fake.instances.terminated) == 1


async def test_continue_as_new_in_every_phase_launches_one_instance(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of a few events, each run ends at its first idle wait."""
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 12)
    first = await launched_nodeclaim(fake)
    handle = latest_run(fake.client, first)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **JOINED)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await delete_nodeclaim(fake, handle)
    outcome = await first.result()
    assert await has_continued_as_new(fake.client, first)
    assert [step.phase for step in outcome.history] == ALL_PHASES
    assert len(fake.fleet.calls) == 1 and len(fake.instances.terminated) == 1


async def test_continue_as_new_does_not_wait_for_failing_read(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run repeats the live read of a NodeClaim that the watch reports as gone."""
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    handle = await ready_nodeclaim(fake)
    fake.claims.found.clear()
    fake.claims.faults["get"] = [TryLater("503") for _ in range(1000)]
    for _ in range(30):
        await fake.signal_observed(handle, exists=False)
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    latest = latest_run(fake.client, handle)
    assert (await query_state(latest)).phase is Phase.READY and fake.instances.terminated == []
    fake.claims.faults.clear()
    await latest.result()
    assert len(fake.instances.terminated) == 1
