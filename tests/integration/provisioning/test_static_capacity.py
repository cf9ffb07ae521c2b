"""Static NodePools on real components: scaled as with kubectl, and kept across deleted nodes and killed workers."""

from functools import partial

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS, NODE_POOLS
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct


async def test_static_pool_has_the_scaled_number_of_nodes(own_product: DedicatedProduct) -> None:
    """The worker is killed while it creates NodeClaims; none is created twice."""
    await own_product.ensure_worker(FEATURE_GATES="StaticCapacity=true", BATCH_IDLE_DURATION="5s")
    async with own_product.scope("static", replicas=0, limits={"nodes": "7"}) as scope:
        await _scale(scope, 3)
        first = object_names(await wait_until(lambda: scope.assert_nodes_initialized(3)))
        assert len(scope.client_tokens()) == 1, "equal NodeClaims launch in one call"
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(3)
        await own_product.delete(NODE_CLAIMS.path(first[0]))
        await wait_until(partial(scope.assert_nodeclaims_deleted, first[:1]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_nodes_initialized(3))
        await scope.wait_until_nodes_launched(4)
        busy = await _node_of_the_pod(scope)
        await _scale(scope, 1)
        remaining = await wait_until(lambda: scope.assert_nodes_initialized(1))
        assert remaining[0]["status"]["nodeName"] == busy, "empty nodes are deleted first"
        await wait_until(lambda: scope.assert_instances_alive(1))
        await _scale(scope, 9)
        await wait_until(partial(_assert_created, scope, 2))
        await own_product.kill_worker()
        await own_product.resume_worker()
        await wait_until(lambda: scope.assert_nodes_initialized(7))
        await wait_until(
            partial(scope.assert_event, scope.name, labels.REPLICAS_WAIT, "7 of 9 nodes", "limits.nodes=7")
        )
        await assert_throughout(partial(_assert_at_most, scope, 7), seconds=5)
        await scope.wait_until_nodes_launched(10)
        await wait_until(partial(_assert_status_nodes, scope, 7))


async def test_static_pool_without_feature_gate_creates_nothing(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with own_product.scope("nogate", replicas=2) as scope:
        await wait_until(partial(_assert_gate_required, scope))
        await assert_throughout(partial(_assert_at_most, scope, 0), seconds=5)


async def _scale(scope: ClusterScope, replicas: int) -> None:
    """As `kubectl scale nodepool` does."""
    path = NODE_POOLS.path(scope.name, sub="scale")
    await scope.product.patch(path, {"spec": {"replicas": replicas}})


async def _node_of_the_pod(scope: ClusterScope) -> str:
    (pod,) = [one for one in await scope.pods() if "deletionTimestamp" not in one["metadata"]]
    return str(pod["spec"]["nodeName"])


async def _assert_created(scope: ClusterScope, at_least: int) -> list[Object]:
    claims = await scope.nodeclaims()
    assert len(claims) >= at_least, f"{scope.name}: {object_names(claims)}"
    return claims


async def _assert_at_most(scope: ClusterScope, count: int) -> None:
    claims = object_names(await scope.nodeclaims())
    assert len(claims) <= count, f"{scope.name}: NodeClaims {claims}"


async def _assert_status_nodes(scope: ClusterScope, nodes: int) -> None:
    """The NodePool's status has this number of nodes."""
    pool = await scope.product.kube.request("GET", scope.pool_path)
    assert pool["status"].get("nodes") == nodes, pool["status"]


async def _assert_gate_required(scope: ClusterScope) -> None:
    pool = await scope.product.kube.request("GET", scope.pool_path)
    assert condition_status(pool, labels.READY) == "False", pool.get("status")
    assert "FEATURE_GATES=StaticCapacity=true" in condition_reason(pool, labels.VALIDATION_SUCCEEDED), pool["status"]
