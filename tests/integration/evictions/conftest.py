"""A sandbox with Kubernetes 1.37, which serves EvictionRequests, and the sandbox's controller for them."""

import pytest

from tenure.sandbox.spec import Plan
from tests.support.product.fixtures import own_product, sandbox
from tests.support.product.shared_sandbox import sandbox_plan

__all__ = ["own_product", "plan", "sandbox"]


@pytest.fixture(scope="session")
def plan() -> Plan:
    return sandbox_plan(kubernetes="1.37", eviction_requests=True)
