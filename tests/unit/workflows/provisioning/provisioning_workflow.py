"""Starts the Provisioning workflow, signals pending pods, and waits for passes and launches."""

from datetime import datetime, timedelta
from functools import partial

from temporalio.service import RPCError

from tenure.apis.labels import LAUNCH_GROUP, NODEPOOL
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import ObservedDemand
from tenure.model.plan import LaunchDraft, PlanOutcome
from tenure.model.workflow_states import BatchWindow
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.coordinators import Provisioning, start_provisioning
from tests.support.workflows.eventually import (
    wait_until,
    wait_until_idle,
    wait_until_phase,
)
from workflows.provisioner import ProvisioningWorkflow

OPEN_WINDOW = BatchWindow(idle=timedelta(hours=1), longest=timedelta(hours=1))
"""A batch window that stays open."""


async def signal_pending_pods(fake: WorkerHarness, handle: Provisioning, newest: datetime) -> None:
    """Signal only while the workflow is idle, because it may be continuing as new."""
    await wait_until_idle(handle, timeout=IDLE_TIMEOUT_SECONDS)
    fake.number += 1
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=fake.number, pods=1, newest_pod_at=newest)
    )


async def make_launch_draft(fake: WorkerHarness, *names: str, group_id: str = "group-1") -> LaunchDraft:
    """Add NodeClaims of a plan, and return the draft of their launch."""
    born = await fake.now()
    for name in names:
        fake.claims.add(name, born=born, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: group_id})
    members = tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in sorted(names))
    return LaunchDraft(group_id=group_id, pool="default", node_class="default", members=members)


async def launch_group(planning: WorkerHarness, *names: str) -> Provisioning:
    """Start Provisioning with a plan whose launch draft has these NodeClaims."""
    planning.host.outcomes = [PlanOutcome(plan_id="", drafts=(await make_launch_draft(planning, *names),))]
    handle = await start_provisioning(planning)
    await signal_waiting_pods(planning, handle)
    return handle


async def signal_waiting_pods(fake: WorkerHarness, handle: Provisioning) -> None:
    """Signal pods that have waited longer than any batch window."""
    await signal_pending_pods(fake, handle, await fake.now() - timedelta(minutes=1))


def get_nodeclaim(fake: WorkerHarness, name: str) -> NodeClaim:
    return NodeClaim.model_validate(fake.claims.found[name])


async def has_planning_passes(fake: WorkerHarness, count: int) -> bool:
    """Use "at least": a pass whose result was lost is repeated."""
    return len(fake.host.planned) >= count


async def wait_until_launched(fake: WorkerHarness, *names: str) -> None:
    await wait_until(lambda: have_instances(fake, *names))
    for name in names:
        await wait_until(partial(has_workflow, fake, name))
        await wait_until_phase(fake.workflow_handle(get_nodeclaim(fake, name)), Phase.REGISTRATION)


async def has_workflow(fake: WorkerHarness, name: str) -> bool:
    """The workflow receives the launch result after the NodeClaim shows the provider ID."""
    try:
        await fake.workflow_handle(get_nodeclaim(fake, name)).describe()
    except RPCError:
        return False
    return True


async def have_instances(fake: WorkerHarness, *names: str) -> bool:
    return all("providerID" in fake.claims.found[name]["status"] for name in names)


async def has_fleet_calls(fake: WorkerHarness, times: int) -> bool:
    return len(fake.fleet.calls) == times
