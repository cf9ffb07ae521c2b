"""A NodePool's permits for drift go by its roll-out, beside its budgets."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.errors import TryLater
from tenure.model.observations import PoolSeen
from tenure.model.operator_requests import Unread
from tenure.model.rollout import ApproveRollout, RejectRollout
from tenure.model.signals import DisruptionReason, PermitAnswered, PermitAsked
from tenure.model.workflow_states import PoolState
from tests.support.fakes.asker import AskerWorkflow
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time, scheduled
from tests.support.workflows.lives import pause_for
from workflows import ids, search_attributes
from workflows.nodepool import NodePoolWorkflow

Asker = WorkflowHandle[AskerWorkflow, None]
PoolHandle = WorkflowHandle[NodePoolWorkflow, None]
WAVES = {"waves": [{"nodes": "1", "soak": "10m"}, {}]}
NODES = ("a", "b", "c", "d")


def resolve(fake: World, image: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": 1}
    stamps = {labels.NODECLASS_HASH: "c1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    meta = {"name": "default", "uid": "u", "generation": 1, "annotations": stamps}
    fake.node_classes.found["default"] = EC2NodeClass.model_validate(
        {"metadata": meta, "status": {"conditions": [ready], "amis": [{"id": image}]}}
    )


def node(fake: World, name: str, image: str) -> None:
    fake.claims.add(name)
    fake.claims.found[name]["status"]["imageID"] = image
    fake.claims.give(name, provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
    fake.nodes.join(f"node-{name}", f"aws:///us-west-2a/i-{name}")
    fake.nodes.change(f"node-{name}", labels={labels.NODEPOOL: "default"}, taints=())


class Stage:
    """Four nodes of ami-1, and a NodePool whose roll-outs have rules."""

    def __init__(self, fake: World, skipping: WorkflowEnvironment, pools: PoolHandle) -> None:
        self.fake, self.skipping, self.pools = fake, skipping, pools

    async def drift(self) -> None:
        """The class has ami-2 now."""
        resolve(self.fake, "ami-2")
        for name in NODES:
            self.fake.claims.give(name, Drifted="True")

    async def wish(self, names: Sequence[str] = NODES, reason: DisruptionReason = "Drifted") -> None:
        now = await self.skipping.get_current_time()
        for name in names:
            await self.fake.client.start_workflow(
                AskerWorkflow.run, id=f"{name}-{reason}", task_queue=ids.task_queue(self.fake.cluster)
            )
            wish = PermitAsked(
                claim_name=name, claim_uid=f"uid-{name}", workflow_id=f"{name}-{reason}", reason=reason, since=now
            )
            await self.pools.signal(NodePoolWorkflow.asked, wish)

    async def answers(self, name: str, reason: str = "Drifted") -> list[PermitAnswered]:
        asker: Asker = self.fake.client.get_workflow_handle_for(AskerWorkflow.run, f"{name}-{reason}")
        return await asker.query(AskerWorkflow.answers)

    async def granted(self, count: int, reason: str = "Drifted") -> bool:
        found = [any(one.granted for one in await self.answers(name, reason)) for name in NODES]
        return sum(found) == count

    async def waits(self, name: str, words: str) -> bool:
        return any(words in one.blocked_by for one in await self.answers(name))

    def replace(self, name: str, by: str) -> None:
        del self.fake.claims.found[name]
        del self.fake.nodes.found[f"node-{name}"]
        node(self.fake, by, "ami-2")

    async def plan(self) -> str:
        plan = (await self.pools.query(NodePoolWorkflow.state)).rollout.plan
        return plan.id if plan else ""


async def staged(fake: World, skipping: WorkflowEnvironment, **rules: Any) -> Stage:
    fake.pools.add("default", disruption={"budgets": [{"nodes": "100%"}]})
    resolve(fake, "ami-1")
    for name in NODES:
        node(fake, name, "ami-1")
    name = ids.nodepool(fake.cluster, "default")
    seen = PoolSeen(number=1, generation=1, rollout=RolloutRules.model_validate(rules) if rules else None)
    pools = await fake.client.start_workflow(
        NodePoolWorkflow.run,
        PoolState(cluster=fake.cluster, name="default"),
        id=name,
        task_queue=ids.task_queue(fake.cluster),
        start_signal="seen",
        start_signal_args=[seen],
    )
    stage = Stage(fake, skipping, pools)
    if rules:
        await eventually(lambda: _finished(stage))
    return stage


async def _finished(stage: Stage) -> bool:
    return (await stage.pools.query(NodePoolWorkflow.state)).rollout.finished


async def test_without_rules_drift_goes_by_budgets_and_is_not_looked_at(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    stage = await staged(fake, skipping)
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.granted(4))
    assert await scheduled(stage.pools, "look_at_rollout") == 0


async def test_one_node_goes_and_the_others_after_the_soak(fake: World, skipping: WorkflowEnvironment) -> None:
    stage = await staged(fake, skipping, **WAVES)
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.granted(1))
    await in_time(skipping, lambda: stage.waits("b", "wave 1 of 2 of the roll-out of the image"))
    (gone,) = [name for name in NODES if any(one.granted for one in await stage.answers(name))]
    stage.replace(gone, "n")
    await skipping.sleep(timedelta(minutes=9))
    assert await stage.granted(1)
    await in_time(skipping, lambda: stage.granted(4), seconds=30)


async def test_a_pause_that_comes_while_health_is_looked_at_holds(fake: World, skipping: WorkflowEnvironment) -> None:
    stage = await staged(fake, skipping, **WAVES)
    await stage.drift()
    looks = await scheduled(stage.pools, "look_at_rollout")
    fake.node_classes.faults["get"] = [TryLater("told to fail")] * 1000
    await stage.wish(("a",))
    await in_time(skipping, lambda: _looks_since(stage, looks))
    await stage.pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, hours=4))
    fake.node_classes.faults["get"] = []
    await in_time(skipping, lambda: stage.waits("a", "is paused by"), seconds=60)
    await skipping.sleep(timedelta(hours=1))
    assert [one.granted for one in await stage.answers("a")] == [False]


async def _looks_since(stage: Stage, before: int) -> bool:
    return await scheduled(stage.pools, "look_at_rollout") > before


async def test_other_reasons_go_on(fake: World, skipping: WorkflowEnvironment) -> None:
    stage = await staged(fake, skipping, **WAVES)
    await stage.drift()
    await stage.wish(reason="Underutilized")
    await in_time(skipping, lambda: stage.granted(4, "Underutilized"))


async def test_a_plan_waits_for_a_person_and_a_sick_canary_is_taken_back(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    stage = await staged(fake, skipping, **WAVES, approval={"required": True}, onFailure="rollBack")
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.waits("a", "tenure approve default-"))
    assert await stage.granted(0)
    said = ApproveRollout(plan=await stage.plan(), by="ann")
    await stage.pools.execute_update(NodePoolWorkflow.approve, said)
    await in_time(skipping, lambda: stage.granted(1))
    (gone,) = [name for name in NODES if any(one.granted for one in await stage.answers(name))]
    stage.replace(gone, "n")
    fake.nodes.change("node-n", ready=False)
    await skipping.sleep(timedelta(minutes=5))
    assert not await overdue(stage)
    pin = fake.node_classes.found["default"].metadata.annotations[labels.IMAGE_PIN]
    assert '"ami-2":"ami-1"' in pin
    assert {"RolloutWaits", "RolloutApproved", "RolloutRollsBack"} <= {*fake.events.reasons("default")}
    assert labels.ROLLOUT in fake.pools.found["default"].metadata.annotations


async def test_a_rejected_one_stops(fake: World, skipping: WorkflowEnvironment) -> None:
    stage = await staged(fake, skipping, approval={"required": True})
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.waits("a", "tenure approve default-"))
    said = RejectRollout(plan=await stage.plan(), by="ben")
    await stage.pools.execute_update(NodePoolWorkflow.reject, said)
    await skipping.sleep(timedelta(hours=1))
    assert await stage.granted(0)


async def test_rules_that_cannot_be_read_hold_the_pool_and_the_roll_out_goes_on_where_it_was(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    stage = await staged(fake, skipping, **WAVES)
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.granted(1))
    (gone,) = [name for name in NODES if any(one.granted for one in await stage.answers(name))]
    unread = Unread(rollout="LifecyclePolicy p cannot be read: spec.rollout.waves: 7")
    await stage.pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, unread=unread))
    await stage.wish(["d"], reason="Underutilized")
    await eventually(lambda: _permitted(stage, "d", "Underutilized"))
    stage.replace(gone, "n")
    await skipping.sleep(timedelta(minutes=20))
    assert await stage.granted(1)
    assert (await stage.pools.query(NodePoolWorkflow.state)).rollout.wave_began is not None, "it is kept"
    rules = RolloutRules.model_validate(WAVES)
    await stage.pools.signal(NodePoolWorkflow.seen, PoolSeen(number=3, generation=1, rollout=rules))
    await skipping.sleep(timedelta(minutes=15))
    await in_time(skipping, lambda: stage.granted(4), seconds=30)


async def _permitted(stage: Stage, name: str, reason: str) -> bool:
    return any(one.granted for one in await stage.answers(name, reason))


async def overdue(stage: Stage) -> bool:
    return bool((await stage.pools.describe()).typed_search_attributes.get(search_attributes.OVERDUE))


async def test_one_that_has_halted_is_found_as_overdue_nodes_are_until_somebody_lets_it_go_on(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    stage = await staged(fake, skipping, **WAVES)
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.granted(1))
    (gone,) = [name for name in NODES if any(one.granted for one in await stage.answers(name))]
    stage.replace(gone, "n")
    fake.nodes.change("node-n", ready=False)
    await in_time(skipping, lambda: overdue(stage), seconds=20)
    described = (await stage.pools.describe()).typed_search_attributes
    assert (described.get(search_attributes.BLOCKED_BY) or "").startswith("waits for a person: ")
    fake.nodes.change("node-n", ready=True)
    said = ApproveRollout(plan=await halted(stage), by="ann")
    await stage.pools.execute_update(NodePoolWorkflow.approve, said)
    await eventually(lambda: well(stage))


async def halted(stage: Stage) -> str:
    found = (await stage.pools.query(NodePoolWorkflow.state)).rollout.halted
    return found.plan if found else ""


async def well(stage: Stage) -> bool:
    found = (await stage.pools.describe()).typed_search_attributes
    return found.get(search_attributes.OVERDUE) is False and not found.get(search_attributes.BLOCKED_BY)
