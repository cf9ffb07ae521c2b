"""NodeClaims that no plan created: equal ones launch together, others individually."""

import asyncio
from datetime import timedelta

import pytest

from tenure.apis.labels import NODEPOOL
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import LaunchGroupJoinRequest
from tenure.model.workflow_states import BatchWindow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import (
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.unit.workflows.provisioning.provisioning_workflow import has_fleet_calls, have_instances, wait_until_launched
from workflows.provisioner import ProvisioningWorkflow


def join_request(name: str) -> LaunchGroupJoinRequest:
    return LaunchGroupJoinRequest(name=name, uid=f"uid-{name}", pool="default", node_class="default", launch_hash="x")


async def test_standalone_nodeclaims_are_batched_like_pods(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    window = BatchWindow(idle=timedelta(seconds=10), longest=timedelta(minutes=1))
    await handle.signal(ProvisioningWorkflow.set_batch_window, window)
    born = await planning.now()
    for name in "abc":
        planning.claims.add(name, born=born, labels={NODEPOOL: "default"})
        await handle.signal(ProvisioningWorkflow.join_launch_group, join_request(name))
        await planning.sleep(seconds=4)
    await planning.sleep(seconds=20)
    await wait_until(lambda: have_instances(planning, "a", "b", "c"))
    assert len(planning.fleet.calls) == 1


async def test_equal_standalone_nodeclaims_launch_together(
    planning: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The join window is longer than the default, because a busy machine may start the workflows slowly."""
    monkeypatch.setattr("workflows.launch_groups.JOIN_WINDOW", timedelta(seconds=20))
    planning.fleet.gate = asyncio.Event()
    await start_provisioning(planning)
    born = await planning.now()
    nodeclaim_handles = []
    for name, alike in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")):
        made = planning.claims.add(name, born=born, labels={NODEPOOL: "default"})
        nodeclaim_handles.append(await planning.start(made, alike=alike))
    await wait_until_skipping_time(planning, lambda: has_fleet_calls(planning, 2))
    for nodeclaim_handle in nodeclaim_handles:
        await wait_until_phase(nodeclaim_handle, Phase.LAUNCH)
    planning.fleet.gate.set()
    await wait_until_launched(planning, "a", "b", "c", "d")
    assert len(planning.fleet.calls) == 2 and len(planning.instances.running) == 4
    assert all("karpenter.sh/termination" in one["metadata"]["finalizers"] for one in planning.claims.found.values())


async def test_repeated_join_request_launches_one_instance(planning: WorkerHarness) -> None:
    handle = await start_provisioning(planning)
    planning.claims.add("a", born=await planning.now(), labels={NODEPOOL: "default"})
    planning.fleet.gate = asyncio.Event()
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    await wait_until(lambda: has_fleet_calls(planning, 1))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    planning.fleet.gate.set()
    await wait_until(lambda: have_instances(planning, "a"))
    await handle.signal(ProvisioningWorkflow.join_launch_group, join_request("a"))
    await planning.sleep(seconds=2)
    assert len(planning.fleet.calls) == 1 and len(planning.instances.running) == 1


async def test_nodeclaim_launches_alone_without_provisioning_workflow(fake: WorkerHarness) -> None:
    made = fake.claims.add("a", born=await fake.now(), labels={NODEPOOL: "default"})
    await wait_until_phase(await fake.start(made, alike="x"), Phase.REGISTRATION)
    assert len(fake.fleet.calls) == 1
