"""Rates: what went counts, by whom it went, and after the NodePool's workflow was lost."""

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import DISRUPTED_LATELY
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.observations import PoolSeen
from tenure.model.operator_requests import Unread
from tenure.model.signals import PermitWithdrawn
from tenure.model.workflow_states import PoolState
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time
from tests.support.workflows.lives import pool
from tests.unit.workflows.test_nodepool import answers, ask, granted, refused, standing
from workflows import ids
from workflows.nodepool import NodePoolWorkflow

ONE_AN_HOUR = DisruptionRules.model_validate({"rates": [{"nodes": "1", "within": "1h"}]})


async def rated(fake: World) -> Any:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "100%"}])
    await see(pools, 2)
    return pools


async def see(pools: Any, number: int, **seen: Any) -> None:
    found = {"rules": ONE_AN_HOUR, "usage": f"{number}", **seen}
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=number, generation=1, **found))


async def goes(fake: World, skipping: WorkflowEnvironment, pools: Any, *, used: bool) -> None:
    """A command takes the node away, or leaves it, and gives its permit back."""
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: granted(fake, "a"))
    if used:
        fake.claims.give("a", deleting=True)
    await pools.signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid="uid-a", workflow_id="a", used=used))


async def test_a_node_that_a_command_left_counts_not(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await rated(fake)
    await goes(fake, skipping, pools, used=False)
    await ask(fake, skipping, pools, "b")
    await in_time(skipping, lambda: granted(fake, "b"))


async def test_a_node_that_a_command_took_counts(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await rated(fake)
    await goes(fake, skipping, pools, used=True)
    await ask(fake, skipping, pools, "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    assert "rate 1 of 2 nodes within 1h: 1 went" in (await answers(fake, "b"))[0].blocked_by
    assert [one.uid for one in (await pools.query(NodePoolWorkflow.state)).past] == ["uid-a"]
    await skipping.sleep(timedelta(minutes=55))
    assert not await granted(fake, "b")
    await in_time(skipping, lambda: granted(fake, "b"), seconds=30)


async def test_what_went_counts_though_the_workflow_was_lost(fake: World, skipping: WorkflowEnvironment) -> None:
    pools = await rated(fake)
    await goes(fake, skipping, pools, used=True)
    del fake.claims.found["a"]
    await see(pools, 3)
    await eventually(lambda: recorded(fake))
    await pools.terminate()
    anew = await fake.client.start_workflow(
        NodePoolWorkflow.run,
        PoolState(cluster=fake.cluster, name="default"),
        id=ids.nodepool(fake.cluster, "default"),
        task_queue=ids.task_queue(fake.cluster),
        start_signal="seen",
        start_signal_args=[PoolSeen(number=4, generation=1, rules=ONE_AN_HOUR)],
    )
    await ask(fake, skipping, anew, "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    assert "1 went" in (await answers(fake, "b"))[0].blocked_by


async def recorded(fake: World) -> bool:
    return "uid-a" in annotation(fake)


async def forgotten(fake: World) -> bool:
    return annotation(fake) == ""


def annotation(fake: World) -> str:
    return fake.pools.found["default"].metadata.annotations.get(DISRUPTED_LATELY, "")


async def test_rates_that_cannot_be_read_for_a_while_forget_nothing_and_without_rates_nothing_is_kept(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await rated(fake)
    await goes(fake, skipping, pools, used=True)
    await see(pools, 3)
    await eventually(lambda: recorded(fake))
    await see(pools, 4, rules=None, unread=Unread(disruption="LifecyclePolicy p: no"))
    await ask(fake, skipping, pools, "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    assert len((await pools.query(NodePoolWorkflow.state)).past) == 1 and await recorded(fake)
    await see(pools, 5, rules=None)
    await in_time(skipping, lambda: granted(fake, "b"))
    await eventually(lambda: forgotten(fake))


async def test_a_pool_without_rates_carries_no_record(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a")
    await goes(fake, skipping, await pool(fake, budgets=[{"nodes": "100%"}]), used=True)
    await skipping.sleep(timedelta(minutes=1))
    assert DISRUPTED_LATELY not in fake.pools.found["default"].metadata.annotations
