"""A node from its pending pod to its terminated instance."""

from tenure.apis import labels
from tenure.model.nodeclaim.state import Phase
from tests.support.product.cluster_scope import object_names
from tests.support.product.drains import assert_budget_healthy, budget_path, pod_disruption_budget
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import pod_spec
from tests.support.product.product import InstalledProduct

CHEAP, NEXT = "c5.large", "m5.large"


async def test_node_launches_for_pending_pod_and_terminates_when_empty(product: InstalledProduct) -> None:
    async with product.scope("life") as scope:
        (claim,) = await scope.run_pods(1)
        (instance,) = scope.launched_instances()
        assert claim["status"]["providerID"].endswith(instance)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        await wait_until(lambda: scope.assert_instances_alive(0))
        (nodeclaim,) = await scope.nodeclaim_workflows()
        phases = [step.phase for step in (await product.nodeclaim_workflows.fetch_outcome(nodeclaim)).history]
        assert phases == [*Phase], phases
        url = product.connection.page_url(nodeclaim.workflow_id)
        assert claim["metadata"]["annotations"][labels.WORKFLOW_URL] == url != ""
        assert product.logged_steps(nodeclaim.name) == [
            *("created nodeclaim", "launched nodeclaim", "registered nodeclaim", "initialized nodeclaim"),
            *("draining node", "drained node", "deleted nodeclaim"),
        ]
        await scope.assert_one_node_launched()


async def test_two_pods_share_one_node(product: InstalledProduct) -> None:
    async with product.scope("two") as scope:
        await scope.create_deployment(2, **pod_spec(scope.name, cpu="600m"))
        await wait_until(lambda: scope.assert_pods_running(2))
        await scope.assert_one_node_launched()
        assert len({pod["spec"]["nodeName"] for pod in await scope.pods()}) == 1


async def test_drain_waits_for_pod_disruption_budget(product: InstalledProduct) -> None:
    async with product.scope("pdb", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await wait_until(lambda: assert_budget_healthy(scope, 1))
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{name}")
        await wait_until(lambda: scope.assert_conditions_mention(name, "maxUnavailable 0"))
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=2)
        await product.patch(budget_path(scope.name), {"spec": {"maxUnavailable": 1}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_no_capacity_launches_next_instance_type(product: InstalledProduct) -> None:
    product.aws.set_pool(0, instance_type=CHEAP)
    try:
        async with product.scope("ice", types=(CHEAP, NEXT)) as scope:
            (claim,) = await scope.run_pods(1)
            assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == NEXT
            assert len(scope.launched_instances()) == 1
    finally:
        product.aws.clear_pools()


async def test_static_pool_follows_its_replicas(product: InstalledProduct) -> None:
    async with product.scope("static", replicas=2) as scope:
        claims = await wait_until(lambda: scope.assert_nodes_initialized(2))
        await product.patch(scope.pool_path, {"spec": {"replicas": 1}})
        (remaining,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        assert remaining["metadata"]["name"] in object_names(claims)
        await wait_until(lambda: scope.assert_instances_alive(1))
        await scope.wait_until_nodes_launched(2)


async def test_node_overlay_changes_price_and_capacity(product: InstalledProduct) -> None:
    cheap, expensive, device = "c6i.large", "m6i.large", "example.com/fuse"
    async with product.scope("overlay", types=(cheap, expensive)) as scope:
        selected = {labels.NODEPOOL: scope.name, labels.INSTANCE_TYPE: expensive}
        overlay = {
            "apiVersion": labels.NODEOVERLAY_API_VERSION,
            "kind": "NodeOverlay",
            "metadata": {"name": scope.name},
            "spec": {
                "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in selected.items()],
                "priceAdjustment": "-50%",
                "capacity": {device: "2"},
            },
        }
        await scope.apply_manifest(overlay)
        path = await product.kube.path_of(overlay)
        await wait_until(lambda: product.assert_condition(path, "Ready", "True"))
        (claim,) = await scope.run_pods(1)
        assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == expensive
        assert claim["status"]["capacity"][device] == "2"
