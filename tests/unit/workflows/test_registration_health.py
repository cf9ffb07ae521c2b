"""The condition NodeRegistrationHealthy of a NodePool, from the lives of its NodeClaims."""

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.model.launch import LaunchRefused
from tenure.model.observations import PoolSeen
from tests.support.fakes.worker import SHORTLY, World
from tests.support.workflows.eventually import eventually, idle, in_time, rolled, state_of
from tests.support.workflows.lives import launched, pool, ready
from workflows.nodepool import NodePoolWorkflow


def shown(fake: World, text: str) -> Any:
    async def holds() -> bool:
        return str(fake.pools.statuses.get("default", {}).get("NodeRegistrationHealthy", "")) == text

    return holds


async def never_joins(fake: World, skipping: WorkflowEnvironment, name: str) -> None:
    assert await given_up(fake, skipping, name, minutes=1) == "RegistrationTimeout"


async def given_up(fake: World, skipping: WorkflowEnvironment, name: str, **step: float) -> str:
    """The reason for which a NodeClaim that was just made goes. Time moves in steps: awaited as a result, it would run
    on to the end of the pool's workflow, which has no timer."""
    handle = await fake.start(fake.claims.add(name, born=await skipping.get_current_time()))

    async def gone() -> bool:
        return name not in fake.claims.found

    await in_time(skipping, gone, **step)
    return (await state_of(handle)).disruption


async def test_it_is_unknown_first_and_true_once_a_node_registered(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await pool(fake)
    await eventually(shown(fake, "Unknown"))
    await ready(fake, skipping)
    conditions = fake.claims.found["a"]["status"]["conditions"]
    for one in conditions:
        one["lastTransitionTime"] = (await skipping.get_current_time()).isoformat()
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, registered=1))
    await eventually(shown(fake, "True"))


async def test_two_nodeclaims_that_never_join_make_it_false_and_two_failures_survive_continue_as_new(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: Any
) -> None:
    monkeypatch.setattr("workflows.activity_options.ROLL_AT_EVENTS", 30)
    pools = await pool(fake)
    await never_joins(fake, skipping, "a")
    await in_time(skipping, shown(fake, "True"))
    for number in range(2, 12):
        await idle(pools, patience=SHORTLY)
        await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=number, generation=1, usage=str(number)))
        await skipping.sleep(timedelta(seconds=1))
    await eventually(lambda: rolled(fake.client, pools))
    await never_joins(fake, skipping, "b")
    await in_time(skipping, shown(fake, "False RegistrationFailed"))


async def test_launches_that_ec2_refuses_count_with_ec2s_reason_and_those_without_room_do_not(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    fake.fleet.capacity = 0
    for name in ("a", "b", "c"):
        assert await given_up(fake, skipping, name) == "InsufficientCapacity"
    assert (await pools.query(NodePoolWorkflow.state)).registrations.outcomes == ()
    fake.fleet.refusal = LaunchRefused(reason="UnauthorizedOperation", message="no", final=True)
    for name in ("d", "e"):
        assert await given_up(fake, skipping, name) == "UnauthorizedOperation"
    await in_time(skipping, shown(fake, "False UnauthorizedOperation"))


async def test_a_pool_without_a_workflow_holds_up_no_clean_up(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await launched(fake, skipping)
    assert (await handle.result()).reason == "RegistrationTimeout"
    assert fake.instances.running == {}
