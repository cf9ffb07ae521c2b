"""Pauses on real components, by command and by annotation, of a NodePool, a node and the whole cluster."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.labels import PAUSE
from tenure.cli.disruption.pause import Target, build_pause, send_request
from tenure.kube.client.resources import NAMESPACES, NODE_CLAIMS, NODES
from tenure.model.disruption.drain import DrainState
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.signals import Resume
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import apply_drain_rules, terminating_pod
from tests.support.product.eventually import assert_throughout, query_state, wait_until
from tests.support.product.product import DedicatedProduct, InstalledProduct

WorkflowRef = WorkflowHandle[Any, Any]


async def pause(product: InstalledProduct, target: Target) -> str:
    requested_pause = build_pause("1h", "", "a test, of pauses", "ann@example.com", datetime.now(UTC))
    return await send_request(product.connection, target, "pause", requested_pause)


async def resume(product: InstalledProduct, target: Target) -> str:
    return await send_request(product.connection, target, "resume", Resume(by="ann@example.com"))


async def annotate(product: InstalledProduct, path: str, text: str | None) -> None:
    await product.patch(path, {"metadata": {"annotations": {PAUSE: text}}})


async def assert_annotated(product: InstalledProduct, path: str, *messages: str) -> None:
    found = await product.kube.request("GET", path)
    text = (found["metadata"].get("annotations") or {}).get(PAUSE, "")
    assert all(message in text for message in messages) and bool(text) == bool(messages), text


def pause_text(**duration: float) -> str:
    until = (datetime.now(UTC) + timedelta(**duration)).isoformat(timespec="seconds")
    return f"until={until}, by=ann, reason=a test, of pauses"


async def assert_retained(scope: ClusterScope, name: str, *messages: str) -> None:
    """The empty node is not deleted although it is due, and reports why."""
    await wait_until(partial(scope.assert_blocked_by, name, *messages))
    await assert_throughout(partial(scope.assert_nodeclaims_exist, [name]), seconds=5)


async def test_paused_pool_keeps_an_empty_node_until_resumed(product: InstalledProduct) -> None:
    async with product.scope("paused") as scope:
        (claim,) = await scope.run_pods(1)
        name, path, pool = claim["metadata"]["name"], scope.pool_path, scope.name
        assert f"NodePool {pool} is paused until" in await pause(product, Target(pool=pool))
        await wait_until(partial(assert_annotated, product, path, "by=ann@example.com", "reason=a test, of pauses"))
        await scope.scale_deployment(0)
        await assert_retained(scope, name, f"NodePool {pool} is paused by ann@example.com")
        await wait_until(partial(scope.assert_event, pool, "DisruptionPaused", "a test, of pauses"))
        assert await resume(product, Target(pool=pool)) == f"NodePool {pool} is no longer paused"
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))
        await wait_until(partial(assert_annotated, product, path))


async def test_pause_annotation_is_removed_when_it_expires(product: InstalledProduct) -> None:
    async with product.scope("annotated") as scope:
        (claim,) = await scope.run_pods(1)
        name, path = claim["metadata"]["name"], scope.pool_path
        await annotate(product, path, "until next week")
        await wait_until(partial(scope.assert_event, scope.name, "DisruptionPaused", "has no reason, expected it last"))
        await scope.scale_deployment(0)
        await assert_retained(scope, name, "is paused by the annotation")
        until = time.monotonic() + 45
        await annotate(product, path, pause_text(seconds=45))
        await wait_until(partial(scope.assert_blocked_by, name, "is paused by ann until"))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))
        assert time.monotonic() > until - 1
        await wait_until(partial(assert_annotated, product, path))


async def test_node_annotation_pauses_only_that_node(product: InstalledProduct) -> None:
    async with product.scope("one-node") as scope:
        claims = await scope.run_pods(2)
        paused_nodeclaim, other = (one["metadata"]["name"] for one in claims)
        await annotate(product, NODES.path(claims[0]["status"]["nodeName"]), pause_text(hours=1))
        await wait_until(partial(scope.assert_event, paused_nodeclaim, "DisruptionPaused"))
        await scope.scale_deployment(0)
        await wait_until(partial(scope.assert_nodeclaims_deleted, [other]))
        await assert_retained(scope, paused_nodeclaim, "the node is paused by ann")
        assert (
            await resume(product, Target(node=paused_nodeclaim)) == f"NodeClaim {paused_nodeclaim} is no longer paused"
        )
        await wait_until(partial(scope.assert_nodeclaims_deleted, [paused_nodeclaim]))


async def test_pause_cancels_a_drain_within_seconds(product: InstalledProduct) -> None:
    async with product.scope("under-way") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await apply_drain_rules(scope, name, whenBlocked="giveUp", blockedFor="1h")
        handle = await scope.workflow_handle(name)
        async with terminating_pod(scope):
            await scope.scale_deployment(0)
            await wait_until(partial(_assert_draining, scope, handle, name))
            started_at = time.monotonic()
            await pause(product, Target(pool=scope.name))
            await wait_until(partial(scope.assert_node_not_disrupted, node))
            elapsed = time.monotonic() - started_at
        print(f"the drain was cancelled {elapsed:.1f} s after the pause")
        await assert_retained(scope, name, f"NodePool {scope.name} is paused by ann@example.com")
        await resume(product, Target(pool=scope.name))
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))


async def test_namespace_annotation_pauses_the_whole_cluster(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    path = NAMESPACES.path("tenure")
    async with own_product.scope("whole") as scope:
        (claim,) = await scope.run_pods(1)
        name = claim["metadata"]["name"]
        await annotate(own_product, path, pause_text(hours=1))
        try:
            await scope.scale_deployment(0)
            await assert_retained(scope, name, "the cluster is paused by ann")
        finally:
            await annotate(own_product, path, None)
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))


async def _assert_draining(scope: ClusterScope, handle: WorkflowRef, claim: str) -> None:
    """Its drain has started, and its NodeClaim is not deleted yet."""
    state = await query_state(handle, NodeClaimState)
    assert (state.drain or DrainState()).defers_deletion, state.phase
    found = await scope.product.kube.request("GET", NODE_CLAIMS.path(claim))
    assert "deletionTimestamp" not in found["metadata"]
