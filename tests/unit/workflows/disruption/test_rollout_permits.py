"""Permits for drift depend on the rollout of the NodePool, in addition to its budgets."""

from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.errors import TryLater
from tenure.model.observations import ObservedNodePool
from tenure.model.operator_requests import InvalidRules
from tenure.model.rollout import ApproveRollout
from tenure.model.signals import DisruptionReason, PermitRequest, PermitResult
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_nodepool_workflow
from tests.support.workflows.eventually import count_scheduled, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import pause_for
from workflows import ids, search_attributes
from workflows.nodepool import NodePoolWorkflow

Asker = WorkflowHandle[PermitRequesterWorkflow, None]
PoolHandle = WorkflowHandle[NodePoolWorkflow, None]
WAVES = {"waves": [{"nodes": "1", "soak": "10m"}, {}]}
NODES = ("a", "b", "c", "d")


def set_resolved_ami(fake: WorkerHarness, image: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": 1}
    stamps = {labels.NODECLASS_HASH: "c1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    meta = {"name": "default", "uid": "u", "generation": 1, "annotations": stamps}
    fake.node_classes.found["default"] = EC2NodeClass.model_validate(
        {"metadata": meta, "status": {"conditions": [ready], "amis": [{"id": image}]}}
    )


def add_node(fake: WorkerHarness, name: str, image: str) -> None:
    fake.claims.add(name)
    fake.claims.found[name]["status"]["imageID"] = image
    fake.claims.set_status(name, provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
    fake.nodes.join(f"node-{name}", f"aws:///us-west-2a/i-{name}")
    fake.nodes.update_node(f"node-{name}", labels={labels.NODEPOOL: "default"}, taints=())


class RolloutNodePool:
    """Four nodes of ami-1, and a NodePool with rollout rules."""

    def __init__(self, fake: WorkerHarness, pools: PoolHandle) -> None:
        self.fake, self.pools = fake, pools

    async def drift(self) -> None:
        """Change the AMI of the EC2NodeClass to ami-2."""
        set_resolved_ami(self.fake, "ami-2")
        for name in NODES:
            self.fake.claims.set_status(name, Drifted="True")

    async def request_permits(self, names: Sequence[str] = NODES, reason: DisruptionReason = "Drifted") -> None:
        now = await self.fake.now()
        for name in names:
            await self.fake.client.start_workflow(
                PermitRequesterWorkflow.run, id=f"{name}-{reason}", task_queue=ids.task_queue(self.fake.cluster)
            )
            request = PermitRequest(
                claim_name=name, claim_uid=f"uid-{name}", workflow_id=f"{name}-{reason}", reason=reason, since=now
            )
            await self.pools.signal(NodePoolWorkflow.request_permit, request)

    async def permit_decisions(self, name: str, reason: str = "Drifted") -> list[PermitResult]:
        asker: Asker = self.fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, f"{name}-{reason}")
        return await asker.query(PermitRequesterWorkflow.decisions)

    async def has_permits(self, count: int, reason: str = "Drifted") -> bool:
        found = [any(one.granted for one in await self.permit_decisions(name, reason)) for name in NODES]
        return sum(found) == count

    async def is_blocked_by(self, name: str, text: str) -> bool:
        return any(text in one.blocked_by for one in await self.permit_decisions(name))

    def replace_node(self, name: str, by: str) -> None:
        del self.fake.claims.found[name]
        del self.fake.nodes.found[f"node-{name}"]
        add_node(self.fake, by, "ami-2")

    async def plan_id(self) -> str:
        plan = (await self.pools.query(NodePoolWorkflow.state)).rollout.plan
        return plan.id if plan else ""


async def start_rollout_nodepool(fake: WorkerHarness, **rules: Any) -> RolloutNodePool:
    fake.pools.add("default", disruption={"budgets": [{"nodes": "100%"}]})
    set_resolved_ami(fake, "ami-1")
    for name in NODES:
        add_node(fake, name, "ami-1")
    pools = await start_nodepool_workflow(fake)
    rollout = RolloutRules.model_validate(rules) if rules else None
    await pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=1, generation=1, rollout=rollout))
    nodepool = RolloutNodePool(fake, pools)
    if rules:
        await wait_until(lambda: _is_finished(nodepool))
    return nodepool


async def start_rollout(fake: WorkerHarness, **rules: Any) -> RolloutNodePool:
    """The NodePool after drift of all nodes, each of which requests a permit."""
    nodepool = await start_rollout_nodepool(fake, **rules)
    await nodepool.drift()
    await nodepool.request_permits()
    return nodepool


async def wait_for_permit_holder(nodepool: RolloutNodePool) -> str:
    """The only node with a permit."""
    await wait_until_skipping_time(nodepool.fake, lambda: nodepool.has_permits(1))
    (name,) = [name for name in NODES if any(one.granted for one in await nodepool.permit_decisions(name))]
    return name


async def _is_finished(nodepool: RolloutNodePool) -> bool:
    return (await nodepool.pools.query(NodePoolWorkflow.state)).rollout.finished


async def test_drift_without_rollout_rules_uses_budgets_only(fake: WorkerHarness) -> None:
    nodepool = await start_rollout(fake)
    await wait_until_skipping_time(fake, lambda: nodepool.has_permits(4))
    assert await count_scheduled(nodepool.pools, "observe_rollout") == 0


