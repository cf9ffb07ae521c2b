"""Promise 2 at the usual deadlines, which are too long to live through: on the time-skipping server."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import OVERDUE
from tenure.model.nodeclaim_state import Deadlines, Phase
from tenure.model.provisioning import Expected, PhaseTimes
from tenure.policy.lifecycle.deadlines import blocked_by
from tenure.policy.lifecycle.initialization import unknown
from tests.support.fakes.skipping import time_skipping
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import in_phase, state_of
from tests.support.workflows.lives import BUSY, JOINED, born

USUAL = Deadlines()
UNKNOWN = PhaseTimes(
    launch=unknown(USUAL.launch),
    registration=unknown(USUAL.registration),
    initialization=unknown(USUAL.initialization),
)
"""What the watch hands to a first node, of which nothing is known."""
SLACK = timedelta(seconds=30)


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def fake(skipping: WorkflowEnvironment) -> AsyncIterator[World]:
    async with World(skipping.client).working() as working:
        yield working


@pytest.mark.row("001-e")
@pytest.mark.parametrize(
    ("group", "minutes", "reason"), [("group-1", 5, "LaunchTimeout"), ("", 15, "RegistrationTimeout")]
)
async def test_a_launch_has_5_minutes_and_a_registration_15_from_birth(
    fake: World, skipping: WorkflowEnvironment, group: str, minutes: int, reason: str
) -> None:
    """One whose launch group is never answered, and one whose instance never joins."""
    annotations = {"tenure.sh/launch-group": group} if group else {}
    claim = await born(fake, skipping, annotations=annotations)
    outcome = await (await fake.start(claim, expected=Expected(otherwise=UNKNOWN))).result()
    assert outcome.reason == reason and reason in fake.events.reasons("a")
    assert claim.metadata.creation_timestamp
    took = (
        next(step.at for step in outcome.story if step.phase is Phase.TERMINATION) - claim.metadata.creation_timestamp
    )
    assert timedelta(minutes=minutes) <= took < timedelta(minutes=minutes) + SLACK
    assert fake.claims.found == {} and fake.instances.running == {}


@pytest.mark.row("001-h")
async def test_a_node_that_is_ready_only_after_6_minutes_was_slow_and_never_stuck(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await fake.start(await born(fake, skipping), expected=Expected(otherwise=UNKNOWN))
    await in_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED)
    await in_phase(handle, Phase.INITIALIZATION)
    await skipping.sleep(timedelta(minutes=2))
    assert not (await state_of(handle)).slow
    await skipping.sleep(timedelta(minutes=4))
    state = await state_of(handle)
    assert state.slow and blocked_by(state).startswith("slow: NodeNotReady")
    assert not state.overdue and fake.claims.condition("a", OVERDUE) == ""
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    assert not {"InitializationOverdue", "InitializationTimeout"} & set(fake.events.reasons("a"))
    assert list(fake.claims.found) == ["a"]
