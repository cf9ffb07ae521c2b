"""One hook, as its activity sees to it: the time that a grace period leaves, and what a killed worker had begun."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.nodeclaim.hooks import HookActivities, grace_end
from activities.ports.disruption import HookPorts
from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP, TERMINATION_FINALIZER
from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.hooks import CallAnswer, HookAnswer, HookAsked, HookSubject
from tests.support.fakes.hooks import FakeCalls, FakeJobs
from tests.unit.activities.builders import REF, Scene

CALL: dict[str, Any] = {"name": "warn", "http": {"url": "https://hooks.example.com"}}
JOB: dict[str, Any] = {"name": "snapshot", "job": {"template": {"spec": {"containers": [{"name": "main"}]}}}}


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    found.claims.add("a", terminationGracePeriod="1h")
    found.claims.found["a"]["metadata"]["finalizers"] = [TERMINATION_FINALIZER]
    return found


async def run(
    scene: Scene, jobs: FakeJobs, calls: FakeCalls, *, begun: int = 0, asked_before: int = 0, **fields: Any
) -> HookAnswer:
    """What was begun by a worker that was killed, or until the hook was told anew."""
    hook = Hook.model_validate(fields.pop("hook", JOB))
    usual: dict[str, Any] = {
        "claim": REF,
        "subject": HookSubject(cluster="test", claim="a", point="beforeDrain", hook=hook.name),
        "hook": hook,
        "key": "key",
        "job": "snapshot-1" if hook.job else "",
        "seconds": 0.2,
        "begun": asked_before,
    }
    activities = HookActivities(
        HookPorts(jobs=jobs, calls=calls), claims=scene.claims, nodes=scene.nodes, instances=scene.instances
    )
    environment = ActivityEnvironment()
    told = [begun] if begun else []
    environment.info = replace(environment.info, heartbeat_details=told, attempt=2 if begun else 1)
    answer: HookAnswer = await environment.run(activities.run_hook, HookAsked.model_validate({**usual, **fields}))
    return answer


async def test_a_worker_that_knows_that_the_job_was_made_makes_no_other(scene: Scene) -> None:
    """Its time to live was over before anybody came back, or somebody deleted it."""
    jobs = FakeJobs()
    answer = await run(scene, jobs, FakeCalls(), begun=1)
    assert answer.outcome == "failed" and jobs.made == []


async def test_a_job_that_vanished_is_not_made_again_where_the_hook_is_told_anew(scene: Scene) -> None:
    jobs = FakeJobs()
    answer = await run(scene, jobs, FakeCalls(), asked_before=1)
    assert "nobody saw how it ended" in answer.why and jobs.made == []


async def test_calls_of_a_killed_worker_count_as_attempts(scene: Scene) -> None:
    calls = FakeCalls(answers=[CallAnswer(status=503)] * 9)
    answer = await run(scene, FakeJobs(), calls, begun=2, hook=CALL | {"attempts": 3}, seconds=60)
    assert answer.outcome == "failed" and "after 3 attempts" in answer.why and len(calls.came) == 1


async def test_a_call_that_has_no_time_left_is_made_once(scene: Scene) -> None:
    calls = FakeCalls(answers=[CallAnswer(status=503)] * 9)
    answer = await run(scene, FakeJobs(), calls, hook=CALL, seconds=-100)
    assert answer.outcome == "timed out" and len(calls.came) == 1


async def test_the_grace_period_of_the_node_leaves_half_of_itself_to_the_drain(scene: Scene) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=10)
    scene.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = ends.isoformat()
    jobs = FakeJobs()
    running = await run(scene, jobs, FakeCalls(answers=[]), seconds=0.1)
    assert running == HookAnswer(outcome="timed out", why="it is not over", grace_ends=ends)
    ends = datetime.now(UTC) + timedelta(seconds=-1)
    scene.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = ends.isoformat()
    late = await run(scene, jobs, FakeCalls(), seconds=3600, since=datetime.now(UTC) - timedelta(minutes=1))
    assert late.outcome == "timed out" and late.grace_ends == ends


async def test_a_node_whose_claim_is_kept_is_only_taken_out_of_service(scene: Scene) -> None:
    scene.nodes.join("node-a", REF.provider_id)
    calls = FakeCalls()
    assert (await run(scene, FakeJobs(), calls, hook=CALL, keep=True)).outcome == "succeeded"
    assert not scene.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert "karpenter.sh/disrupted" in {key for key, _, _ in scene.nodes.found["node-a"].taints}


async def test_the_node_of_another_instance_is_let_be(scene: Scene) -> None:
    scene.nodes.join("node-a", "aws:///us-west-2a/i-another")
    await run(scene, FakeJobs(), FakeCalls(), hook=CALL)
    assert "karpenter.sh/disrupted" not in {key for key, _, _ in scene.nodes.found["node-a"].taints}


def test_the_grace_period_counts_from_the_deletion_unless_its_end_is_written(scene: Scene) -> None:
    claim = scene.claims.add("b", terminationGracePeriod="1h")
    assert grace_end(claim) is None
    scene.claims.give("b", deleting=True)
    deleting = scene.claims._read("b")
    assert deleting.metadata.deletion_timestamp is not None
    assert grace_end(deleting) == deleting.metadata.deletion_timestamp + timedelta(hours=1)
