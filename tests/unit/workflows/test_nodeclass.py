"""NodeClass: its references are resolved, refreshed, and released after its last NodeClaim is gone."""

import asyncio
from datetime import timedelta

import pytest

import workflows.activity_options
from tenure.model.errors import BadInput, Throttled, TryLater
from tenure.model.provider_results import ConditionPatch
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import has_continued_as_new, wait_until, wait_until_skipping_time
from tests.support.workflows.nodeclaim_workflows import NodeClass, observed_nodeclass, start_nodeclass
from workflows.nodeclass import NodeClassWorkflow

UNREADY = ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="no subnet matches")


async def signal_observed(fake: WorkerHarness, handle: NodeClass, **fields: object) -> None:
    await handle.signal(NodeClassWorkflow.observe, observed_nodeclass(fake, **fields))


async def test_nodeclass_is_resolved_at_once(fake: WorkerHarness) -> None:
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    assert fake.node_classes.statuses["default"] == {"amis": [], "AMIsReady": "True"}
    assert fake.node_classes.finalizers == {"default"}


async def test_ready_nodeclass_is_resolved_every_five_minutes(fake: WorkerHarness) -> None:
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolve_count
    await fake.sleep(minutes=14)
    assert fake.resolver.resolve_count == before + 2


async def test_unready_nodeclass_is_resolved_every_minute(fake: WorkerHarness) -> None:
    fake.resolver.conditions = (UNREADY,)
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "False"))
    assert "no subnet matches" in (await handle.query(NodeClassWorkflow.state)).message
    fake.resolver.conditions = (ConditionPatch(type="SubnetsReady", status="True"),)
    await fake.sleep(seconds=65)
    await wait_until(lambda: is_ready(handle, "True"))


async def test_new_generation_is_resolved_at_once(fake: WorkerHarness) -> None:
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolve_count
    await signal_observed(fake, handle, generation=2)
    await wait_until(lambda: fake.resolver.resolve_count == (before + 1))


async def test_change_during_resolution_is_resolved_again(fake: WorkerHarness) -> None:
    fake.resolver.gate = asyncio.Event()
    handle = await start_nodeclass(fake)
    await wait_until(lambda: fake.resolver.resolve_count == 1)
    await signal_observed(fake, handle, generation=2)
    fake.resolver.gate.set()
    await wait_until(lambda: fake.resolver.resolve_count == 2)


async def test_nodeclaim_changes_do_not_trigger_resolution(fake: WorkerHarness) -> None:
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolve_count
    for claims in range(5):
        await signal_observed(fake, handle, claims=claims)
    await fake.sleep(minutes=2)
    assert fake.resolver.resolve_count == before


async def test_aws_faults_are_retried(fake: WorkerHarness) -> None:
    fake.resolver.faults["resolve"] = [Throttled("slow down"), BadInput("malformed filter")]
    handle = await start_nodeclass(fake)
    await wait_until_skipping_time(fake, lambda: is_ready(handle, "Unknown"), seconds=1)
    assert "malformed filter" in (await handle.query(NodeClassWorkflow.state)).message
    await wait_until_skipping_time(fake, lambda: is_ready(handle, "True"), seconds=10)


async def test_failed_lookups_are_reported_and_retried_with_backoff(fake: WorkerHarness) -> None:
    fake.resolver.failed_lookups = ("SubnetsReady: RequestLimitExceeded",)
    handle = await start_nodeclass(fake)
    await wait_until(lambda: has_at_least_failures(handle, 1))
    state = await handle.query(NodeClassWorkflow.state)
    assert state.failing_since is not None and "RequestLimitExceeded" in state.failure_message
    await fake.sleep(seconds=6)
    await wait_until(lambda: has_at_least_failures(handle, 2))
    before = fake.resolver.resolve_count
    await fake.sleep(minutes=10)
    assert before + 9 <= fake.resolver.resolve_count <= before + 14
    assert (await handle.query(NodeClassWorkflow.state)).failing_since == state.failing_since
    fake.resolver.failed_lookups = ()
    await wait_until_skipping_time(fake, lambda: has_failures(handle, 0), seconds=30)
    await wait_until(lambda: is_ready(handle, "True"))
    assert (await handle.query(NodeClassWorkflow.state)).failing_since is None


async def test_failed_activity_is_reported_and_retried(fake: WorkerHarness) -> None:
    fake.resolver.faults["resolve"] = [TryLater("the API server is away")] * 5
    handle = await start_nodeclass(fake)
    await wait_until_skipping_time(fake, lambda: has_failures(handle, 1), seconds=1)
    assert "the API server is away" in (await handle.query(NodeClassWorkflow.state)).failure_message
    await wait_until_skipping_time(fake, lambda: is_ready(handle, "True"), seconds=2)


