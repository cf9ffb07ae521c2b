"""All hostile objects in one controller session, also those that the API server rejects: ordinary pods get nodes."""

import copy
from typing import Final

from tenure.kube.client.resources import RESOURCES
from tests.support.hostile.objects import MESSAGE, HostileObject, build_hostile_objects
from tests.support.product.objects import Object
from tests.unit.controller.conftest import planner_in_a_thread
from tests.unit.controller.node_lifecycles import NodeLifecycles

__all__ = ["planner_in_a_thread"]

NODES: Final = 50


def to_served(one: HostileObject) -> Object:
    """The object with the metadata that the API server adds."""
    raw = copy.deepcopy(one.manifest)
    served = {"uid": raw["metadata"]["name"], "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    namespace = {"namespace": "default"} if RESOURCES[one.kind].namespaced else {}
    return {"status": {}, **raw, "metadata": {**namespace, **served, **raw["metadata"]}}


async def test_hostile_objects_affect_no_ordinary_pod() -> None:
    hostile = [one for one in build_hostile_objects() if one.kind != MESSAGE]
    async with NodeLifecycles() as lifecycles:
        await lifecycles.create_nodepool()
        for one in hostile:
            lifecycles.deliver(RESOURCES[one.kind].plural, to_served(one))
        await lifecycles.run(NODES)
        await lifecycles.settle()
        assert lifecycles.completed_count == NODES
        reported = {key.kind for key in lifecycles.session.cluster.cache.invalid_objects.items()}
        assert {"Pod", "Node", "NodeClaim", "NodePool", "NodeOverlay", "DaemonSet"} <= reported
