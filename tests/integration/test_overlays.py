"""A NodeOverlay from its manifest to the instance: what is bought, what the NodeClaim says, and how a conflict ends."""

from functools import partial
from typing import Any

from tenure.apis import labels
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition, reason

CHEAPER, DEARER = "c6i.large", "m6i.large"
FUSE = "example.com/fuse"


async def test_what_an_overlay_makes_cheapest_is_bought(own_product: OwnProduct) -> None:
    await own_product.work(FEATURE_GATES="NodeOverlay=true")
    async with own_product.scene("overlays", types=(CHEAPER, DEARER)) as scene:
        heeded = overlay(f"{scene.name}-b", scene.name, priceAdjustment="-50%", capacity={FUSE: "2"})
        await scene.make(heeded)
        await scene.make(overlay(f"{scene.name}-a", scene.name, price="9"))
        await eventually(partial(_is, scene, heeded, "True", "Ready"))
        refused = overlay(f"{scene.name}-a", scene.name)
        await eventually(partial(_is, scene, refused, "False", "Conflict", f"NodeOverlay {scene.name}-b"))
        (claim,) = await scene.run(1)
        assert claim["metadata"]["labels"][labels.INSTANCE_TYPE] == DEARER
        assert claim["metadata"]["annotations"][labels.PRICE_OVERLAY_APPLIED] == "true"
        assert claim["metadata"]["annotations"][labels.CAPACITY_OVERLAY_APPLIED] == "true"
        assert claim["status"]["capacity"][FUSE] == "2"
        await scene.one_node_was_bought()


async def _is(scene: Scene, manifest: dict[str, Any], ready: str, *words: str) -> None:
    found = await scene.product.kube.request("GET", await scene.product.kube.path_of(manifest))
    told = reason(found, "Ready") + reason(found, "ValidationSucceeded")
    assert condition(found, "Ready") == ready and all(word in told for word in words), told


def overlay(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    wanted = {labels.NODEPOOL: pool, labels.INSTANCE_TYPE: DEARER}
    return {
        "apiVersion": labels.NODEOVERLAY_API_VERSION,
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {
            "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()],
            **spec,
        },
    }
