"""Promise 1, for a node to which pods are nominated that never run there."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tenure.controller.cache.nominations import NOMINATION_TTL
from tenure.kube.client.resources import PODS
from tenure.model.nodeclaim.state import Phase
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import pod_spec
from tests.support.product.product import InstalledProduct

AFTER = timedelta(seconds=3)
EVERY = 3.0
"""Seconds between nominated pods."""
TIMES = 5
SLACK = timedelta(seconds=60)


@pytest.mark.row("000-g")
async def test_nominated_node_is_deleted_after_last_nomination(product: InstalledProduct) -> None:
    """These pods name another scheduler, so that they are nominated to the node and never run there."""
    async with product.scope("000-g", after=f"{AFTER.total_seconds():g}s") as scope:
        (claim,) = await scope.run_pods(1)
        await _create_unschedulable_pod(scope, 0)
        await wait_until(lambda: _assert_nominated(scope, 0, claim["metadata"]["name"]))
        await scope.scale_deployment(0)
        for number in range(1, TIMES):
            await asyncio.sleep(EVERY)
            await _create_unschedulable_pod(scope, number)
            await wait_until(partial(_assert_nominated, scope, number, claim["metadata"]["name"]))
            await scope.product.delete(_pod_path(scope, number - 1))
            await scope.assert_nodeclaims_exist(object_names([claim]))
        last = await wait_until(lambda: _assert_nominated(scope, TIMES - 1, claim["metadata"]["name"]))
        await scope.product.delete(_pod_path(scope, TIMES - 1))
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        (nodeclaim,) = await scope.nodeclaim_workflows()
        outcome = await product.nodeclaim_workflows.fetch_outcome(nodeclaim)
        (drained,) = [step.at for step in outcome.history if step.phase is Phase.DRAIN]
        assert outcome.reason == "Empty"
        assert AFTER <= drained - last <= NOMINATION_TTL + AFTER + SLACK
        await scope.assert_one_node_launched()


async def test_pod_of_another_scheduler_is_reported_with_its_message(product: InstalledProduct) -> None:
    async with product.scope("other-scheduler", after="Never") as scope:
        (claim,) = await scope.run_pods(1)
        await scope.scale_deployment(0)
        await _create_unschedulable_pod(scope, 0, message="queue is full")
        expected = ("not bound by scheduler absent-scheduler", "queue is full")
        await wait_until(lambda: scope.assert_blocked_by(claim["metadata"]["name"], *expected))


async def _create_unschedulable_pod(scope: ClusterScope, number: int, message: str = "") -> None:
    """A pod that no scheduler handles; the test writes its condition Unschedulable."""
    spec = pod_spec(scope.name, cpu="100m") | {"schedulerName": "absent-scheduler"}
    name = f"{scope.name}-phantom-{number}"
    await scope.apply_manifest(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    stamps = {"lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    await scope.product.patch_status(_pod_path(scope, number), {"conditions": [unschedulable | stamps]})


def _pod_path(scope: ClusterScope, number: int) -> str:
    return PODS.path(f"{scope.name}-phantom-{number}", namespace="default")


async def _assert_nominated(scope: ClusterScope, number: int, claim: str) -> datetime:
    """When the event Nominated was published on the pod."""
    event = await scope.assert_event(f"{scope.name}-phantom-{number}", "Nominated", claim)
    return datetime.fromisoformat(event["firstTimestamp"])
