"""Activities of the planner host."""

from activities.planner_host import PlannerHostActivities
from tenure.model.plan import PlanOutcome, PlanRequest
from tests.support.fakes.planner_host import FakeHost
from tests.unit.activities.builders import run_activity


async def test_planning_activity_uses_host() -> None:
    host = FakeHost(outcomes=[PlanOutcome(plan_id="", created=3)])
    result = await run_activity(PlannerHostActivities(host).plan_capacity, PlanRequest(plan_id="plan-1"))
    assert result == PlanOutcome(plan_id="plan-1", created=3)
