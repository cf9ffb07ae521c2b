"""Final checks before irreversible steps: identity of Node and instance, and pods that still need them."""

import asyncio
from datetime import UTC, datetime

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.model.nodeclaim.requests import DrainRequest, NodeClaimDisruptionRequest
from tests.unit.activities.builders import REF, FakeCluster, run_activity

EMPTY = NodeClaimDisruptionRequest(claim=REF, reason="Empty")
OTHER = "aws:///us-west-2a/i-9999"


def reuse_node_name(cluster: FakeCluster) -> None:
    """Replace the Node by one of another instance with the same address, and so the same name."""
    cluster.nodes.join("node-a", OTHER)
    cluster.nodes.update_node("node-a", taints=())


async def test_node_with_reused_name_is_not_drained(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    reuse_node_name(cluster)
    cluster.pods.add("node-a", "web")
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    assert cluster.pods.evicted == [] and not cluster.nodes.found["node-a"].deleting and not cluster.is_disrupted()


async def test_node_with_reused_name_is_not_tainted(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    reuse_node_name(cluster)
    await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    assert not cluster.is_disrupted()


async def test_node_in_use_is_not_tainted(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "web")
    tainted: list[str] = []
    mark_disrupted = cluster.nodes.mark_disrupted

    async def recording_taint(name: str) -> object:
        tainted.append(name)
        return await mark_disrupted(name)

    monkeypatch.setattr(cluster.nodes, "mark_disrupted", recording_taint)
    result = await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    assert result.outcome == "not now" and tainted == []


async def test_do_not_disrupt_daemon_pod_keeps_node(cluster: FakeCluster) -> None:
    """Pods of DaemonSets count, terminating pods do not (reference 4.2)."""
    cluster.add_running_node()
    cluster.pods.add("node-a", "backup", reschedulable=False, waits=False, protected=True)
    result = await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    assert result.outcome == "not now" and DO_NOT_DISRUPT in result.why and "default/backup" in result.why
    cluster.pods.by_node["node-a"].clear()
    cluster.pods.add("node-a", "ending", reschedulable=False, protected=True, deletion=datetime.now(UTC))
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"


async def test_not_ready_node_with_instance_is_drained(cluster: FakeCluster) -> None:
    cluster.add_running_node(ready=False)
    cluster.pods.add("node-a", "web")
    await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))
    assert cluster.pods.evicted == ["web"]


async def test_consecutive_pod_terminations_publish_no_events(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    for number in range(6):
        ending = {"evictable": False, "why_not": "terminating", "deletion": datetime.now(UTC)}
        cluster.pods.add("node-a", f"web-{number}", **ending)

    async def end() -> None:
        while cluster.pods.by_node["node-a"]:
            await asyncio.sleep(0.01)
            cluster.pods.by_node["node-a"].pop()

    ending_pods = asyncio.create_task(end())
    assert (await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF))).outcome == "drained"
    await ending_pods
    assert cluster.events.published == []


async def test_slowly_terminating_pods_are_named_at_poll_timeout(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "web", evictable=False, why_not="terminating", deletion=datetime.now(UTC))
    result = await run_activity(cluster.draining.drain_node, DrainRequest(claim=REF, poll_timeout=0))
    assert result.outcome == "waiting" and result.blockers == "pods are terminating: default/web"
