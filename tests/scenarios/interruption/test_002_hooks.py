"""Promise 3: a slow hook before the drain, with the worker killed meanwhile; and the policy for failed hooks.

The row's three minutes are here the worker's downtime and the start of the Job's node.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tenure.apis import labels
from tenure.apis.lifecyclepolicy_events import HookRules
from tenure.cli.nodes.stuck import find_stuck_nodes
from tenure.kube.client.resources import JOBS, NODE_CLAIMS
from tenure.model.hooks import HOOK_NODECLAIM, NAMESPACE
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.interruption_events import SOON, count_events, nodeclaim_name, nodeclaim_state
from tests.support.product.objects import PAUSE, Object, lifecycle_policy
from tests.support.product.product import DedicatedProduct, InstalledProduct
from tests.support.product.settings import HOOKS


class HookService:
    """Answers 202 with Retry-After until `ready`; then `status`."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.ready = status, True
        self.keys: list[str] = []
        self.nodes: set[str] = set()
        self.url = ""

    async def handle_request(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers["Idempotency-Key"])
        self.nodes.add((await request.json())["node"])
        if not self.ready:
            return web.Response(status=202, headers={"Retry-After": "1"})
        return web.Response(status=self.status)

    async def assert_called(self, times: int = 1) -> None:
        assert len(self.keys) >= times, self.keys


@asynccontextmanager
async def running_service(service: HookService) -> AsyncIterator[HookService]:
    app = web.Application()
    app.router.add_post("/drain", service.handle_request)
    async with TestServer(app) as server:
        service.url = str(server.make_url("/drain"))
        yield service


async def run_pod_with_hooks(scope: ClusterScope, *hooks: dict[str, Any]) -> Object:
    """A node with a pod, whose workflow has observed these hooks. Returns its NodeClaim."""
    rules = {"beforeDrain": list(hooks)}
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, hooks=rules))
    (claim,) = await scope.run_pods(1)
    await wait_until(partial(_assert_hooks_observed, scope, claim, rules))
    return claim


async def _assert_hooks_observed(scope: ClusterScope, claim: Object, rules: dict[str, Any]) -> None:
    found = (await nodeclaim_state(scope, claim)).observed.rules
    assert found is not None and found.hooks == HookRules.model_validate(rules), found


def http_hook(service: HookService, **fields: Any) -> dict[str, Any]:
    return {"name": "warn", "http": {"url": service.url}, **fields}


async def list_jobs(product: InstalledProduct, claim: Object) -> list[Object]:
    return await product.items(JOBS.path(namespace=NAMESPACE), label=f"{HOOK_NODECLAIM}={nodeclaim_name(claim)}")


async def _assert_one_job(product: InstalledProduct, claim: Object) -> Object:
    found = await list_jobs(product, claim)
    assert len(found) == 1, [job["metadata"]["name"] for job in found]
    return found[0]


async def _assert_succeeded_once(product: InstalledProduct, scope: ClusterScope, claim: Object) -> None:
    assert await count_events(scope, nodeclaim_name(claim), "HookSucceeded") == 1
    metric_labels = {"point": "beforeDrain", "outcome": "succeeded", "nodepool": scope.name}
    assert await product.metric_value("tenure_hooks_total", **metric_labels) == 1


