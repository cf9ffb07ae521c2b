"""A worker that is killed or lacks a permission."""

from typing import Any

from tenure.cli.sandbox.worker_process import WORKER_KEY
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import assert_budget_healthy, budget_path, pod_disruption_budget
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.settings import SHARED

CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tenure"


async def test_worker_killed_during_drain_continues_the_drain(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(**SHARED)
    async with own_product.scope("kill-drain", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await scope.apply_manifest(pod_disruption_budget(scope.name, maxUnavailable=0))
        await wait_until(lambda: assert_budget_healthy(scope, 1))
        await own_product.delete(NODE_CLAIMS.path(name))
        await wait_until(lambda: scope.assert_conditions_mention(name, "maxUnavailable 0"))
        await own_product.kill_worker()
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=2)
        await own_product.resume_worker()
        await own_product.patch(budget_path(scope.name), {"spec": {"maxUnavailable": 1}})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_rbac_denial_of_evictions_is_reported_and_drain_continues_when_granted(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(**SHARED)
    role = await own_product.kube.request("GET", CLUSTER_ROLE)
    reduced_rules = [rule for rule in role["rules"] if "pods/eviction" not in rule.get("resources", ())]
    assert len(reduced_rules) == len(role["rules"]) - 1
    async with own_product.scope("rbac", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        (name,) = object_names([claim])
        await own_product.patch(CLUSTER_ROLE, {"rules": reduced_rules})
        try:
            await own_product.delete(NODE_CLAIMS.path(name))
            await wait_until(lambda: scope.assert_conditions_mention(name, "pods/eviction"))
            await scope.assert_pods_running(1)
        finally:
            await own_product.patch(CLUSTER_ROLE, {"rules": role["rules"]})
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))


async def test_iam_denial_of_launches_is_reported_and_node_launches_when_allowed(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(**SHARED)
    own_product.aws.guard_key(WORKER_KEY, "permissions boundary", deny("ec2:CreateFleet"))
    async with own_product.scope("iam") as scope:
        try:
            await scope.create_deployment(1)
            await wait_until(lambda: assert_nodeclaim_mentions(scope, "ec2:CreateFleet"))
            assert scope.launched_instances() == []
        finally:
            own_product.aws.guard_key(WORKER_KEY, "permissions boundary", None)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_instances_alive(1)


async def assert_nodeclaim_mentions(scope: ClusterScope, text: str) -> None:
    claims = object_names(await scope.nodeclaims())
    assert claims
    await scope.assert_conditions_mention(claims[0], text)


def deny(action: str) -> dict[str, Any]:
    statements = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": action, "Resource": "*"},
    ]
    return {"Version": "2012-10-17", "Statement": statements}
