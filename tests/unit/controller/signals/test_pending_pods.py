"""Which pods are pending demand, how long a nomination lasts, and when the workflow is signaled."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tenure.apis import labels
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.nominations import Nomination, Nominations
from tenure.controller.signals.pending_pods import (
    Batcher,
    ProvisioningTrigger,
    classify_pods,
    needs_plan,
)
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.observations import ObservedDemand
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness, at, claim, node, not_ready_tracker, pod


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects("nodeclaims", claim("launching", phase="Launched"), claim("up", phase="Initialized"))
    harness.apply_objects("nodes", node("n-up", of="up"), node("by-hand"))
    return harness


def pending_names(harness: CacheHarness, nominations: Nominations, seconds: float = 0) -> list[str]:
    return [
        one.name for one in classify_pods(harness.cache, nominations, not_ready_tracker(harness), at(seconds)).pending
    ]


@pytest.mark.parametrize(
    ("raw", "is_demand"),
    [
        (pod("p"), True),
        (pod("p", on="by-hand"), False),
        (pod("p", owner="DaemonSet"), False),
        (pod("p", owner="Node"), False),
        (pod("p", phase="Failed"), False),
        (pod("p", metadata={"deletionTimestamp": builders.stamp(9)}), False),
        ({**pod("p"), "status": {"phase": "Pending"}}, False),
        ({**pod("p"), "status": {**pod("p")["status"], "nominatedNodeName": "n"}}, False),
    ],
    ids=["unschedulable", "bound", "daemonset", "static", "failed", "terminating", "not tried yet", "preempting"],
)
def test_pending_demand_by_kind_of_pod(harness: CacheHarness, raw: builders.Json, is_demand: bool) -> None:
    harness.apply_objects("pods", raw)
    assert bool(pending_names(harness, Nominations())) is is_demand


def test_pods_of_a_deleting_node_are_demand(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("moves", on="n-up"), pod("agent", on="n-up", owner="DaemonSet"))
    assert pending_names(harness, Nominations()) == []
    harness.apply_objects("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert pending_names(harness, Nominations()) == ["moves"]


def test_pod_that_a_rollout_replaces_is_no_demand_until_the_newer_pod_is_gone(harness: CacheHarness) -> None:
    def of_revision(name: str, revision: str, age: float, on: str = "") -> builders.Json:
        metadata = {
            "creationTimestamp": builders.stamp(-age),
            "labels": {"app": "web", "pod-template-hash": revision},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": revision, "controller": True}],
        }
        return pod(name, on=on, metadata=metadata)

    new = of_revision("new", "2", age=5)
    harness.apply_objects("pods", of_revision("old", "1", age=90, on="n-up"), new)
    harness.apply_objects("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert pending_names(harness, Nominations()) == ["new"]
    harness.apply_objects("pods", of_revision("new", "2", age=5, on="by-hand"))
    assert pending_names(harness, Nominations()) == [], "it still starts"
    harness.delete_objects("pods", new)
    assert pending_names(harness, Nominations()) == ["old"]


def test_pods_that_their_budget_never_releases_are_no_demand(harness: CacheHarness) -> None:
    """Else the batch stays open for them as long as the drain waits."""
    budget = {"metadata": {"name": "all", "namespace": "default"}, "spec": {"maxUnavailable": 0, "selector": {}}}
    harness.apply_objects("pods", pod("database", on="n-up"))
    harness.apply_objects("poddisruptionbudgets", budget)
    harness.apply_objects("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert pending_names(harness, Nominations()) == []
    harness.cache.set_interrupted("up", interrupted=True)
    assert pending_names(harness, Nominations()) == ["database"], "EC2 ends the instance without asking the budget"


def test_terminating_instance_causes_a_check_of_its_pods(harness: CacheHarness) -> None:
    terminating = claim("up", phase="Initialized", deleting=True)
    harness.apply_objects("nodeclaims", terminating)
    assert harness.cache.drain_changes().pods
    terminating["status"]["conditions"].append({"type": labels.INSTANCE_TERMINATING, "status": "True"})
    harness.apply_objects("nodeclaims", terminating)
    assert harness.cache.drain_changes().pods


def test_first_plan_is_needed_for_unscheduled_and_displaced_pods(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("stays", on="n-up"))
    assert not needs_plan(harness.cache, at(0))
    harness.apply_objects("nodeclaims", claim("up", phase="Initialized", deleting=True))
    assert needs_plan(harness.cache, at(0)), "its nomination by an earlier controller is unknown"
    harness.delete_objects("pods", pod("stays", on="n-up"))
    assert not needs_plan(harness.cache, at(0))
    harness.apply_objects("pods", {**pod("new"), "status": {"phase": "Pending"}})
    assert needs_plan(harness.cache, at(0)), "kube-scheduler has not tried it yet"
    harness.apply_objects("pods", {**pod("new", schedulingGates=[{"name": "quota"}]), "status": {"phase": "Pending"}})
    assert not needs_plan(harness.cache, at(0)), "scheduling gates keep it from being scheduled"


def test_pod_nominated_to_a_launching_node_is_never_demand(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("p"))
    nominations = Nominations()
    nominations.nominate({"uid-p": "launching"}, at(0))
    assert pending_names(harness, nominations, 600) == []


def test_nomination_to_an_initialized_node_expires(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("p"))
    nominations = Nominations()
    nominations.nominate({"uid-p": "up"}, at(0))
    assert pending_names(harness, nominations, 19) == [] and pending_names(harness, nominations, 20) == ["p"]
    nominations.nominate({"uid-p": "by-hand"}, at(20))
    assert pending_names(harness, nominations, 39) == [] and pending_names(harness, nominations, 40) == ["p"]


def test_pods_nominated_to_a_deleting_node_are_demand(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("p"), pod("q"))
    nominations = Nominations()
    nominations.nominate({"uid-p": "launching", "uid-q": "vanished"}, at(0))
    assert pending_names(harness, nominations) == ["q"]
    harness.apply_objects("nodeclaims", claim("launching", phase="Launched", deleting=True))
    assert pending_names(harness, nominations) == ["p", "q"]


def test_nomination_target_of_a_node_is_its_nodeclaim(harness: CacheHarness) -> None:
    assert harness.cache.nomination_target("n-up") == "up"
    assert harness.cache.nomination_target("by-hand") == "by-hand"
    assert harness.cache.nomination_target("launching") == "launching"


def test_nominations_end_when_their_pods_are_bound() -> None:
    nominations = Nominations()
    nominations.nominate({"a": "up", "b": "up"}, at(0))
    assert nominations.is_expecting("up") and nominations.last_expiry("up", at(-50)) == at(110)
    assert nominations.last_expiry("up", None) is None
    assert nominations.on_pod_bound("a", at(3)) == "up" and nominations.is_expecting("up")
    assert nominations.on_pod_bound("b", at(5)) == "up" and not nominations.is_expecting("up")
    assert nominations.last_expiry("up", at(-50)) == at(5)
    assert nominations.on_pod_bound("b", at(6)) == ""
    nominations.nominate({"a": "up"}, at(7))
    assert set(nominations.forget_target("up")) == {"a"} and nominations.nomination_of("a") is None


def test_nomination_of_a_deleted_pod_is_kept_for_a_while() -> None:
    nominations = Nominations()
    nominations.nominate({"a": "up"}, at(0))
    nominations.on_pod_deleted("a", "web", at(8))
    nominations.on_pod_deleted("a", "web", at(9))
    assert nominations.nomination_of("a") is None and nominations.is_expecting("up")
    assert nominations.last_expiry("up", None) is None and nominations.last_expiry("up", at(5)) == at(28)
    nominations.forget_target("up")
    assert not nominations.is_expecting("up")


# --- pods of one owner are interchangeable ---


def nominations_by_owner() -> Nominations:
    """The owner of a pod is the first letter of its name."""
    return Nominations(lambda pod: pod[0])


def test_successor_bound_elsewhere_leaves_its_nomination_to_a_sibling() -> None:
    nominations = nominations_by_owner()
    nominations.nominate({"w1": "one", "w2": "two", "x1": "two"}, at(0))
    nominations.on_pod_deleted("w1", "w", at(50))
    assert nominations.on_pod_arrived("w9", "two", at(51)) == "one"
    assert nominations.pods_expected_on("one") == ("w2",) and nominations.pods_expected_on("two") == ("x1",)
    assert nominations.last_expiry("one", at(0)) == at(161)


def test_siblings_that_swap_nodes_swap_their_nominations() -> None:
    nominations = nominations_by_owner()
    nominations.nominate({"w1": "one", "w2": "two"}, at(0))
    assert nominations.on_pod_arrived("w1", "two", at(3)) == "one" and nominations.on_pod_bound("w1", at(3)) == "one"
    assert nominations.pods_expected_on("one") == ("w2",) and not nominations.pods_expected_on("two")


@pytest.mark.parametrize(
    ("arrived", "target", "seconds"),
    [
        pytest.param("y1", "two", 51, id="other owner"),
        pytest.param("w9", "three", 51, id="node without nomination"),
        pytest.param("w9", "one", 51, id="own node"),
        pytest.param("w9", "two", 70, id="too late"),
    ],
)
def test_other_arrivals_do_not_change_nominations(arrived: str, target: str, seconds: float) -> None:
    nominations = nominations_by_owner()
    nominations.nominate({"w1": "one", "w2": "two"}, at(0))
    nominations.on_pod_deleted("w1", "w", at(50))
    assert nominations.on_pod_arrived(arrived, target, at(seconds)) == ""
    assert nominations.pods_expected_on("two") == ("w2",) and not nominations.pods_expected_on("one")


# --- when the workflow is signaled ---


@pytest.mark.parametrize(
    ("limits", "change", "signals"),
    [
        ({"cpu": "16"}, claim("new", phase="Launched"), 2),
        ({"cpu": "16"}, claim("new", deleting=True), 2),
        ({"cpu": "16"}, None, 2),
        ({"cpu": "16"}, claim("new", annotations={"a": "b"}), 1),
        ({}, claim("new", phase="Launched"), 1),
    ],
    ids=["launched", "deleting", "removed", "changed", "no limits"],
)
def test_pending_pods_are_signaled_again_when_a_launch_releases_limits(
    harness: CacheHarness, limits: dict[str, str], change: builders.Json | None, signals: int
) -> None:
    """Until its launch, a NodeClaim counts as the largest of its types."""
    notified: list[ObservedDemand] = []
    trigger = ProvisioningTrigger(harness.cache, Nominations(), not_ready_tracker(harness), None, notified.append)
    harness.apply_objects("nodepools", builders.pool(limits=limits))
    harness.apply_objects("nodeclaims", claim("new"))
    harness.apply_objects("pods", pod("p"))
    trigger.update(harness.cache.drain_changes(), at(0), known=True)
    if change is None:
        harness.delete_objects("nodeclaims", claim("new"))
    else:
        harness.apply_objects("nodeclaims", change)
    trigger.update(harness.cache.drain_changes(), at(2), known=True)
    assert len(notified) == signals


def test_pending_pods_are_signaled_at_an_interval_while_offerings_change(harness: CacheHarness) -> None:
    """The first change is signaled at once. A changed NodeOverlay or price each second causes no plan each second."""
    notified: list[ObservedDemand] = []
    trigger = ProvisioningTrigger(harness.cache, Nominations(), not_ready_tracker(harness), None, notified.append)
    harness.apply_objects("pods", pod("p"))
    trigger.update(harness.cache.drain_changes(), at(0), known=True)
    signaled_at = list[int]()
    for second in range(1, 25):
        trigger.expect_offerings(at(second))
        trigger.expect_offerings(at(second + 100))
        trigger.expect_offerings(None)
        before = len(notified)
        trigger.update(harness.cache.drain_changes(), at(second), known=True)
        signaled_at += [second] * (len(notified) - before)
    assert signaled_at == [1, 11, 21] and min(trigger.wake_times) == at(31)


def facts(*uids: str) -> list[PodFact]:
    return [pod_fact(pod(uid)) for uid in uids]


def test_new_pods_are_signaled_at_once_and_then_at_an_interval() -> None:
    batcher = Batcher()
    first = batcher.decide_signal(facts("a"), at(0))
    assert first is not None and (first.pods, first.newest_pod_at) == (1, at(0))
    assert batcher.decide_signal(facts("a", "b"), at(0.1)) is None and batcher.next_attempt_at == at(0.4)
    second = batcher.decide_signal(facts("a", "b", "c"), at(0.4))
    assert second is not None and (second.pods, second.newest_pod_at) == (3, at(0.4))


def test_unchanged_pods_are_signaled_with_growing_intervals() -> None:
    batcher, notified_ticks = Batcher(), []
    for tick in range(0, 400):
        if batcher.decide_signal(facts("a"), at(tick)):
            notified_ticks.append(tick)
    assert notified_ticks[:5] == [0, 10, 30, 70, 130]


def test_repeated_signal_does_not_reopen_the_batch_window() -> None:
    batcher = Batcher()
    batcher.decide_signal(facts("a"), at(0))
    renewed = batcher.decide_signal(facts("a"), at(10))
    assert renewed is not None and renewed.newest_pod_at == at(0)


def test_pod_with_an_expired_nomination_counts_as_new() -> None:
    batcher = Batcher()
    batcher.decide_signal(facts("a", "b"), at(0))
    assert batcher.decide_signal(facts("b"), at(1)) is None
    back = batcher.decide_signal(facts("a", "b"), at(2))
    assert back is not None and back.newest_pod_at == at(2)


def test_displaced_pod_is_signaled_at_once_and_keeps_its_first_time() -> None:
    batcher = Batcher()
    batcher.decide_signal(facts("a", "b"), at(0))
    assert batcher.decide_signal([], at(1), {"uid-a", "uid-b"}) is None
    back = batcher.decide_signal(facts("a", "c"), at(1.1), {"uid-b"})
    assert back is not None and back.at_once and (back.pods, back.newest_pod_at) == (2, at(1.1))
    renewed = batcher.decide_signal(facts("a", "b"), at(1.2))
    assert renewed is not None and renewed.at_once and renewed.newest_pod_at == at(0)
    assert batcher.decide_signal(facts("a", "b"), at(1.3)) is None


def test_repeatedly_displaced_pod_is_signaled_with_growing_intervals() -> None:
    """Otherwise a plan for an unobtainable offering would create and delete NodeClaims twice a second."""
    batcher, notified_ticks, tick = Batcher(), [], 0.0
    while tick < 200:
        if batcher.decide_signal(facts("a"), at(tick)):
            notified_ticks.append(round(tick))
            batcher.decide_signal([], at(tick + 0.2), {"uid-a"})
        tick += 0.5
    assert notified_ticks[:4] == [0, 0, 1, 2] or notified_ticks[:4] == [0, 1, 1, 2]
    pauses = [after - before for before, after in pairwise(notified_ticks[3:])]
    assert [round(pause, -1) for pause in pauses[:3]] == [10, 20, 40] and max(pauses) <= 61


def test_delayed_pod_does_not_delay_others() -> None:
    batcher = Batcher()
    for tick in range(5):
        batcher.decide_signal(facts("a"), at(tick))
        batcher.decide_signal([], at(tick + 0.5), {"uid-a"})
    assert batcher.decide_signal(facts("a"), at(5)) is None and batcher.next_attempt_at is not None
    other = batcher.decide_signal(facts("a", "b"), at(6))
    assert other is not None and other.pods == 1


def test_delayed_pod_is_signaled_in_time_although_others_wait() -> None:
    """Others that stay pending are signaled less and less often."""
    batcher, signaled_at = Batcher(), at(4)
    for tick in range(5):
        batcher.decide_signal(facts("a", "b"), at(tick))
        batcher.decide_signal(facts("b"), at(tick + 0.5), {"uid-a"})
    assert batcher.decide_signal(facts("a", "b"), at(5)) is None
    for _ in range(10):
        assert batcher.next_attempt_at is not None
        signaled_at = batcher.next_attempt_at
        demand = batcher.decide_signal(facts("a", "b"), signaled_at)
        if demand and demand.pods == 2:
            break
    assert signaled_at == at(25), "twenty seconds after it lost its nomination again"


def test_no_signal_and_no_attempt_without_demand() -> None:
    batcher = Batcher()
    assert batcher.decide_signal([], at(0)) is None and batcher.next_attempt_at is None
    batcher.decide_signal(facts("a"), at(1))
    assert batcher.decide_signal([], at(2)) is None and batcher.next_attempt_at is None
    assert batcher.decide_signal(facts("a"), at(2) + timedelta(seconds=1)) is not None


def test_next_expiry_is_that_of_the_earliest_nomination(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("p"), pod("q"), pod("r"))
    nominations = Nominations()
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), at(0)).next_expiry is None
    nominations.nominate({"uid-p": "launching"}, at(0))
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), at(0)).next_expiry is None
    nominations.nominate({"uid-q": "up"}, at(3))
    nominations.nominate({"uid-r": "up"}, at(5))
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), at(6)).next_expiry == at(23)
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), at(23)).next_expiry == at(25)


def test_node_is_checked_once_for_all_nominations_of_a_plan(
    harness: CacheHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, original = list[datetime](), NotReadyTracker.pod_expected_until

    def check(
        self: NotReadyTracker, claim: NodeClaimFact, nominations: Nominations, nomination: Nomination, now: datetime
    ) -> datetime:
        checked.append(nomination.at)
        return original(self, claim, nominations, nomination, now)

    monkeypatch.setattr(NotReadyTracker, "pod_expected_until", check)
    harness.apply_objects("pods", *(pod(f"p{number}") for number in range(6)))
    nominations = Nominations()
    nominations.nominate({f"uid-p{number}": "up" for number in range(4)}, at(0))
    nominations.nominate({"uid-p4": "up", "uid-p5": "up"}, at(15))
    assert pending_names(harness, nominations, 22) == ["p0", "p1", "p2", "p3"]
    assert checked == [at(0), at(15)]
