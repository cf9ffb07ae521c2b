"""Faults after EC2 launched instances: each instance is recorded, and none is launched twice."""

from tenure.apis import labels
from tenure.model.errors import BadInput, TryLater
from tenure.model.launch import LaunchGroup, LaunchGroupMember
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.cloud import REQUEST
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import is_in_phase, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import create_nodeclaim


async def test_failed_status_write_does_not_repeat_launch(fake: WorkerHarness) -> None:
    fake.claims.faults["patch"] = [BadInput("status.capacity: Invalid value") for _ in range(3)]
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION))
    assert len(set(fake.fleet.calls)) == 1 and len(fake.instances.running) == 1


async def test_failed_status_write_does_not_reject_group(fake: WorkerHarness) -> None:
    claim = await create_nodeclaim(fake, annotations={labels.LAUNCH_GROUP: "g"})
    fake.claims.faults["patch"] = [BadInput("status.capacity: Invalid value") for _ in range(3)]
    handle = await fake.start(claim)
    await start_with_pending_group(fake, "a")
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION))
    assert len(set(fake.fleet.calls)) == 1 and len(fake.instances.running) == 1


async def test_repeated_assignment_keeps_registered_member(fake: WorkerHarness) -> None:
    """The Node of one member registered before a fault at the other member caused a retry of the assignment."""
    claims = [fake.claims.add(name, born=await fake.now(), annotations={labels.LAUNCH_GROUP: "g"}) for name in "ab"]
    fake.claims.set_status("a", provider_id="aws:///us-west-2a/i-0000", Registered="True")
    fake.claims.faults["get"] = [TryLater("503")]
    handle = await fake.start(claims[1])
    await start_with_pending_group(fake, "a", "b")
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION))
    assert fake.claims.condition_text("a", "Registered").startswith("True")
    assert fake.claims.condition_text("b", "Registered").startswith("Unknown")


async def start_with_pending_group(fake: WorkerHarness, *names: str) -> None:
    """A launch group whose request is in the Provisioning state without a response."""
    members = tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in names)
    group = LaunchGroup(group_id="g", pool="default", members=members, request=REQUEST)
    await start_provisioning(fake, groups=(group,))