@pytest.mark.row("002-k")
async def test_job_before_the_drain_is_created_once_across_a_worker_kill(own_product: DedicatedProduct) -> None:
    """The Job runs long enough that the worker is killed while it runs."""
    await own_product.ensure_worker()
    async with own_product.scope("002-k") as scope, own_product.scope("002-k-jobs") as job_scope:
        template = {
            "metadata": {"annotations": {"sandbox.tenure.sh/runs-for": "90s"}},
            "spec": {
                "nodeSelector": {labels.NODEPOOL: job_scope.name},
                "containers": [{"name": "main", "image": PAUSE}],
            },
        }
        claim = await run_pod_with_hooks(scope, {"name": "snapshot", "job": {"template": template}})
        name, node = nodeclaim_name(claim), claim["status"]["nodeName"]
        await own_product.delete(NODE_CLAIMS.path(name))
        job = await wait_until(lambda: _assert_one_job(own_product, claim))
        await wait_until(lambda: scope.assert_blocked_by(name, f"Job {NAMESPACE}/{job['metadata']['name']} runs"))
        await own_product.kill_worker()
        await scope.assert_node_disrupted(node)
        await scope.assert_pods_running(1)
        await own_product.resume_worker()
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=3)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]), seconds=240)
        final_job = await _assert_one_job(own_product, claim)
        assert final_job["metadata"]["uid"] == job["metadata"]["uid"] and final_job["status"]["succeeded"] == 1
        env = {one["name"]: one["value"] for one in final_job["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["TENURE_NODE"] == node and env["TENURE_NODE_CLAIM"] == name
        await wait_until(lambda: _assert_succeeded_once(own_product, scope, claim))
        await wait_until(lambda: scope.assert_pods_running(1))
        await _delete_jobs(own_product, claim)


async def _delete_jobs(product: InstalledProduct, claim: Object) -> None:
    for job in await list_jobs(product, claim):
        path = JOBS.path(job["metadata"]["name"], namespace=NAMESPACE)
        await product.delete(f"{path}?propagationPolicy=Background")


@pytest.mark.row("002-k")
async def test_call_before_the_drain_has_one_key_across_a_worker_kill(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(**HOOKS)
    async with own_product.scope("002-k-call") as scope, running_service(HookService()) as service:
        service.ready = False
        claim = await run_pod_with_hooks(scope, http_hook(service))
        name = nodeclaim_name(claim)
        await own_product.delete(NODE_CLAIMS.path(name))
        await wait_until(service.assert_called)
        await wait_until(lambda: scope.assert_blocked_by(name, "hook beforeDrain/warn: POST 127.0.0.1"))
        await own_product.kill_worker()
        before = len(service.keys)
        await own_product.resume_worker()
        await wait_until(lambda: service.assert_called(before + 1))
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=3)
        service.ready = True
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        assert set(service.keys) == {f"{claim['metadata']['uid']}-beforeDrain-warn"}
        assert service.nodes == {claim["status"]["nodeName"]}
        await wait_until(lambda: _assert_succeeded_once(own_product, scope, claim))
        await wait_until(lambda: scope.assert_pods_running(1))


@pytest.mark.row("002-k")
async def test_failed_hook_with_wait_blocks_the_drain_until_fixed(product: InstalledProduct) -> None:
    async with product.scope("002-k-waits") as scope, running_service(HookService(409)) as service:
        claim = await run_pod_with_hooks(scope, http_hook(service, onFailure="wait"))
        name = nodeclaim_name(claim)
        await product.delete(NODE_CLAIMS.path(name))
        await wait_until(
            lambda: scope.assert_event(name, "HookFailed", "returned 409", "the drain waits"), seconds=SOON
        )
        expected = ("needs attention: fix the hook", "hook beforeDrain/warn failed, is retried at")
        await wait_until(lambda: scope.assert_blocked_by(name, *expected))
        await wait_until(partial(_assert_stuck, product, name))
        await assert_throughout(lambda: scope.assert_pods_running(1), seconds=3)
        await scope.apply_manifest(
            lifecycle_policy(scope.name, scope.name, hooks={"beforeDrain": [http_hook(service)]})
        )
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(1))


async def _assert_stuck(product: InstalledProduct, name: str) -> None:
    """`tenure stuck` lists it long before its deadline."""
    overdue, *_ = await find_stuck_nodes(product.temporal, product.connection.cluster)
    assert name in [nodeclaim.name for nodeclaim in overdue]


@pytest.mark.row("002-k")
async def test_failed_hook_with_give_up_keeps_a_voluntarily_drained_node(product: InstalledProduct) -> None:
    async with product.scope("002-k-kept") as scope, running_service(HookService(409)) as service:
        claim = await run_pod_with_hooks(scope, http_hook(service, onFailure="giveUp"))
        name, node = nodeclaim_name(claim), claim["status"]["nodeName"]
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_event(name, "HookFailed", "the drain is cancelled"), seconds=SOON)
        await wait_until(lambda: scope.assert_event(name, "DrainGivenUp", "hook beforeDrain/warn failed"), seconds=SOON)
        await scope.assert_nodeclaims_exist([name])
        await wait_until(lambda: scope.assert_node_not_disrupted(node))
