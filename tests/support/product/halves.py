"""Two nodes that one would do for."""

from tests.support.product.eventually import eventually
from tests.support.product.objects import Object, pod_spec
from tests.support.product.scene import Scene

CONSOLIDATES = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s"}
"""For a NodePool's `disruption`, once they are to become one."""


def small_pods(scene: Scene) -> str:
    """The Deployment that is left: its name."""
    return f"{scene.name}-small"


async def half_empty(scene: Scene) -> list[Object]:
    """Their NodeClaims. What filled them goes; two small pods, one on each, stay."""
    big, small = f"{scene.name}-big", small_pods(scene)
    await scene.deploy(2, big, **pod_spec(scene.name, cpu="1400m"))
    await eventually(lambda: scene.pods_run(2, big))
    await scene.deploy(2, small, **pod_spec(scene.name, cpu="400m"))
    await eventually(lambda: scene.pods_run(2, small))
    claims = await eventually(lambda: scene.nodes_are_initialized(2))
    await scene.scale(0, big)
    return claims


async def one_is_left(scene: Scene, before: list[str]) -> str:
    """The name of the NodeClaim that is."""
    left = [str(one["metadata"]["name"]) for one in await scene.claims()]
    assert len(left) == 1 and {*left} <= {*before}, f"{scene.name}: NodeClaims {left}"
    return left[0]
