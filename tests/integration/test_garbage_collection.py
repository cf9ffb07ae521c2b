"""Garbage collection on real components, under the shipped permissions: only orphaned resources are deleted."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from activities.garbage_collection.base import CACHE_SECONDS
from tenure.apis import labels
from tenure.cli.nodes.why import query_disruption_status
from tenure.kube.client.resources import NODE_CLAIMS, NODE_POOLS
from tenure.model.base import instance_id_of
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.garbage_collection import (
    ExternalAws,
    collect_garbage,
    collect_garbage_with_fresh_lists,
    paused_task,
)
from tests.support.product.product import DedicatedProduct, InstalledProduct

OLD = 3 * 3600.0
"""Seconds, more than any grace period."""
VALIDATION = "/validation/"
"""Part of the names of launch templates for EC2NodeClass validation, which exist only for seconds."""


async def test_only_orphaned_instances_are_terminated_with_their_nodes(own_product: DedicatedProduct) -> None:
    outside = ExternalAws(own_product)
    await own_product.ensure_worker()
    async with paused_task(own_product, "instances"), own_product.scope("garbage") as scope:
        await scope.run_pods(1)
        (own_instance,) = scope.alive_instances()
        orphan = await outside.launch_instance(own_instance)
        unknown_group = await outside.launch_instance(own_instance, **{labels.LAUNCH_GROUP: "a-plan-that-is-gone-0"})
        foreign = await outside.launch_instance(own_instance, cluster="somebody-elses")
        node = await wait_until(lambda: assert_node_joined(scope, orphan))
        for old in (own_instance, orphan, unknown_group, foreign):
            own_product.aws.backdate(old, OLD)
        young = await outside.launch_instance(own_instance)

        async def assert_collected() -> None:
            """Runs may use a list that is some seconds old, so the young instance stays young."""
            own_product.aws.backdate(young, -CACHE_SECONDS)
            await collect_garbage(own_product, "instances")
            await assert_running_instances(scope, [own_instance, foreign, young])

        await wait_until(assert_collected)
        await wait_until(lambda: assert_no_node(scope, node))
        await wait_until(lambda: scope.assert_event(scope.name, "GarbageCollected", orphan))
        await wait_until(lambda: own_product.metric_value("tenure_garbage_collection_collected_total", kind="instance"))
        await scope.assert_pods_running(1)
        for other in (foreign, young):
            own_product.aws.terminate_instance(other)
        await wait_until(lambda: assert_running_instances(scope, [own_instance]))


async def test_instance_with_a_lost_launch_response_is_not_collected(own_product: DedicatedProduct) -> None:
    """EC2 launched the instances, but every response is lost. Their NodeClaims still wait for them, whatever their
    age.
    """
    await own_product.ensure_worker()
    async with own_product.scope("garbage") as scope:
        fault = scope.inject_aws_fault("answer-lost", "CreateFleet")
        await scope.create_deployment(2)
        await wait_until(lambda: scope.assert_instances_alive(2))
        launched = scope.alive_instances()
        for one in launched:
            own_product.aws.backdate(one, OLD)
        await collect_garbage_with_fresh_lists(own_product, "instances")
        assert scope.alive_instances() == launched
        scope.remove_aws_fault(fault)
        await wait_until(lambda: scope.assert_nodes_initialized(2))
        await collect_garbage_with_fresh_lists(own_product, "instances")
        assert scope.alive_instances() == launched


async def test_nodeclaim_with_a_missing_instance_is_deleted(product: InstalledProduct) -> None:
    async with product.scope("garbage", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await scope.scale_deployment(0)
        elsewhere = {"status": {"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}}
        await product.patch(f"{NODE_CLAIMS.path(name)}/status", elsewhere)

        async def assert_collected() -> None:
            await collect_garbage(product, "nodeclaims")
            await scope.assert_event(name, "GarbageCollected", "i-0123456789abcdef0")

        await wait_until(assert_collected)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_orphaned_nodeclaim_is_owned_by_its_recreated_nodepool(product: InstalledProduct) -> None:
    async with product.scope("orphaned", after="Never") as scope:
        (name,) = object_names(await scope.run_pods(1))
        path = NODE_POOLS.path(scope.name)
        pool = await product.kube.request("GET", path)
        await product.kube.request("DELETE", path, {"propagationPolicy": "Orphan"})
        await wait_until(lambda: assert_owners(product, name, []))
        await wait_until(lambda: product.assert_deleted(path))
        await wait_until(lambda: assert_only_reason(product, name, "NoPool", f"NodePool {scope.name} not found"))
        recreated = await product.kube.request(
            "POST",
            NODE_POOLS.path(),
            {
                "apiVersion": pool["apiVersion"],
                "kind": "NodePool",
                "metadata": {"name": scope.name},
                "spec": pool["spec"],
            },
        )

        async def assert_owned() -> None:
            await collect_garbage(product, "nodeclaims")
            await assert_owners(product, name, [recreated["metadata"]["uid"]])

        await wait_until(assert_owned)
        await wait_until(lambda: scope.assert_event(name, "OwnerRestored", scope.name))
        await product.delete(path)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def assert_only_reason(product: InstalledProduct, nodeclaim: str, code: str, text: str) -> None:
    """`tenure why` shows one reason for which the node is not disrupted."""
    status = await query_disruption_status(product.temporal, product.connection.cluster, nodeclaim)
    excluded = [one for verdict in status.verdicts for one in verdict.excluded]
    assert [one.cause for one in excluded] == [code] and text in excluded[0].message, status


async def assert_owners(product: InstalledProduct, nodeclaim: str, uids: Sequence[str]) -> None:
    found = await product.kube.request("GET", NODE_CLAIMS.path(nodeclaim))
    assert [one["uid"] for one in found["metadata"].get("ownerReferences") or ()] == list(uids)


async def test_instances_are_tagged_after_their_node_registers(product: InstalledProduct) -> None:
    outside = ExternalAws(product)
    async with product.scope("garbage") as scope:
        claims = await scope.run_pods(2)

        async def assert_tagged() -> None:
            """Runs may use a list that is some seconds old."""
            await collect_garbage(product, "tags")
            for claim in claims:
                tags = await outside.instance_tags(instance_id_of(claim["status"]["providerID"]))
                assert tags.get(labels.TAG_NAME) == claim["status"]["nodeName"]
                assert tags[labels.TAG_NODECLAIM] == claim["metadata"]["name"]
                assert tags[labels.TAG_EKS_CLUSTER_NAME] == product.sandbox.plan.cluster_name

        await wait_until(assert_tagged)
        for claim in await scope.nodeclaims():
            assert claim["metadata"]["annotations"][labels.TAGGED] == "true"
            assert claim["metadata"]["annotations"][labels.CLUSTER_NAME_TAGGED] == "true"


async def test_only_unused_launch_templates_are_deleted(own_product: DedicatedProduct) -> None:
    """Also with a new worker, which does not know earlier launches."""
    outside = ExternalAws(own_product)
    await own_product.ensure_worker()
    async with own_product.scope("garbage") as scope:
        claims = await scope.run_pods(1)
        template_names = {
            one: name for one, name in (await outside.launch_templates(scope.name)).items() if VALIDATION not in name
        }
        assert template_names
        await own_product.stop_workers()
        await own_product.resume_worker()
        for template in template_names:
            own_product.aws.backdate(template, OLD)
        for _ in range(3):
            await collect_garbage(own_product, "launch-templates")
        await wait_until(lambda: assert_templates(outside, scope, template_names))
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)))
        await wait_until(lambda: scope.assert_instances_alive(0))

        async def assert_collected() -> None:
            await collect_garbage(own_product, "launch-templates")
            await assert_templates(outside, scope, {})

        await wait_until(assert_collected)
        await scope.scale_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: assert_template_names(outside, scope, [*template_names.values()]))


async def test_unreferenced_instance_profiles_are_deleted(own_product: DedicatedProduct) -> None:
    outside = ExternalAws(own_product)
    await own_product.ensure_worker()
    ((current, path),) = (await outside.instance_profiles()).items()
    orphan = await outside.create_instance_profile(f"{current[:30]}-left", path=path, role="KarpenterNodeRole-demo")
    own_product.aws.backdate(current, OLD)
    await collect_garbage(own_product, "instance-profiles")
    assert set(await outside.instance_profiles()) == {current, orphan}
    own_product.aws.backdate(orphan, OLD)
    await collect_garbage(own_product, "instance-profiles")
    assert set(await outside.instance_profiles()) == {current}


async def test_next_worker_continues_an_interrupted_collection(own_product: DedicatedProduct) -> None:
    outside = ExternalAws(own_product)
    await own_product.ensure_worker()
    async with own_product.scope("garbage") as scope:
        await scope.run_pods(1)
        (own_instance,) = scope.alive_instances()
        orphans = [await outside.launch_instance(own_instance) for _ in range(3)]
        slow = scope.inject_aws_fault("latency", "TerminateInstances", orphans[1], latency=20.0)
        for orphan in orphans:
            own_product.aws.backdate(orphan, OLD)
        done = asyncio.create_task(collect_garbage_with_fresh_lists(own_product, "instances"))
        await wait_until(partial(assert_fault_hit, scope, slow))
        await own_product.kill_worker()
        scope.remove_aws_fault(slow)
        await own_product.resume_worker()
        await done
        await wait_until(lambda: assert_running_instances(scope, [own_instance]))
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=1)


async def assert_templates(outside: ExternalAws, scope: ClusterScope, expected: Mapping[str, str]) -> None:
    """Exactly these launch templates exist, by id."""
    found = await outside.launch_templates(scope.name)
    assert found == expected, found


async def assert_template_names(outside: ExternalAws, scope: ClusterScope, expected: Sequence[str]) -> None:
    found = await outside.launch_templates(scope.name)
    assert sorted(found.values()) == sorted(expected), found


async def assert_fault_hit(scope: ClusterScope, fault: str) -> None:
    assert scope.aws_fault_hits(fault), "no instance was terminated yet"


async def assert_running_instances(scope: ClusterScope, instances: Sequence[str]) -> None:
    assert sorted(scope.alive_instances()) == sorted(instances), f"{scope.name}: instances {scope.alive_instances()}"


async def assert_node_joined(scope: ClusterScope, instance: str) -> str:
    """The instance's Node exists. Returns its name."""
    found = [one for one in await scope.nodes() if one["spec"].get("providerID", "").endswith(f"/{instance}")]
    assert found, f"{instance} has not registered"
    return str(found[0]["metadata"]["name"])


async def assert_no_node(scope: ClusterScope, name: str) -> None:
    assert name not in object_names(await scope.nodes()), f"Node {name} is left"
