"""The adapters' tests use the shared sandbox while no worker runs in it."""

from tests.support.product.fixtures import shared_sandbox

__all__ = ["shared_sandbox"]
