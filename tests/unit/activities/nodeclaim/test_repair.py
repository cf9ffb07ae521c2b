"""One repair step: final check, limit of unhealthy nodes, reboot requested once, and termination timestamp."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import Fault, Forbidden, Throttled, TryLater
from tenure.model.node_health import RebootEnd, RepairRequest, RepairResult
from tests.support.fakes.kubernetes import node_conditions
from tests.unit.activities.builders import PROVIDER, FakeCluster, run_activity

REPAIR_CONDITIONS = (("Ready", "False"), ("KernelReady", "False"))
UNHEALTHY = node_conditions(Ready="True", KernelReady="False")
HEALTHY = node_conditions(Ready="True", KernelReady="True")


def repair_request(step: str = "replace", **fields: Any) -> RepairRequest:
    defaults: dict[str, Any] = {
        "name": "a",
        "uid": "uid-a",
        "pool": "default",
        "node_name": "node-a",
        "provider_id": PROVIDER,
        "step": step,
        "condition": "KernelReady=False",
        "conditions": REPAIR_CONDITIONS,
        "max_unhealthy": "20%",
    }
    return RepairRequest.model_validate({**defaults, **fields})


async def repair(cluster: FakeCluster, step: str = "replace", **fields: Any) -> RepairResult:
    return await run_activity(cluster.repairing.repair_node, repair_request(step, **fields))


def make_unhealthy(cluster: FakeCluster, *, others: int = 4, unhealthy_others: int = 0, **node: Any) -> None:
    """Add an unhealthy node of the NodePool `default`, and other nodes."""
    cluster.add_running_node(conditions=UNHEALTHY, labels={labels.NODEPOOL: "default"}, **node)
    for number in range(others):
        cluster.nodes.join(
            f"other-{number}",
            f"aws:///us-west-2a/i-{number + 1}",
            labels={labels.NODEPOOL: "default"},
            conditions=UNHEALTHY if number < unhealthy_others else HEALTHY,
        )


def annotations(cluster: FakeCluster) -> dict[str, str]:
    found: dict[str, str] = cluster.claims.found["a"]["metadata"]["annotations"]
    return found


def termination_timestamp(cluster: FakeCluster) -> datetime:
    return datetime.fromisoformat(annotations(cluster)[labels.NODECLAIM_TERMINATION_TIMESTAMP])


def is_deleting(cluster: FakeCluster) -> bool:
    return "deletionTimestamp" in cluster.claims.found["a"]["metadata"]


async def test_unhealthy_node_is_deleted_with_immediate_termination_timestamp(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    began = datetime.now(UTC)
    assert (await repair(cluster)).outcome == "done"
    assert is_deleting(cluster)
    assert began - timedelta(seconds=5) < termination_timestamp(cluster) <= datetime.now(UTC)
    assert cluster.events.reasons_for("a") == ["Unhealthy"]


@pytest.mark.parametrize(
    ("ready", "grace", "own", "minutes"), [(True, 30, None, 30), (False, 30, None, 0), (True, 30, "10m", 10)]
)
async def test_grace_period_depends_on_kubelet_and_nodeclaim(
    cluster: FakeCluster, ready: bool, grace: int, own: str | None, minutes: int
) -> None:
    make_unhealthy(cluster, ready=ready)
    if own:
        cluster.claims.found["a"]["spec"]["terminationGracePeriod"] = own
    began = datetime.now(UTC)
    await repair(cluster, graceful_for=timedelta(minutes=grace))
    assert began + timedelta(minutes=minutes, seconds=-5) < termination_timestamp(cluster)
    assert termination_timestamp(cluster) - datetime.now(UTC) <= timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("written", "is_unchanged"),
    [
        ((datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds"), True),
        ((datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds"), False),
        ("soon", False),
        ("2026-01-01T00:00:00", False),
    ],
    ids=["earlier", "later", "invalid", "no time zone"],
)
async def test_existing_termination_timestamp_only_moves_earlier(
    cluster: FakeCluster, written: str, is_unchanged: bool
) -> None:
    make_unhealthy(cluster)
    annotations(cluster)[labels.NODECLAIM_TERMINATION_TIMESTAMP] = written
    assert (await repair(cluster)).outcome == "done"
    assert (termination_timestamp(cluster).isoformat() == written) is is_unchanged
    assert termination_timestamp(cluster) <= datetime.now(UTC)


async def test_too_many_unhealthy_nodes_block_every_step(cluster: FakeCluster) -> None:
    make_unhealthy(cluster, unhealthy_others=1)
    for step in ("reboot", "replace"):
        result = await repair(cluster, step)
        assert result.outcome == "held"
        assert result.why == "2 of 5 nodes of NodePool default are unhealthy, and maxUnhealthy 20% allows 1"
    assert not is_deleting(cluster) and cluster.instances.rebooted == []
    assert cluster.events.reasons_for("node-a") == ["NodeRepairBlocked"] * 2


async def test_nodepool_limit_is_used(cluster: FakeCluster) -> None:
    make_unhealthy(cluster, unhealthy_others=1)
    assert (await repair(cluster, max_unhealthy="2")).outcome == "done"


async def test_other_nodepools_count_only_for_standalone_nodeclaim(cluster: FakeCluster) -> None:
    make_unhealthy(cluster, others=0)
    for number in range(5):
        cluster.nodes.join(f"strange-{number}", f"aws:///us-west-2a/i-{number + 1}", conditions=UNHEALTHY)
    result = await repair(cluster, pool="")
    assert result.outcome == "held" and "6 of 6 nodes of the cluster" in result.why
    assert (await repair(cluster)).outcome == "done"


@pytest.mark.parametrize("step", ["reboot", "replace"])
async def test_healthy_node_in_final_check_is_kept(cluster: FakeCluster, step: str) -> None:
    make_unhealthy(cluster)
    cluster.nodes.update_node("node-a", conditions=HEALTHY)
    assert (await repair(cluster, step)).outcome == "not now"
    assert not is_deleting(cluster) and cluster.instances.rebooted == []


@pytest.mark.parametrize(("mode", "outcome"), [("legacy", "done"), ("replace", "not now")])
async def test_do_not_repair_of_the_live_node_blocks_voluntary_repair(
    cluster: FakeCluster, mode: str, outcome: str
) -> None:
    make_unhealthy(cluster, annotations={labels.DO_NOT_REPAIR: "true"})
    assert (await repair(cluster, mode=mode)).outcome == outcome
    assert is_deleting(cluster) is (mode == "legacy")


async def test_node_that_stays_unready_after_reboot_is_unhealthy(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    cluster.nodes.update_node("node-a", conditions=node_conditions(Ready="Unknown"), ready=False)
    assert (await repair(cluster)).outcome == "not now"
    assert (await repair(cluster, after_reboot=True)).outcome == "done"


async def test_recreated_nodeclaim_and_replaced_node_are_kept(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    assert (await repair(cluster, uid="other")).outcome == "gone"
    assert (await repair(cluster, provider_id="aws:///a/i-9")).outcome == "not now"
    assert not is_deleting(cluster)


async def test_reboot_is_requested_again_until_ec2_has_accepted_it(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    cluster.instances.faults["reboot"] = [TryLater("the answer was lost")]
    with pytest.raises(ApplicationError):
        await repair(cluster, "reboot")
    assert annotations(cluster)[labels.REBOOT_PRE_BOOT_ID] == "boot-1"
    assert labels.REBOOTED not in annotations(cluster)
    for _ in range(2):
        assert (await repair(cluster, "reboot")).outcome == "done"
        assert cluster.instances.rebooted == ["i-0000"] and annotations(cluster)[labels.REBOOTED].startswith("0@")
    assert (await repair(cluster, "reboot", step_index=1)).outcome == "done"
    assert cluster.instances.rebooted == ["i-0000", "i-0000"]


async def test_reboot_is_not_requested_again_after_the_boot_id_has_changed(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    cluster.instances.faults["reboot"] = [TryLater("the answer was lost")]
    begun = {"requested_at": datetime.now(UTC), "condition": "KernelReady=False", "boot_id": "boot-1"}
    with pytest.raises(ApplicationError):
        await repair(cluster, "reboot", reboot=begun)
    cluster.nodes.update_node("node-a", boot_id="boot-2")
    assert (await repair(cluster, "reboot", reboot=begun)).outcome == "done"
    assert cluster.instances.rebooted == [] and annotations(cluster)[labels.REBOOTED].startswith("0@")


@pytest.mark.parametrize("fault", [Throttled("slow down"), Forbidden("no")])
async def test_rejected_reboot_is_requested_again(cluster: FakeCluster, fault: Fault) -> None:
    make_unhealthy(cluster)
    cluster.instances.faults["reboot"] = [fault]
    with pytest.raises(ApplicationError):
        await repair(cluster, "reboot")
    await repair(cluster, "reboot")
    assert cluster.instances.rebooted == ["i-0000"]


@pytest.mark.parametrize("mark", ["", "yesterday", "x@y", "0@", "0@soon", "0@2026-01-01T00:00:00Z"])
async def test_old_or_invalid_reboot_record_is_ignored(cluster: FakeCluster, mark: str) -> None:
    make_unhealthy(cluster)
    annotations(cluster)[labels.REBOOTED] = mark
    await repair(cluster, "reboot")
    assert cluster.instances.rebooted == ["i-0000"] and cluster.events.reasons_for("a") == ["Rebooting"]


def rebooting_condition(cluster: FakeCluster) -> dict[str, Any]:
    found = [one for one in cluster.claims.found["a"]["status"]["conditions"] if one["type"] == labels.REBOOTING]
    return found[0] if found else {}


def has_rebooting_taint(cluster: FakeCluster) -> bool:
    return any(one.key == labels.REBOOTING_TAINT_KEY for one in cluster.nodes.found["node-a"].taints)


def reboot_of(boot_id: str = "boot-1") -> dict[str, Any]:
    return {"requested_at": datetime.now(UTC), "condition": "KernelReady=False", "boot_id": boot_id}


async def test_reboot_begins_with_the_boot_id_of_the_live_node(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    result = await repair(cluster, "begin", reboot=reboot_of(boot_id=""))
    assert (result.outcome, result.boot_id) == ("done", "boot-1") and cluster.instances.rebooted == []
    assert rebooting_condition(cluster)["reason"] == labels.REBOOT_REQUESTED and has_rebooting_taint(cluster)


async def test_attempt_to_begin_a_reboot_is_undone_if_the_node_recovers_before_the_next_one(
    cluster: FakeCluster,
) -> None:
    make_unhealthy(cluster)
    await repair(cluster, "begin", reboot=reboot_of())
    cluster.nodes.update_node("node-a", conditions=HEALTHY)
    assert (await repair(cluster, "begin", reboot=reboot_of())).outcome == "not now"
    assert rebooting_condition(cluster) == {} and not has_rebooting_taint(cluster)


@pytest.mark.parametrize("step", ["begin", "reboot"])
async def test_node_of_a_deleting_nodeclaim_is_not_rebooted(cluster: FakeCluster, step: str) -> None:
    make_unhealthy(cluster)
    await cluster.claims.delete("a", "uid-a")
    assert (await repair(cluster, step, reboot=reboot_of())).why == "NodeClaim a is being deleted"
    assert rebooting_condition(cluster) == {} and cluster.instances.rebooted == []


@pytest.mark.parametrize(("boot_id", "status"), [("boot-1", "True"), ("boot-2", "Unknown")])
async def test_failed_reboot_restores_initialized_only_without_a_new_boot_id(
    cluster: FakeCluster, boot_id: str, status: str
) -> None:
    """A rebooted node is initialized again by its phase. The activity runs twice, as after a lost result."""
    make_unhealthy(cluster)
    await repair(cluster, "begin", reboot=reboot_of())
    await repair(cluster, "reboot", reboot=reboot_of())
    annotations(cluster).pop(labels.REBOOT_PRE_BOOT_ID)
    cluster.nodes.update_node("node-a", boot_id=boot_id)
    end = RebootEnd(repair=repair_request(reboot=reboot_of()), outcome="failed", why="why")
    for _ in range(2):
        await run_activity(cluster.rebooting.end_reboot, end)
    initialized = NodeClaim.model_validate(cluster.claims.found["a"]).condition(labels.INITIALIZED_CONDITION)
    assert initialized is not None and initialized.status == status
    ended = rebooting_condition(cluster)
    assert (ended["status"], ended["reason"], ended["message"]) == ("False", labels.REBOOT_FAILED, "why")
    assert not has_rebooting_taint(cluster)


async def test_missing_instance_is_not_rebooted(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    cluster.instances.running.clear()
    assert (await repair(cluster, "reboot")).outcome == "gone"
