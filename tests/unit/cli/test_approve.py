"""`tenure approve` and `tenure reject`: the NodePool's workflow answers, and what it refuses is said in one line."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.cli.disruption.approve import tell, tell_node
from tenure.cli.exit_codes import Refused
from tenure.cli.main import main
from tenure.model.interruption.records import ApproveEvent, RejectEvent
from tenure.model.observations import PoolSeen
from tenure.model.rollout import ApproveRollout, Image, RejectRollout, Target
from tests.support.fakes.rolling import Rolling, RollingPool, rolling
from tests.support.fakes.skipping import time_skipping
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, in_time
from tests.support.workflows.noticed import notice, ready_under

GOOD = Target(node_class="default", images=(Image(id="ami-good"),))
BAD = GOOD.model_copy(update={"images": (Image(id="ami-bad"),)})


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@pytest.fixture
async def waiting(skipping: WorkflowEnvironment) -> AsyncIterator[Rolling]:
    """The NodePool `web` of cluster `c`, whose first wave waits for a person."""
    pool = RollingPool()
    pool.see(target=GOOD, drifted=("n0",))
    seen = PoolSeen(number=1, rollout=RolloutRules.model_validate({"approval": {"required": True}}))
    async with rolling(skipping.client, seen, pool) as one:
        pool.see(target=BAD)
        await one.wish("n0", since=datetime(2026, 1, 1, tzinfo=UTC))
        await in_time(skipping, lambda: one.says("tenure approve web-"), seconds=20)
        yield one


async def plan_of(one: Rolling) -> str:
    plan = (await one.state()).rollout.plan
    assert plan is not None
    return plan.id


async def test_a_plan_is_approved_by_its_name_alone(waiting: Rolling, skipping: WorkflowEnvironment) -> None:
    plan = await plan_of(waiting)
    assert f"tenure approve {plan}" in await waiting.words(), "as people are told to write it"
    said = ApproveRollout(plan=plan, by="ann", reason="tried in staging")
    assert await tell(skipping.client, "c", said) == f"plan {plan} is approved by ann: tried in staging"
    await in_time(skipping, lambda: waiting.has_permits(1), seconds=20)


async def test_a_plan_is_rejected(waiting: Rolling, skipping: WorkflowEnvironment) -> None:
    plan = await plan_of(waiting)
    assert await tell(skipping.client, "c", RejectRollout(plan=plan, by="ben")) == f"plan {plan} is rejected by ben"
    await in_time(skipping, lambda: waiting.says("is rejected by ben"), seconds=20)


@pytest.mark.parametrize(
    ("plan", "by", "why"),
    [
        ("web-000000", "ann", "approve web-000000: plan 'web-000000' is stale or was never there: web-"),
        ("web-000000", "", "approve web-000000: by: nobody is named"),
        ("other-000000", "ann", "approve other-000000: there is no NodePool other in cluster c"),
        ("web", "ann", "approve web: that is no plan; write its whole name, such as web-3f2a9c"),
    ],
)
async def test_what_is_refused_says_why(
    waiting: Rolling, skipping: WorkflowEnvironment, plan: str, by: str, why: str
) -> None:
    with pytest.raises(Refused) as refused:
        await tell(skipping.client, "c", ApproveRollout(plan=plan, by=by))
    assert str(refused.value).startswith(why)


async def test_a_roll_back_without_a_way_back_is_refused(waiting: Rolling, skipping: WorkflowEnvironment) -> None:
    said = RejectRollout(plan=await plan_of(waiting), by="ann", roll_back=True)
    with pytest.raises(Refused, match="cannot be rolled back: it is not known what ran well before"):
        await tell(skipping.client, "c", said)


async def test_without_a_worker_nothing_is_said(skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.temporal_updates.ANSWER_WITHIN", timedelta(seconds=0.5))
    await skipping.client.start_workflow("NodePoolWorkflow", id="c/nodepool/web", task_queue="nobody")
    with pytest.raises(Refused, match="no worker answered within"):
        await tell(skipping.client, "c", ApproveRollout(plan="web-000000", by="ann"))


async def test_a_node_that_waits_for_approval_is_approved_by_name(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 0.0)
    async with World(skipping.client).working() as fake:
        node = await ready_under(fake, skipping, scheduledChange={"action": "waitForApproval"})
        with pytest.raises(Refused, match=r"no event that waits for approval.*`tenure events a` says"):
            await tell_node(skipping.client, node.id, "a", ApproveEvent(by="ann"))
        await notice(fake, skipping, node)
        await in_time(skipping, lambda: blocked(node, "tenure approve a lets it go"))
        said = await tell_node(skipping.client, node.id, "a", RejectEvent(by="ben", reason="not today"))
        assert said == "NodeClaim a is kept, whatever comes of scheduledChange: rejected by ben"
        assert "approved by ann" in await tell_node(skipping.client, node.id, "a", ApproveEvent(by="ann"))
        await node.result()
        with pytest.raises(Refused, match="approve a: "):
            await tell_node(skipping.client, node.id, "a", ApproveEvent(by="ann"))


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_the_commands_say_which_cluster_is_missing(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER_NAME", raising=False)
    assert main([verb, "web-000000", "--by", "ann"]) == 2
    assert "--cluster-name: which cluster?" in capsys.readouterr().err
