"""Promise 3: a hook before the drain that takes a while, with the worker killed meanwhile; and what follows a failure.

The row speaks of three minutes; here it is the time that the worker is away and a Job's node takes to come.
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
from tenure.cli.nodes.stuck import find
from tenure.kube.client.resources import JOBS, NODE_CLAIMS
from tenure.model.hooks import HOOK_NODECLAIM, NAMESPACE
from tests.scenarios.announced import SOON, count, name_of, state_of
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import PAUSE, Object, lifecycle_policy
from tests.support.product.product import OwnProduct, Product
from tests.support.product.scene import Scene


class Service:
    """Holds calls until it is `ready`; then answers with `status`."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.ready = status, True
        self.keys: list[str] = []
        self.nodes: set[str] = set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers["Idempotency-Key"])
        self.nodes.add((await request.json())["node"])
        if not self.ready:
            return web.Response(status=202, headers={"Retry-After": "1"})
        return web.Response(status=self.status)

    async def was_called(self, times: int = 1) -> None:
        assert len(self.keys) >= times, self.keys


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[Service]:
    app = web.Application()
    app.router.add_post("/drain", service.answer)
    async with TestServer(app) as server:
        service.url = str(server.make_url("/drain"))
        yield service


async def running(scene: Scene, *hooks: dict[str, Any]) -> Object:
    """A node with a pod, whose workflow knows these hooks: its NodeClaim."""
    rules = {"beforeDrain": list(hooks)}
    await scene.make(lifecycle_policy(scene.name, scene.name, hooks=rules))
    (claim,) = await scene.run(1)
    await eventually(partial(_knows, scene, claim, rules))
    return claim


async def _knows(scene: Scene, claim: Object, rules: dict[str, Any]) -> None:
    found = (await state_of(scene, claim)).seen.rules
    assert found is not None and found.hooks == HookRules.model_validate(rules), found


def call(service: Service, **fields: Any) -> dict[str, Any]:
    return {"name": "warn", "http": {"url": service.url}, **fields}


async def jobs_of(product: Product, claim: Object) -> list[Object]:
    return await product.items(JOBS.path(namespace=NAMESPACE), label=f"{HOOK_NODECLAIM}={name_of(claim)}")


async def _one_job(product: Product, claim: Object) -> Object:
    found = await jobs_of(product, claim)
    assert len(found) == 1, [job["metadata"]["name"] for job in found]
    return found[0]


async def _succeeded_once(product: Product, scene: Scene, claim: Object) -> None:
    assert await count(scene, name_of(claim), "HookSucceeded") == 1
    told = {"point": "beforeDrain", "outcome": "succeeded", "nodepool": scene.name}
    assert await product.metric("tenure_hooks_total", **told) == 1


