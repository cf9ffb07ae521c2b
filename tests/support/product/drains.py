"""What tests of drains do and look at: budgets, protected pods, rules of a node's drain, and how long things took."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.cli.nodes.workflows import NodeLife
from tenure.kube.client.resources import NODE_CLAIMS, PODS
from tenure.model.nodeclaim_state import Phase
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object, lifecycle_policy, pod_spec
from tests.support.product.scene import Scene

TO_END = 600
"""Seconds that a pod may take to end: a drain waits for it for as long, and no more than a minute beyond."""


def budget(name: str, **spec: Any) -> Object:
    """A PodDisruptionBudget of this scene's pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def budget_path(name: str) -> str:
    return f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}"


async def budget_counts(scene: Scene, healthy: int) -> None:
    """Its controller has seen that many healthy pods."""
    found = await scene.product.kube.request("GET", budget_path(scene.name))
    assert found.get("status", {}).get("currentHealthy") == healthy, found.get("status")


async def the_pod(scene: Scene) -> Object:
    """The scene's only pod that is not going."""
    found = [one for one in await scene.pods() if "deletionTimestamp" not in one["metadata"]]
    assert len(found) == 1, [one["metadata"]["name"] for one in found]
    return found[0]


async def protect(scene: Scene, value: str) -> Object:
    """The scene's only pod is annotated do-not-disrupt."""
    pod = await the_pod(scene)
    path = PODS.path(pod["metadata"]["name"], namespace="default")
    await scene.product.patch(path, {"metadata": {"annotations": {DO_NOT_DISRUPT: value}}})
    return pod


@asynccontextmanager
async def terminating_pod(scene: Scene) -> AsyncIterator[str]:
    """Inside it a pod of nobody, which was deleted and does not end, is on the scene's first node: its path."""
    name = f"{scene.name}-leaving"
    claim = (await scene.claims())[0]
    where = {"nodeName": claim["status"]["nodeName"], "terminationGracePeriodSeconds": TO_END}
    metadata = {"name": name, "namespace": "default", "annotations": {"sandbox.tenure.sh/stops-after": "never"}}
    spec = pod_spec(scene.name, cpu="10m") | where
    await scene.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = PODS.path(name, namespace="default")
    await scene.product.delete(path)
    try:
        yield path
    finally:
        await scene.product.delete(f"{path}?gracePeriodSeconds=0")


async def delete_under(scene: Scene, claim: Object, **drain: Any) -> None:
    """Delete a NodeClaim whose drain is under these rules."""
    name = claim["metadata"]["name"]
    await put_under(scene, name, **drain)
    await scene.product.delete(NODE_CLAIMS.path(name))


async def put_under(scene: Scene, claim: str, **drain: Any) -> None:
    """These rules hold for its drain, and its workflow has been told."""
    await scene.make(lifecycle_policy(scene.name, scene.name, drain=drain))
    wanted = DrainRules.model_validate(drain)

    async def told() -> None:
        rules = (await scene.state(claim)).seen.rules
        assert rules is not None and rules.drain == wanted, rules

    await eventually(told)


async def timed(check: Callable[[], Awaitable[Any]], what: str, *, within: float) -> float:
    """How long until it holds; the number is printed, and the bound is generous."""
    began = time.monotonic()
    await eventually(check, seconds=within)
    took = time.monotonic() - began
    print(f"{took:6.1f} s  {what}")
    return took


async def moments(scene: Scene, life: NodeLife) -> dict[Phase, datetime]:
    """When a life that is over came to each of its phases."""
    return {step.phase: step.at for step in (await scene.product.lives.outcome(life)).story}


async def drained_within(scene: Scene, claims: Sequence[str], seconds: float, *, since: datetime) -> None:
    """NodeClaims that are gone: the last of their drains began at most so long after."""
    lives = [life for life in await scene.lives() if life.name in claims]
    assert len(lives) == len(claims), f"{scene.name}: of {claims} there are lives {[life.name for life in lives]}"
    last = max([(await moments(scene, life))[Phase.DRAIN] for life in lives])
    assert last - since <= timedelta(seconds=seconds), f"{scene.name}: the last drain began {last - since} after"


def started(pod: Object) -> datetime:
    return datetime.fromisoformat(pod["status"]["startTime"])
