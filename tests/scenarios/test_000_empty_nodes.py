"""Promise 1: an empty node goes away, or says why not."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter

import pytest

from tenure.kube.client.resources import NODES
from tenure.model.nodeclaim_state import Phase
from tenure.sandbox.fault_proxy import Answer
from tenure.sandbox.nodes.fault_rules import NeverRegister, NotReady
from tests.support.product.drains import drained_within, moments, terminating_pod
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import daemon_set, pod_spec, static_pod
from tests.support.product.product import Product
from tests.support.product.scene import names
from tests.support.product.shared_sandbox import FaultRule

AFTER = 4.0
"""consolidateAfter, in seconds."""
BOUND = AFTER + 60
TOLD = timedelta(seconds=25)
"""From the end of what used a budget up to the next drain: sooner than the next look."""


@pytest.mark.row("000-a")
async def test_emptied_nodes_all_go(product: Product) -> None:
    async with product.scene("000-a", after=f"{AFTER:g}s", budget="50%") as scene:
        claims = await scene.run(3)
        scaled = datetime.now(UTC)
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        for life in await scene.lives():
            assert (await product.lives.outcome(life)).reason == "Empty"
            came = await moments(scene, life)
            assert came[Phase.DRAIN] - came[Phase.READY] >= timedelta(seconds=AFTER)
        await drained_within(scene, names(claims), BOUND, since=scaled)
        await scene.nodes_were_bought(3)


@pytest.mark.row("000-b")
async def test_a_claim_that_lost_its_node_and_one_that_never_had_one_hold_up_no_other(product: Product) -> None:
    async with product.scene("000-b", after="2s") as scene:
        claims = await scene.run(3)
        phantom, *others = names(claims)
        await scene.trouble(NeverRegister(), count=1)
        await scene.scale(4)
        childless = await eventually(lambda: scene.newest_claim(4))
        await eventually(lambda: scene.says(childless, "NodeNotFound"))
        node = NODES.path(claims[0]["status"]["nodeName"])
        await product.patch(node, {"metadata": {"finalizers": None}})
        await product.delete(node)
        scaled = datetime.now(UTC)
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(others))
        await drained_within(scene, others, BOUND, since=scaled)
        await eventually(lambda: scene.event(phantom, "NodeNotFound", "left the cluster"))
        await eventually(lambda: scene.is_blocked_by(phantom, "NodeNotFound"))


@pytest.mark.row("000-c")
async def test_a_deletion_that_fails_takes_the_mark_off_and_is_tried_again(product: Product) -> None:
    async with product.scene("000-c") as scene:
        (claim,) = await scene.run(1)
        node = claim["status"]["nodeName"]
        for status in (409, 500):
            refused = scene.api_fault(Answer(status), f"/nodeclaims/{claim['metadata']['name']}$", "DELETE")
            await scene.scale(0)
            # After so many tries the next one takes its time, in which the pod finds the node in service.
            await eventually(partial(_was_tried, refused, 5))
            await eventually(lambda: scene.node_is_in_service(node))
            await scene.claims_stand(names([claim]))
            await scene.scale(1)
            await eventually(lambda: scene.pods_run(1))
            scene.pardon(refused)
        await scene.one_node_was_bought()
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(names([claim])))


async def _was_tried(rule: FaultRule, times: int) -> None:
    assert rule.hits >= times, f"tried {rule.hits} times"


@pytest.mark.row("000-e")
async def test_a_budget_that_rounds_to_nothing_is_named_by_node_and_pool(product: Product) -> None:
    """10 % of two nodes rounds up to one, and the node that is NotReady uses that up."""
    async with product.scene("000-e", after="1s", budget="10%") as scene:
        claims = await scene.run(2)
        broken = claims[0]["status"]["nodeName"]
        await scene.trouble(NotReady(), node=broken)
        await eventually(lambda: scene.node_is(broken, ready="False"))
        await scene.scale(0)
        words = ("budget 10% of 2 nodes allows 1", "1 in use")
        await eventually(lambda: scene.event(scene.name, "DisruptionBlocked", *words))
        for name in names(claims):
            await eventually(partial(scene.says, name, *words))
            await eventually(partial(scene.is_blocked_by, name, *words))
            await eventually(partial(scene.event, name, "DisruptionBlocked", *words))
        await throughout(lambda: scene.claims_stand(names(claims)), seconds=3)
        allowed = datetime.now(UTC)
        await product.patch(scene.pool_path, {"spec": {"disruption": {"budgets": [{"nodes": "2"}]}}})
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        await drained_within(scene, names(claims), BOUND, since=allowed)


@pytest.mark.row("000-e")
async def test_room_in_a_budget_is_told_of_and_not_looked_for(product: Product) -> None:
    """The node that used it up is Ready again when looks at the budget are a minute apart, and more."""
    async with product.scene("000-e-told", after="1s", budget="1") as scene:
        claims = await scene.run(2)
        broken = claims[0]["status"]["nodeName"]
        await scene.trouble(NotReady(), node=broken)
        await eventually(lambda: scene.node_is(broken, ready="False"))
        await scene.scale(0)
        for name in names(claims):
            await eventually(partial(scene.is_blocked_by, name, "budget 1 of 2 nodes allows 1", "1 in use"))
        await asyncio.sleep(40)
        back = await scene.node_is_well_again(broken)
        await eventually(lambda: scene.claims_are_gone(names(claims)))
        first, second = sorted(
            [await moments(scene, life) for life in await scene.lives()], key=itemgetter(Phase.DRAIN)
        )
        assert first[Phase.DRAIN] - back <= TOLD and second[Phase.DRAIN] - first[Phase.GONE] <= TOLD


@pytest.mark.row("000-h")
async def test_daemons_static_and_terminating_pods_do_not_make_a_node_occupied(product: Product) -> None:
    async with product.scene("000-h", after="2s") as scene:
        daemon = f"{scene.name}-daemon"
        await scene.make(daemon_set(daemon, pool=scene.name))
        (claim,) = await scene.run(1)
        node = await product.kube.request("GET", NODES.path(claim["status"]["nodeName"]))
        await scene.make(static_pod(f"{scene.name}-static", node))
        async with terminating_pod(scene) as leaving:
            await eventually(lambda: scene.pods_run(1, daemon))
            await scene.scale(0)
            await eventually(lambda: scene.claim_is_deleting(claim))
            still = await product.kube.request("GET", leaving)
            assert still["metadata"]["deletionTimestamp"] and await scene.pods(daemon)
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        (life,) = await scene.lives()
        assert (await product.lives.outcome(life)).reason == "Empty"


@pytest.mark.row("000-k")
async def test_pools_of_every_kind_scale_in_alike_and_trouble_stays_in_its_pool(product: Product) -> None:
    async with AsyncExitStack() as stack:
        cpu, gpu, spot, arm = [
            await stack.enter_async_context(product.scene("000-k", **pool))
            for pool in ({}, {"types": ["g4dn.xlarge"]}, {"capacity_type": "spot"}, {"types": ["m6g.large"]})
        ]
        device = {"containers": pod_spec(gpu.name, **{"nvidia.com/gpu": "1"})["containers"]}
        started = await asyncio.gather(cpu.run(1), gpu.run(1, **device), spot.run(1), arm.run(1))
        claims = [names(found) for found in started]
        (instance,) = gpu.alive()
        refusal = gpu.aws_fault("error", "TerminateInstances", instance, code="OperationNotPermitted", http=400)
        scaled = datetime.now(UTC)
        await asyncio.gather(*(scene.scale(0) for scene in (cpu, gpu, spot, arm)))
        for scene, gone in ((cpu, claims[0]), (spot, claims[2]), (arm, claims[3])):
            await eventually(partial(scene.claims_are_gone, gone))
            await drained_within(scene, gone, BOUND, since=scaled)
        assert gpu.alive() == [instance]
        gpu.forgive(refusal)
        await eventually(lambda: gpu.claims_are_gone(claims[1]))
