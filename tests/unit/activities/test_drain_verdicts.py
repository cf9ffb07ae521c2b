"""A drain that is held: the verdict with its arithmetic, escalation, giving up, dead kubelets, surges."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import DrainVerdict
from tenure.model.errors import BadInput, Forbidden, Throttled, TryLater
from tenure.model.nodeclaim_requests import DrainAsked, Drained, GiveUpAsked
from tests.unit.activities.builders import REF, Scene, performed
from tests.unit.activities.test_draining import AT_ONCE, going

BEGAN = datetime.now(UTC) - timedelta(seconds=1)
REFUSED = "the disruption budget web needs 2 healthy pods"
SURGE = DrainRules.model_validate({"surgeSingleReplicas": True})


def asked(**fields: Any) -> DrainAsked:
    return DrainAsked(claim=REF, began=BEGAN, **fields)


def held(scene: Scene, *names: str, **fields: Any) -> None:
    """Pods behind a budget that is complete."""
    going(scene)
    scene.budgets.add("web", min_available="2", expected=2, desired=2, current=2)
    for name in names or ("web",):
        scene.pods.place("node-a", name, labels={"app": "web"}, owner_kind="ReplicaSet", owner_name="web-5", **fields)
        scene.pods.blocked[name] = REFUSED


async def verdict(scene: Scene, question: DrainAsked) -> tuple[Drained, DrainVerdict]:
    answer = await performed(scene.draining.drain_node, question)
    assert answer.outcome == "waiting" and answer.verdict is not None
    return answer, answer.verdict


async def test_the_verdict_names_pod_owner_budget_arithmetic_and_what_to_do(scene: Scene) -> None:
    held(scene)
    answer, found = await verdict(scene, asked())
    (hold,) = found.holds
    assert hold.owner == "ReplicaSet web-5" and hold.passes == "never"
    assert "default/web: minAvailable 2, 2 of 2 pods healthy, 2 needed, 0 may go" in hold.what
    assert "never passes by itself: it needs all 2 pods" in scene.claims.message("a", "Drained")
    assert answer.blockers == hold.short and scene.events.reasons("a") == ["FailedDraining"]


async def test_since_when_it_is_held_outlives_the_activity(scene: Scene) -> None:
    held(scene)
    _, first = await verdict(scene, asked())
    await asyncio.sleep(0.01)
    _, again = await verdict(scene, asked(known=first, known_blockers=first.line, patience=0))
    assert again.holds[0].since == first.holds[0].since and again.blocked_since == first.blocked_since


async def test_one_refusal_stands_for_all_pods_of_a_budget_in_a_look(scene: Scene) -> None:
    held(scene, *(f"web-{number}" for number in range(7)))
    tried: list[str] = []
    evict = scene.pods.evict

    async def noting(pod: Any) -> Any:
        tried.append(pod.name)
        return await evict(pod)

    scene.pods.evict = noting  # type: ignore[method-assign]
    _, found = await verdict(scene, asked())
    assert tried == ["web-0"] and (len(found.holds), found.more, found.pods) == (5, 2, 7)


async def test_budgets_that_cannot_be_read_leave_the_servers_words(scene: Scene) -> None:
    held(scene)
    scene.budgets.faults["in_namespace"] = [Forbidden("no") for _ in range(9)]
    answer, _ = await verdict(scene, asked())
    assert REFUSED in answer.blockers


async def test_a_pod_whose_eviction_is_refused_for_another_reason_hurts_only_itself(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "odd")
    scene.pods.place("node-a", "web")
    scene.pods.faults["evict"] = [BadInput("denied by webhook x")]
    answer, found = await verdict(scene, asked(patience=0))
    assert "denied by webhook x" in answer.blockers and found.holds[0].cause == "refused"
    assert scene.pods.evicted == ["web"]


async def test_a_server_that_asks_for_a_pause_gets_one(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web")
    scene.pods.faults["evict"] = [Throttled("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await performed(scene.draining.drain_node, asked())


async def test_a_fault_that_took_the_verdicts_place_is_replaced_again(scene: Scene) -> None:
    held(scene)
    _, found = await verdict(scene, asked())
    answer, _ = await verdict(scene, asked(known=found, known_blockers="503", patience=60))
    assert answer.blockers == found.line


async def test_pods_say_that_they_are_evicted_or_deleted_for_the_deadline(scene: Scene) -> None:
    going(scene, grace="1h", since=timedelta(minutes=59))
    scene.claims.give("a")
    scene.pods.place("node-a", "web")
    scene.pods.place("node-a", "slow", grace_seconds=600)
    await performed(scene.draining.drain_node, asked())
    assert scene.events.reasons("web") == ["Evicted"] and scene.events.reasons("slow") == ["Disrupted"]
    assert ("web", "Evicted", "Evicted pod: Forceful Termination") in scene.events.said


async def test_a_fault_in_the_midst_takes_no_word_from_the_pods_before_it(scene: Scene) -> None:
    going(scene)
    for name in ("web", "api"):
        scene.pods.place("node-a", name)
    scene.pods.faults["evict"] = [None, Throttled("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await performed(scene.draining.drain_node, asked())
    (evicted,) = scene.pods.evicted
    assert scene.events.reasons(evicted) == ["Evicted"]


async def test_a_deadline_that_comes_nearer_during_the_drain_is_kept(scene: Scene) -> None:
    """Repair or a person writes the annotation while the activity stays with the node."""
    held(scene)
    stamp = datetime.now(UTC).isoformat()
    annotations = scene.claims.found["a"]["metadata"]["annotations"]
    _, known = await verdict(scene, asked())
    asyncio.get_running_loop().call_later(0.02, annotations.update, {NODECLAIM_TERMINATION_TIMESTAMP: stamp})
    answer = await performed(scene.draining.drain_node, asked(known=known, known_blockers=known.line, patience=60))
    assert answer.outcome in ("drained", "deadline passed") and scene.pods.forced == [("web", 1)]


async def test_a_deadline_is_written_once_however_seldom_the_claim_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain_pass.REFRESH", 60.0)
    scene.running()
    scene.claims.found["a"]["spec"]["terminationGracePeriod"] = "1h"
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = REFUSED
    await scene.nodes.delete("node-a")
    monkeypatch.setattr("activities.nodeclaim.drain.SETTLED", 0.05)
    await verdict(scene, asked())
    assert scene.events.reasons("a").count("TerminationGracePeriodExpiring") == 1


async def test_a_deadline_never_moves_away(scene: Scene) -> None:
    held(scene)
    annotations = scene.claims.found["a"]["metadata"]["annotations"]
    soon, later = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 5))
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = soon.isoformat()
    _, known = await verdict(scene, asked())
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = later.isoformat()
    answer, _ = await verdict(scene, asked(known=known, known_blockers=known.line, patience=0))
    assert answer.deadline == soon


@pytest.mark.parametrize("text", ["soon", "2026-01-01T00:00:00"])
async def test_an_annotation_that_is_no_moment_is_said_and_forces_nothing(scene: Scene, text: str) -> None:
    held(scene)
    scene.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = text
    answer, _ = await verdict(scene, asked())
    assert answer.deadline is None and scene.pods.forced == []
    assert any("is no moment" in message and text in message for _, _, message in scene.events.said)


async def test_an_escalation_deletes_pods_with_their_own_grace_period(scene: Scene) -> None:
    held(scene, grace_seconds=2)
    scene.pods.place("node-a", "later", grace_seconds=60, group=2)
    began = datetime.now(UTC)
    answer, found = await verdict(scene, asked(escalate=True, patience=0))
    assert found.deadline is not None
    assert (found.deadline - began).total_seconds() > 58 and (found.deadline - datetime.now(UTC)).total_seconds() <= 60
    written = scene.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP]
    assert datetime.fromisoformat(written) == found.deadline
    again, _ = await verdict(scene, asked(escalate=True, known=found, known_blockers=answer.blockers, patience=0))
    assert again.deadline == found.deadline
    least = 58 - (datetime.now(UTC) - began).total_seconds()
    assert all(name == "later" and least <= grace <= 60 for name, grace in scene.pods.forced)


async def test_a_node_counts_as_drained_only_some_seconds_after_its_taint(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that has not seen the taint yet may still bind a pod, which is evicted too."""
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 1.0)
    going(scene)
    asyncio.get_running_loop().call_later(0.05, lambda: scene.pods.place("node-a", "late"))
    began = datetime.now(UTC)
    assert (await performed(scene.draining.drain_node, asked())).outcome == "drained"
    assert scene.pods.evicted == ["late"] and datetime.now(UTC) - began >= timedelta(seconds=1)


