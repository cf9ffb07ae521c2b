"""Loads the fixtures with real components."""

from tests.support.product.fixtures import plan, world

__all__ = ["plan", "world"]
