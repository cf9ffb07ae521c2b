"""The worker is killed during a blocked drain: nothing is forced, and nothing happens twice."""

from tenure.kube.client.resources import WORKLOADS
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.drains import (
    SURGE,
    annotate_do_not_disrupt,
    delete_with_drain_rules,
    optional_right,
)
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct


async def test_blocked_for_elapses_without_a_worker(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    async with product.scope("held-for", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await annotate_do_not_disrupt(scope, "true")
        await delete_with_drain_rules(scope, claim, whenBlocked="escalate", blockedFor="45s")
        await wait_until(lambda: scope.assert_conditions_mention(claim["metadata"]["name"], "escalates at"))
        await product.kill_worker()
        await product.resume_worker()
        await _assert_completed(scope, claim["metadata"]["name"])


async def test_deployment_is_restarted_once_across_a_worker_kill(product: DedicatedProduct) -> None:
    await product.ensure_worker(**SURGE)
    async with optional_right(product, "surge_single_replicas"), product.scope("surged-on", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await delete_with_drain_rules(scope, claim, surgeSingleReplicas=True)
        await wait_until(lambda: _assert_restarted_once(scope))
        await product.kill_worker()
        await product.resume_worker()
        await _assert_completed(scope, claim["metadata"]["name"])
        await _assert_restarted_once(scope)


async def _assert_restarted_once(scope: ClusterScope) -> None:
    path = WORKLOADS["Deployment"].path(scope.name, namespace="default")
    deployment = await scope.product.kube.request("GET", path)
    assert deployment["metadata"]["generation"] == 2, deployment["metadata"]


async def _assert_completed(scope: ClusterScope, name: str) -> None:
    await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
    assert name not in object_names(await scope.nodeclaims())
