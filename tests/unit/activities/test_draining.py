"""Draining: pods leave in their order, what blocks them is named, the end of the grace period is kept."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.nodeclaim_requests import DrainAsked, Drained
from tests.unit.activities.builders import REF, Scene, performed

ASKED = DrainAsked(claim=REF)
AT_ONCE = DrainAsked(claim=REF, patience=0)
PDB = "PodDisruptionBudget web: 0 disruptions allowed"


def going(scene: Scene, *, grace: str | None = None, since: timedelta = timedelta(0)) -> None:
    """A NodeClaim deleted some time ago."""
    scene.running()
    claim = scene.claims.found["a"]
    claim["metadata"]["deletionTimestamp"] = (datetime.now(UTC) - since).isoformat()
    if grace:
        claim["spec"]["terminationGracePeriod"] = grace


async def test_pods_leave_and_the_node_is_drained(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web")
    assert (await performed(scene.draining.drain_node, ASKED)).outcome == "drained"
    assert scene.pods.evicted == ["web"]
    assert scene.out_of_service() and scene.nodes.found["node-a"].deleting
    assert scene.claims.condition("a", "Drained").startswith("True")


async def test_each_group_is_gone_before_the_next_is_asked(scene: Scene) -> None:
    going(scene)
    for group, name in enumerate(("web", "daemon", "critical", "critical-daemon")):
        scene.pods.place("node-a", name, group=group)
    scene.pods.place("node-a", "second", group=0)
    await performed(scene.draining.drain_node, ASKED)
    assert scene.pods.evicted == ["web", "second", "daemon", "critical", "critical-daemon"]


async def test_the_later_groups_stay_while_the_first_is_held(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web")
    scene.pods.place("node-a", "daemon", group=1)
    scene.pods.blocked["web"] = PDB
    answer = await performed(scene.draining.drain_node, ASKED)
    assert (answer.outcome, answer.blockers, answer.pods) == ("waiting", f"default/web: {PDB}", 2)
    assert scene.pods.evicted == []
    assert scene.claims.condition("a", "Drained") == "Unknown Draining"
    assert scene.events.reasons("a") == scene.events.reasons("node-a") == ["FailedDraining"]
    assert all(f"default/web: {PDB}" in message for _, _, message in scene.events.said)


async def test_it_stays_with_the_node_while_what_blocks_is_known(scene: Scene) -> None:
    """So that the workflow's history does not grow, and the pod leaves as soon as it may."""
    going(scene)
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = PDB
    known = DrainAsked(claim=REF, known_blockers=f"default/web: {PDB}", patience=60)
    asyncio.get_running_loop().call_later(0.02, scene.pods.blocked.clear)
    assert (await performed(scene.draining.drain_node, known)).outcome == "drained"


async def test_its_patience_ends(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = PDB
    known = DrainAsked(claim=REF, known_blockers=f"default/web: {PDB}", patience=0.02)
    assert (await performed(scene.draining.drain_node, known)).outcome == "waiting"


async def test_a_pod_that_may_not_be_evicted_says_why(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "job", evictable=False, why_not="annotated do-not-disrupt")
    answer = await performed(scene.draining.drain_node, ASKED)
    assert answer.blockers == "default/job: annotated do-not-disrupt"


async def test_pods_that_are_not_waited_for_hold_nothing_up(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "mirror", waits=False)
    assert (await performed(scene.draining.drain_node, ASKED)).outcome == "drained"
    assert scene.pods.evicted == []


async def test_a_volume_that_is_attached_is_waited_for_and_named(scene: Scene) -> None:
    going(scene)
    scene.pods.volumes = ["csi-1"]
    answer = await performed(scene.draining.drain_node, ASKED)
    assert answer.outcome == "waiting" and "csi-1" in answer.blockers
    assert scene.claims.condition("a", "Drained").startswith("True")
    assert scene.claims.condition("a", "VolumesDetached") == "Unknown AwaitingVolumeDetachment"
    assert scene.events.reasons("node-a") == ["AwaitingVolumeDetachment"]


async def test_a_node_that_is_gone_needs_no_drain(scene: Scene) -> None:
    going(scene)
    scene.nodes.found.clear()
    assert await performed(scene.draining.drain_node, ASKED) == Drained(outcome="drained")


async def test_a_node_deleted_alone_takes_its_claim_along(scene: Scene) -> None:
    scene.running()
    await performed(scene.draining.drain_node, ASKED)
    assert "deletionTimestamp" in scene.claims.found["a"]["metadata"]


async def test_a_claim_that_was_made_anew_under_the_name_is_not_deleted(scene: Scene) -> None:
    scene.running()
    scene.claims.add("a", uid="uid-other")
    assert (await performed(scene.draining.drain_node, ASKED)).outcome == "drained"
    assert "deletionTimestamp" not in scene.claims.found["a"]["metadata"]


async def test_without_a_grace_period_nothing_is_ever_forced(scene: Scene) -> None:
    going(scene, since=timedelta(days=3))
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = PDB
    answer = await performed(scene.draining.drain_node, AT_ONCE)
    assert answer.outcome == "waiting" and answer.deadline is None and scene.pods.forced == []


async def test_the_deadline_is_written_down_once_and_never_moves(scene: Scene) -> None:
    going(scene, grace="2h", since=timedelta(minutes=30))
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = PDB
    first = await performed(scene.draining.drain_node, AT_ONCE)
    written = scene.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP]
    assert first.deadline == datetime.fromisoformat(written)
    scene.claims.found["a"]["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
    again = await performed(scene.draining.drain_node, AT_ONCE)
    assert again.deadline == first.deadline
    assert scene.events.reasons("a").count("TerminationGracePeriodExpiring") == 1


@pytest.mark.parametrize(
    ("grace_seconds", "forced"),
    [(30, []), (90, ["web"])],
)
async def test_a_pod_is_forced_only_when_its_own_grace_would_pass_the_deadline(
    scene: Scene, grace_seconds: int, forced: list[str]
) -> None:
    """60 s are left: a pod that needs 90 s to stop is told now, one that needs 30 s has time."""
    going(scene, grace="1h", since=timedelta(minutes=59))
    scene.pods.place("node-a", "web", grace_seconds=grace_seconds, group=3)
    scene.pods.blocked["web"] = PDB
    await performed(scene.draining.drain_node, AT_ONCE)
    assert [name for name, _ in scene.pods.forced] == forced
    assert all(50 <= seconds <= 60 for _, seconds in scene.pods.forced)


async def test_past_the_deadline_pods_are_forced_with_the_least_grace(scene: Scene) -> None:
    going(scene, grace="1m", since=timedelta(minutes=5))
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = PDB
    await performed(scene.draining.drain_node, ASKED)
    assert scene.pods.forced == [("web", 1)]


async def test_past_the_deadline_a_volume_is_waited_for_no_longer(scene: Scene) -> None:
    going(scene, grace="1m", since=timedelta(minutes=5))
    scene.pods.volumes = ["csi-1"]
    assert (await performed(scene.draining.drain_node, ASKED)).outcome == "deadline passed"
    assert scene.claims.condition("a", "VolumesDetached") == "False TerminationGracePeriodElapsed"
