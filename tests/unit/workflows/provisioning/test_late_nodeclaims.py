"""A NodeClaim of a plan that got no response to its creation is in no launch group. It launches soon, and once."""

import asyncio

from tenure.apis.labels import LAUNCH_GROUP, NODEPOOL
from tenure.model.launch import LaunchRejection
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import LaunchGroupJoinRequest
from tenure.model.plan import PlanOutcome
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import wait_until, wait_until_phase, wait_until_skipping_time
from tests.unit.workflows.provisioning.provisioning_workflow import (
    get_nodeclaim,
    has_planning_passes,
    have_instances,
    launch_group,
    make_launch_draft,
    signal_waiting_pods,
    wait_until_launched,
)
from workflows.provisioner import ProvisioningWorkflow


async def test_nodeclaim_that_its_plan_left_out_launches_within_about_a_minute(planning: WorkerHarness) -> None:
    await start_provisioning(planning)
    names = ("a", "b")
    await make_launch_draft(planning, *names)
    handles = [await planning.start(get_nodeclaim(planning, name), alike="x") for name in names]
    await planning.sleep(seconds=50)
    assert not planning.fleet.calls
    await planning.sleep(seconds=20)
    await wait_until_launched(planning, *names)
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 2
    for handle in handles:
        state = await handle.query("state")
        assert state["launched"]


async def test_nodeclaim_in_a_slow_launch_group_launches_once(planning: WorkerHarness) -> None:
    """Its requests to join another group are ignored."""
    planning.fleet.rejection = LaunchRejection(reason="NodeClassNotReady", message="not yet", final=False)
    provisioning = await launch_group(planning, "a")
    handle = await planning.start(get_nodeclaim(planning, "a"), alike="x")
    await planning.sleep(seconds=150)
    history = await provisioning.fetch_history()
    signals = [one.workflow_execution_signaled_event_attributes.signal_name for one in history.events]
    assert signals.count("join_launch_group") == 2
    planning.fleet.rejection = None
    await wait_until_skipping_time(planning, lambda: have_instances(planning, "a"))
    await wait_until_phase(handle, Phase.REGISTRATION)
    await planning.sleep(seconds=10)
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 1


async def test_nodeclaim_waits_for_the_result_of_its_plan(planning: WorkerHarness) -> None:
    """Its group is not known before. If the plan leaves it out, it asks again after a minute."""
    planning.host.gate = asyncio.Event()
    provisioning = await start_provisioning(planning)
    await signal_waiting_pods(planning, provisioning)
    await wait_until(lambda: has_planning_passes(planning, 1))
    group_id = f"{planning.host.planned[0].plan_id}-0"
    draft = await make_launch_draft(planning, "a", group_id=group_id)
    planning.claims.add(
        "b", born=await planning.now(), labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: group_id}
    )
    for name in ("a", "b"):
        request = LaunchGroupJoinRequest(
            name=name, uid=f"uid-{name}", pool="default", node_class="default", launch_hash="x", group_id=group_id
        )
        await provisioning.signal(ProvisioningWorkflow.join_launch_group, request)
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(draft,))]
    planning.host.gate.set()
    await wait_until(lambda: have_instances(planning, "a"))
    await planning.sleep(seconds=5)
    assert len(planning.fleet.calls) == 1 and not await have_instances(planning, "b")
    await provisioning.signal(ProvisioningWorkflow.join_launch_group, request)
    await planning.sleep(seconds=5)
    await wait_until(lambda: have_instances(planning, "b"))
    assert len(planning.fleet.calls) == 2 and len(planning.instances.running) == 2


async def test_deleted_nodeclaim_that_its_plan_left_out_launches_nothing(planning: WorkerHarness) -> None:
    await start_provisioning(planning)
    await make_launch_draft(planning, "a")
    await planning.start(get_nodeclaim(planning, "a"), alike="x", deleting=True)
    await planning.sleep(seconds=130)
    assert not planning.fleet.calls
