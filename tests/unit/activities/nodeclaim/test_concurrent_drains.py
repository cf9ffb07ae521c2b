"""Hundreds of concurrent drains: pods are evicted at once, and polling leaves API requests for other components."""

import asyncio
import time

import pytest

from activities.nodeclaim.drain import REQUESTS_PER_POLL, DrainActivities
from activities.ports.core import DrainPod, Eviction
from tenure.model.nodeclaim.requests import DrainRequest, NodeClaimRef
from tests.unit.activities.builders import PROVIDER, FakeCluster, run_activity

NODES = 30
QPS = 900.0
POLL_TIMEOUT_SECONDS = 0.8


async def test_blocked_drains_leave_most_api_requests_to_others(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_BLOCKED_SECONDS", 60.0)
    names = [f"n{number}" for number in range(NODES)]
    draining, pods = DrainActivities(cluster.build_ports(qps=QPS)), cluster.pods
    for name in names:
        cluster.add_running_node(name)
        pods.add(f"node-{name}", f"pod-{name}")
        pods.blocked[f"pod-{name}"] = "PodDisruptionBudget web: 0 disruptions allowed"
    polled_nodes: list[str] = []
    on_node = pods.on_node
    began = time.monotonic()

    async def counted(node: str, **more: object) -> list[DrainPod]:
        polled_nodes.append(node)
        return list(await on_node(node, **more))  # type: ignore[arg-type]

    pods.on_node = counted  # type: ignore[method-assign,assignment]
    # Long enough for a second poll of each node on a busy machine.
    results = await asyncio.gather(*(run_activity(draining.drain_node, _drain_request(name, 2.5)) for name in names))
    assert {one.outcome for one in results} == {"waiting"}
    assert len(set(polled_nodes[:NODES])) == NODES, "the first poll of each node waits for no other"
    seconds = time.monotonic() - began
    # Each node is polled once more at its own timeout.
    assert NODES < len(polled_nodes) <= 2 * NODES + seconds * QPS / 2 / REQUESTS_PER_POLL


@pytest.mark.parametrize("one_hangs", [False, True], ids=["all evictions complete", "one eviction hangs"])
async def test_all_pods_are_evicted_before_first_nodeclaim_deletion(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, one_hangs: bool
) -> None:
    monkeypatch.setattr("activities.nodeclaim.eviction.MAX_WAIT_SECONDS", 5.0)
    names = [f"n{number}" for number in range(20)]
    draining, pods, done = _drain_activities(cluster), cluster.pods, list[str]()
    for name in names:
        cluster.add_running_node(name)
        pods.add(f"node-{name}", f"pod-{name}")
        pods.blocked[f"pod-{name}"] = "PodDisruptionBudget web: 0 disruptions allowed"
    evict, delete = pods.evict, cluster.claims.delete
    begun = asyncio.Event()

    async def evicted(pod: DrainPod) -> Eviction:
        if one_hangs and pod.name == "pod-n7":
            await begun.wait()
        await asyncio.sleep(0.001 * len(done))
        done.append(f"pods of {pod.name}")
        return await evict(pod)

    async def deleted(name: str, uid: str) -> bool:
        done.append(name)
        begun.set()
        return await delete(name, uid)

    pods.evict, cluster.claims.delete = evicted, deleted  # type: ignore[method-assign]
    await asyncio.gather(*(run_activity(draining.drain_node, _drain_request(name, 0.5)) for name in names))
    first = min(done.index(name) for name in names)
    evicted_before = {name for name in names if done.index(f"pods of pod-{name}") < first}
    assert evicted_before == set(names) - ({"n7"} if one_hangs else set())


async def test_few_drains_keep_their_poll_interval(cluster: FakeCluster) -> None:
    cluster.add_running_node("a")
    cluster.pods.add("node-a", "web")
    began = time.monotonic()
    assert (await run_activity(_drain_activities(cluster).drain_node, _drain_request("a", 60))).outcome == "drained"
    assert time.monotonic() - began < 60 / 2, "it polled only at its timeout"


def _drain_request(name: str, poll_timeout: float = POLL_TIMEOUT_SECONDS) -> DrainRequest:
    ref = NodeClaimRef(name=name, uid=f"uid-{name}", node_name=f"node-{name}", provider_id=PROVIDER)
    return DrainRequest(claim=ref, poll_timeout=poll_timeout)


def _drain_activities(cluster: FakeCluster) -> DrainActivities:
    return DrainActivities(cluster.build_ports(qps=20.0))
