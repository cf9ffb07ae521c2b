"""Promise 1, row j: Leases that nodes leave behind."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.kube.adapters.garbage_collection import NODE_LEASES
from tenure.kube.client.resources import LEASES
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object
from tests.support.product.product import Product
from tests.support.product.scene import Scene, names
from tests.support.product.tidying import tidy


@pytest.mark.row("000-j")
async def test_leases_of_nodes_that_are_gone_are_collected_and_counted_and_no_other(product: Product) -> None:
    async with product.scene("000-j", after="Never") as scene:
        claims = await scene.run(2)
        lives, goes = (claim["status"]["nodeName"] for claim in claims)
        for node in (lives, goes):
            await has_a_lease_without_owner(scene, node)
        await scene.scale(0)
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{names(claims)[1]}")
        await eventually(lambda: scene.claims_are_gone(names(claims)[1:]))

        async def collected_and_counted() -> None:
            """Once more after a worker that was killed: its count went with it."""
            await has_a_lease_without_owner(scene, f"{scene.name}-never-was")
            await tidy(product, "leases")
            assert await leases(product, goes, f"{scene.name}-never-was") == []
            await product.metric("tenure_upkeep_collected_total", kind="lease")

        await eventually(collected_and_counted)
        assert await leases(product, lives) == [lives]


async def has_a_lease_without_owner(scene: Scene, node: str) -> None:
    """As a kubelet leaves one that asked for it before its Node was made; it was renewed an hour ago for the last time.

    Where the node has a Lease already, that one loses its owner.
    """
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": long_ago}
    path = LEASES.path(node, namespace=NODE_LEASES)
    if await scene.product.find(path) is not None:
        await scene.product.patch(path, {"metadata": {"ownerReferences": None}, "spec": spec})
        return
    metadata = {"name": node, "namespace": NODE_LEASES}
    lease: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    await scene.make(lease)


async def leases(product: Product, *wanted: str) -> list[str]:
    found = names(await product.items(LEASES.path(namespace=NODE_LEASES)))
    return [name for name in wanted if name in found]
