"""The watch's activity: what a predecessor left is handed on, and what it says rides in the heartbeat."""

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


async def test_a_successor_gets_what_was_signalled_last() -> None:
    host, environment, beats = HeartbeatingHost(), ActivityEnvironment(), []
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(PlannerHostActivities(host).watch_cluster)
    environment.info = ActivityEnvironment.default_info().__class__(
        **{**environment.info.__dict__, "heartbeat_details": list(beats[-1])}
    )
    await environment.run(PlannerHostActivities(host).watch_cluster)
    assert host.carried == [None, WatchProgress(digests={"life": "digest-2"})]


async def test_planning_is_asked_of_the_process_that_hosts_the_watch() -> None:
    host = FakeHost(outcomes=[PlanOutcome(plan_id="", created=3)])
    result = await run_activity(PlannerHostActivities(host).plan_capacity, PlanRequest(plan_id="plan-1"))
    assert result == PlanOutcome(plan_id="plan-1", created=3)
