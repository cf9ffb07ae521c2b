"""NodePools: the status as live objects have it, and what budgets count."""

from typing import Any

import pytest

from tenure.apis.labels import NODEPOOL
from tenure.model.disruption.permits import AllowanceAsked
from tenure.model.nodeclaim_requests import PoolAsked
from tests.unit.activities.builders import Scene, performed

ASKED = PoolAsked(name="default")
WISH = AllowanceAsked(name="default")


def claim(scene: Scene, name: str, *, ready: bool = True, deleting: bool = False, **conditions: str) -> None:
    provider = f"aws:///us-west-2a/i-{name}"
    scene.claims.add(name)
    scene.claims.give(name, provider_id=provider, deleting=deleting, **{"Initialized": "True", **conditions})
    scene.claims.found[name]["status"]["capacity"] = {"cpu": "2", "memory": "8Gi"}
    scene.nodes.join(f"node-{name}", provider, ready=ready, labels={NODEPOOL: "default"})


async def test_the_status_adds_up_what_the_claims_have(scene: Scene) -> None:
    scene.pools.add("default")
    claim(scene, "a")
    claim(scene, "b")
    scene.claims.add("c")
    assert (await performed(scene.pool_status.update_pool, ASKED)).exists
    status = scene.pools.statuses["default"]
    assert status["nodes"] == 2
    assert status["resources"] == {"cpu": "4", "memory": "16Gi", "pods": "0", "ephemeral-storage": "0", "nodes": "2"}


async def test_a_pool_of_nothing_shows_zeros(scene: Scene) -> None:
    scene.pools.add("default")
    await performed(scene.pool_status.update_pool, ASKED)
    resources: Any = scene.pools.statuses["default"]["resources"]
    assert set(resources.values()) == {"0"} and scene.pools.statuses["default"]["nodes"] == 0


async def test_claims_of_other_pools_are_not_counted(scene: Scene) -> None:
    scene.pools.add("default")
    scene.claims.add("other", labels={NODEPOOL: "other"})
    scene.claims.give("other", provider_id="aws:///us-west-2a/i-other")
    await performed(scene.pool_status.update_pool, ASKED)
    assert scene.pools.statuses["default"]["nodes"] == 0


@pytest.mark.parametrize(
    ("ready", "shown"),
    [("True", "True"), ("False", "False Ready"), ("Unknown", "Unknown NodeClassReadinessUnknown")],
)
async def test_the_node_class_is_passed_on(scene: Scene, ready: str, shown: str) -> None:
    scene.pools.add("default")
    scene.node_classes.add("default", ready=ready)
    await performed(scene.pool_status.update_pool, ASKED)
    assert scene.pools.statuses["default"]["NodeClassReady"] == shown


async def test_a_pool_that_is_wrong_says_so(scene: Scene) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "missing"}
    scene.pools.add("default", template={"spec": {"nodeClassRef": reference, "taints": [taint, taint]}})
    await performed(scene.pool_status.update_pool, ASKED)
    assert scene.pools.statuses["default"]["ValidationSucceeded"] == "False NodePoolValidationFailed"
    assert scene.pools.statuses["default"]["NodeClassReady"] == "False NodeClassNotFound"


async def test_a_pool_that_is_gone_has_no_status_and_permits_nothing(scene: Scene) -> None:
    claim(scene, "a")
    assert (await performed(scene.pool_status.update_pool, ASKED)).exists is False
    answer = await performed(scene.allowances.read_allowance, WISH)
    assert answer.allowed == 0 and "is gone" in answer.why


async def test_budgets_count_initialized_nodes_and_take_off_those_not_ready_or_going(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "3"}]})
    for name in "abcd":
        claim(scene, name)
    claim(scene, "unready", ready=False)
    claim(scene, "going", deleting=True)
    claim(scene, "ended", deleting=True, InstanceTerminating="True")
    scene.claims.add("starting")
    answer = await performed(scene.allowances.read_allowance, WISH)
    assert answer.allowed == 1
    assert answer.count.total == 6 and answer.count.consuming == ("uid-going", "uid-unready")
    assert scene.events.said == []


async def test_a_node_that_is_drained_before_its_claim_is_deleted_uses_the_budget_up(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    claim(scene, "a")
    claim(scene, "b")
    assert (await performed(scene.allowances.read_allowance, WISH)).allowed == 1
    await scene.nodes.mark_disrupted("node-a")
    answer = await performed(scene.allowances.read_allowance, WISH)
    assert answer.allowed == 0 and answer.count.consuming == ("uid-a",)


async def test_a_closed_budget_is_told_on_the_pool(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "0"}]})
    claim(scene, "a")
    await performed(scene.allowances.read_allowance, WISH)
    assert scene.events.said == [
        ("default", "DisruptionBlocked", "budget 0 of 1 nodes allows 0, 0 in use (NotReady or going)")
    ]


async def test_the_reason_chooses_the_budget(scene: Scene) -> None:
    scene.pools.add("default", disruption={"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]})
    claim(scene, "a")
    assert (await performed(scene.allowances.read_allowance, WISH)).allowed == 1
    drifted = AllowanceAsked(name="default", reason="Drifted")
    assert (await performed(scene.allowances.read_allowance, drifted)).allowed == 0


@pytest.mark.parametrize(("off", "shown"), [(False, "True"), (True, "False NodePoolValidationFailed")])
async def test_a_static_pool_is_wrong_while_its_gate_is_off(scene: Scene, off: bool, shown: str) -> None:
    scene.pools.add("default", replicas=2)
    await performed(scene.pool_status.update_pool, PoolAsked(name="default", gate_off=off))
    assert scene.pools.statuses["default"]["ValidationSucceeded"] == shown


async def test_no_node_of_a_static_pool_goes_for_being_empty_whatever_its_budgets_say(scene: Scene) -> None:
    scene.pools.add("default", replicas=1, disruption={"budgets": [{"nodes": "100%"}]})
    claim(scene, "a")
    answer = await performed(scene.allowances.read_allowance, WISH)
    assert (answer.allowed, answer.why) == (0, "NodePool default is static: its nodes are not consolidated")
