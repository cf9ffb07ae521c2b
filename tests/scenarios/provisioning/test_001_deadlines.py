"""Promise 2 with default deadlines, which are too long for real time: on the time-skipping server."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import NEEDS_ATTENTION
from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.model.plan import ExpectedDurations, PhaseDurations
from tenure.policy.lifecycle.initialization import default_expected_duration
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import query_state, wait_until_phase
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED, create_nodeclaim

DEFAULTS = Deadlines()
UNKNOWN_DURATIONS = PhaseDurations(
    launch=default_expected_duration(DEFAULTS.launch),
    registration=default_expected_duration(DEFAULTS.registration),
    initialization=default_expected_duration(DEFAULTS.initialization),
)
"""The watch's expected durations for a first node, without measurements."""
SLACK = timedelta(seconds=30)


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def fake(skipping: WorkflowEnvironment) -> AsyncIterator[WorkerHarness]:
    async with WorkerHarness.on(skipping).running_worker() as harness:
        yield harness


@pytest.mark.row("001-e")
@pytest.mark.parametrize(
    ("group", "minutes", "reason"), [("group-1", 5, "LaunchTimeout"), ("", 15, "RegistrationTimeout")]
)
async def test_launch_times_out_after_5_minutes_and_registration_after_15(
    fake: WorkerHarness, group: str, minutes: int, reason: str
) -> None:
    """A NodeClaim whose launch group gets no result, and one whose instance never registers."""
    annotations = {"tenure.sh/launch-group": group} if group else {}
    claim = await create_nodeclaim(fake, annotations=annotations)
    outcome = await (await fake.start(claim, expected=ExpectedDurations(default=UNKNOWN_DURATIONS))).result()
    assert outcome.reason == reason and reason in fake.events.reasons_for("a")
    assert claim.metadata.creation_timestamp
    elapsed = (
        next(step.at for step in outcome.history if step.phase is Phase.TERMINATION) - claim.metadata.creation_timestamp
    )
    assert timedelta(minutes=minutes) <= elapsed < timedelta(minutes=minutes) + SLACK
    assert fake.claims.found == {} and fake.instances.running == {}


@pytest.mark.row("001-h")
async def test_node_ready_after_6_minutes_is_slow_but_not_overdue(fake: WorkerHarness) -> None:
    handle = await fake.start(await create_nodeclaim(fake), expected=ExpectedDurations(default=UNKNOWN_DURATIONS))
    await wait_until_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **JOINED)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    await fake.sleep(minutes=2)
    assert not (await query_state(handle)).slow
    await fake.sleep(minutes=4)
    state = await query_state(handle)
    assert state.slow and describe_blocker(state).startswith("slow: NodeNotReady")
    assert not state.overdue and fake.claims.condition_text("a", NEEDS_ATTENTION) == ""
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    assert not {"InitializationOverdue", "InitializationTimeout"} & set(fake.events.reasons_for("a"))
    assert list(fake.claims.found) == ["a"]
