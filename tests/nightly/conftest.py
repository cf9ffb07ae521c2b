"""Loads the fixtures with real components."""

from tests.support.product.fixtures import plan, sandbox

__all__ = ["plan", "sandbox"]