async def test_early_retry_becomes_slower_with_repeated_failures(fake: WorkerHarness) -> None:
    fake.resolver.failed_lookups, fake.resolver.retry_after = ("ValidationSucceeded: not yet",), timedelta(seconds=5)
    handle = await start_nodeclass(fake)
    await wait_until(lambda: has_at_least_failures(handle, 1))
    await fake.sleep(seconds=29)
    await wait_until(lambda: has_at_least_failures(handle, 6))
    await fake.sleep(minutes=5)
    assert fake.resolver.resolve_count <= 14


async def test_early_retry_time_is_followed(fake: WorkerHarness) -> None:
    fake.resolver.retry_after = timedelta(seconds=20)
    handle = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(handle, "True"))
    before = fake.resolver.resolve_count
    await fake.sleep(seconds=50)
    assert fake.resolver.resolve_count == before + 2


async def test_deleted_nodeclass_waits_for_its_nodeclaims(fake: WorkerHarness) -> None:
    fake.claims.add("a")
    fake.node_classes.add("default", deleting=True)
    handle = await start_nodeclass(fake, deleting=True, claims=1)
    await wait_until(lambda: has_message(handle, "waits for 1 NodeClaims"))
    assert fake.resolver.cleaned == [] and "default" in fake.node_classes.found
    fake.claims.found.clear()
    await signal_observed(fake, handle, deleting=True, claims=0)
    await handle.result()
    assert fake.resolver.cleaned == ["default"] and fake.node_classes.found == {}


async def test_deleted_nodeclass_with_nodeclaims_is_not_checked_every_minute(fake: WorkerHarness) -> None:
    fake.claims.add("a")
    fake.node_classes.add("default", deleting=True)
    handle = await start_nodeclass(fake, deleting=True, claims=1)
    await wait_until(lambda: has_message(handle, "waits for 1 NodeClaims"))
    events_before = fake.events.published.copy()
    await fake.sleep(minutes=9)
    assert fake.events.published == events_before
    fake.claims.found.clear()
    await fake.sleep(minutes=2)
    await handle.result()


async def test_failed_cleanup_is_retried(fake: WorkerHarness) -> None:
    fake.node_classes.add("default", deleting=True)
    fake.resolver.faults["clean_up"] = [BadInput("DeleteConflict")]
    handle = await start_nodeclass(fake, deleting=True)
    await wait_until(lambda: has_message(handle, "DeleteConflict"))
    await handle.result()
    assert fake.resolver.cleaned == ["default"]


async def test_nodeclass_deleted_during_resolution_is_released_at_once(fake: WorkerHarness) -> None:
    fake.resolver.gate = asyncio.Event()
    handle = await start_nodeclass(fake)
    await wait_until(lambda: fake.resolver.resolve_count == 1)
    fake.node_classes.add("default", deleting=True)
    await signal_observed(fake, handle, deleting=True)
    fake.resolver.gate.set()
    await wait_until(lambda: not fake.node_classes.found)
    await handle.result()


async def test_workflow_ends_with_its_nodeclass(fake: WorkerHarness) -> None:
    fake.node_classes.found.clear()
    handle = await start_nodeclass(fake)
    await handle.result()
    assert fake.resolver.resolve_count == 0


async def test_nodeclass_workflow_continues_as_new(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 40)
    first = await start_nodeclass(fake)
    await wait_until(lambda: is_ready(first, "True"))
    await wait_until_skipping_time(fake, lambda: has_continued_as_new(fake.client, first), minutes=5)
    before = fake.resolver.resolve_count
    await fake.sleep(minutes=6)
    assert fake.resolver.resolve_count > before


async def is_ready(handle: NodeClass, ready: str) -> bool:
    return (await handle.query(NodeClassWorkflow.state)).ready == ready


async def has_failures(handle: NodeClass, count: int) -> bool:
    return (await handle.query(NodeClassWorkflow.state)).consecutive_failures == count


async def has_at_least_failures(handle: NodeClass, count: int) -> bool:
    """Use "at least", because a busy machine may have the next failure already."""
    return (await handle.query(NodeClassWorkflow.state)).consecutive_failures >= count


async def has_message(handle: NodeClass, text: str) -> bool:
    return text in (await handle.query(NodeClassWorkflow.state)).message
