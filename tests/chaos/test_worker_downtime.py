"""The cluster changes while no worker runs; the next worker catches up."""

import asyncio
import re
from functools import partial

from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tests.support.paths import ROOT
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import node_pool
from tests.support.product.product import DedicatedProduct


async def test_pods_created_and_deleted_during_downtime_are_handled(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("grows") as grows, product.scope("shrinks") as shrinks:
        await grows.run_pods(1)
        remaining = await shrinks.run_pods(1)
        await product.stop_workers()
        await grows.scale_deployment(2)
        await shrinks.scale_deployment(0)
        await product.resume_worker()
        await wait_until(lambda: grows.assert_pods_running(2))
        await grows.wait_until_nodes_launched(2)
        await wait_until(lambda: shrinks.assert_nodeclaims_deleted(object_names(remaining)))


async def test_nodeclaims_deleted_and_created_during_downtime_are_handled(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("deleted") as deleted, product.scope("made") as created:
        (claim,) = await deleted.run_pods(1)
        await product.stop_workers()
        await product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
        name = await created.create_standalone_nodeclaim()
        await product.resume_worker()
        await wait_until(lambda: deleted.assert_nodeclaims_deleted(object_names([claim])))
        await wait_until(lambda: deleted.assert_pods_running(1))
        await wait_until(lambda: created.assert_nodes_initialized(1))
        assert object_names(await created.nodeclaims()) == [name] and len(created.launched_instances()) == 1


async def test_nodepool_changed_during_downtime_applies(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("patient", after="Never") as scope:
        claims = await scope.run_pods(1)
        await scope.scale_deployment(0)
        await product.stop_workers()
        await scope.apply_manifest(node_pool(scope.name, after="1s"))
        await product.resume_worker()
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)))


async def test_nodepool_deleted_during_downtime_deletes_its_nodes(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("dropped") as scope:
        claims = await scope.run_pods(1)
        await product.stop_workers()
        await product.delete(scope.pool_path)
        await product.resume_worker()
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)))
        await wait_until(scope.assert_all_removed)


async def test_node_removed_manually_as_documented_is_replaced(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("hand", after="Never") as scope:
        claims, nodes = await scope.run_pods(1), await scope.nodes()
        (instance,) = scope.alive_instances()
        await product.stop_workers()
        found = await _instances_found_by_documented_filters(product)
        assert instance in found
        ec2 = product.admin_client("ec2")
        await asyncio.to_thread(ec2.terminate_instances, InstanceIds=[instance])
        for path in (*map(NODE_CLAIMS.path, object_names(claims)), *map(NODES.path, object_names(nodes))):
            await product.patch(path, {"metadata": {"finalizers": None}})
            await product.delete(path)
            await wait_until(partial(product.assert_deleted, path))
        await product.resume_worker()
        await wait_until(lambda: _assert_workflow_closed(scope, *object_names(claims)))
        await wait_until(lambda: scope.wait_until_nodes_launched(2))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_instances_alive(1)
        assert await product.failed_workflows() == []


async def _instances_found_by_documented_filters(product: DedicatedProduct) -> list[str]:
    """By the filters of the command in docs/getting-started/install.md, for users without a running worker."""
    page = (ROOT / "docs" / "getting-started" / "install.md").read_text()
    written = re.findall(r"Name=([^,\s]+),Values=(\S+)", page.replace("CLUSTER", product.own_sandbox.plan.cluster_name))
    filters = [{"Name": name, "Values": values.split(",")} for name, values in written]
    assert len(filters) == 3
    response = await asyncio.to_thread(product.admin_client("ec2").describe_instances, Filters=filters)
    return [one["InstanceId"] for group in response["Reservations"] for one in group["Instances"]]


async def _assert_workflow_closed(scope: ClusterScope, name: str) -> None:
    assert not (await scope.nodeclaim_workflow(name)).open
