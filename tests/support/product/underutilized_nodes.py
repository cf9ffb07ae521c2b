"""Two nodes whose pods fit on one."""

from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, pod_spec

CONSOLIDATION = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s"}
"""A NodePool's `disruption` that consolidates them."""


def small_deployment_name(scope: ClusterScope) -> str:
    """Name of the Deployment that stays."""
    return f"{scope.name}-small"


async def make_underutilized_nodes(scope: ClusterScope) -> list[Object]:
    """Create two nodes with one small pod each; the pods that filled them are deleted. Returns their NodeClaims."""
    big, small = f"{scope.name}-big", small_deployment_name(scope)
    await scope.create_deployment(2, big, **pod_spec(scope.name, cpu="1400m"))
    await wait_until(lambda: scope.assert_pods_running(2, big))
    await scope.create_deployment(2, small, **pod_spec(scope.name, cpu="400m"))
    await wait_until(lambda: scope.assert_pods_running(2, small))
    claims = await wait_until(lambda: scope.assert_nodes_initialized(2))
    await scope.scale_deployment(0, big)
    return claims


async def assert_one_remaining(scope: ClusterScope, before: list[str]) -> str:
    """Only one of the NodeClaims is left. Returns its name."""
    remaining = [str(one["metadata"]["name"]) for one in await scope.nodeclaims()]
    assert len(remaining) == 1 and {*remaining} <= {*before}, f"{scope.name}: NodeClaims {remaining}"
    return remaining[0]
