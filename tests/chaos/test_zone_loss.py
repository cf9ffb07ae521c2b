"""A zone is lost: pods move to other zones, rates stay bounded, and surplus nodes are deleted after the recovery.

`TENURE_ZONE_NODES` is the number of nodes in three zones; `make chaos` uses 60.
"""

import os
import time
from collections import Counter

import pytest

from tenure.apis import labels
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.chaos import consistency_checks
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct

NODES_IN_ZONES = int(os.environ.get("TENURE_ZONE_NODES", "12"))
TIMEOUT_SECONDS = 240.0 + 10 * NODES_IN_ZONES
GRACE_SECONDS = 20
"""NOT_READY_GRACE, which passes while the zone is lost."""
CONSOLIDATE_AFTER = f"{60 + 5 * NODES_IN_ZONES}s"
"""Longer than the loss. The simulated kubelets delete evicted pods even then, so that the lost nodes are empty."""
QUIET_SECONDS = 15.0
SECONDS_PER_EVICTED_NODE = 12.0
"""Kubernetes taints one node of a lost zone every ten seconds."""
MAX_WRITES_PER_NODE = 12
"""Writes of the worker about each lost node and its NodeClaim, while the zone is lost."""


@pytest.mark.timeout(300 + 2 * TIMEOUT_SECONDS)
async def test_pods_of_a_lost_zone_move_and_surplus_nodes_are_deleted(product: DedicatedProduct) -> None:
    await product.ensure_worker(NOT_READY_GRACE=f"{GRACE_SECONDS}s")
    async with product.scope("zone-loss", after=CONSOLIDATE_AFTER) as scope:
        await scope.create_deployment(NODES_IN_ZONES, **_spread_over_zones(scope.name))
        await wait_until(lambda: scope.assert_pods_running(NODES_IN_ZONES), seconds=TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_nodes_initialized(NODES_IN_ZONES), seconds=TIMEOUT_SECONDS)
        lost = await _nodes_of_one_zone(scope)
        names = [*object_names(lost), *await _claims_on(scope, lost)]
        written, lost_at = len(product.own_sandbox.written), time.monotonic()

        await _lose_zone(scope, lost)
        try:
            await wait_until(lambda: _assert_not_ready(scope, lost))
            await wait_until(lambda: _assert_pods_elsewhere(scope, lost), seconds=_down_seconds(lost))
            print(f"pods of {len(lost)} nodes moved within {time.monotonic() - lost_at:.0f} s")
            await assert_throughout(lambda: _assert_replaced_once(scope, lost), seconds=QUIET_SECONDS)
            await _assert_not_ready(scope, lost)
        finally:
            product.aws.clear_pools()
        writes = _count_writes(product.own_sandbox.written[written:], names)
        print(f"writes about the lost nodes and NodeClaims: {dict(writes)}")
        assert writes and max(writes.values()) <= MAX_WRITES_PER_NODE, writes

        await wait_until(lambda: _assert_surplus_deleted(scope), seconds=TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_pods_running(NODES_IN_ZONES))
        await _assert_replaced_once(scope, lost)
        await wait_until(lambda: consistency_checks.assert_nodes_consistent(scope))


def _spread_over_zones(name: str) -> Object:
    """Pods prefer to be spread over zones, and leave a lost node after two seconds."""
    spread = {
        "maxSkew": 1,
        "topologyKey": labels.ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    tolerations = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        for key in (labels.NOT_READY_TAINT_KEY, labels.UNREACHABLE_TAINT_KEY)
    ]
    return {"topologySpreadConstraints": [spread], "tolerations": tolerations}


async def _nodes_of_one_zone(scope: ClusterScope) -> list[Object]:
    """The nodes of the zone with most of them."""
    nodes = await scope.nodes()
    (zone, count), *others = Counter(_zone(one) for one in nodes).most_common()
    assert len(others) == 2 and count < len(nodes) / 2, (zone, count, others)
    return [one for one in nodes if _zone(one) == zone]


def _zone(node: Object) -> str:
    return str(node["metadata"]["labels"][labels.ZONE])


async def _claims_on(scope: ClusterScope, nodes: list[Object]) -> list[str]:
    hosts = set(object_names(nodes))
    return [one["metadata"]["name"] for one in await scope.nodeclaims() if one["status"]["nodeName"] in hosts]


def _down_seconds(lost: list[Object]) -> float:
    return 60.0 + SECONDS_PER_EVICTED_NODE * len(lost)


async def _lose_zone(scope: ClusterScope, lost: list[Object]) -> None:
    """The nodes stop reporting for some minutes, and EC2 has no capacity in their zone."""
    scope.product.aws.set_pool(0, zone=_zone(lost[0]))
    for name in object_names(lost):
        await scope.inject_node_fault(NotReady(status="Unknown", for_seconds=_down_seconds(lost)), node=name)


async def _assert_not_ready(scope: ClusterScope, lost: list[Object]) -> None:
    for name in object_names(lost):
        await scope.assert_node_ready_status(name, ready="Unknown")


async def _assert_pods_elsewhere(scope: ClusterScope, lost: list[Object]) -> None:
    hosts = set(object_names(lost))
    running = [one for one in await scope.pods() if "deletionTimestamp" not in one["metadata"]]
    phases = Counter(one["status"].get("phase") for one in running if one["spec"].get("nodeName") not in hosts)
    assert phases == {"Running": NODES_IN_ZONES}, phases


async def _assert_replaced_once(scope: ClusterScope, lost: list[Object]) -> None:
    """Each lost node led to at most one launch."""
    launched = len(scope.launched_instances())
    assert NODES_IN_ZONES < launched <= NODES_IN_ZONES + len(lost), f"{launched} launched, {len(lost)} lost"


async def _assert_surplus_deleted(scope: ClusterScope) -> None:
    await scope.assert_instances_alive(NODES_IN_ZONES)
    await scope.assert_nodes_initialized(NODES_IN_ZONES)


def _count_writes(written: list[str], names: list[str]) -> Counter[str]:
    """Writes by name of a Node or NodeClaim."""
    return Counter(name for line in written for name in names if name in line.split("/"))
