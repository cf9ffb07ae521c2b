"""Loads the fixtures with real components."""

from tests.support.product.fixtures import own_product, plan, product, sandbox, shared_product, shared_sandbox

__all__ = ["own_product", "plan", "product", "sandbox", "shared_product", "shared_sandbox"]
