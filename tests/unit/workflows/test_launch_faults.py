"""Faults after EC2 gave instances: none is forgotten, and none is bought twice."""

from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.model.errors import BadInput, TryLater
from tenure.model.launch import LaunchGroup, Member
from tenure.model.nodeclaim_state import Phase
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.cloud import REQUEST
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import has_come, in_time
from tests.support.workflows.lives import born
from workflows import ids
from workflows.provisioning import ProvisioningWorkflow


async def test_an_answer_that_cannot_be_written_down_is_no_reason_to_buy_again(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.claims.faults["patch"] = [BadInput("status.capacity: Invalid value") for _ in range(3)]
    handle = await fake.start(await born(fake, skipping))
    await in_time(skipping, lambda: has_come(handle, Phase.REGISTRATION))
    assert len(set(fake.fleet.calls)) == 1 and len(fake.instances.running) == 1


async def test_a_group_whose_answer_cannot_be_written_down_is_not_refused(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    claim = await born(fake, skipping, annotations={labels.LAUNCH_GROUP: "g"})
    fake.claims.faults["patch"] = [BadInput("status.capacity: Invalid value") for _ in range(3)]
    handle = await fake.start(claim)
    await frozen(fake, "a")
    await in_time(skipping, lambda: has_come(handle, Phase.REGISTRATION))
    assert len(set(fake.fleet.calls)) == 1 and len(fake.instances.running) == 1


async def test_a_hand_out_that_is_repeated_leaves_alone_what_has_come_further(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """The Node of the one joined before a fault at the other let the whole be tried again."""
    claims = [
        fake.claims.add(name, born=await skipping.get_current_time(), annotations={labels.LAUNCH_GROUP: "g"})
        for name in "ab"
    ]
    fake.claims.give("a", provider_id="aws:///us-west-2a/i-0000", Registered="True")
    fake.claims.faults["get"] = [TryLater("503")]
    handle = await fake.start(claims[1])
    await frozen(fake, "a", "b")
    await in_time(skipping, lambda: has_come(handle, Phase.REGISTRATION))
    assert fake.claims.condition("a", "Registered").startswith("True")
    assert fake.claims.condition("b", "Registered").startswith("Unknown")


async def frozen(fake: World, *names: str) -> None:
    """A group whose request stands in Provisioning's state and was not answered yet."""
    members = tuple(Member(name=name, uid=f"uid-{name}") for name in names)
    group = LaunchGroup(group_id="g", pool="default", members=members, request=REQUEST)
    await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster, groups=(group,)),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
