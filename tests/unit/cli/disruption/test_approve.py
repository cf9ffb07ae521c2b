"""`tenure approve` and `tenure reject`: the NodePool workflow responds, and rejections are one line."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.cli.disruption.approve import send_node_decision, send_rollout_decision
from tenure.cli.exit_codes import UsageError
from tenure.cli.main import main
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.observations import ObservedNodePool
from tenure.model.rollout import ApproveRollout, Image, RejectRollout, RolloutTarget
from tests.support.fakes.rollout import FakeRolloutActivities, RolloutHarness, rollout_harness
from tests.support.fakes.time_skipping_server import time_skipping
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import is_blocked_by, wait_until_skipping_time
from tests.support.workflows.interruption_messages import ready_with_rules, send_message

GOOD = RolloutTarget(node_class="default", images=(Image(id="ami-good"),))
BAD = GOOD.model_copy(update={"images": (Image(id="ami-bad"),)})


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def waiting_rollout(skipping: WorkflowEnvironment) -> AsyncIterator[RolloutHarness]:
    """The NodePool `web` of cluster `c`, whose first wave waits for approval."""
    pool = FakeRolloutActivities()
    pool.set_observed(target=GOOD, drifted=("n0",))
    observed = ObservedNodePool(number=1, rollout=RolloutRules.model_validate({"approval": {"required": True}}))
    async with rollout_harness(skipping.client, observed, pool) as one:
        pool.set_observed(target=BAD)
        await one.request_permits("n0", since=datetime(2026, 1, 1, tzinfo=UTC))
        await wait_until_skipping_time(skipping, lambda: one.describes("tenure approve web-"), seconds=20)
        yield one


async def get_plan_id(one: RolloutHarness) -> str:
    plan = (await one.state()).rollout.plan
    assert plan is not None
    return plan.id


async def test_plan_is_approved_by_name(waiting_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    plan = await get_plan_id(waiting_rollout)
    assert f"tenure approve {plan}" in await waiting_rollout.description(), "as the description shows it"
    decision = ApproveRollout(plan=plan, by="ann", reason="tried in staging")
    assert (
        await send_rollout_decision(skipping.client, "c", decision)
        == f"plan {plan} is approved by ann: tried in staging"
    )
    await wait_until_skipping_time(skipping, lambda: waiting_rollout.has_permits(1), seconds=20)


async def test_plan_is_rejected(waiting_rollout: RolloutHarness, skipping: WorkflowEnvironment) -> None:
    plan = await get_plan_id(waiting_rollout)
    assert (
        await send_rollout_decision(skipping.client, "c", RejectRollout(plan=plan, by="ben"))
        == f"plan {plan} is rejected by ben"
    )
    await wait_until_skipping_time(skipping, lambda: waiting_rollout.describes("was rejected by ben"), seconds=20)


@pytest.mark.parametrize(
    ("plan", "by", "why"),
    [
        ("web-000000", "ann", "approve web-000000: plan 'web-000000' is unknown or outdated: the current plan is web-"),
        ("web-000000", "", "approve web-000000: by: empty"),
        ("other-000000", "ann", "approve other-000000: there is no NodePool other in cluster c"),
        ("web", "ann", "approve web: invalid plan, expected NODEPOOL-HASH, e.g. web-3f2a9c"),
    ],
)
async def test_refused_decision_names_reason(
    waiting_rollout: RolloutHarness, skipping: WorkflowEnvironment, plan: str, by: str, why: str
) -> None:
    with pytest.raises(UsageError) as error:
        await send_rollout_decision(skipping.client, "c", ApproveRollout(plan=plan, by=by))
    assert str(error.value).startswith(why)


async def test_rollback_without_known_good_state_is_refused(
    waiting_rollout: RolloutHarness, skipping: WorkflowEnvironment
) -> None:
    decision = RejectRollout(plan=await get_plan_id(waiting_rollout), by="ann", roll_back=True)
    with pytest.raises(UsageError, match="cannot be rolled back: the last good state is unknown"):
        await send_rollout_decision(skipping.client, "c", decision)


async def test_missing_worker_is_reported(skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.temporal_updates.UPDATE_TIMEOUT", timedelta(seconds=0.5))
    await skipping.client.start_workflow("NodePool", id="c/nodepool/web", task_queue="nobody")
    with pytest.raises(UsageError, match="no worker responded within"):
        await send_rollout_decision(skipping.client, "c", ApproveRollout(plan="web-000000", by="ann"))


async def test_event_of_node_is_approved_by_node_name(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 0.0)
    async with WorkerHarness.on(skipping).running_worker() as fake:
        node = await ready_with_rules(fake, scheduledChange={"action": "waitForApproval"})
        with pytest.raises(UsageError, match=r"no event that waits for approval.*`tenure events a` lists"):
            await send_node_decision(skipping.client, node.id, "a", ApproveEvent(by="ann"))
        await send_message(fake, node)
        await wait_until_skipping_time(skipping, lambda: is_blocked_by(node, "run tenure approve a"))
        message = await send_node_decision(skipping.client, node.id, "a", RejectEvent(by="ben", reason="not today"))
        assert message == "NodeClaim a is kept despite scheduledChange: rejected by ben"
        assert "approved by ann" in await send_node_decision(skipping.client, node.id, "a", ApproveEvent(by="ann"))
        await node.result()
        with pytest.raises(UsageError, match="approve a: "):
            await send_node_decision(skipping.client, node.id, "a", ApproveEvent(by="ann"))


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_missing_cluster_name_is_reported(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER_NAME", raising=False)
    assert main([verb, "web-000000", "--by", "ann"]) == 2
    assert "--cluster-name: required" in capsys.readouterr().err
