"""The watch activity: a new process gets the last progress, which heartbeats carry."""

from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.planner_host import PlannerHostActivities, WatchProgress
from tenure.model.plan import PlanOutcome, PlanRequest
from tests.support.fakes.planner_host import FakeHost
from tests.unit.activities.builders import run_activity


class HeartbeatingHost(FakeHost):
    async def run(self, carried: WatchProgress | None, heartbeat: Any) -> None:
        self.carried.append(carried)
        heartbeat(WatchProgress(digests={"life": "digest-2"}))


async def test_new_process_gets_last_signaled_digests() -> None:
    host, environment, beats = HeartbeatingHost(), ActivityEnvironment(), []
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(PlannerHostActivities(host).watch_cluster)
    environment.info = ActivityEnvironment.default_info().__class__(
        **{**environment.info.__dict__, "heartbeat_details": list(beats[-1])}
    )
    await environment.run(PlannerHostActivities(host).watch_cluster)
    assert host.carried == [None, WatchProgress(digests={"life": "digest-2"})]


async def test_planning_activity_uses_host() -> None:
    host = FakeHost(outcomes=[PlanOutcome(plan_id="", created=3)])
    result = await run_activity(PlannerHostActivities(host).plan_capacity, PlanRequest(plan_id="plan-1"))
    assert result == PlanOutcome(plan_id="plan-1", created=3)
