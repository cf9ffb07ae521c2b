"""The Cluster workflow: when it decides, what it starts, and what it remembers."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

import workflows.activity_options
from tenure.apis.labels import DISRUPTION_REASON
from tenure.model.disruption.commands import (
    ClosedCommands,
    ClusterChanged,
    CommandBackoff,
    DisruptionDecision,
    DisruptionState,
    PermitRevoked,
    Proposal,
    ReplacementMessage,
)
from tenure.model.errors import BadInput, TryLater
from tenure.model.signals import Pause
from tests.support.fakes.permit_granter import PermitGranterWorkflow
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.commands import (
    CommandHandle,
    add_nodes,
    is_deleted,
    is_disrupted,
    is_in_step,
    is_undisturbed,
    make_proposal,
    replacement_names,
    report_replacements_ready,
    start_permit_granter,
)
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    wait_until,
    wait_until_idle,
    wait_until_skipping_time,
)
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow

Cluster = WorkflowHandle[ClusterWorkflow, None]


@pytest.fixture
async def host(fake: WorkerHarness) -> AsyncIterator[WorkerHarness]:
    add_nodes(fake, "a", "b", "c")
    async with fake.running_planner():
        yield fake


async def start_cluster(fake: WorkerHarness, state: DisruptionState | None = None) -> Cluster:
    return await fake.client.start_workflow(
        ClusterWorkflow.run,
        state or DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=fake.cluster,
    )


async def trigger_disruption(fake: WorkerHarness, handle: Cluster) -> None:
    """Signal only while the workflow is idle, because it may be continuing as new."""
    await wait_until_idle(handle, timeout=IDLE_TIMEOUT_SECONDS)
    fake.number += 1
    await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=fake.number))


async def cluster_state(handle: Cluster) -> DisruptionState:
    return await handle.query(ClusterWorkflow.state)


async def has_at_least_passes(fake: WorkerHarness, count: int) -> bool:
    """Use "at least", because one time step may cause more than one pass."""
    return len(fake.disruption.decide_requests) >= count


async def has_running_commands(handle: Cluster, *proposals: str) -> bool:
    return {one.under_way.proposal.id for one in (await cluster_state(handle)).under_way} == {*proposals}


def command_handle(fake: WorkerHarness, proposed: Proposal) -> CommandHandle:
    return fake.client.get_workflow_handle_for(DisruptionWorkflow.run, ids.disruption(fake.cluster, proposed.id))


async def start_with_proposals(fake: WorkerHarness, *proposed: Proposal, **decided: Any) -> Cluster:
    """Start the Cluster workflow; its first pass returns these proposals."""
    fake.disruption.results = [DisruptionDecision(proposals=proposed, **decided)]
    handle = await start_cluster(fake)
    await trigger_disruption(fake, handle)
    await wait_until(lambda: has_at_least_passes(fake, 1))
    return handle


async def start_waiting_command(fake: WorkerHarness) -> tuple[Cluster, Proposal]:
    """The command for node `a` waits for its replacement."""
    await start_permit_granter(fake)
    proposed = make_proposal("a")
    handle = await start_with_proposals(fake, proposed)
    await wait_until(lambda: is_in_step(command_handle(fake, proposed), "Wait"))
    return handle, proposed


async def command_ending(fake: WorkerHarness, proposed: Proposal) -> str:
    handle = command_handle(fake, proposed)
    await wait_until(lambda: is_in_step(handle, "Over"))
    return (await handle.result()).ending


async def test_no_pass_before_first_change(host: WorkerHarness) -> None:
    handle = await start_cluster(host)
    await host.sleep(hours=1)
    assert host.disruption.decide_requests == []
    await trigger_disruption(host, handle)
    await wait_until(lambda: has_at_least_passes(host, 1))
    await host.sleep(minutes=1)
    before = len((await handle.fetch_history()).events)
    await host.sleep(days=1)
    assert (len(host.disruption.decide_requests) == 1) and len((await handle.fetch_history()).events) == before


async def test_constant_changes_cause_one_pass_per_ten_seconds(host: WorkerHarness) -> None:
    handle = await start_cluster(host)
    began = await host.now()
    while await host.now() - began < timedelta(seconds=60):
        if not await about_to_pass(host, handle):
            await trigger_disruption(host, handle)
        await host.sleep(seconds=1)
    assert 5 <= len(host.disruption.decide_requests) <= 8


async def about_to_pass(fake: WorkerHarness, handle: Cluster) -> bool:
    """The test server may hang if a signal arrives at the time of a timer."""
    last = (await cluster_state(handle)).last
    if last is None:
        return False
    return timedelta(seconds=9.5) <= await fake.now() - last <= timedelta(seconds=10.5)


async def test_pass_runs_when_a_verdict_expires(host: WorkerHarness) -> None:
    now = await host.now()
    await start_with_proposals(host, next_pass_at=now + timedelta(minutes=30), first=("a",))
    await host.sleep(minutes=29)
    assert len(host.disruption.decide_requests) == 1
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2), seconds=20)
    assert host.disruption.decide_requests[1].first == ("a",)


async def test_older_change_signal_is_ignored(host: WorkerHarness) -> None:
    handle = await start_cluster(host)
    for number in (5, 3, 5):
        await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=number))
        await host.sleep(minutes=1)
    assert len(host.disruption.decide_requests) == 1


async def test_each_proposal_starts_its_own_workflow(host: WorkerHarness) -> None:
    await start_permit_granter(host)
    first, second = make_proposal("a"), make_proposal("b", replacements=0, reason="Drifted", kind="drift")
    host.claims.set_status("b", Drifted="True")
    handle = await start_with_proposals(host, first, second)
    assert await command_ending(host, second) == "done"
    await wait_until(lambda: has_running_commands(handle, first.id))
    assert is_deleted(host, "b") and not is_deleted(host, "a")
    other: CommandHandle = command_handle(host, first)
    await wait_until(lambda: is_in_step(other, "Wait"))
    (under_way,) = (await cluster_state(handle)).under_way
    assert under_way.under_way.claims == await replacement_names(other)
    await report_replacements_ready(host, other)
    await other.result()
    await wait_until(lambda: has_running_commands(handle))


async def test_pass_receives_running_commands(host: WorkerHarness) -> None:
    handle, _proposed = await start_waiting_command(host)
    await trigger_disruption(host, handle)
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2))
    assert [one.proposal.id for one in host.disruption.decide_requests[1].under_way] == ["a"]
    assert host.disruption.decide_requests[1].under_way[0].claims


async def test_proposal_for_empty_node_starts_no_command(host: WorkerHarness) -> None:
    handle = await start_with_proposals(host, make_proposal("a", replacements=0, reason="Empty", kind="empty"))
    assert await has_running_commands(handle)


async def test_repeated_proposal_starts_one_command(host: WorkerHarness) -> None:
    handle, proposed = await start_waiting_command(host)
    host.disruption.results = [DisruptionDecision(proposals=(proposed, make_proposal("a", "b")))]
    await trigger_disruption(host, handle)
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2))
    assert await has_running_commands(handle, "a") and len(host.disruption.replace_requests) == 1


async def test_failed_command_backs_off(host: WorkerHarness) -> None:
    await start_permit_granter(host)
    host.pods.add("node-a", "db", protected=True)
    proposed = make_proposal("a")
    handle = await start_with_proposals(host, proposed)
    assert await command_ending(host, proposed) == "held"
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2))
    (backoff,) = host.disruption.decide_requests[1].backoffs
    assert backoff.claims == ("uid-a",) and "do-not-disrupt" in backoff.why
    host.disruption.results = [DisruptionDecision(proposals=(proposed,))]
    await trigger_disruption(host, handle)
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 3))
    assert await has_running_commands(handle)
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 4), minutes=1)
    assert host.disruption.decide_requests[3].backoffs == (), "its pause is over, and a pass comes by itself"


async def test_nodepool_with_failed_replacements_is_retried_by_one_command(host: WorkerHarness) -> None:
    """Other NodePools are not affected."""
    await start_permit_granter(host)
    first, second, third = (make_proposal(one) for one in ("a", "b", "c"))
    other = third.model_copy(update={"replacement_pools": ("other",)})
    handle = await start_with_proposals(host, first)
    await wait_until(lambda: is_in_step(command_handle(host, first), "Wait"))
    (name,) = await replacement_names(command_handle(host, first))
    message = ReplacementMessage(claim=name, ready=False, why="InsufficientInstanceCapacity")
    host.disruption.results = [
        DisruptionDecision(proposals=(first, second, other)),
        DisruptionDecision(proposals=(first, second)),
    ]
    await command_handle(host, first).signal(DisruptionWorkflow.replacement_status, message)
    assert (await command_handle(host, first).result()).ending == "not replaced"
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2))
    assert [one.pool for one in host.disruption.decide_requests[1].backoffs] == ["default"]
    await wait_until(lambda: has_running_commands(handle, other.id))
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 3), seconds=10)
    await wait_until(lambda: has_running_commands(handle, other.id, first.id))


async def test_failed_planner_is_retried(host: WorkerHarness) -> None:
    host.disruption.faults["compute_disruption"] = [BadInput("planner"), TryLater("no planner"), TryLater("no planner")]
    handle = await start_cluster(host)
    await trigger_disruption(host, handle)
    await wait_until_skipping_time(host, lambda: blocked_by_contains(handle, "planner"), seconds=1)
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 1), seconds=10)
    await wait_until(lambda: blocked_by_contains(handle, ""))


async def test_another_watch_ends_the_backoff_of_failed_passes(host: WorkerHarness) -> None:
    host.disruption.faults["compute_disruption"] = [BadInput("the host is gone")] * 5
    handle = await start_cluster(host)
    await trigger_disruption(host, handle)
    await wait_until_skipping_time(host, lambda: has_faults(handle, 5), seconds=10)
    await trigger_disruption(host, handle)
    await host.sleep(seconds=30)
    assert not host.disruption.decide_requests
    await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=100, watch=1))
    await host.sleep(seconds=1)
    assert host.disruption.decide_requests and await has_faults(handle, 0)


async def test_another_watch_ends_the_backoff_after_an_outage(host: WorkerHarness) -> None:
    await start_permit_granter(host)
    now = await host.now()
    failed = CommandBackoff(claims=("a-uid",), until=now + timedelta(minutes=5), why="no worker", outage=True)
    held = failed.model_copy(update={"claims": ("b-uid",), "outage": False})
    handle = await start_cluster(host, DisruptionState(cluster=host.cluster, backoffs=(failed, held)))
    await handle.signal(ClusterWorkflow.cluster_changed, ClusterChanged(number=1, watch=1))
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 1), seconds=10)
    assert [one.claims for one in host.disruption.decide_requests[0].backoffs] == [("b-uid",)]


async def has_faults(handle: Cluster, count: int) -> bool:
    return (await cluster_state(handle)).faults == count


async def test_failed_pass_is_retried_without_change(host: WorkerHarness) -> None:
    await start_with_proposals(host, blocked="caches are too old")
    await wait_until_skipping_time(host, lambda: has_at_least_passes(host, 2), seconds=5)


async def test_paused_cluster_starts_no_command(host: WorkerHarness) -> None:
    await start_permit_granter(host)
    now = await host.now()
    pause = Pause(by="ops@example.com", reason="upgrade", until=now + timedelta(hours=1))
    host.disruption.results = [DisruptionDecision(proposals=(make_proposal("a"),))] * 2
    handle = await start_cluster(host, DisruptionState(cluster=host.cluster, pause=pause))
    await trigger_disruption(host, handle)
    await wait_until(lambda: has_at_least_passes(host, 1))
    assert "ops@example.com" in host.disruption.decide_requests[0].blockers[0].why
    assert await has_running_commands(handle)
    await wait_until_skipping_time(host, lambda: has_running_commands(handle, "a"), minutes=10)
    assert await host.now() - now >= timedelta(hours=1)


async def test_commands_survive_continue_as_new(host: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 40)
    first, proposed = await start_waiting_command(host)
    for _ in range(20):
        if await has_continued_as_new(host.client, first):
            break
        await trigger_disruption(host, first)
        await host.sleep(seconds=10)
    assert await has_continued_as_new(host.client, first)
    following: Cluster = host.client.get_workflow_handle_for(ClusterWorkflow.run, first.id)
    assert await has_running_commands(following, "a")
    await report_replacements_ready(host, command_handle(host, proposed))
    await wait_until(lambda: has_running_commands(following))


async def test_command_of_lost_run_is_not_started_again(host: WorkerHarness) -> None:
    first, proposed = await start_waiting_command(host)
    await first.terminate()
    second = await start_with_proposals(host, proposed)
    assert host.disruption.decide_requests[0].under_way == ()
    await wait_until(lambda: has_running_commands(second, "a"))
    await command_handle(host, proposed).signal(
        DisruptionWorkflow.permit_revoked, PermitRevoked(claim_uid="uid-a", why="paused")
    )
    await wait_until(lambda: has_running_commands(second))


async def test_terminated_command_is_rolled_back_after_timeout(host: WorkerHarness) -> None:
    handle, proposed = await start_waiting_command(host)
    await command_handle(host, proposed).terminate()
    await host.sleep(hours=2)
    assert is_disrupted(host, "a")
    await wait_until_skipping_time(host, lambda: has_running_commands(handle), minutes=10)
    assert is_undisturbed(host, "a") and not host.claims.condition_text("a", DISRUPTION_REASON)


async def test_terminated_command_is_rolled_back_once_the_watch_reports_it(host: WorkerHarness) -> None:
    handle, proposed = await start_waiting_command(host)
    (replacement,) = await replacement_names(command_handle(host, proposed))
    (running,) = (await cluster_state(handle)).under_way
    await command_handle(host, proposed).terminate()
    earlier = {proposed.id: running.since - timedelta(seconds=1)}
    await handle.signal(ClusterWorkflow.commands_closed, ClosedCommands(closed=earlier))
    await host.sleep(minutes=1)
    assert await has_running_commands(handle, proposed.id), "an earlier command for the same proposal was closed"
    closed = ClosedCommands(closed={proposed.id: await host.now(), "other": await host.now()})
    await handle.signal(ClusterWorkflow.commands_closed, closed)
    await wait_until_skipping_time(host, lambda: has_running_commands(handle), seconds=5)
    assert is_undisturbed(host, "a") and is_deleted(host, replacement)
    granter = host.client.get_workflow_handle(ids.nodepool(host.cluster, "default"))
    assert await granter.query(PermitGranterWorkflow.released_uids) == ["uid-a"]
    (backoff,) = (await cluster_state(handle)).backoffs
    assert backoff.why == "its workflow was closed"
    await handle.signal(ClusterWorkflow.commands_closed, closed)
    assert await count_scheduled(handle, "roll_back_command") == 1


async def test_late_command_that_is_open_rolls_itself_back(host: WorkerHarness) -> None:
    """After hours without workers, it may be deleting its nodes."""
    first, proposed = await start_waiting_command(host)
    (running,) = (await cluster_state(first)).under_way
    await first.terminate()
    late = running.model_copy(update={"since": await host.now() - timedelta(hours=3)})
    second = await start_cluster(host, DisruptionState(cluster=host.cluster, under_way=(late,)))
    await trigger_disruption(host, second)
    assert await command_ending(host, proposed) == "cancelled"
    await wait_until(lambda: has_running_commands(second))
    assert is_undisturbed(host, "a") and await count_scheduled(second, "roll_back_command") == 0


async def blocked_by_contains(handle: Cluster, text: str) -> bool:
    blocked = (await cluster_state(handle)).blocked_by
    return text in blocked if text else not blocked
