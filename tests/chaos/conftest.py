"""Every chaos test has a sandbox of its own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tenure.sandbox.environment import Sandbox
from tests.support.product.fixtures import plan, sandbox
from tests.support.product.product import DedicatedProduct

__all__ = ["plan", "sandbox"]


@pytest_asyncio.fixture(scope="session")
async def own_product(sandbox: Sandbox) -> AsyncIterator[DedicatedProduct]:
    """Unused nodes are allowed: outages are faults that no scope knows."""
    async with DedicatedProduct(sandbox) as product:
        yield product


@pytest.fixture
def product(own_product: DedicatedProduct) -> DedicatedProduct:
    return own_product
