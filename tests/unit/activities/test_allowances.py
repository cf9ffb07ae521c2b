"""What LifecyclePolicies leave of a NodePool's nodes, counted on live objects."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.apis.labels import NODEPOOL, PAUSE, ZONE
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.disruption.permits import AllowanceAsked
from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import Allowance
from tests.unit.activities.builders import Scene, performed


def claim(scene: Scene, name: str, *, pool: str = "default", zone: str = "z1", **node: Any) -> None:
    provider = f"aws:///us-west-2a/i-{name}"
    scene.claims.add(name, labels={NODEPOOL: pool, ZONE: zone}, born=datetime.now(UTC) - timedelta(hours=1))
    scene.claims.give(name, provider_id=provider, Initialized="True")
    scene.nodes.join(f"node-{name}", provider, labels={NODEPOOL: pool}, **node)


async def left(scene: Scene, *asking: str, reason: str = "Drifted", **rules: Any) -> Allowance:
    asked = AllowanceAsked(
        name="default",
        reason=reason,
        rules=DisruptionRules.model_validate(rules) if rules else None,
        asking=tuple(f"uid-{one}" for one in asking),
    )
    return await performed(scene.allowances.read_allowance, asked)


def open_pool(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "100%"}]})


async def test_nodes_of_all_pools_count_only_where_a_rule_is_about_them(scene: Scene) -> None:
    open_pool(scene)
    for name in "ab":
        claim(scene, name)
    claim(scene, "other", pool="other", ready=False)
    assert (await left(scene)).cluster is None
    found = await left(scene, clusterNodes="1")
    assert (
        found.cluster is not None
        and found.cluster.allowed == 0
        and "1 of 3 nodes allows 1, 1 in use" in (found.cluster.why)
    )
    assert found.count.total == 2 and found.allowed == 2


async def test_zones_and_ages_are_told_of_those_who_ask(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a")
    claim(scene, "b", zone="z2", ready=False)
    found = await left(scene, "a", "b", perZone={"nodes": "1", "zonesAtOnce": 1}, minimumNodeAge="2h")
    assert {zone: room.allowed for zone, room in found.zones.items()} == {"z1": 1, "z2": 0}
    assert found.zones_at_once is not None and found.zones_at_once.begun == ("z2",)
    assert found.youngest == timedelta(hours=2) and found.asking["uid-a"].zone == "z1"
    created = found.asking["uid-a"].created
    assert created is not None and datetime.now(UTC) - created > timedelta(minutes=59)


async def test_a_freeze_closes_the_pool_for_its_reasons_and_for_expiry_where_it_names_none(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a")
    frozen = {"start": "2000-01-01", "end": "2099-01-01"}
    assert (await left(scene, freezes=[{**frozen, "reasons": ["Drifted"]}])).allowed == 0
    assert (await left(scene, reason="Empty", freezes=[{**frozen, "reasons": ["Drifted"]}])).allowed == 1
    assert (await left(scene, reason="Expired", freezes=[frozen])).allowed == 0


async def test_a_rate_counts_permits_whose_nodes_are_on_their_way(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a")
    now = datetime.now(UTC)
    permit = Permit(claim_name="a", claim_uid="uid-a", reason="Drifted", since=now, until=now)
    rules = DisruptionRules.model_validate({"rates": [{"nodes": "1", "within": "1h"}]})
    asked = AllowanceAsked(name="default", reason="Drifted", rules=rules, permits=(permit,))
    assert (await performed(scene.allowances.read_allowance, asked)).allowed == 1
    scene.claims.give("a", deleting=True)
    assert (await performed(scene.allowances.read_allowance, asked)).allowed == 0


async def in_use(scene: Scene, **asked: Any) -> int:
    return len(
        (await performed(scene.allowances.read_allowance, AllowanceAsked(name="default", **asked))).count.consuming
    )


async def test_a_taint_that_nothing_stands_behind_does_not_use_up_what_its_node_waits_for(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a")
    claim(scene, "b")
    await scene.nodes.mark_disrupted("node-a")
    scene.claims.give("a", DisruptionReason="True")
    assert await in_use(scene) == 1
    assert await in_use(scene, wishing=("uid-b",)) == 1
    assert await in_use(scene, wishing=("uid-a",)) == 0


async def test_a_taint_of_a_command_counts_also_where_its_node_wishes_to_go_by_itself(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a")
    await scene.nodes.mark_disrupted("node-a")
    scene.claims.give("a", DisruptionReason="True")
    scene.claims.found["a"]["status"]["conditions"][-1]["message"] = "test/disruption/1"
    assert await in_use(scene, wishing=("uid-a",)) == 1


async def test_a_node_that_goes_or_is_not_ready_counts_though_it_wishes_to_go(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a", ready=False)
    claim(scene, "b")
    scene.claims.give("b", deleting=True)
    assert await in_use(scene, wishing=("uid-a", "uid-b")) == 2


async def test_a_node_that_is_paused_says_by_whom(scene: Scene) -> None:
    open_pool(scene)
    claim(scene, "a", annotations={PAUSE: "until=2099-01-01T00:00:00Z, by=ann, reason=why"})
    claim(scene, "b", annotations={PAUSE: "until=2000-01-01T00:00:00Z, by=ann, reason=why"})
    found = await left(scene, "a", "b")
    assert "is paused by ann" in found.asking["uid-a"].paused and found.asking["uid-b"].paused == ""


async def test_when_time_lets_the_next_go_is_told_of_those_who_ask(scene: Scene) -> None:
    open_pool(scene)
    for name in "ab":
        claim(scene, name)
    found = await left(scene, "a", minimumNodeAge="2h")
    assert found.opens is not None and timedelta(minutes=59) < found.opens - datetime.now(UTC) < timedelta(hours=1)
    assert (await left(scene, "a")).opens is None


async def test_a_budget_of_nothing_is_fixed_and_one_that_is_used_up_is_not(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    claim(scene, "a", ready=False)
    used_up = await left(scene)
    scene.pools.add("default", disruption={"budgets": [{"nodes": "0"}]})
    closed = await left(scene)
    assert (used_up.allowed, used_up.fixed) == (0, False) and (closed.allowed, closed.fixed) == (0, True)
