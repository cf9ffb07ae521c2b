"""One disruption command: replacements first, all nodes or none, and a rollback after any failure."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
import workflows.disruption.command
from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.model.disruption.commands import PermitRevoked, ReplacementMessage, ReplacementResult
from tenure.model.errors import BadInput, TryLater
from tests.support.fakes.permit_granter import PermitGranterWorkflow, PermitRules
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.commands import (
    CommandHandle,
    add_nodes,
    command_duration,
    initialize_replacements,
    is_deleted,
    is_disrupted,
    is_in_step,
    is_undisturbed,
    make_proposal,
    replacement_names,
    report_replacements_ready,
    start_command,
    start_permit_granter,
)
from tests.support.workflows.eventually import (
    count_scheduled,
    has_continued_as_new,
    wait_until,
    wait_until_skipping_time,
)
from workflows.disruption.command import DisruptionWorkflow


@pytest.fixture
async def host(fake: WorkerHarness) -> AsyncIterator[WorkerHarness]:
    """Two candidate nodes and a process that hosts the planner."""
    add_nodes(fake, "a", "b")
    async with fake.running_planner():
        yield fake


async def start_waiting_command(fake: WorkerHarness, **fields: Any) -> CommandHandle:
    """Start a command on both nodes; its replacements are launching."""
    await start_permit_granter(fake)
    handle = await start_command(fake, make_proposal("a", "b", **fields))
    await wait_until(lambda: is_in_step(handle, "Wait"))
    return handle


async def test_nodes_are_deleted_after_replacements_are_ready(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    assert is_disrupted(host, "a") and is_disrupted(host, "b")
    assert not is_deleted(host, "a") and not is_deleted(host, "b")
    await report_replacements_ready(host, handle)
    assert (await handle.result()).ending == "done"
    assert is_deleted(host, "a") and is_deleted(host, "b")
    assert not any(is_deleted(host, one) for one in await replacement_names(handle))


async def test_nodes_without_replacement_are_deleted_at_once(host: WorkerHarness) -> None:
    pools = await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b", replacements=0))
    assert (await handle.result()).ending == "done"
    assert is_deleted(host, "a") and is_deleted(host, "b")
    assert len(host.disruption.replace_requests) == 1
    assert sorted(await pools.query(PermitGranterWorkflow.released_uids)) == ["uid-a", "uid-b"]


async def test_permits_are_requested_from_each_nodepool_with_reason(host: WorkerHarness) -> None:
    host.claims.found["b"]["metadata"]["labels"]["karpenter.sh/nodepool"] = "other"
    pools, others = await start_permit_granter(host), await start_permit_granter(host, "other")
    both = make_proposal("a", "b", replacements=0)
    first, second = both.candidates
    spread = both.model_copy(update={"candidates": (first, second.model_copy(update={"pool": "other"}))})
    handle = await start_command(host, spread)
    await handle.result()
    for pool, uid in ((pools, "uid-a"), (others, "uid-b")):
        requests = await pool.query(PermitGranterWorkflow.requests)
        assert [(one.claim_uid, one.reason) for one in requests] == [(uid, "Underutilized")]


async def test_one_rejected_permit_keeps_all_nodes_until_timeout(host: WorkerHarness) -> None:
    pools = await start_permit_granter(host, rejected_uids=("uid-b",))
    handle = await start_command(host, make_proposal("a", "b"))
    await host.sleep(minutes=9)
    assert is_undisturbed(host, "a", "b")
    over = await handle.result()
    assert (over.ending, over.nodes) == ("not permitted", ("uid-b",))
    assert "budget 1 of 2" in over.why
    assert is_undisturbed(host, "a", "b") and host.disruption.replace_requests == []
    assert sorted(await pools.query(PermitGranterWorkflow.released_uids)) == ["uid-a", "uid-b"]


async def test_later_permit_continues_command(host: WorkerHarness) -> None:
    """The other permit was renewed in the meantime."""
    pools = await start_permit_granter(host, rejected_uids=("uid-b",))
    handle = await start_command(host, make_proposal("a", "b", replacements=0))
    await host.sleep(minutes=5)
    await pools.signal(PermitGranterWorkflow.change_rules, PermitRules())
    assert (await handle.result()).ending == "done"


async def test_unresponsive_nodepool_ends_command(host: WorkerHarness) -> None:
    await start_permit_granter(host, ignores_requests=True)
    over = await (await start_command(host, make_proposal("a"))).result()
    assert (over.ending, over.why) == ("not permitted", "NodePool default does not respond")


async def test_nodepool_without_workflow_ends_command(host: WorkerHarness) -> None:
    over = await (await start_command(host, make_proposal("a"))).result()
    assert over.ending == "not permitted" and "has no workflow" in over.why


async def test_blocked_node_ends_command_before_launch(host: WorkerHarness) -> None:
    host.nodes.update_node("node-b", annotations={DO_NOT_DISRUPT: "true"})
    await start_permit_granter(host)
    over = await (await start_command(host, make_proposal("a", "b"))).result()
    assert (over.ending, over.nodes) == ("held", ("uid-b",))
    assert is_undisturbed(host, "a", "b") and host.disruption.replace_requests == []


async def test_stale_command_is_rolled_back(host: WorkerHarness) -> None:
    host.disruption.replace_rejections = [ReplacementResult(outcome="stale", why="a pod came")]
    await start_permit_granter(host)
    over = await (await start_command(host, make_proposal("a", "b"))).result()
    assert (over.ending, over.why) == ("stale", "a pod came")
    assert is_undisturbed(host, "a", "b")


async def test_unready_planner_gets_same_plan_again(host: WorkerHarness) -> None:
    host.disruption.replace_rejections = [ReplacementResult(outcome="not now", why="caches are too old")]
    host.disruption.faults["create_replacements"] = [BadInput("planner"), None]
    await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b"))
    await wait_until_skipping_time(host, lambda: is_in_step(handle, "Wait"), seconds=5)
    assert len({one.plan_id for one in host.disruption.replace_requests}) == 1
    await report_replacements_ready(host, handle)
    assert (await handle.result()).ending == "done"


async def test_unready_planner_past_deadline_rolls_back(host: WorkerHarness) -> None:
    host.disruption.replace_rejections = [ReplacementResult(outcome="not now", why="caches are too old")] * 1000
    await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a"))
    over = await handle.result()
    assert (over.ending, over.why) == ("failed", "caches are too old") and is_undisturbed(host, "a")
    assert not over.outage
    assert await command_duration(handle) < timedelta(minutes=7)


async def test_command_without_a_host_fails_by_an_outage(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(workflows.activity_options.PLAN, "schedule_to_start_timeout", timedelta(seconds=0.2))
    monkeypatch.setattr(workflows.disruption.command, "PLANNER_RETRY_AFTER", timedelta(minutes=4))
    add_nodes(fake, "a", "b")
    await start_permit_granter(fake)
    over = await (await start_command(fake, make_proposal("a"))).result()
    assert (over.ending, over.outage) == ("failed", True)


async def test_failed_replacement_rolls_back_at_once(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host, replacements=2)
    first, second = await replacement_names(handle)
    initialize_replacements(host, second)
    await handle.signal(DisruptionWorkflow.replacement_status, ReplacementMessage(claim=second, ready=True))
    await handle.signal(
        DisruptionWorkflow.replacement_status,
        ReplacementMessage(claim=first, ready=False, why="InsufficientInstanceCapacity"),
    )
    over = await handle.result()
    assert over.ending == "not replaced" and "InsufficientInstanceCapacity" in over.why
    assert is_undisturbed(host, "a", "b") and is_deleted(host, first) and is_deleted(host, second)


async def test_unready_replacements_past_deadline_roll_back(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    await host.sleep(minutes=55)
    assert not is_deleted(host, "a") and is_disrupted(host, "a")
    over = await handle.result()
    assert over.ending == "not replaced" and "not initialized" in over.why
    assert is_undisturbed(host, "a", "b")


async def test_lost_ready_signal_is_recovered_by_check(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    initialize_replacements(host, *await replacement_names(handle))
    await host.sleep(minutes=6)
    assert (await handle.result()).ending == "done"


async def test_deleted_replacement_rolls_back(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    host.claims.found.pop((await replacement_names(handle))[0])
    assert (await handle.result()).ending == "not replaced"
    assert await command_duration(handle) < timedelta(minutes=6)
    assert is_undisturbed(host, "a", "b")


async def test_command_waits_for_replacement_that_became_not_ready(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    (name,) = await replacement_names(handle)
    initialize_replacements(host, name, ready=False)
    await handle.signal(DisruptionWorkflow.replacement_status, ReplacementMessage(claim=name, ready=True))
    await host.sleep(minutes=2)
    assert not is_deleted(host, "a") and await count_scheduled(handle, "finish_command") > 1
    host.nodes.update_node(f"node-{name}", ready=True)
    assert (await handle.result()).ending == "done"


async def test_do_not_disrupt_pod_before_deletion_rolls_back(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    host.pods.add("node-b", "db", protected=True)
    await report_replacements_ready(host, handle)
    over = await handle.result()
    assert (over.ending, over.nodes) == ("held", ("uid-b",))
    assert is_undisturbed(host, "a", "b")


async def test_revoked_permit_rolls_back(host: WorkerHarness) -> None:
    pools = await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b"))
    await wait_until(lambda: is_in_step(handle, "Wait"))
    await pools.signal(PermitGranterWorkflow.revoke_permits, "paused by ops@example.com: database upgrade")
    over = await handle.result()
    assert over.ending == "cancelled" and "ops@example.com" in over.why
    (made,) = await replacement_names(handle)
    assert is_undisturbed(host, "a", "b") and is_deleted(host, made)
    assert await pools.query(PermitGranterWorkflow.released_uids)


async def test_permit_revoked_before_begin_changes_nothing(host: WorkerHarness) -> None:
    await start_permit_granter(host, rejected_uids=("uid-b",))
    handle = await start_command(host, make_proposal("a", "b"))
    await handle.signal(DisruptionWorkflow.permit_revoked, PermitRevoked(claim_uid="uid-a", why="paused"))
    assert (await handle.result()).ending == "cancelled"
    assert is_undisturbed(host, "a", "b") and await count_scheduled(handle, "begin_command") == 0


async def test_cancelled_workflow_rolls_back(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    await handle.cancel()
    assert (await handle.result()).ending == "cancelled"
    assert is_undisturbed(host, "a", "b")


async def test_permits_are_renewed_while_replacements_start_and_rejection_is_ignored(host: WorkerHarness) -> None:
    """A tainted node counts against its budget itself, but a pause can only revoke a held permit."""
    pools = await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b"))
    await wait_until(lambda: is_in_step(handle, "Wait"))
    await pools.signal(PermitGranterWorkflow.change_rules, PermitRules(rejected_uids=("uid-a", "uid-b")))
    await host.sleep(minutes=8)
    requests = [one.claim_uid for one in await pools.query(PermitGranterWorkflow.requests)]
    assert requests.count("uid-a") >= 5
    await report_replacements_ready(host, handle)
    assert (await handle.result()).ending == "done"


async def test_rollback_retries_while_api_server_fails(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    host.nodes.faults["unmark_disrupted"] = [TryLater("503")] * 5 + [BadInput("422")] * 2
    await handle.signal(DisruptionWorkflow.permit_revoked, PermitRevoked(claim_uid="uid-a", why="paused"))
    assert (await handle.result()).ending == "cancelled"
    assert is_undisturbed(host, "a", "b")


async def test_terminal_fault_rolls_back(host: WorkerHarness) -> None:
    await start_permit_granter(host)
    host.nodes.faults["mark_disrupted"] = [None, BadInput("422")]
    over = await (await start_command(host, make_proposal("a", "b"))).result()
    assert over.ending == "failed" and "422" in over.why and is_undisturbed(host, "a", "b")


async def test_long_command_continues_as_new_in_same_step(host: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    handle = await start_waiting_command(host)
    await wait_until_skipping_time(host, lambda: has_continued_as_new(host.client, handle), minutes=1)
    latest: CommandHandle = host.client.get_workflow_handle_for(DisruptionWorkflow.run, handle.id)
    assert await is_in_step(latest, "Wait")
    await report_replacements_ready(host, latest)
    assert (await handle.result()).ending == "done"
    assert len(host.disruption.replace_requests) == 1


async def test_failing_rollback_continues_as_new(host: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await start_waiting_command(host)
    host.nodes.faults["unmark_disrupted"] = [BadInput("422")] * 10_000
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 80)
    await handle.signal(DisruptionWorkflow.permit_revoked, PermitRevoked(claim_uid="uid-a", why="paused"))
    await wait_until_skipping_time(host, lambda: has_continued_as_new(host.client, handle), seconds=20)
    host.nodes.faults.clear()
    assert (await handle.result()).ending == "cancelled"
    assert is_undisturbed(host, "a", "b")


@pytest.mark.parametrize("ends", ["done", "rolled back"])
async def test_uncached_worker_takes_same_steps(skipping: WorkflowEnvironment, ends: str) -> None:
    async with WorkerHarness.on(skipping, max_cached_workflows=0).running_worker() as fake, fake.running_planner():
        add_nodes(fake, "a", "b")
        handle = await start_waiting_command(fake)
        if ends == "done":
            await report_replacements_ready(fake, handle)
        else:
            await handle.signal(DisruptionWorkflow.permit_revoked, PermitRevoked(claim_uid="uid-a", why="paused"))
        await handle.result()
        assert is_undisturbed(fake, "a", "b") is (ends == "rolled back")
