"""Voluntary disruption on the real parts: what drifted is replaced, replacement first; half-empty nodes become one."""

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.disruption.commands import DisruptionState
from tests.support.product.eventually import eventually
from tests.support.product.halves import CONSOLIDATES, half_empty, one_is_left, small_pods
from tests.support.product.objects import Object
from tests.support.product.product import Product
from tests.support.product.scene import Scene, condition, names
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow

SCARCE = "c5.large"
"""That no other test of this act runs."""
PATIENCE = 240.0
"""Seconds for a command with a node's boot and another's drain in it."""


async def test_a_drifted_node_goes_once_its_replacement_is_there(product: Product) -> None:
    async with product.scene("drifted") as scene:
        (old,) = names(await scene.run(1))
        await product.patch(scene.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
        await eventually(lambda: _is_replaced(scene, old), seconds=PATIENCE)
        await eventually(lambda: scene.event(old, "DisruptionTerminating", "Drifted"))
        await eventually(lambda: scene.pods_run(1))
        (new,) = await eventually(lambda: scene.nodes_are_initialized(1))
        assert new["metadata"]["labels"]["team"] == "web"
        assert new["metadata"]["annotations"][labels.REPLACES]
        said = "DisruptionLaunching", "Launching NodeClaim: Drifted"
        await eventually(lambda: scene.event(new["metadata"]["name"], *said))
        await eventually(lambda: _tells_of_its_pods(scene))
        await scene.nodes_were_bought(2)
        await eventually(lambda: scene.instances_alive(1))


async def _is_replaced(scene: Scene, old: str) -> None:
    """At no look is the old node going while its replacement is not initialized; it is looked at first."""
    before = await scene.product.find(NODE_CLAIMS.path(old))
    new = [one for one in await scene.claims() if one["metadata"]["name"] != old]
    going = before is None or "deletionTimestamp" in before["metadata"]
    if going and [condition(one, "Initialized") for one in new] != ["True"]:
        pytest.fail(f"{old} goes, and its replacements are {[one.get('status') for one in new]}")
    assert before is None, f"{old} is there, beside {names(new)}"


async def _tells_of_its_pods(scene: Scene) -> None:
    claim = await _only_claim(scene)
    assert claim["status"].get("lastPodEventTime"), "when a pod came last"


async def _only_claim(scene: Scene) -> Object:
    claims = await scene.claims()
    assert len(claims) == 1, names(claims)
    return claims[0]


async def test_two_half_empty_nodes_become_one(product: Product) -> None:
    async with product.scene("halves") as scene:
        both = names(await half_empty(scene))
        await product.patch(scene.pool_path, {"spec": {"disruption": CONSOLIDATES}})
        left = await eventually(lambda: one_is_left(scene, both), seconds=PATIENCE)
        (gone,) = {*both} - {left}
        await eventually(lambda: scene.event(gone, "DisruptionTerminating", "Underutilized"))
        await eventually(lambda: scene.pods_run(2, small_pods(scene)))
        await scene.nodes_were_bought(2)
        await eventually(lambda: scene.instances_alive(1))
        (claim,) = await scene.claims()
        await eventually(lambda: scene.node_is_in_service(claim["status"]["nodeName"]))


async def test_a_node_whose_replacement_cannot_be_had_stays_in_service(product: Product) -> None:
    """And its pool is known for it; the other scenarios of this act are not held up."""
    async with product.scene("scarce", types=(SCARCE,)) as scene:
        (old,) = await scene.run(1)
        product.aws.set_pool(0, instance_type=SCARCE)
        try:
            await product.patch(scene.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
            await eventually(lambda: _is_remembered(scene), seconds=PATIENCE)
            await scene.claims_stand(names([old]))
            await eventually(lambda: scene.nodes_are_initialized(1))
            await eventually(lambda: scene.node_is_in_service(old["status"]["nodeName"]))
            await eventually(lambda: _is_to_stay(scene))
            await eventually(lambda: scene.event(names([old])[0], "DisruptionBlocked", "Drifted", "replacement"))
            await scene.pods_run(1)
            assert len(scene.launched()) == 1
        finally:
            product.aws.clear_pools()


async def _is_to_stay(scene: Scene) -> None:
    now = await _only_claim(scene)
    assert not condition(now, labels.DISRUPTION_REASON), now["status"]


async def _is_remembered(scene: Scene) -> None:
    cluster = ids.cluster(scene.product.sandbox.plan.cluster_name)
    handle = scene.product.temporal.get_workflow_handle(cluster)
    try:
        state: DisruptionState = await handle.query(ClusterWorkflow.state)
    except (RPCError, WorkflowQueryFailedError) as error:
        raise AssertionError("the Cluster workflow does not answer just now") from error
    assert scene.name in {one.pool for one in state.bounced}, state
