"""Allowed disruptions of a NodePool under LifecyclePolicy rules, from live objects."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.labels import NODEPOOL, PAUSE, ZONE
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.disruption.permits import AllowedDisruptionsRequest
from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import AllowedDisruptions
from tests.unit.activities.builders import FakeCluster, run_activity


def add_nodeclaim(
    cluster: FakeCluster, name: str, *, pool: str = "default", zone: str = "z1", initialized: str = "True", **node: Any
) -> None:
    provider = f"aws:///us-west-2a/i-{name}"
    cluster.claims.add(name, labels={NODEPOOL: pool, ZONE: zone}, born=datetime.now(UTC) - timedelta(hours=1))
    cluster.claims.set_status(name, provider_id=provider, Initialized=initialized)
    cluster.nodes.join(f"node-{name}", provider, labels={NODEPOOL: pool}, **node)


async def read_allowed_disruptions(
    cluster: FakeCluster, *names: str, reason: str = "Drifted", **rules: Any
) -> AllowedDisruptions:
    request = AllowedDisruptionsRequest(
        name="default",
        reason=reason,
        rules=DisruptionRules.model_validate(rules) if rules else None,
        candidates=tuple(f"uid-{one}" for one in names),
    )
    return await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, request)


def add_open_nodepool(cluster: FakeCluster) -> None:
    cluster.pools.add("default", disruption={"budgets": [{"nodes": "100%"}]})


async def test_nodes_of_other_nodepools_count_only_with_cluster_rule(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    for name in "ab":
        add_nodeclaim(cluster, name)
    add_nodeclaim(cluster, "other", pool="other", ready=False)
    assert (await read_allowed_disruptions(cluster)).cluster is None
    found = await read_allowed_disruptions(cluster, clusterNodes="1")
    assert (
        found.cluster is not None
        and found.cluster.allowed == 0
        and "1 of 3 nodes allows 1, 1 in use" in (found.cluster.why)
    )
    assert found.count.total == 2 and found.allowed == 2


async def test_zone_and_age_are_returned_for_candidates(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a")
    add_nodeclaim(cluster, "b", zone="z2", ready=False)
    found = await read_allowed_disruptions(
        cluster, "a", "b", perZone={"nodes": "1", "zonesAtOnce": 1}, minimumNodeAge="2h"
    )
    assert {zone: headroom.allowed for zone, headroom in found.zones.items()} == {"z1": 1, "z2": 0}
    assert found.zones_at_once is not None and found.zones_at_once.active_zones == ("z2",)
    assert found.minimum_node_age == timedelta(hours=2) and found.candidates["uid-a"].zone == "z1"
    created = found.candidates["uid-a"].created
    assert created is not None and datetime.now(UTC) - created > timedelta(minutes=59)


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("initialized", ["True", "False"])
async def test_rate_counts_permits_of_deleting_nodes(cluster: FakeCluster, ready: bool, initialized: str) -> None:
    """An unused permit counts in the NodePool's workflow."""
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a", initialized=initialized, ready=ready)
    add_nodeclaim(cluster, "b")
    now = datetime.now(UTC)
    permit = Permit(claim_name="a", claim_uid="uid-a", reason="Drifted", since=now, until=now)
    rules = DisruptionRules.model_validate({"rates": [{"nodes": "1", "within": "1h"}]})
    request = AllowedDisruptionsRequest(name="default", reason="Drifted", rules=rules, permits=(permit,))
    assert (await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, request)).allowed == 1
    cluster.claims.set_status("a", deleting=True)
    used = (await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, request)).allowed == 0
    assert used is (initialized == "True")


async def count_consuming(cluster: FakeCluster, **fields: Any) -> int:
    request = AllowedDisruptionsRequest(name="default", **fields)
    found = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, request)
    return len(found.count.consuming)


async def test_taint_without_owner_does_not_use_budget_of_requesting_node(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a")
    add_nodeclaim(cluster, "b")
    await cluster.nodes.mark_disrupted("node-a")
    cluster.claims.set_status("a", DisruptionReason="True")
    assert await count_consuming(cluster) == 1
    assert await count_consuming(cluster, requesting=("uid-b",)) == 1
    assert await count_consuming(cluster, requesting=("uid-a",)) == 0


async def test_taint_of_command_uses_budget(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a")
    await cluster.nodes.mark_disrupted("node-a")
    cluster.claims.set_status("a", DisruptionReason="True")
    cluster.claims.found["a"]["status"]["conditions"][-1]["message"] = "test/disruption/1"
    assert await count_consuming(cluster, requesting=("uid-a",)) == 1


async def test_requesting_node_that_is_deleting_or_not_ready_uses_budget(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a", ready=False)
    add_nodeclaim(cluster, "b")
    cluster.claims.set_status("b", deleting=True)
    assert await count_consuming(cluster, requesting=("uid-a", "uid-b")) == 2


async def test_paused_node_names_requester(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    add_nodeclaim(cluster, "a", annotations={PAUSE: "until=2099-01-01T00:00:00Z, by=ann, reason=why"})
    add_nodeclaim(cluster, "b", annotations={PAUSE: "until=2000-01-01T00:00:00Z, by=ann, reason=why"})
    found = await read_allowed_disruptions(cluster, "a", "b")
    assert "is paused by ann" in found.candidates["uid-a"].paused and found.candidates["uid-b"].paused == ""


async def test_minimum_node_age_returns_opening_time(cluster: FakeCluster) -> None:
    add_open_nodepool(cluster)
    for name in "ab":
        add_nodeclaim(cluster, name)
    found = await read_allowed_disruptions(cluster, "a", minimumNodeAge="2h")
    assert found.opens is not None and timedelta(minutes=59) < found.opens - datetime.now(UTC) < timedelta(hours=1)
    assert (await read_allowed_disruptions(cluster, "a")).opens is None
