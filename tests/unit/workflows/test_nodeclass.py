"""NodeClass: what it names is resolved, kept fresh, and let go when nothing holds it any more."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.model.errors import BadInput, Throttled, TryLater
from tenure.model.provider_results import ConditionPatch
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time, rolled
from tests.support.workflows.lives import NodeClass, node_class, observed
from workflows.nodeclass import NodeClassWorkflow

UNREADY = ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="no subnet matches")


async def see(fake: World, handle: NodeClass, **seen: object) -> None:
    await handle.signal(NodeClassWorkflow.seen, observed(fake, **seen))


async def test_it_resolves_at_once_and_shows_what_it_found(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    assert fake.node_classes.statuses["default"] == {"amis": [], "AMIsReady": "True"}
    assert fake.node_classes.finalizers == {"default"}


async def test_it_looks_again_every_five_minutes_and_not_more_often(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolved
    await skipping.sleep(timedelta(minutes=14))
    assert fake.resolver.resolved == before + 2


async def test_what_is_not_ready_is_looked_at_every_minute(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.resolver.conditions = (UNREADY,)
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "False"))
    assert "no subnet matches" in (await handle.query(NodeClassWorkflow.state)).message
    fake.resolver.conditions = (ConditionPatch(type="SubnetsReady", status="True"),)
    await skipping.sleep(timedelta(seconds=65))
    await eventually(lambda: is_ready(handle, "True"))


async def test_a_new_generation_is_resolved_at_once(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolved
    await see(fake, handle, generation=2)
    await eventually(lambda: resolved(fake, before + 1))


async def test_a_change_that_comes_while_it_resolves_is_not_missed(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.resolver.gate = asyncio.Event()
    handle = await node_class(fake)
    await eventually(lambda: resolved(fake, 1))
    await see(fake, handle, generation=2)
    fake.resolver.gate.set()
    await eventually(lambda: resolved(fake, 2))


async def test_claims_that_come_and_go_are_no_reason_to_look(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolved
    for claims in range(5):
        await see(fake, handle, claims=claims)
    await skipping.sleep(timedelta(minutes=2))
    assert fake.resolver.resolved == before


async def test_faults_of_aws_are_outlasted(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.resolver.faults["resolve"] = [Throttled("slow down"), BadInput("malformed filter")]
    handle = await node_class(fake)
    await in_time(skipping, lambda: is_ready(handle, "Unknown"), seconds=1)
    assert "malformed filter" in (await handle.query(NodeClassWorkflow.state)).message
    await in_time(skipping, lambda: is_ready(handle, "True"), seconds=10)


async def test_a_workflow_whose_outside_does_not_answer_says_since_when_and_asks_ever_more_slowly(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.resolver.unanswered = ("SubnetsReady: RequestLimitExceeded",)
    handle = await node_class(fake)
    await eventually(lambda: stumbled(handle, 1))
    state = await handle.query(NodeClassWorkflow.state)
    assert state.stumbling_since is not None and "RequestLimitExceeded" in state.stumbles_over
    await skipping.sleep(timedelta(seconds=6))
    await eventually(lambda: stumbled(handle, 2))
    before = fake.resolver.resolved
    await skipping.sleep(timedelta(minutes=10))
    assert before + 9 <= fake.resolver.resolved <= before + 14
    assert (await handle.query(NodeClassWorkflow.state)).stumbling_since == state.stumbling_since
    fake.resolver.unanswered = ()
    await in_time(skipping, lambda: stumbles(handle, 0), seconds=30)
    await eventually(lambda: is_ready(handle, "True"))
    assert (await handle.query(NodeClassWorkflow.state)).stumbling_since is None


async def test_an_activity_that_fails_for_long_is_given_up_and_the_workflow_says_that_it_stumbles(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.resolver.faults["resolve"] = [TryLater("the API server is away")] * 5
    handle = await node_class(fake)
    await in_time(skipping, lambda: stumbles(handle, 1), seconds=1)
    assert "the API server is away" in (await handle.query(NodeClassWorkflow.state)).stumbles_over
    await in_time(skipping, lambda: is_ready(handle, "True"), seconds=2)


async def test_what_was_to_be_known_soon_and_is_not_is_asked_ever_more_slowly(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.resolver.unanswered, fake.resolver.again_in = ("ValidationSucceeded: not yet",), timedelta(seconds=5)
    handle = await node_class(fake)
    await eventually(lambda: stumbled(handle, 1))
    await skipping.sleep(timedelta(seconds=29))
    await eventually(lambda: stumbled(handle, 6))
    await skipping.sleep(timedelta(minutes=5))
    assert fake.resolver.resolved <= 14


async def test_what_will_be_known_very_soon_is_looked_at_very_soon(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.resolver.again_in = timedelta(seconds=20)
    handle = await node_class(fake)
    await eventually(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolved
    await skipping.sleep(timedelta(seconds=50))
    assert fake.resolver.resolved == before + 2


async def test_a_class_that_is_deleted_waits_for_its_claims_and_then_goes(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.claims.add("a")
    fake.node_classes.add("default", deleting=True)
    handle = await node_class(fake, deleting=True, claims=1)
    await eventually(lambda: says(handle, "waits for 1 NodeClaims"))
    assert fake.resolver.cleaned == [] and "default" in fake.node_classes.found
    fake.claims.found.clear()
    await see(fake, handle, deleting=True, claims=0)
    await handle.result()
    assert fake.resolver.cleaned == ["default"] and fake.node_classes.found == {}


async def test_a_class_that_claims_hold_is_not_asked_about_every_minute(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.claims.add("a")
    fake.node_classes.add("default", deleting=True)
    handle = await node_class(fake, deleting=True, claims=1)
    await eventually(lambda: says(handle, "waits for 1 NodeClaims"))
    asked = fake.events.said.copy()
    await skipping.sleep(timedelta(minutes=9))
    assert fake.events.said == asked
    fake.claims.found.clear()
    await skipping.sleep(timedelta(minutes=2))
    await handle.result()


async def test_a_clean_up_that_fails_is_tried_again(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.node_classes.add("default", deleting=True)
    fake.resolver.faults["clean_up"] = [BadInput("DeleteConflict")]
    handle = await node_class(fake, deleting=True)
    await eventually(lambda: says(handle, "DeleteConflict"))
    await handle.result()
    assert fake.resolver.cleaned == ["default"]


async def test_a_class_deleted_while_it_resolves_is_let_go_at_once(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.resolver.gate = asyncio.Event()
    handle = await node_class(fake)
    await eventually(lambda: resolved(fake, 1))
    fake.node_classes.add("default", deleting=True)
    await see(fake, handle, deleting=True)
    fake.resolver.gate.set()
    await eventually(lambda: gone(fake))
    await handle.result()


async def test_the_workflow_ends_with_its_class(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.node_classes.found.clear()
    handle = await node_class(fake)
    await handle.result()
    assert fake.resolver.resolved == 0


async def test_a_long_life_continues_as_new(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 40)
    first = await node_class(fake)
    await eventually(lambda: is_ready(first, "True"))
    await in_time(skipping, lambda: rolled(fake.client, first), minutes=5)
    before = fake.resolver.resolved
    await skipping.sleep(timedelta(minutes=6))
    assert fake.resolver.resolved > before


async def is_ready(handle: NodeClass, ready: str) -> bool:
    return (await handle.query(NodeClassWorkflow.state)).ready == ready


async def stumbles(handle: NodeClass, looks: int) -> bool:
    return (await handle.query(NodeClassWorkflow.state)).stumbles == looks


async def stumbled(handle: NodeClass, looks: int) -> bool:
    """As often at least: while a busy machine looks the next one may have come."""
    return (await handle.query(NodeClassWorkflow.state)).stumbles >= looks


async def says(handle: NodeClass, text: str) -> bool:
    return text in (await handle.query(NodeClassWorkflow.state)).message


async def resolved(fake: World, times: int) -> bool:
    return fake.resolver.resolved == times


async def gone(fake: World) -> bool:
    return not fake.node_classes.found
