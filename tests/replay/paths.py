"""The paths that are recorded: one short play for each way that a workflow can go, on the in-memory world.

Each plays on a world of its own and names the runs to keep: by the path's name, and a word where there are several.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import LAUNCH_GROUP, NODEPOOL
from tenure.model.errors import BadInput, TryLater
from tenure.model.launch import Member
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import DemandSeen, Joining, NodeClassSeen
from tenure.model.provisioning import LaunchDraft, PlanOutcome
from tenure.model.workflow_states import BatchWindow, ProvisioningState
from tests.replay.away_path import nodeclaim_away
from tests.replay.brake_path import nodeclaim_braked
from tests.replay.disruption_paths import cluster_decides, disruption_done, disruption_not_permitted, disruption_undone
from tests.replay.ending_paths import nodeclaim_repaired, nodepool_failed_start
from tests.replay.event_paths import (
    nodeclaim_approved,
    nodeclaim_cycled,
    nodeclaim_interrupted_early,
    nodeclaim_overtaken,
)
from tests.replay.hook_path import nodeclaim_hook_gives_up, nodeclaim_hooks
from tests.replay.interruption_path import interruption_reads
from tests.replay.marks_path import nodeclaim_put_back
from tests.replay.permit_paths import disruption_given_up, nodepool_limited_together, nodepool_rollout_halted
from tests.replay.show_path import show_question
from tests.replay.static_path import nodepool_static
from tests.replay.upkeep_path import upkeep_run
from tests.replay.waiting_path import nodeclaim_not_ready, nodepool_told
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, eventually, has_come, in_phase, in_time, latest, rolled
from tests.support.workflows.lives import (
    BUSY,
    JOINED,
    born,
    delete,
    emptied,
    joined,
    launched,
    node_class,
    pool,
    ready,
)
from workflows import ids
from workflows.cluster_watch import WatchWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodeclass import NodeClassWorkflow
from workflows.provisioning import ProvisioningWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]
Path = Callable[[World, WorkflowEnvironment], Awaitable[Runs]]


async def nodeclaim_used_after_all(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.pods.place("node-a", "web")
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "not empty"), seconds=10)
    fake.pods.by_node.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_overdue_and_rebooted(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await joined(fake, skipping)
    await skipping.sleep(timedelta(minutes=31))
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    fake.nodes.change("node-a", boot_id="boot-2")
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2"})
    await skipping.sleep(timedelta(seconds=1))
    await in_phase(handle, Phase.READY)
    return {"": handle}


async def nodeclaim_expired(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping, expireAfter="2h")
    await handle.result()
    return {"": handle}


async def nodeclaim_vanished(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await ready(fake, skipping)
    await fake.see(handle)
    await eventually(lambda: blocked(handle, "NodeNotFound"))
    fake.instances.running.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_no_capacity(fake: World, skipping: WorkflowEnvironment) -> Runs:
    fake.fleet.capacity = 0
    handle = await fake.start(await born(fake, skipping))
    await handle.result()
    return {"": handle}


async def nodeclaim_kept(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A policy wants it kept past its deadline, moves that, and moves that of its drain while it drains."""
    stays = {"registration": {"whenOverdue": "alarm"}}
    handle = await launched(fake, skipping)
    await fake.see(handle, rules=stays)
    await skipping.sleep(timedelta(minutes=16))
    await fake.see(handle, rules={"registration": {"whenOverdue": "alarm", "deadline": "2h"}})
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.see(handle, **BUSY, rules=stays)
    await in_phase(handle, Phase.READY)
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, "budget 0"))
    await fake.see(handle, **BUSY, deleting=True, rules={"drain": {"deadline": "1s"}})
    await eventually(lambda: overdue(handle))
    fake.pods.blocked.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_faults(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Launch overdue, registration and termination by faults that no retry helps."""
    fake.fleet.faults["create"] = [TryLater("503") for _ in range(26)]
    fake.nodes.faults["register"] = [BadInput("no")]
    fake.instances.faults["terminate"] = [BadInput("no")]
    handle = await fake.start(await born(fake, skipping))
    await in_time(skipping, lambda: has_instance(fake), seconds=15)
    await in_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.see(handle, **JOINED)
    await skipping.sleep(timedelta(minutes=1))
    await delete(fake, handle)
    await handle.result()
    return {"": handle}


async def nodeclaim_group_tries_again(fake: World, skipping: WorkflowEnvironment) -> Runs:
    fake.fleet.refuse_once()
    async with fake.planning():
        handle = await planned(fake, skipping, "a")
        await in_time(skipping, lambda: has_instance(fake), seconds=5)
        life = fake.handle((await fake.claims.list())[0])
        await in_phase(life, Phase.REGISTRATION)
    return {"": life, "provisioning": handle}


async def nodeclaim_joined(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Two of a pool that no plan made, and that are alike; there is room for one in the first type."""
    fake.fleet.types, fake.fleet.room = ("m5.large", "c5.large"), {"m5.large": 1}
    handle = await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    now = await skipping.get_current_time()
    claims = [fake.claims.add(name, born=now, labels={NODEPOOL: "default"}) for name in "ab"]
    lives = [await fake.start(claim, alike="x") for claim in claims]
    for life in lives:
        await in_time(skipping, partial(has_come, life, Phase.REGISTRATION), seconds=1)
    return {"": lives[1], "provisioning": handle}


async def nodeclaim_recalled(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Its workflow was lost with Temporal's store, and word comes that it is gone, which is not so."""
    first = await ready(fake, skipping)
    await first.terminate()
    await skipping.sleep(timedelta(minutes=1))
    second = await fake.start((await fake.claims.list())[0], **BUSY)
    await in_phase(second, Phase.READY)
    await fake.see(second, exists=False)
    await skipping.sleep(timedelta(seconds=10))
    return {"": second}


async def nodeclaim_drifted(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """From an image, then from a subnet, then not any more."""
    handle = await ready(fake, skipping)
    image = {"drift": "AMIDrift", "drift_message": "an old image"}
    for drift in (image, {"drift": "SubnetDrift", "drift_message": "another subnet"}, {}):
        await fake.see(handle, **BUSY, **drift)
        await skipping.sleep(timedelta(seconds=30))
    await fake.see(handle, **BUSY, **image)
    await skipping.sleep(timedelta(seconds=30))
    await delete(fake, handle)
    await handle.result()
    return {"": handle}


async def nodeclaim_continued(fake: World, skipping: WorkflowEnvironment) -> Runs:
    first = await ready(fake, skipping)
    for number in range(480):
        await fake.see(first, **{**BUSY, "node_ready": bool(number % 2)})
    await eventually(lambda: rolled(fake.client, first))
    second = latest(fake.client, first)
    await delete(fake, second)
    await second.result()
    return {"first": fake.client.get_workflow_handle(first.id, run_id=first.result_run_id), "second": second}


async def provisioning_refused(fake: World, skipping: WorkflowEnvironment) -> Runs:
    fake.node_classes.add("default", ready="False")
    async with fake.planning():
        handle = await planned(fake, skipping, "a")
        await eventually(lambda: no_claims(fake))
    return {"": handle}


async def provisioning_left_out(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A member was deleted before its launch; one that no plan made waits as long as a batch of pods stays open."""
    async with fake.planning():
        handle = await planned(fake, skipping, "a")
        fake.claims.give("a", deleting=True)
        life = await fake.start((await fake.claims.list())[0])
        with skipping.auto_time_skipping_disabled():
            await life.result()
        await handle.signal(ProvisioningWorkflow.window_set, BatchWindow(idle=timedelta(seconds=3)))
        fake.claims.add("b", born=await skipping.get_current_time(), labels={NODEPOOL: "default"})
        wish = Joining(name="b", uid="uid-b", pool="default", node_class="default", alike="x")
        await handle.signal(ProvisioningWorkflow.join, wish)
        await in_time(skipping, lambda: has_instance(fake, "b"), seconds=2)
    return {"": handle, "life": life}


async def provisioning_without_host(fake: World, skipping: WorkflowEnvironment) -> Runs:
    handle = await planned(fake, skipping, "a")
    await skipping.sleep(timedelta(seconds=20))
    async with fake.planning():
        await in_time(skipping, lambda: has_instance(fake), seconds=2)
    return {"": handle}


async def nodeclass_life(fake: World, skipping: WorkflowEnvironment) -> Runs:
    fake.resolver.faults["resolve"] = [BadInput("no")]
    handle = await node_class(fake)
    await skipping.sleep(timedelta(minutes=8))
    fake.node_classes.add("default", deleting=True)
    await handle.signal(NodeClassWorkflow.seen, NodeClassSeen(number=2, generation=1, deleting=True))
    await handle.result()
    return {"": handle}


async def watch_handed_on(fake: World, skipping: WorkflowEnvironment) -> Runs:
    fake.host.ends = 1
    first = await fake.client.start_workflow(
        WatchWorkflow.run, fake.cluster, id=ids.watch(fake.cluster), task_queue=ids.task_queue(fake.cluster)
    )
    await eventually(lambda: rolled(fake.client, first))
    return {"": fake.client.get_workflow_handle(first.id, run_id=first.result_run_id)}


PATHS: dict[str, Path] = {
    path.__name__: path
    for path in (
        nodeclaim_used_after_all,
        nodeclaim_overdue_and_rebooted,
        nodeclaim_away,
        nodeclaim_expired,
        nodeclaim_vanished,
        nodeclaim_no_capacity,
        nodeclaim_kept,
        nodeclaim_faults,
        nodeclaim_group_tries_again,
        nodeclaim_joined,
        nodeclaim_recalled,
        nodeclaim_drifted,
        nodeclaim_braked,
        nodeclaim_interrupted_early,
        nodeclaim_overtaken,
        nodeclaim_approved,
        nodeclaim_cycled,
        nodeclaim_hooks,
        nodeclaim_hook_gives_up,
        nodeclaim_continued,
        nodeclaim_repaired,
        nodeclaim_put_back,
        nodepool_failed_start,
        nodepool_static,
        nodepool_told,
        nodeclaim_not_ready,
        provisioning_refused,
        provisioning_left_out,
        provisioning_without_host,
        nodeclass_life,
        watch_handed_on,
        interruption_reads,
        show_question,
        upkeep_run,
        disruption_done,
        disruption_undone,
        disruption_given_up,
        nodepool_limited_together,
        nodepool_rollout_halted,
        disruption_not_permitted,
        cluster_decides,
    )
}


async def planned(fake: World, skipping: WorkflowEnvironment, *names: str) -> WorkflowHandle[Any, None]:
    """Demand, and the group of NodeClaims that its plan makes."""
    now = await skipping.get_current_time()
    for name in names:
        fake.claims.add(name, born=now, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: "group-1"})
    members = tuple(Member(name=name, uid=f"uid-{name}") for name in names)
    draft = LaunchDraft(group_id="group-1", pool="default", node_class="default", members=members)
    fake.host.outcomes = [PlanOutcome(plan_id="", drafts=(draft,), created=len(names))]
    handle = await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    await handle.signal(ProvisioningWorkflow.demand, DemandSeen(number=1, pods=1, newest=now - timedelta(minutes=1)))
    return handle


async def overdue(handle: WorkflowHandle[NodeClaimWorkflow, Any]) -> bool:
    return (await handle.query(NodeClaimWorkflow.state)).overdue


async def has_instance(fake: World, name: str = "a") -> bool:
    return bool(fake.claims.found.get(name, {}).get("status", {}).get("providerID"))


async def no_claims(fake: World) -> bool:
    return not fake.claims.found
