"""Every chaos test has a sandbox of its own."""

import pytest

from tests.support.product.fixtures import own_product, plan, sandbox
from tests.support.product.product import DedicatedProduct

__all__ = ["own_product", "plan", "sandbox"]


@pytest.fixture
def product(own_product: DedicatedProduct) -> DedicatedProduct:
    return own_product
