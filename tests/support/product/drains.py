"""Helpers for tests of drains: budgets, protected pods, drain rules, and durations."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import yaml

from deploy.resources import OPTIONAL_RBAC
from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.kube.client.resources import NODE_CLAIMS, PODS
from tenure.model.nodeclaim.state import Phase
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, lifecycle_policy, pod_spec
from tests.support.product.product import InstalledProduct

POD_GRACE_SECONDS = 600
"""Termination grace period of a pod in seconds. A drain waits for it, and at most a minute longer."""


SURGE = {"SURGE_SINGLE_REPLICAS": "true"}
"""Settings of a worker; `optional_right` grants the right that they need."""


@asynccontextmanager
async def optional_right(product: InstalledProduct, setting: str) -> AsyncIterator[None]:
    """The worker has this setting's right inside the block, as deploy/rbac/optional grants it."""
    documents = [one for one in yaml.safe_load_all(OPTIONAL_RBAC[setting].read_text()) if one]
    for document in documents:
        await product.kube.apply(document)
    try:
        yield
    finally:
        for document in documents:
            await product.delete(await product.kube.path_of(document))


def pod_disruption_budget(name: str, **spec: Any) -> Object:
    """A PodDisruptionBudget for this scope's pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def budget_path(name: str) -> str:
    return f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}"


async def assert_budget_healthy(scope: ClusterScope, healthy: int) -> None:
    """The disruption controller has counted this number of healthy pods."""
    found = await scope.product.kube.request("GET", budget_path(scope.name))
    assert found.get("status", {}).get("currentHealthy") == healthy, found.get("status")


async def single_pod(scope: ClusterScope) -> Object:
    """The scope's only pod that is not terminating."""
    found = [one for one in await scope.pods() if "deletionTimestamp" not in one["metadata"]]
    assert len(found) == 1, [one["metadata"]["name"] for one in found]
    return found[0]


async def annotate_do_not_disrupt(scope: ClusterScope, value: str) -> Object:
    """Set the do-not-disrupt annotation of the scope's only pod."""
    pod = await single_pod(scope)
    await set_do_not_disrupt(scope, pod["metadata"]["name"], value)
    return pod


async def set_do_not_disrupt(scope: ClusterScope, pod: str, value: str | None) -> None:
    """None removes the annotation."""
    path = PODS.path(pod, namespace="default")
    await scope.product.patch(path, {"metadata": {"annotations": {DO_NOT_DISRUPT: value}}})


@asynccontextmanager
async def terminating_pod(scope: ClusterScope) -> AsyncIterator[str]:
    """Inside the block, a deleted pod that does not end is on the scope's first node. Yields its path."""
    name = f"{scope.name}-leaving"
    claim = (await scope.nodeclaims())[0]
    pod_fields = {"nodeName": claim["status"]["nodeName"], "terminationGracePeriodSeconds": POD_GRACE_SECONDS}
    metadata = {"name": name, "namespace": "default", "annotations": {"sandbox.tenure.sh/stops-after": "never"}}
    spec = pod_spec(scope.name, cpu="10m") | pod_fields
    await scope.apply_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = PODS.path(name, namespace="default")
    await scope.product.delete(path)
    try:
        yield path
    finally:
        await scope.product.delete(f"{path}?gracePeriodSeconds=0")


async def delete_with_drain_rules(scope: ClusterScope, claim: Object, **drain: Any) -> None:
    """Delete a NodeClaim, with these rules for its drain."""
    name = claim["metadata"]["name"]
    await apply_drain_rules(scope, name, **drain)
    await scope.product.delete(NODE_CLAIMS.path(name))


async def apply_drain_rules(scope: ClusterScope, nodeclaim_name: str, **drain: Any) -> None:
    """Apply these drain rules, and wait until the NodeClaim's workflow has observed them."""
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, drain=drain))
    expected = DrainRules.model_validate(drain)

    async def assert_rules_observed() -> None:
        rules = (await scope.nodeclaim_state(nodeclaim_name)).observed.rules
        assert rules is not None and rules.drain == expected, rules

    await wait_until(assert_rules_observed)


async def time_until(check: Callable[[], Awaitable[Any]], description: str, *, within: float) -> float:
    """Wait until the check succeeds. Returns and prints the duration; `within` is a generous limit."""
    started_at = time.monotonic()
    await wait_until(check, seconds=within)
    elapsed = time.monotonic() - started_at
    print(f"{elapsed:6.1f} s  {description}")
    return elapsed


async def read_phase_times(scope: ClusterScope, nodeclaim: NodeClaimSummary) -> dict[Phase, datetime]:
    """When a completed NodeClaim entered each phase."""
    return {step.phase: step.at for step in (await scope.product.nodeclaim_workflows.fetch_outcome(nodeclaim)).history}


async def assert_drained_within(
    scope: ClusterScope, nodeclaim_names: Sequence[str], seconds: float, *, since: datetime
) -> None:
    """All NodeClaims are deleted, and the last drain started at most this long after `since`."""
    nodeclaims = [nodeclaim for nodeclaim in await scope.nodeclaim_workflows() if nodeclaim.name in nodeclaim_names]
    assert len(nodeclaims) == len(nodeclaim_names), (
        f"{scope.name}: workflows of {nodeclaim_names} are {[nodeclaim.name for nodeclaim in nodeclaims]}"
    )
    last = max([(await read_phase_times(scope, nodeclaim))[Phase.DRAIN] for nodeclaim in nodeclaims])
    assert last - since <= timedelta(seconds=seconds), f"{scope.name}: the last drain started after {last - since}"


def started_at(pod: Object) -> datetime:
    return datetime.fromisoformat(pod["status"]["startTime"])
