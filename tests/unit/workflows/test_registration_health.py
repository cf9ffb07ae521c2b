"""The condition NodeRegistrationHealthy of a NodePool follows the registration outcomes of its NodeClaims."""

from typing import Any

from tenure.model.launch import LaunchRejection
from tenure.model.observations import ObservedNodePool
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.eventually import (
    has_continued_as_new,
    query_state,
    wait_until,
    wait_until_idle,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import launched_nodeclaim, ready_nodeclaim, start_nodepool
from workflows.nodepool import NodePoolWorkflow


def has_registration_health(fake: WorkerHarness, text: str) -> Any:
    async def holds() -> bool:
        return str(fake.pools.statuses.get("default", {}).get("NodeRegistrationHealthy", "")) == text

    return holds


async def assert_registration_timeout(fake: WorkerHarness, name: str) -> None:
    assert await failure_reason(fake, name, minutes=1) == "RegistrationTimeout"


async def failure_reason(fake: WorkerHarness, name: str, **step: float) -> str:
    """The reason of the deletion of a new NodeClaim.

    Time moves in steps: a client that awaits the result would skip to the end of the NodePool workflow, which has no
    timer.
    """
    handle = await fake.start(fake.claims.add(name, born=await fake.now()))

    async def is_deleted() -> bool:
        return name not in fake.claims.found

    await wait_until_skipping_time(fake, is_deleted, **step)
    return (await query_state(handle)).disruption


async def test_condition_is_unknown_until_first_registration(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    await wait_until(has_registration_health(fake, "Unknown"))
    await ready_nodeclaim(fake)
    conditions = fake.claims.found["a"]["status"]["conditions"]
    for one in conditions:
        one["lastTransitionTime"] = (await fake.now()).isoformat()
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, registered=1))
    await wait_until(has_registration_health(fake, "True"))


async def test_two_registration_timeouts_set_condition_false_across_runs(fake: WorkerHarness, monkeypatch: Any) -> None:
    monkeypatch.setattr("workflows.activity_options.CONTINUE_AS_NEW_AT_EVENTS", 30)
    pools = await start_nodepool(fake)
    await assert_registration_timeout(fake, "a")
    await wait_until_skipping_time(fake, has_registration_health(fake, "True"))
    for number in range(2, 12):
        await wait_until_idle(pools, timeout=IDLE_TIMEOUT_SECONDS)
        await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=number, generation=1, usage=str(number)))
        await fake.sleep(seconds=1)
    await wait_until(lambda: has_continued_as_new(fake.client, pools))
    await assert_registration_timeout(fake, "b")
    await wait_until_skipping_time(fake, has_registration_health(fake, "False RegistrationFailed"))


async def test_rejected_launches_count_but_insufficient_capacity_does_not(fake: WorkerHarness) -> None:
    pools = await start_nodepool(fake)
    fake.fleet.capacity = 0
    for name in ("a", "b", "c"):
        assert await failure_reason(fake, name) == "InsufficientCapacity"
    assert (await pools.query(NodePoolWorkflow.state)).registrations.outcomes == ()
    fake.fleet.rejection = LaunchRejection(reason="UnauthorizedOperation", message="no", final=True)
    for name in ("d", "e"):
        assert await failure_reason(fake, name) == "UnauthorizedOperation"
    await wait_until_skipping_time(fake, has_registration_health(fake, "False UnauthorizedOperation"))


async def test_missing_nodepool_workflow_does_not_block_cleanup(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    assert (await handle.result()).reason == "RegistrationTimeout"
    assert fake.instances.running == {}
