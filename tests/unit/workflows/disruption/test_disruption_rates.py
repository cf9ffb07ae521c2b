"""Rates: past disruptions count by reason, also after the NodePool workflow was lost."""

from typing import Any

from tenure.apis.labels import RECENT_DISRUPTIONS
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.observations import ObservedNodePool
from tenure.model.operator_requests import InvalidRules
from tenure.model.signals import PermitRelease
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_nodepool_workflow
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import start_nodepool
from tests.unit.workflows.test_nodepool import (
    add_nodeclaims,
    have_permits,
    have_rejections,
    permit_decisions,
    request_permits,
)
from workflows.nodepool import NodePoolWorkflow

ONE_AN_HOUR = DisruptionRules.model_validate({"rates": [{"nodes": "1", "within": "1h"}]})


async def start_rate_limited_nodepool(fake: WorkerHarness) -> Any:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "100%"}])
    await signal_observed(pools, 2)
    return pools


async def signal_observed(pools: Any, number: int, **fields: Any) -> None:
    found = {"rules": ONE_AN_HOUR, "usage": f"{number}", **fields}
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=number, generation=1, **found))


async def run_command(fake: WorkerHarness, pools: Any, *, used: bool) -> None:
    """Request a permit, delete the node if `used`, and release the permit."""
    await request_permits(fake, pools, "a")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a"))
    if used:
        fake.claims.set_status("a", deleting=True)
    await pools.signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid="uid-a", workflow_id="a", used=used))


async def test_unused_permit_does_not_count_for_rate(fake: WorkerHarness) -> None:
    pools = await start_rate_limited_nodepool(fake)
    await run_command(fake, pools, used=False)
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))


async def test_used_permit_counts_for_rate(fake: WorkerHarness) -> None:
    pools = await start_rate_limited_nodepool(fake)
    await run_command(fake, pools, used=True)
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    assert "rate 1 of 2 nodes within 1h: 1 disrupted" in (await permit_decisions(fake, "b"))[0].blocked_by
    assert [one.uid for one in (await pools.query(NodePoolWorkflow.state)).past] == ["uid-a"]
    await fake.sleep(minutes=55)
    assert not await have_permits(fake, "b")
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"), seconds=30)


async def test_record_survives_lost_workflow(fake: WorkerHarness) -> None:
    pools = await start_rate_limited_nodepool(fake)
    await run_command(fake, pools, used=True)
    del fake.claims.found["a"]
    await signal_observed(pools, 3)
    await wait_until(lambda: "uid-a" in recent_disruptions_annotation(fake))
    await pools.terminate()
    restarted = await start_nodepool_workflow(fake)
    await signal_observed(restarted, 4)
    await request_permits(fake, restarted, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    assert "1 disrupted" in (await permit_decisions(fake, "b"))[0].blocked_by


def recent_disruptions_annotation(fake: WorkerHarness) -> str:
    return fake.pools.found["default"].metadata.annotations.get(RECENT_DISRUPTIONS, "")


async def test_record_is_kept_while_rates_are_unreadable_and_dropped_without_rates(fake: WorkerHarness) -> None:
    pools = await start_rate_limited_nodepool(fake)
    await run_command(fake, pools, used=True)
    await signal_observed(pools, 3)
    await wait_until(lambda: "uid-a" in recent_disruptions_annotation(fake))
    await signal_observed(pools, 4, rules=None, unread=InvalidRules(disruption="LifecyclePolicy p: no"))
    await request_permits(fake, pools, "b")
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, "b"))
    assert len((await pools.query(NodePoolWorkflow.state)).past) == 1 and (
        "uid-a" in recent_disruptions_annotation(fake)
    )
    await signal_observed(pools, 5, rules=None)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "b"))
    await wait_until(lambda: recent_disruptions_annotation(fake) == "")


async def test_nodepool_without_rates_has_no_record(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a")
    await run_command(fake, await start_nodepool(fake, budgets=[{"nodes": "100%"}]), used=True)
    await fake.sleep(minutes=1)
    assert RECENT_DISRUPTIONS not in fake.pools.found["default"].metadata.annotations