# --- the machine ---


async def test_a_dead_kubelets_pods_are_waited_for_only_so_long(scene: Scene) -> None:
    held(scene)
    scene.nodes.change("node-a", ready=False)
    _, found = await verdict(scene, asked())
    assert found.not_ready_since and found.not_ready_until == found.not_ready_since + timedelta(minutes=5)
    assert "the node is not Ready since" in found.line
    rules = DrainRules.model_validate({"nodeNotReady": "100ms"})
    answer = await performed(
        scene.draining.drain_node, asked(known=found, known_blockers=found.line, rules=rules, patience=60)
    )
    assert answer.outcome == "not ready" and not scene.pods.evicted and not scene.pods.forced
    assert scene.claims.condition("a", "VolumesDetached") == "False NodeNotReady"


async def test_that_the_node_turned_not_ready_is_said_though_something_else_is_known(scene: Scene) -> None:
    held(scene)
    _, known = await verdict(scene, asked())
    scene.nodes.change("node-a", ready=False)
    answer, _ = await verdict(scene, asked(known=known, known_blockers=known.line, patience=60))
    assert answer.blockers.startswith("the node is not Ready since") and known.line in answer.blockers


async def test_a_kubelet_that_comes_back_has_all_its_time_again(scene: Scene) -> None:
    held(scene)
    scene.nodes.change("node-a", ready=False)
    _, found = await verdict(scene, asked())
    scene.nodes.change("node-a", ready=True)
    _, well = await verdict(scene, asked(known=found, known_blockers=found.line, patience=0))
    assert well.not_ready_since is None and well.blocked_since == found.blocked_since


