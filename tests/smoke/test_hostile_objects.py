"""Hostile objects that the API server accepts, next to ordinary pods that start and drain as usual."""

from typing import Any

import pytest

from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import set_do_not_disrupt
from tests.support.product.eventually import wait_until
from tests.support.product.objects import NODE_CLASS, Object, node_pool, pending_pod, pod_spec
from tests.support.product.product import InstalledProduct

ARABIC_THREE = "\u0663"
ANNOTATIONS = (
    "9" * 4301 + "h",
    "9" * 20_000 + "x",
    "1." * 20_000,
    f"{ARABIC_THREE}h",
    "-1h",
    "\u0000".join("ab"),
    "{" * 5_000,
    "1e999999999h",
)
REQUESTS: tuple[dict[str, str], ...] = (
    {"memory": "9e30"},
    {"cpu": "1e30"},
    {"memory": "9223372036854775808"},
    {"memory": "5Ei", "cpu": "5E"},
    {"example.com/device": "9223372036854775807"},
    {"ephemeral-storage": "8Ei"},
)
SCHEDULES = ("@dailyx", "0 0 31 2 *", f"{ARABIC_THREE} 0 * * *", "*/0 * * * *", "9" * 200 + " 0 * * *", "0 0 L * *")


def hostile_pool(scope: ClusterScope, number: int, schedule: str) -> Object:
    pool = node_pool(f"{scope.name}-hostile-{number}", of_class=NODE_CLASS)
    pool["spec"]["disruption"]["budgets"] = [{"nodes": "1", "schedule": schedule, "duration": "1h"}]
    pool["spec"]["limits"] = {"cpu": "1e30", "memory": "9e30"}
    return pool


@pytest.mark.timeout(240)
async def test_hostile_objects_affect_only_themselves(product: InstalledProduct) -> None:
    async with product.scope("hostile", after="Never") as scope:
        created = await create_hostile_objects(product, scope)
        assert len(created) >= 20, [one["metadata"]["name"] for one in created]
        try:
            await scope.create_deployment(1, **pod_spec(scope.name, cpu="600m"))
            await wait_until(lambda: scope.assert_pods_running(1))
            # Hostile pods keep the planner busy, so two new pods may be in two batches.
            await scope.scale_deployment(2)
            await wait_until(lambda: scope.assert_pods_running(2))
            (claim,) = await scope.nodeclaims()
            protected, _ = await scope.pods()
            await set_do_not_disrupt(scope, protected["metadata"]["name"], ANNOTATIONS[0])
            await wait_until(
                lambda: scope.assert_event(protected["metadata"]["name"], "InvalidObject", "protects the pod")
            )
            await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{object_names([claim])[0]}")
            await wait_until(lambda: assert_pods_on_two_nodes(scope))
            assert protected["metadata"]["uid"] in {one["metadata"]["uid"] for one in await scope.pods()}
            await set_do_not_disrupt(scope, protected["metadata"]["name"], None)
            await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
            await wait_until(lambda: scope.assert_pods_running(2))
            await wait_until(lambda: scope.assert_event(f"{scope.name}-hostile-0", "FailedScheduling", "9e30"))
        finally:
            for one in created:
                await product.delete(await product.kube.path_of(one))


async def assert_pods_on_two_nodes(scope: ClusterScope) -> None:
    await scope.assert_pods_running(2)
    nodes = {one["spec"].get("nodeName") for one in await scope.pods()}
    assert len(nodes) == 2, nodes


async def create_hostile_objects(product: InstalledProduct, scope: ClusterScope) -> list[Object]:
    """Returns the objects that the API server accepts."""
    objects = [pending_pod(scope.name, f"hostile-{number}", **requests) for number, requests in enumerate(REQUESTS)]
    objects += [
        pending_pod(scope.name, f"hostile-{100 + number}", do_not_disrupt=text, memory="9e30")
        for number, text in enumerate(ANNOTATIONS)
    ]
    objects += [hostile_pool(scope, number, schedule) for number, schedule in enumerate(SCHEDULES)]
    created: list[Object] = []
    for one in objects:
        applied: Any = await product.kube.apply(one)
        created.append(applied)
    return created
