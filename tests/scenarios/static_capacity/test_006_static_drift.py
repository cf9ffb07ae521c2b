"""Promise 7: nodes of a static NodePool are replaced one for one, and never exceed its limit."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import pytest

from tenure.apis import labels
from tenure.clock import utc_now
from tests.support.product.cluster_scope import ClusterScope, condition_status, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

LIFETIME_SECONDS = 180


@dataclass
class NodeCounts:
    """NodeClaims of a NodePool, counted at each poll."""

    existing: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    """Initialized and not being deleted."""

    async def assert_replaced(self, scope: ClusterScope, old: Collection[str], replicas: int) -> None:
        claims = await scope.nodeclaims()
        ready = [
            one["metadata"]["name"]
            for one in claims
            if condition_status(one, labels.INITIALIZED_CONDITION) == "True"
            and "deletionTimestamp" not in one["metadata"]
        ]
        self.existing.append(len(claims))
        self.ready.append(len(ready))
        assert len(claims) == len(ready) == replicas and not set(ready) & set(old), f"{scope.name}: {claims}"


async def _change_template(scope: ClusterScope) -> None:
    template = {"metadata": {"labels": {"generation": "two"}}}
    await scope.product.patch(scope.pool_path, {"spec": {"template": template}})


@pytest.mark.row("006-a")
async def test_drifted_static_nodes_are_replaced_within_the_limit(product: InstalledProduct) -> None:
    async with product.scope("006-a", replicas=2, limits={"nodes": "3"}) as scope:
        old = object_names(await wait_until(lambda: scope.assert_nodes_initialized(2)))
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        await _change_template(scope)
        counts = NodeCounts()
        await wait_until(partial(counts.assert_replaced, scope, old, 2))
        assert max(counts.existing) == 3, "a replacement is launched first, and one at a time"
        assert min(counts.ready) == 2, "a node is deleted when its replacement is initialized"
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(4)


@pytest.mark.row("006-b")
async def test_drifted_static_node_at_the_limit_is_deleted_first(product: InstalledProduct) -> None:
    """The gate TerminateFirstDrift is on."""
    async with product.scope("006-b", replicas=1, limits={"nodes": "1"}) as scope:
        old = object_names(await wait_until(lambda: scope.assert_nodes_initialized(1)))
        await _change_template(scope)
        counts = NodeCounts()
        await wait_until(partial(counts.assert_replaced, scope, old, 1))
        assert max(counts.existing) == 1, "a terminating node counts against the limit"
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("006-c")
@pytest.mark.timeout(400)
async def test_expiring_static_node_is_replaced_before_it_expires(product: InstalledProduct) -> None:
    async with product.scope("006-c", replicas=1, limits={"nodes": "2"}, expire_after=f"{LIFETIME_SECONDS}s") as scope:
        (old,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        counts = NodeCounts()
        await wait_until(partial(counts.assert_replaced, scope, object_names([old]), 1), seconds=LIFETIME_SECONDS)
        assert max(counts.existing) == 2, "a replacement is launched first"
        assert min(counts.ready) == 1, "the node is deleted when its replacement is initialized"
        assert _age_of(old) < LIFETIME_SECONDS
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


def _age_of(claim: Object) -> float:
    """In seconds."""
    return (utc_now() - datetime.fromisoformat(claim["metadata"]["creationTimestamp"])).total_seconds()
