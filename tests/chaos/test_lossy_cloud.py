"""Nodes while AWS fails, loses responses or is slow, and the API server sheds load: each launches once.

`TENURE_LOSSY` is the number of nodes of the first test; `make chaos` uses 300.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.fault_proxy import ErrorResponse
from tests.chaos import consistency_checks
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import send_spot_warning
from tests.support.product.product import DedicatedProduct

NODES = int(os.environ.get("TENURE_LOSSY", "40"))
TIMEOUT_SECONDS = 180.0 + 3 * NODES
LOST, LATE, SHED = 0.10, 0.05, 0.20
"""Shares of EC2's responses that are lost or late, and of the API server's responses that are 429."""
LATENCY_SECONDS = 30.0
"""Seconds, as long as a client waits."""
SEED = 7

FAILING_SEED = 20
SHARES = {"throttle": 1 / 10, "5xx": 1 / 9, "answer-lost": 1 / 8}
"""Each share applies to the calls that the previous rules let pass, so that it is a tenth of all calls."""
PODS = 6
FAILING_TIMEOUT_SECONDS = 400.0
"""Seconds. Failed calls are retried with backoff."""

DRAINED_NODES = 6
THROTTLED_SECONDS = 20
REJECTED_PER_NODE_AND_SECOND = 2
EVICTED_WITHIN_SECONDS = 15.0
THROTTLED_PATHS = r"/eviction$|^/api/v1/nodes/"


@pytest.mark.timeout(300 + TIMEOUT_SECONDS)
async def test_each_node_launches_once_with_lost_late_and_shed_responses(product: DedicatedProduct) -> None:
    await product.ensure_worker(BATCH_MAX_DURATION="5s")
    async with product.scope("lossy") as scope:
        started_at = time.monotonic()
        with lossy_aws(product) as hits:
            await scope.create_deployment(NODES)
            await wait_until(lambda: scope.assert_nodes_initialized(NODES), seconds=TIMEOUT_SECONDS)
            print(f"{NODES} nodes are ready after {time.monotonic() - started_at:.0f} s")
        await wait_until(lambda: scope.assert_pods_running(NODES), seconds=TIMEOUT_SECONDS)
        await scope.wait_until_nodes_launched(NODES)
        await wait_until(lambda: consistency_checks.assert_nodes_consistent(scope))
        consistency_checks.assert_client_tokens_respected(scope)
        print(f"faults: {hits}")
        assert all(hits.values()), hits
        await scope.scale_deployment(0)
        await wait_until(scope.assert_no_nodes, seconds=TIMEOUT_SECONDS)
        await consistency_checks.assert_workflows_completed(scope)


@contextmanager
def lossy_aws(product: DedicatedProduct) -> Iterator[dict[str, int]]:
    """Afterwards, the dictionary has the number of hits of each fault."""
    aws, hits = product.aws, dict[str, int]()
    aws.seed_faults(SEED)
    late = aws.add_fault("latency", service="ec2", probability=LATE, latency=LATENCY_SECONDS)
    response_fault = aws.add_fault("answer-lost", service="ec2", probability=LOST)
    with product.own_sandbox.faults.during(ErrorResponse(429, retry_after=1), share=SHED) as shed:
        try:
            yield hits
        finally:
            found = {rule["id"]: int(rule["hits"]) for rule in aws.list_faults()}
            for rule in (late, response_fault):
                aws.remove_fault(rule)
            hits |= {"late": found[late], "lost": found[response_fault], "shed": shed.hits}


@pytest.mark.timeout(300 + FAILING_TIMEOUT_SECONDS)
async def test_scale_up_and_down_launches_no_extra_node_while_aws_fails(product: DedicatedProduct) -> None:
    """Three of ten AWS calls fail, some after they took effect."""
    await product.stop_workers()
    product.aws.seed_faults(FAILING_SEED)
    before = _count_aws_calls(product)
    rules = [product.aws.add_fault(kind, probability=share) for kind, share in SHARES.items()]
    try:
        await product.ensure_worker(BATCH_MAX_DURATION="5s")
        async with product.scope("failing") as scope:
            await scope.create_deployment(PODS)
            await wait_until(lambda: scope.assert_pods_running(PODS), seconds=FAILING_TIMEOUT_SECONDS)
            await wait_until(lambda: scope.assert_nodes_initialized(PODS))
            assert len(scope.alive_instances()) == PODS
            await scope.scale_deployment(0)
            await wait_until(lambda: scope.assert_no_nodes(), seconds=FAILING_TIMEOUT_SECONDS)
            await scope.wait_until_nodes_launched(PODS)
    finally:
        hits = {rule["kind"]: rule["hits"] for rule in product.aws.list_faults()}
        for rule in rules:
            product.aws.remove_fault(rule)
    assert set(hits) == set(SHARES) and all(hits.values()), hits
    assert sum(hits.values()) >= (_count_aws_calls(product) - before) / 5, f"too few calls failed: {hits}"


def _count_aws_calls(product: DedicatedProduct) -> int:
    return sum(int(entry["count"]) for entry in product.aws.get_counters().values())


async def test_drains_continue_after_the_api_server_rejects_evictions(product: DedicatedProduct) -> None:
    """It answers 429 to evictions and updates of Nodes while five nodes are deleted and one is interrupted."""
    await product.ensure_worker(INTERRUPTION_QUEUE="demo")
    async with product.scope("throttled", capacity_type="spot", after="Never") as scope:
        *deleted, interrupted = claims = await scope.run_pods(DRAINED_NODES)
        pods = {one["spec"]["nodeName"]: one["metadata"]["name"] for one in await scope.pods()}
        began = time.monotonic()
        with product.own_sandbox.faults.during(ErrorResponse(429, retry_after=1), THROTTLED_PATHS) as rejected:
            for name in object_names(deleted):
                await product.delete(NODE_CLAIMS.path(name))
            send_spot_warning(product, interrupted)
            await wait_until(lambda: scope.assert_in_phase(interrupted["metadata"]["name"], Phase.DRAIN))
            await asyncio.sleep(THROTTLED_SECONDS)
            most = REJECTED_PER_NODE_AND_SECOND * DRAINED_NODES * (time.monotonic() - began)
            assert DRAINED_NODES <= rejected.hits <= most, rejected.hits
            assert await _remaining_pods(scope) >= set(pods.values()), "no eviction succeeds"
        recovered, pod = time.monotonic(), pods[interrupted["status"]["nodeName"]]
        await wait_until(lambda: _assert_evicted(scope, pod), seconds=EVICTED_WITHIN_SECONDS)
        print(f"{rejected.hits} requests rejected; evicted {time.monotonic() - recovered:.1f} s after the recovery")
        await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names(claims)))
        await wait_until(lambda: scope.assert_pods_running(DRAINED_NODES))
        await scope.wait_until_nodes_launched(2 * DRAINED_NODES)


async def _remaining_pods(scope: ClusterScope) -> set[str]:
    """Names of pods that are not being deleted."""
    return {one["metadata"]["name"] for one in await scope.pods() if "deletionTimestamp" not in one["metadata"]}


async def _assert_evicted(scope: ClusterScope, pod: str) -> None:
    assert pod not in await _remaining_pods(scope)
