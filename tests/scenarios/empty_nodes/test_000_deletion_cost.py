"""Promise 1: a scale-down empties the node that should go, by the deletion costs that the worker writes."""

from collections.abc import Mapping

import pytest

from tenure.apis.labels import DISRUPTION_COST, OWN_DELETION_COST, POD_DELETION_COST
from tenure.kube.client.resources import PODS
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import optional_right
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import DedicatedProduct

GATE = "PodDeletionCostManagement"
USERS_COST = "5"
HALF_A_NODE = "900m"


@pytest.mark.row("000-o")
async def test_scale_down_empties_the_node_that_disruption_removes_first(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES=f"{GATE}=true")
    async with optional_right(own_product, GATE), own_product.scope("000-o") as scope:
        await scope.create_deployment(2, **pod_spec(scope.name, cpu=HALF_A_NODE))
        await wait_until(lambda: scope.assert_pods_running(2))
        old = await scope.pods()
        await scope.scale_deployment(4)
        await wait_until(lambda: scope.assert_pods_running(4))
        going, staying = await wait_until(lambda: scope.assert_nodes_initialized(2))
        if {one["spec"]["nodeName"] for one in old} != {going["status"]["nodeName"]}:
            going, staying = staying, going
        users, other = [one for one in await scope.pods() if one["spec"]["nodeName"] == staying["status"]["nodeName"]]
        await own_product.kill_worker()
        await annotate(
            scope, users, {POD_DELETION_COST: USERS_COST, OWN_DELETION_COST: None, DISRUPTION_COST: "9999999"}
        )
        await annotate(scope, other, {DISRUPTION_COST: "99999999"})
        await own_product.resume_worker()
        await wait_until(lambda: assert_costs_ascend(scope, old, [other]))

        await scope.scale_deployment(2)
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([going])))
        assert sorted(object_names(await scope.pods())) == sorted(object_names([users, other]))
        assert await read_costs(scope, [users]) == [USERS_COST]
        await scope.wait_until_nodes_launched(2)


async def annotate(scope: ClusterScope, pod: Object, annotations: Mapping[str, str | None]) -> None:
    path = PODS.path(pod["metadata"]["name"], namespace="default")
    await scope.product.patch(path, {"metadata": {"annotations": dict(annotations)}})


async def read_costs(scope: ClusterScope, pods: list[Object]) -> list[str]:
    names = object_names(pods)
    found = [one["metadata"] for one in await scope.pods() if one["metadata"]["name"] in names]
    return [one.get("annotations", {}).get(POD_DELETION_COST, "") for one in found]


async def assert_costs_ascend(scope: ClusterScope, going: list[Object], staying: list[Object]) -> None:
    low, high = await read_costs(scope, going), await read_costs(scope, staying)
    assert all(low) and all(high), (low, high)
    assert len({*low}) == 1 and int(low[0]) < min(map(int, high)) < 0, (low, high)
