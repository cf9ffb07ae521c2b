"""What tests of drains do and look at: budgets, protected pods, rules of a node's drain, and how long things took."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from kube.resources import NODE_CLAIMS, PODS
from model.kinds.lifecycle_rules import DrainRules
from model.labels import DO_NOT_DISRUPT
from tests.integration.eventually import eventually
from tests.integration.objects import Object, lifecycle_policy
from tests.integration.scene import Scene


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


def started(pod: Object) -> datetime:
    return datetime.fromisoformat(pod["status"]["startTime"])
