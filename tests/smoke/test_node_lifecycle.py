"""A node from its pending pod to its terminated instance."""

from tenure.apis import labels
from tenure.model.nodeclaim_state import Phase
from tests.support.product.drains import budget, budget_counts, budget_path
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import pod_spec
from tests.support.product.product import Product
from tests.support.product.scene import names

CHEAP, NEXT = "c5.large", "m5.large"


async def test_node_launches_for_pending_pod_and_terminates_when_empty(product: Product) -> None:
    async with product.scene("life") as scene:
        (claim,) = await scene.run(1)
        (instance,) = scene.launched()
        assert claim["status"]["providerID"].endswith(instance)
        await scene.scale(0)
        await eventually(lambda: scene.claims_are_gone(names([claim])))
        await eventually(lambda: scene.instances_alive(0))
        (life,) = await scene.lives()
        phases = [step.phase for step in (await product.lives.outcome(life)).story]
        assert phases == [*Phase], phases
        await scene.one_node_was_bought()


async def test_two_pods_share_one_node(product: Product) -> None:
    async with product.scene("two") as scene:
        await scene.deploy(2, **pod_spec(scene.name, cpu="600m"))
        await eventually(lambda: scene.pods_run(2))
        await scene.one_node_was_bought()
        assert len({pod["spec"]["nodeName"] for pod in await scene.pods()}) == 1


async def test_drain_waits_for_pod_disruption_budget(product: Product) -> None:
    async with product.scene("pdb", after="Never") as scene:
        (claim,) = await scene.run(1)
        (name,) = names([claim])
        await scene.make(budget(scene.name, maxUnavailable=0))
        await eventually(lambda: budget_counts(scene, 1))
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{name}")
        await eventually(lambda: scene.says(name, "maxUnavailable 0"))
        await throughout(lambda: scene.pods_run(1), seconds=2)
        await product.patch(budget_path(scene.name), {"spec": {"maxUnavailable": 1}})
        await eventually(lambda: scene.claims_are_gone([name]))


async def test_no_capacity_launches_next_instance_type(product: Product) -> None:
    product.aws.set_pool(0, instance_type=CHEAP)
    try:
        async with product.scene("ice", types=(CHEAP, NEXT)) as scene:
            (claim,) = await scene.run(1)
            assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == NEXT
            assert len(scene.launched()) == 1
    finally:
        product.aws.clear_pools()


async def test_static_pool_follows_its_replicas(product: Product) -> None:
    async with product.scene("static", replicas=2) as scene:
        claims = await eventually(lambda: scene.nodes_are_initialized(2))
        await product.patch(scene.pool_path, {"spec": {"replicas": 1}})
        (left,) = await eventually(lambda: scene.nodes_are_initialized(1))
        assert left["metadata"]["name"] in names(claims)
        await eventually(lambda: scene.instances_alive(1))
        await scene.nodes_were_bought(2)


async def test_node_overlay_changes_price_and_capacity(product: Product) -> None:
    cheap, expensive, device = "c6i.large", "m6i.large", "example.com/fuse"
    async with product.scene("overlay", types=(cheap, expensive)) as scene:
        selected = {labels.NODEPOOL: scene.name, labels.INSTANCE_TYPE: expensive}
        overlay = {
            "apiVersion": labels.NODEOVERLAY_API_VERSION,
            "kind": "NodeOverlay",
            "metadata": {"name": scene.name},
            "spec": {
                "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in selected.items()],
                "priceAdjustment": "-50%",
                "capacity": {device: "2"},
            },
        }
        await scene.make(overlay)
        path = await product.kube.path_of(overlay)
        await eventually(lambda: product.has_condition(path, "Ready", "True"))
        (claim,) = await scene.run(1)
        assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == expensive
        assert claim["status"]["capacity"][device] == "2"