@pytest.mark.row("002-k")
async def test_a_job_before_the_drain_is_made_once_although_the_worker_is_killed(
    own_product: OwnProduct,
) -> None:
    """The Job lasts until every other row of the act is where the worker is killed, too."""
    await own_product.work()
    async with own_product.scene("002-k") as scene, own_product.scene("002-k-jobs") as where:
        template = {
            "metadata": {"annotations": {"sandbox.tenure.sh/runs-for": "90s"}},
            "spec": {
                "nodeSelector": {labels.NODEPOOL: where.name},
                "containers": [{"name": "main", "image": PAUSE}],
            },
        }
        claim = await running(scene, {"name": "snapshot", "job": {"template": template}})
        name, node = name_of(claim), claim["status"]["nodeName"]
        await own_product.delete(NODE_CLAIMS.path(name))
        job = await eventually(lambda: _one_job(own_product, claim))
        await eventually(lambda: scene.is_blocked_by(name, f"Job {NAMESPACE}/{job['metadata']['name']} runs"))
        await own_product.kill()
        await scene.node_is_marked(node)
        await scene.pods_run(1)
        await own_product.go_on()
        await throughout(lambda: scene.pods_run(1), seconds=3)
        await eventually(lambda: scene.claims_are_gone([name]), seconds=240)
        again = await _one_job(own_product, claim)
        assert again["metadata"]["uid"] == job["metadata"]["uid"] and again["status"]["succeeded"] == 1
        env = {one["name"]: one["value"] for one in again["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["TENURE_NODE"] == node and env["TENURE_NODE_CLAIM"] == name
        await eventually(lambda: _succeeded_once(own_product, scene, claim))
        await eventually(lambda: scene.pods_run(1))
        await _forget_jobs(own_product, claim)


async def _forget_jobs(product: Product, claim: Object) -> None:
    for job in await jobs_of(product, claim):
        path = JOBS.path(job["metadata"]["name"], namespace=NAMESPACE)
        await product.delete(f"{path}?propagationPolicy=Background")


@pytest.mark.row("002-k")
async def test_a_call_before_the_drain_has_one_key_although_the_worker_is_killed(
    own_product: OwnProduct,
) -> None:
    await own_product.work()
    async with own_product.scene("002-k-call") as scene, serving(Service()) as service:
        service.ready = False
        claim = await running(scene, call(service))
        name = name_of(claim)
        await own_product.delete(NODE_CLAIMS.path(name))
        await eventually(service.was_called)
        await eventually(lambda: scene.is_blocked_by(name, "hook beforeDrain/warn: POST 127.0.0.1"))
        await own_product.kill()
        before = len(service.keys)
        await own_product.go_on()
        await eventually(lambda: service.was_called(before + 1))
        await throughout(lambda: scene.pods_run(1), seconds=3)
        service.ready = True
        await eventually(lambda: scene.claims_are_gone([name]))
        assert set(service.keys) == {f"{claim['metadata']['uid']}-beforeDrain-warn"}
        assert service.nodes == {claim["status"]["nodeName"]}
        await eventually(lambda: _succeeded_once(own_product, scene, claim))
        await eventually(lambda: scene.pods_run(1))


@pytest.mark.row("002-k")
async def test_what_follows_a_failure_is_what_the_policy_says(product: Product) -> None:
    async with product.scene("002-k-waits") as scene, serving(Service(409)) as service:
        claim = await running(scene, call(service, onFailure="wait"))
        name = name_of(claim)
        await product.delete(NODE_CLAIMS.path(name))
        await eventually(lambda: scene.event(name, "HookFailed", "answers 409", "the drain waits"), seconds=SOON)
        waits = ("waits for a person: mend the hook", "hook beforeDrain/warn failed, is tried again at")
        await eventually(lambda: scene.is_blocked_by(name, *waits))
        await eventually(partial(_is_stuck, product, name))
        await throughout(lambda: scene.pods_run(1), seconds=3)
        await scene.make(lifecycle_policy(scene.name, scene.name, hooks={"beforeDrain": [call(service)]}))
        await eventually(lambda: scene.claims_are_gone([name]))
        await eventually(lambda: scene.pods_run(1))


async def _is_stuck(product: Product, name: str) -> None:
    """As `tenure stuck` lists it, long before its deadline."""
    overdue, *_ = await find(product.connection)
    assert name in [life.name for life in overdue]


@pytest.mark.row("002-k")
async def test_a_hook_that_fails_keeps_a_node_that_nothing_forces_to_go(product: Product) -> None:
    async with product.scene("002-k-kept") as scene, serving(Service(409)) as service:
        claim = await running(scene, call(service, onFailure="giveUp"))
        name, node = name_of(claim), claim["status"]["nodeName"]
        await scene.scale(0)
        await eventually(lambda: scene.event(name, "HookFailed", "the drain is given up"), seconds=SOON)
        await eventually(lambda: scene.event(name, "DrainGivenUp", "hook beforeDrain/warn failed"), seconds=SOON)
        await scene.claims_stand([name])
        await eventually(lambda: scene.node_is_in_service(node))
