"""A NodeOverlay from its manifest to the instance: launched type, NodeClaim status, and conflicts."""

from functools import partial
from typing import Any

from tenure.apis import labels
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

CHEAPER, EXPENSIVE = "c6i.large", "m6i.large"
FUSE = "example.com/fuse"


async def test_type_that_an_overlay_makes_cheapest_is_launched(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="NodeOverlay=true")
    async with own_product.scope("overlays", types=(CHEAPER, EXPENSIVE)) as scope:
        active_overlay = overlay(f"{scope.name}-b", scope.name, priceAdjustment="-50%", capacity={FUSE: "2"})
        await scope.apply_manifest(active_overlay)
        await scope.apply_manifest(overlay(f"{scope.name}-a", scope.name, price="9"))
        await wait_until(partial(_assert_overlay, scope, active_overlay, "True", "Ready"))
        rejected_overlay = overlay(f"{scope.name}-a", scope.name)
        await wait_until(
            partial(_assert_overlay, scope, rejected_overlay, "False", "Conflict", f"NodeOverlay {scope.name}-b")
        )
        (claim,) = await scope.run_pods(1)
        assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == EXPENSIVE
        assert claim["metadata"]["annotations"][labels.PRICE_OVERLAY_APPLIED] == "true"
        assert claim["metadata"]["annotations"][labels.CAPACITY_OVERLAY_APPLIED] == "true"
        assert claim["status"]["capacity"][FUSE] == "2"
        await scope.assert_one_node_launched()


async def _assert_overlay(scope: ClusterScope, manifest: dict[str, Any], ready: str, *messages: str) -> None:
    found = await scope.product.kube.request("GET", await scope.product.kube.path_of(manifest))
    text = condition_reason(found, "Ready") + condition_reason(found, "ValidationSucceeded")
    assert condition_status(found, "Ready") == ready and all(message in text for message in messages), text


def overlay(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    required_labels = {labels.NODEPOOL: pool, labels.INSTANCE_TYPE: EXPENSIVE}
    return {
        "apiVersion": labels.NODEOVERLAY_API_VERSION,
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {
            "requirements": [
                {"key": key, "operator": "In", "values": [value]} for key, value in required_labels.items()
            ],
            **spec,
        },
    }
