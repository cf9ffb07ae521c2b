"""Pods of an interrupted node are evicted before its workflow gets a signal; the drain evicts the rest."""

import asyncio

import pytest
from temporalio.common import MetricMeter

from activities.nodeclaim.eviction import EARLY_EVICTION_TIMEOUT_SECONDS, EarlyEvictions, NodeEarlyEviction
from activities.ports.interruption import InterruptedNode
from tenure.model.errors import BadInput, Fault, Throttled, TryLater
from tenure.model.nodeclaim.requests import DrainRequest
from tenure.model.provider_results import DrainPod, Eviction
from tests.unit.activities.builders import REF, FakeCluster, run_activity


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    cluster.add_running_node()
    for name in ("web", "api"):
        cluster.pods.add("node-a", name)
    return cluster


def departing_node(cluster: FakeCluster, uid: str = "uid-node-a") -> InterruptedNode:
    return InterruptedNode(node="node-a", uid=uid, tainted=False, pods=tuple(cluster.pods.by_node["node-a"]))


async def run_early_eviction(
    cluster: FakeCluster, early_evictions: EarlyEvictions | None = None, uid: str = "uid-node-a"
) -> NodeEarlyEviction:
    found = (early_evictions or EarlyEvictions(cluster.made, MetricMeter.noop)).begin_for(departing_node(cluster, uid))
    assert found is not None
    await found.run(EARLY_EVICTION_TIMEOUT_SECONDS)
    return found


async def test_node_is_tainted_before_pods_are_evicted(cluster: FakeCluster) -> None:
    found = await run_early_eviction(cluster)
    assert [*found.evicted_pods] == ["default/web", "default/api"]
    assert cluster.is_disrupted() and cluster.pods.evicted == ["web", "api"]
    assert "Evicted" not in cluster.events.reasons_for("web")
    await found.publish_events()
    assert cluster.events.reasons_for("web") == ["Evicted"]
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.pods.evicted == ["web", "api"]


async def test_repeated_interruption_evicts_once(cluster: FakeCluster) -> None:
    first, early_evictions = departing_node(cluster), EarlyEvictions(cluster.made, MetricMeter.noop)
    await run_early_eviction(cluster, early_evictions)
    assert early_evictions.begin_for(first) is None
    assert cluster.pods.evicted == ["web", "api"]


def test_node_without_pods_needs_no_early_eviction(cluster: FakeCluster) -> None:
    node = InterruptedNode(node="node-a", uid="uid-node-a", tainted=False, pods=())
    assert EarlyEvictions(cluster.made, MetricMeter.noop).begin_for(node) is None


async def test_node_with_other_uid_keeps_its_pods(cluster: FakeCluster) -> None:
    assert not (await run_early_eviction(cluster, uid="uid-of-before")).evicted_pods
    assert not cluster.is_disrupted() and cluster.pods.evicted == []


async def test_pod_blocked_by_budget_is_left_to_drain(cluster: FakeCluster) -> None:
    cluster.pods.blocked["web"] = "web needs 1 healthy pods and has 1 currently"
    assert [*(await run_early_eviction(cluster)).evicted_pods] == ["default/api"]


@pytest.mark.parametrize("fault", [TryLater("503"), BadInput("422"), Throttled("429")])
async def test_fault_leaves_remaining_pods_to_drain(cluster: FakeCluster, fault: Fault) -> None:
    cluster.pods.faults["evict"] = [None, fault]
    assert [*(await run_early_eviction(cluster)).evicted_pods] == ["default/web"]
    cluster.nodes.faults["mark_early_evicted"] = [fault]
    assert not (await run_early_eviction(cluster)).evicted_pods


async def test_hanging_api_server_delays_signal_for_limited_time(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = cluster.pods.evict

    async def hangs(pod: DrainPod) -> Eviction:
        return await evict(pod) if pod.name == "web" else await asyncio.Future()

    monkeypatch.setattr(cluster.pods, "evict", hangs)
    found = EarlyEvictions(cluster.made, MetricMeter.noop).begin_for(departing_node(cluster))
    assert found is not None
    await run_activity(found.run, 0.05)
    assert [*found.evicted_pods] == ["default/web"]


async def test_failed_events_are_ignored(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await run_early_eviction(cluster)

    async def reject_event(**event: object) -> None:
        raise TryLater("503")

    monkeypatch.setattr(cluster.events, "publish", reject_event)
    await found.publish_events()