@pytest.mark.parametrize("gone", ["the instance", "the Node"])
async def test_what_is_gone_in_the_middle_ends_the_drain_at_once(scene: Scene, gone: str) -> None:
    held(scene)
    _, known = await verdict(scene, asked())

    def vanish() -> None:
        if gone == "the Node":
            scene.nodes.found.clear()
        else:
            scene.instances.running.clear()
            scene.nodes.change("node-a", ready=False)

    asyncio.get_running_loop().call_later(0.02, vanish)
    answer = await performed(scene.draining.drain_node, asked(known=known, known_blockers=known.line, patience=60))
    assert answer == Drained(outcome="drained", left=("default/web",)) and scene.pods.evicted == []


async def test_a_claim_that_vanishes_in_the_middle_does_not_stop_the_drain(scene: Scene) -> None:
    held(scene)
    _, known = await verdict(scene, asked())

    def vanish() -> None:
        scene.claims.found.clear()
        scene.pods.blocked.clear()

    asyncio.get_running_loop().call_later(0.02, vanish)
    answer = await performed(scene.draining.drain_node, asked(known=known, known_blockers=known.line, patience=60))
    assert answer.outcome == "drained" and scene.pods.evicted == ["web"]


# --- drains that may be given up ---


async def test_a_kept_claim_is_deleted_when_the_pods_are_gone(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = REFUSED
    answer, _ = await verdict(scene, asked(keep=True))
    claim = scene.claims.found["a"]["metadata"]
    assert answer.keep and scene.out_of_service()
    assert "deletionTimestamp" not in claim and not scene.nodes.found["node-a"].deleting
    scene.pods.blocked.clear()
    assert (await performed(scene.draining.drain_node, asked(keep=True))).outcome == "drained"
    assert "deletionTimestamp" in claim and scene.nodes.found["node-a"].deleting


@pytest.mark.parametrize("deleted", ["NodeClaim", "Node"])
async def test_a_kept_claim_that_a_person_deletes_goes_as_any_other(scene: Scene, deleted: str) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = REFUSED
    rules = DrainRules.model_validate({"whenBlocked": "giveUp", "blockedFor": "2h"})
    _, known = await verdict(scene, asked(keep=True, rules=rules))
    assert "is given up at" in known.follows
    await (scene.claims.delete("a", "uid-a") if deleted == "NodeClaim" else scene.nodes.delete("node-a"))
    answer, found = await verdict(
        scene, asked(keep=True, rules=rules, known=known, known_blockers=known.line, patience=0)
    )
    assert not answer.keep and "cannot be given up any more" in found.follows
    assert "deletionTimestamp" in scene.claims.found["a"]["metadata"] and scene.nodes.found["node-a"].deleting
    assert not await performed(scene.draining.keep_node, GiveUpAsked(claim=REF, why="held"))


async def test_a_drain_that_is_given_up_puts_the_node_back_and_keeps_the_reason(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    scene.pods.blocked["web"] = REFUSED
    await verdict(scene, asked(keep=True))
    assert await performed(scene.draining.keep_node, GiveUpAsked(claim=REF, why="default/web: a budget"))
    assert not scene.out_of_service() and scene.claims.condition("a", "Drained") == "False GaveUp"
    assert scene.claims.message("a", "Drained") == "default/web: a budget"
    assert "DrainGivenUp" in scene.events.reasons("a")


# --- single replicas ---


def single(scene: Scene, **rollout: Any) -> None:
    going(scene)
    scene.pods.place("node-a", "web", owner_kind="ReplicaSet", owner_name="web-5")
    scene.rollouts.add("web", **rollout)


async def test_a_single_replica_is_restarted_once_and_goes_when_its_deployment_takes_it(scene: Scene) -> None:
    single(scene)
    answer, known = await verdict(scene, asked(rules=SURGE))
    assert "goes when the new pod of Deployment web" in answer.blockers and known.blocked_since is None
    _, known = await verdict(scene, asked(rules=SURGE, known=known, known_blockers=known.line, patience=0))
    assert scene.rollouts.restarts == [BEGAN.isoformat().replace("+00:00", "Z")] and scene.pods.evicted == []
    asyncio.get_running_loop().call_later(0.02, scene.pods.by_node.clear)
    question = asked(rules=SURGE, known=known, known_blockers=known.line, patience=60)
    assert (await performed(scene.draining.drain_node, question)).outcome == "drained"
    assert scene.pods.evicted == [] and "SurgeStarted" in scene.events.reasons("web")


async def test_a_surge_that_takes_too_long_ends_in_an_eviction(scene: Scene) -> None:
    single(scene)
    _, known = await verdict(scene, asked(rules=SURGE))
    old = known.holds[0].model_copy(update={"since": datetime.now(UTC) - timedelta(minutes=10)})
    known = known.model_copy(update={"holds": (old,)})
    question = asked(rules=SURGE, known=known, known_blockers=known.line)
    assert (await performed(scene.draining.drain_node, question)).outcome == "drained"
    assert scene.pods.evicted == ["web"] and len(scene.rollouts.restarts) == 1


@pytest.mark.parametrize(
    ("rollout", "rules"),
    [({}, None), ({}, DrainRules()), ({"replicas": 2}, SURGE), ({"surges": False}, SURGE)],
)
async def test_others_are_evicted_as_they_are(scene: Scene, rollout: dict[str, Any], rules: DrainRules | None) -> None:
    single(scene, **rollout)
    assert (await performed(scene.draining.drain_node, asked(rules=rules))).outcome == "drained"
    assert scene.pods.evicted == ["web"] and scene.rollouts.restarts == []


async def test_a_pod_that_is_not_ready_is_no_reason_to_restart_anything(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web", owner_kind="ReplicaSet", ready=False)
    scene.rollouts.add("web")
    await performed(scene.draining.drain_node, asked(rules=SURGE))
    assert scene.pods.evicted == ["web"] and scene.rollouts.restarts == []


async def test_a_pod_that_only_its_node_marked_not_ready_is_kept_and_restarted_once_it_is_ready(scene: Scene) -> None:
    going(scene)
    scene.pods.place("node-a", "web", owner_kind="ReplicaSet", owner_name="web-5", ready=False, marked_not_ready=True)
    scene.rollouts.add("web")
    answer, known = await verdict(scene, asked(rules=SURGE))
    assert "goes when the new pod of Deployment web" in answer.blockers
    assert scene.pods.evicted == [] and scene.rollouts.restarts == []
    scene.pods.by_node.clear()
    scene.pods.place("node-a", "web", owner_kind="ReplicaSet", owner_name="web-5")
    await verdict(scene, asked(rules=SURGE, known=known, known_blockers=known.line, patience=0))
    assert scene.pods.evicted == [] and len(scene.rollouts.restarts) == 1


async def test_a_rollout_that_may_not_be_restarted_is_said_and_the_pod_evicted(scene: Scene) -> None:
    single(scene)
    scene.rollouts.faults["restart"] = [Forbidden("deployments.apps is forbidden")]
    assert (await performed(scene.draining.drain_node, asked(rules=SURGE))).outcome == "drained"
    assert scene.pods.evicted == ["web"] and scene.events.reasons("web") == ["SurgeFailed", "Evicted"]


async def test_looks_that_fail_leave_the_verdict_to_the_next_try(scene: Scene) -> None:
    held(scene)
    scene.pods.faults["on_node"] = [TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await performed(scene.draining.drain_node, AT_ONCE)
    await verdict(scene, asked())
