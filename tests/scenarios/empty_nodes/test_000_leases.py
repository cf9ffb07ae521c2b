"""Promise 1, row j: Leases of deleted nodes."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.kube.adapters.garbage_collection import NODE_LEASES
from tenure.kube.client.resources import LEASES
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.garbage_collection import collect_garbage
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct


@pytest.mark.row("000-j")
async def test_only_leases_of_deleted_nodes_are_collected(product: InstalledProduct) -> None:
    async with product.scope("000-j", after="Never") as scope:
        claims = await scope.run_pods(2)
        running_node, deleted_node = (claim["status"]["nodeName"] for claim in claims)
        for node in (running_node, deleted_node):
            await create_orphaned_lease(scope, node)
        await scope.scale_deployment(0)
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{object_names(claims)[1]}")
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)[1:]))

        async def collected_and_counted() -> None:
            """Repeated after a worker was killed, since its counter starts at zero."""
            await create_orphaned_lease(scope, f"{scope.name}-never-was")
            await collect_garbage(product, "leases")
            assert await existing_leases(product, deleted_node, f"{scope.name}-never-was") == []
            await product.metric_value("tenure_garbage_collection_collected_total", kind="lease")

        await wait_until(collected_and_counted)
        assert await existing_leases(product, running_node) == [running_node]


async def create_orphaned_lease(scope: ClusterScope, node: str) -> None:
    """A Lease, last renewed an hour ago, as a kubelet leaves it that requested it before its Node existed.

    An existing Lease of the node loses its owner.
    """
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": long_ago}
    path = LEASES.path(node, namespace=NODE_LEASES)
    if await scope.product.find(path) is not None:
        await scope.product.patch(path, {"metadata": {"ownerReferences": None}, "spec": spec})
        return
    metadata = {"name": node, "namespace": NODE_LEASES}
    lease: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    await scope.apply_manifest(lease)


async def existing_leases(product: InstalledProduct, *expected: str) -> list[str]:
    found = object_names(await product.items(LEASES.path(namespace=NODE_LEASES)))
    return [name for name in expected if name in found]
