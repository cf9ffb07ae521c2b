"""Paths of voluntary disruption: completed and rolled-back commands, and the Cluster workflow that starts them."""

from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.disruption.commands import (
    ClosedCommands,
    ClusterChanged,
    DisruptionDecision,
    DisruptionState,
    Proposal,
    ReplacementMessage,
    ReplacementResult,
)
from tenure.model.errors import BadInput
from tests.support.fakes.permit_granter import PermitGranterWorkflow, PermitRules
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.commands import (
    CommandHandle,
    add_nodes,
    is_in_step,
    make_proposal,
    replacement_names,
    report_replacements_ready,
    start_command,
    start_permit_granter,
)
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def disruption_done(fake: WorkerHarness) -> Runs:
    """Permits arrive late, no planner host runs at first, and the replacement's node is not Ready at once."""
    add_nodes(fake, "a", "b")
    pools = await start_permit_granter(fake, rejected_uids=("uid-b",))
    fake.disruption.replace_rejections = [ReplacementResult(outcome="not now", why="caches are too old")]
    async with fake.running_planner():
        handle = await start_command(fake, make_proposal("a", "b"))
        await fake.sleep(seconds=200)
        await pools.signal(PermitGranterWorkflow.change_rules, PermitRules())
        await wait_until_skipping_time(fake, lambda: is_in_step(handle, "Wait"), seconds=5)
        await fake.sleep(seconds=400)
        await report_replacements_ready(fake, handle)
        await handle.result()
    return {"": handle}


async def disruption_rolled_back(fake: WorkerHarness) -> Runs:
    """One replacement fails, and the API server at first rejects the removal of a node's taint."""
    add_nodes(fake, "a")
    await start_permit_granter(fake)
    async with fake.running_planner():
        handle = await start_command(fake, make_proposal("a", replacements=2))
        await wait_until(lambda: is_in_step(handle, "Wait"))
        fake.nodes.faults["unmark_disrupted"] = [BadInput("422")]
        name = (await replacement_names(handle))[0]
        await handle.signal(
            DisruptionWorkflow.replacement_status, ReplacementMessage(claim=name, ready=False, why="no capacity")
        )
        await handle.result()
    return {"": handle}


async def disruption_not_permitted(fake: WorkerHarness) -> Runs:
    add_nodes(fake, "a")
    await start_permit_granter(fake, ignores_requests=True)
    handle = await start_command(fake, make_proposal("a"))
    await handle.result()
    return {"": handle}


async def cluster_computes_disruption(fake: WorkerHarness) -> Runs:
    """One command completes, one fails, two are lost, of which the watch reports one, and a pass fails in between."""
    add_nodes(fake, "a", "b", "c", "d")
    await start_permit_granter(fake)
    fake.pods.add("node-b", "db", protected=True)
    proposals = [make_proposal("a", replacements=0), *map(make_proposal, "bcd")]
    fake.disruption.results = [DisruptionDecision(proposals=tuple(proposals))]
    fake.disruption.faults["compute_disruption"] = [None, BadInput("planner")]
    async with fake.running_planner():
        handle = await fake.client.start_workflow(
            ClusterWorkflow.run,
            DisruptionState(cluster=fake.cluster),
            id=ids.cluster(fake.cluster),
            task_queue=fake.cluster,
        )
        await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=1))
        for one in proposals[2:]:
            unanswered = _command_handle(fake, one)
            await wait_until(partial(is_in_step, unanswered, "Wait"))
            await unanswered.terminate()
        closed = ClosedCommands(closed={proposals[3].id: await fake.now()})
        await handle.signal(ClusterWorkflow.commands_closed, closed)
        for number in range(2, 6):
            await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=number))
            await fake.sleep(seconds=60)
        await wait_until_skipping_time(fake, lambda: _has_no_commands(handle), minutes=20)
    return {"": handle}


def _command_handle(fake: WorkerHarness, proposed: Proposal) -> CommandHandle:
    return fake.client.get_workflow_handle_for(DisruptionWorkflow.run, ids.disruption(fake.cluster, proposed.id))


async def _has_no_commands(handle: WorkflowHandle[ClusterWorkflow, None]) -> bool:
    return not (await handle.query(ClusterWorkflow.state)).under_way
