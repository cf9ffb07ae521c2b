"""Loads the fixtures with real components."""

from tests.support.product.fixtures import plan, product, programme, world

__all__ = ["plan", "product", "programme", "world"]
