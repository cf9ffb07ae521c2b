"""A step of repair, performed: the last look, the breaker, the reboot that is asked for once, the end that is set."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import Fault, Forbidden, Throttled, TryLater
from tenure.model.node_health import RepairAsked
from tests.unit.activities.builders import PROVIDER, Scene, performed

COUNTING = (("Ready", "False"), ("KernelReady", "False"))
SICK = (("Ready", "True"), ("KernelReady", "False"))
WELL = (("Ready", "True"), ("KernelReady", "True"))


def asked(step: str = "replace", **fields: Any) -> RepairAsked:
    usual: dict[str, Any] = {
        "name": "a",
        "uid": "uid-a",
        "pool": "default",
        "node_name": "node-a",
        "provider_id": PROVIDER,
        "step": step,
        "condition": "KernelReady=False",
        "conditions": COUNTING,
        "max_unhealthy": "20%",
    }
    return RepairAsked.model_validate({**usual, **fields})


def sick(scene: Scene, *, others: int = 4, sick_others: int = 0, **node: Any) -> None:
    """A sick node of the pool `default`, and others."""
    scene.running(conditions=SICK, labels={labels.NODEPOOL: "default"}, **node)
    for number in range(others):
        scene.nodes.join(
            f"other-{number}",
            f"aws:///us-west-2a/i-{number + 1}",
            labels={labels.NODEPOOL: "default"},
            conditions=SICK if number < sick_others else WELL,
        )


def stamp(scene: Scene) -> datetime:
    return datetime.fromisoformat(
        scene.claims.found["a"]["metadata"]["annotations"][labels.NODECLAIM_TERMINATION_TIMESTAMP]
    )


def is_going(scene: Scene) -> bool:
    return "deletionTimestamp" in scene.claims.found["a"]["metadata"]


async def test_a_sick_node_is_replaced_and_its_time_is_up_at_once(scene: Scene) -> None:
    sick(scene)
    began = datetime.now(UTC)
    assert (await performed(scene.repairing.repair_node, asked())).outcome == "done"
    assert is_going(scene)
    assert began - timedelta(seconds=5) < stamp(scene) <= datetime.now(UTC)
    assert scene.events.reasons("a") == ["Unhealthy"]


@pytest.mark.parametrize(
    ("ready", "grace", "own", "minutes"), [(True, 30, None, 30), (False, 30, None, 0), (True, 30, "10m", 10)]
)
async def test_pods_have_their_time_where_a_kubelet_answers_and_no_more_than_the_pool_gives(
    scene: Scene, ready: bool, grace: int, own: str | None, minutes: int
) -> None:
    sick(scene, ready=ready)
    if own:
        scene.claims.found["a"]["spec"]["terminationGracePeriod"] = own
    began = datetime.now(UTC)
    await performed(scene.repairing.repair_node, asked(graceful_for=timedelta(minutes=grace)))
    assert began + timedelta(minutes=minutes, seconds=-5) < stamp(scene)
    assert stamp(scene) - datetime.now(UTC) <= timedelta(minutes=minutes)


@pytest.mark.parametrize(("before", "kept"), [(-timedelta(hours=1), True), (timedelta(hours=1), False)])
async def test_an_end_that_stands_already_is_moved_only_to_sooner(scene: Scene, before: timedelta, kept: bool) -> None:
    sick(scene)
    written = datetime.now(UTC).replace(microsecond=0) + before
    annotations = scene.claims.found["a"]["metadata"]["annotations"]
    annotations[labels.NODECLAIM_TERMINATION_TIMESTAMP] = written.isoformat()
    await performed(scene.repairing.repair_node, asked())
    assert (stamp(scene) == written) is kept and stamp(scene) <= datetime.now(UTC)


@pytest.mark.parametrize("odd", ["soon", "2026-01-01T00:00:00"])
async def test_an_end_that_is_no_moment_or_has_no_zone_holds_up_no_repair(scene: Scene, odd: str) -> None:
    sick(scene)
    scene.claims.found["a"]["metadata"]["annotations"][labels.NODECLAIM_TERMINATION_TIMESTAMP] = odd
    assert (await performed(scene.repairing.repair_node, asked())).outcome == "done"
    assert stamp(scene) <= datetime.now(UTC)


async def test_more_sick_nodes_than_the_breaker_allows_hold_every_step_and_the_node_says_so(scene: Scene) -> None:
    sick(scene, sick_others=1)
    for step in ("reboot", "replace"):
        answer = await performed(scene.repairing.repair_node, asked(step))
        assert answer.outcome == "held"
        assert answer.why == "2 of 5 nodes of NodePool default are unhealthy, and maxUnhealthy 20% allows 1"
    assert not is_going(scene) and scene.instances.rebooted == []
    assert scene.events.reasons("node-a") == ["NodeRepairBlocked"] * 2


async def test_a_pool_of_its_own_limit(scene: Scene) -> None:
    sick(scene, sick_others=1)
    assert (await performed(scene.repairing.repair_node, asked(max_unhealthy="2"))).outcome == "done"


async def test_other_pools_do_not_count_but_for_a_standalone_nodeclaim(scene: Scene) -> None:
    sick(scene, others=0)
    for number in range(5):
        scene.nodes.join(f"strange-{number}", f"aws:///us-west-2a/i-{number + 1}", conditions=SICK)
    answer = await performed(scene.repairing.repair_node, asked(pool=""))
    assert answer.outcome == "held" and "6 of 6 nodes of the cluster" in answer.why
    assert (await performed(scene.repairing.repair_node, asked())).outcome == "done"


@pytest.mark.parametrize("step", ["reboot", "replace"])
async def test_a_node_that_is_well_after_all_is_left_alone(scene: Scene, step: str) -> None:
    sick(scene)
    scene.nodes.change("node-a", conditions=WELL)
    assert (await performed(scene.repairing.repair_node, asked(step))).outcome == "not now"
    assert not is_going(scene) and scene.instances.rebooted == []


async def test_a_node_that_did_not_come_back_from_its_reboot_is_not_well_whatever_counts(scene: Scene) -> None:
    sick(scene)
    scene.nodes.change("node-a", conditions=(("Ready", "Unknown"),), ready=False)
    assert (await performed(scene.repairing.repair_node, asked())).outcome == "not now"
    assert (await performed(scene.repairing.repair_node, asked(after_reboot=True))).outcome == "done"


async def test_another_nodeclaim_of_the_name_and_another_node_of_the_name_are_left_alone(scene: Scene) -> None:
    sick(scene)
    assert (await performed(scene.repairing.repair_node, asked(uid="other"))).outcome == "gone"
    assert (await performed(scene.repairing.repair_node, asked(provider_id="aws:///a/i-9"))).outcome == "not now"
    assert not is_going(scene)


async def test_a_reboot_is_written_down_before_it_is_asked_for_and_asked_for_once(scene: Scene) -> None:
    sick(scene)
    scene.instances.faults["reboot"] = [TryLater("the answer was lost")]
    with pytest.raises(ApplicationError):
        await performed(scene.repairing.repair_node, asked("reboot"))
    assert scene.claims.found["a"]["metadata"]["annotations"][labels.REBOOTED].startswith("0@")
    assert (await performed(scene.repairing.repair_node, asked("reboot"))).outcome == "done"
    assert scene.instances.rebooted == []
    assert (await performed(scene.repairing.repair_node, asked("reboot", rung=1))).outcome == "done"
    assert scene.instances.rebooted == ["i-0000"]


@pytest.mark.parametrize("fault", [Throttled("slow down"), Forbidden("no")])
async def test_a_reboot_that_ec2_refused_may_be_asked_for_again(scene: Scene, fault: Fault) -> None:
    sick(scene)
    scene.instances.faults["reboot"] = [fault]
    with pytest.raises(ApplicationError):
        await performed(scene.repairing.repair_node, asked("reboot"))
    await performed(scene.repairing.repair_node, asked("reboot"))
    assert scene.instances.rebooted == ["i-0000"]


async def test_a_reboot_of_long_ago_is_no_hindrance(scene: Scene) -> None:
    sick(scene)
    old = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    scene.claims.found["a"]["metadata"]["annotations"][labels.REBOOTED] = f"0@{old}"
    await performed(scene.repairing.repair_node, asked("reboot"))
    assert scene.instances.rebooted == ["i-0000"] and scene.events.reasons("a") == ["Rebooting"]


@pytest.mark.parametrize("odd", ["", "yesterday", "x@y", "0@", "0@soon"])
async def test_a_mark_that_nobody_can_read_is_none(scene: Scene, odd: str) -> None:
    sick(scene)
    scene.claims.found["a"]["metadata"]["annotations"][labels.REBOOTED] = odd
    await performed(scene.repairing.repair_node, asked("reboot"))
    assert scene.instances.rebooted == ["i-0000"]


async def test_an_instance_that_is_gone_cannot_be_rebooted(scene: Scene) -> None:
    sick(scene)
    scene.instances.running.clear()
    assert (await performed(scene.repairing.repair_node, asked("reboot"))).outcome == "gone"
