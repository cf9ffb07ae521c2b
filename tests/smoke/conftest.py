"""Smoke scenarios: the promises that must hold before a commit, in one sandbox.

Tests that start, stop and kill workers run first, one after the other. The others share one running worker.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.product.fixtures import product, shared_product, shared_sandbox
from tests.support.product.product import DedicatedProduct
from tests.support.product.shared_sandbox import SharedSandbox

__all__ = ["own_product", "product", "shared_product", "shared_sandbox"]


@pytest_asyncio.fixture
async def own_product(shared_sandbox: SharedSandbox) -> AsyncIterator[DedicatedProduct]:
    """The shared sandbox for one test, with the workers that the test starts."""
    async with DedicatedProduct(shared_sandbox) as product:
        yield product
        await product.stop_workers()