async def test_pause_during_health_check_blocks_permits(fake: WorkerHarness) -> None:
    nodepool = await start_rollout_nodepool(fake, **WAVES)
    await nodepool.drift()
    checks_before = await count_scheduled(nodepool.pools, "observe_rollout")
    fake.node_classes.faults["get"] = [TryLater("told to fail")] * 1000
    await nodepool.request_permits(("a",))
    await wait_until_skipping_time(fake, lambda: _was_checked_since(nodepool, checks_before))
    await nodepool.pools.execute_update(NodePoolWorkflow.pause, await pause_for(fake, hours=4))
    fake.node_classes.faults["get"] = []
    await wait_until_skipping_time(fake, lambda: nodepool.is_blocked_by("a", "is paused by"), seconds=60)
    await fake.sleep(hours=1)
    assert [one.granted for one in await nodepool.permit_decisions("a")] == [False]


async def _was_checked_since(nodepool: RolloutNodePool, before: int) -> bool:
    return await count_scheduled(nodepool.pools, "observe_rollout") > before


async def test_rollout_does_not_limit_other_reasons(fake: WorkerHarness) -> None:
    nodepool = await start_rollout_nodepool(fake, **WAVES)
    await nodepool.drift()
    await nodepool.request_permits(reason="Underutilized")
    await wait_until_skipping_time(fake, lambda: nodepool.has_permits(4, "Underutilized"))


async def test_plan_waits_for_approval_and_unhealthy_canary_rolls_back(fake: WorkerHarness) -> None:
    nodepool = await start_rollout(fake, **WAVES, approval={"required": True}, onFailure="rollBack")
    await wait_until_skipping_time(fake, lambda: nodepool.is_blocked_by("a", "tenure approve default-"))
    assert await nodepool.has_permits(0)
    approval = ApproveRollout(plan=await nodepool.plan_id(), by="ann")
    await nodepool.pools.execute_update(NodePoolWorkflow.approve, approval)
    permit_holder = await wait_for_permit_holder(nodepool)
    nodepool.replace_node(permit_holder, "n")
    fake.nodes.update_node("node-n", ready=False)
    await fake.sleep(minutes=5)
    assert not await is_overdue(nodepool)
    pin = fake.node_classes.found["default"].metadata.annotations[labels.IMAGE_PIN]
    assert '"ami-2":"ami-1"' in pin
    assert {"RolloutWaits", "RolloutApproved", "RolloutRollsBack"} <= {*fake.events.reasons_for("default")}
    assert labels.ROLLOUT in fake.pools.found["default"].metadata.annotations


async def test_unreadable_rules_block_drift_and_rollout_resumes(fake: WorkerHarness) -> None:
    nodepool = await start_rollout(fake, **WAVES)
    permit_holder = await wait_for_permit_holder(nodepool)
    unread = InvalidRules(rollout="LifecyclePolicy p cannot be read: spec.rollout.waves: 7")
    await nodepool.pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, unread=unread))
    await nodepool.request_permits(["d"], reason="Underutilized")
    await wait_until(lambda: _has_permit(nodepool, "d", "Underutilized"))
    nodepool.replace_node(permit_holder, "n")
    await fake.sleep(minutes=20)
    assert await nodepool.has_permits(1)
    assert (await nodepool.pools.query(NodePoolWorkflow.state)).rollout.wave_began is not None, "the wave is kept"
    rules = RolloutRules.model_validate(WAVES)
    await nodepool.pools.signal(NodePoolWorkflow.observe, ObservedNodePool(number=3, generation=1, rollout=rules))
    await fake.sleep(minutes=15)
    await wait_until_skipping_time(fake, lambda: nodepool.has_permits(4), seconds=30)


async def _has_permit(nodepool: RolloutNodePool, name: str, reason: str) -> bool:
    return any(one.granted for one in await nodepool.permit_decisions(name, reason))


async def is_overdue(nodepool: RolloutNodePool) -> bool:
    return bool((await nodepool.pools.describe()).typed_search_attributes.get(search_attributes.OVERDUE))


async def test_halted_rollout_is_overdue_until_approval(fake: WorkerHarness) -> None:
    nodepool = await start_rollout(fake, **WAVES)
    permit_holder = await wait_for_permit_holder(nodepool)
    nodepool.replace_node(permit_holder, "n")
    fake.nodes.update_node("node-n", ready=False)
    await wait_until_skipping_time(fake, lambda: is_overdue(nodepool), seconds=20)
    described = (await nodepool.pools.describe()).typed_search_attributes
    assert described.get(search_attributes.BLOCKED_BY) == "RolloutHalted"
    assert "tenure approve" in (await nodepool.pools.query(NodePoolWorkflow.state)).rollout_blocked_by
    fake.nodes.update_node("node-n", ready=True)
    approval = ApproveRollout(plan=await halted_plan_id(nodepool), by="ann")
    await nodepool.pools.execute_update(NodePoolWorkflow.approve, approval)
    await wait_until(lambda: is_healthy(nodepool))


async def halted_plan_id(nodepool: RolloutNodePool) -> str:
    found = (await nodepool.pools.query(NodePoolWorkflow.state)).rollout.halted
    return found.plan if found else ""


async def is_healthy(nodepool: RolloutNodePool) -> bool:
    found = (await nodepool.pools.describe()).typed_search_attributes
    return found.get(search_attributes.OVERDUE) is False and not found.get(search_attributes.BLOCKED_BY)
