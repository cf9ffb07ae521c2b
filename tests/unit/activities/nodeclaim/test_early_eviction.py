"""Pods of a node that AWS takes back are told to go before its workflow is asked, and its drain does the rest."""

import asyncio

import pytest

from activities.nodeclaim.eviction import WITHIN, EarlyEvictions, NodeEarlyEviction
from activities.ports.interruption import InterruptedNode
from tenure.model.errors import BadInput, Fault, Throttled, TryLater
from tenure.model.nodeclaim.requests import DrainRequest
from tenure.model.provider_results import DrainPod, Eviction
from tests.unit.activities.builders import REF, FakeCluster, run_activity


@pytest.fixture
def early_eviction(cluster: FakeCluster) -> EarlyEvictions:
    cluster.add_running_node()
    for name in ("web", "api"):
        cluster.pods.add("node-a", name)
    return EarlyEvictions(cluster.made)


def departing_node(cluster: FakeCluster, uid: str = "uid-node-a") -> InterruptedNode:
    return InterruptedNode(node="node-a", uid=uid, tainted=False, pods=tuple(cluster.pods.by_node["node-a"]))


async def run_early_eviction(early_eviction: EarlyEvictions, node: InterruptedNode) -> NodeEarlyEviction:
    found = early_eviction.begin_for(node)
    assert found is not None
    await run_activity(found.run, WITHIN)
    return found


async def test_the_node_is_out_of_service_before_its_pods_go_and_the_drain_does_the_rest(
    cluster: FakeCluster, early_eviction: EarlyEvictions
) -> None:
    found = await run_early_eviction(early_eviction, departing_node(cluster))
    assert [*found.evicted_pods] == ["default/web", "default/api"]
    assert cluster.is_disrupted() and cluster.pods.evicted == ["web", "api"]
    assert "Evicted" not in cluster.events.reasons_for("web")
    await found.publish_events()
    assert cluster.events.reasons_for("web") == ["Evicted"]
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.pods.evicted == ["web", "api"]


async def test_what_is_repeated_is_not_done_again(cluster: FakeCluster, early_eviction: EarlyEvictions) -> None:
    first = departing_node(cluster)
    await run_early_eviction(early_eviction, first)
    assert early_eviction.begin_for(first) is None
    assert cluster.pods.evicted == ["web", "api"]


def test_a_node_without_pods_to_go_is_left_to_its_drain(early_eviction: EarlyEvictions) -> None:
    assert early_eviction.begin_for(InterruptedNode(node="node-a", uid="uid-node-a", tainted=False, pods=())) is None


async def test_another_node_of_the_same_name_keeps_its_pods(
    cluster: FakeCluster, early_eviction: EarlyEvictions
) -> None:
    assert not (await run_early_eviction(early_eviction, departing_node(cluster, uid="uid-of-before"))).evicted_pods
    assert not cluster.is_disrupted() and cluster.pods.evicted == []


async def test_a_pod_that_a_budget_holds_is_left_to_the_drain(
    cluster: FakeCluster, early_eviction: EarlyEvictions
) -> None:
    cluster.pods.blocked["web"] = "web needs 1 healthy pods and has 1 currently"
    assert [*(await run_early_eviction(early_eviction, departing_node(cluster))).evicted_pods] == ["default/api"]


@pytest.mark.parametrize("fault", [TryLater("503"), BadInput("422"), Throttled("429")])
async def test_what_goes_wrong_is_the_drains_to_try_again(
    cluster: FakeCluster, early_eviction: EarlyEvictions, fault: Fault
) -> None:
    cluster.pods.faults["evict"] = [None, fault]
    assert [*(await run_early_eviction(early_eviction, departing_node(cluster))).evicted_pods] == ["default/web"]
    cluster.nodes.faults["mark_early_evicted"] = [fault]
    assert not (await run_early_eviction(EarlyEvictions(cluster.made), departing_node(cluster))).evicted_pods


async def test_an_api_server_that_hangs_holds_up_the_word_for_a_few_seconds_only(
    cluster: FakeCluster, early_eviction: EarlyEvictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = cluster.pods.evict

    async def hangs(pod: DrainPod) -> Eviction:
        return await evict(pod) if pod.name == "web" else await asyncio.Future()

    monkeypatch.setattr(cluster.pods, "evict", hangs)
    found = early_eviction.begin_for(departing_node(cluster))
    assert found is not None
    await run_activity(found.run, 0.05)
    assert [*found.evicted_pods] == ["default/web"]


async def test_events_that_cannot_be_said_keep_nothing_from_being_told(
    cluster: FakeCluster, early_eviction: EarlyEvictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await run_early_eviction(early_eviction, departing_node(cluster))

    async def reject_event(**event: object) -> None:
        raise TryLater("503")

    monkeypatch.setattr(cluster.events, "publish", reject_event)
    await found.publish_events()
