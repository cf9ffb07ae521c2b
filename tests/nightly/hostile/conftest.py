"""One sandbox with one worker for the session, and the NodePool and PodTemplate that hostile objects reference."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.hostile.objects import POOL
from tests.support.product import settings
from tests.support.product.fixtures import own_product, plan, sandbox
from tests.support.product.objects import PAUSE, node_pool
from tests.support.product.product import DedicatedProduct

__all__ = ["own_product", "plan", "sandbox"]
GATES = "StaticCapacity=true,NodeOverlay=true,CapacityBuffer=true"


@pytest_asyncio.fixture(scope="session")
async def hostile_product(own_product: DedicatedProduct) -> AsyncIterator[DedicatedProduct]:
    await own_product.ensure_worker(**settings.SHARED | {"FEATURE_GATES": GATES})
    pool = node_pool(POOL, types=["m6i.xlarge"], limits={"cpu": "16"})
    container = {"name": "main", "image": PAUSE, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": POOL, "namespace": "default"},
        "template": {
            "metadata": {"labels": {"hostile": "yes"}},
            "spec": {"containers": [container], "nodeSelector": {"karpenter.sh/nodepool": POOL}},
        },
    }
    for one in (pool, template):
        await own_product.kube.apply(one)
    yield own_product
    for one in (pool, template):
        await own_product.delete(await own_product.kube.path_of(one))
