"""Interrupted capacity: offerings become unavailable once per burst, and pods are pending once AWS announces it."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.nominations import Nominations
from tenure.controller.interruption.notifier import BURST_SIZE, INTERRUPTION_WINDOW, RENOTIFY_AFTER, InterruptedCapacity
from tenure.controller.signals.pending_pods import ProvisioningTrigger, classify_pods
from tenure.model.facts import NodeClaimFact
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.observations import ObservedDemand, ObservedUnavailableOfferings
from tenure.model.workflow_states import BatchWindow
from tests.support.controller.builders import CacheHarness, at, claim, node, not_ready_tracker, pod


def labels(zone: str = "us-west-2a", kind: str = "spot", **more: str) -> dict[str, str]:
    return {
        "karpenter.sh/nodepool": "general",
        "node.kubernetes.io/instance-type": "m6i.large",
        "topology.kubernetes.io/zone": zone,
        "karpenter.sh/capacity-type": kind,
        **more,
    }


class InterruptedCapacityHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.rules: LifecycleRules | None = None
        self.notified: list[ObservedUnavailableOfferings] = []
        self.interrupted_capacity = InterruptedCapacity(
            self.cache, lambda pool: self.rules, self.notified.append, lambda: self.now
        )

    def add_nodes(self, *names: str, **of: Any) -> None:
        """Add initialized nodes with one pod each."""
        for name in names:
            self.apply_objects("nodeclaims", claim(name, phase="Initialized", labels=labels(**of)))
            self.apply_objects("nodes", node(f"n-{name}", of=name))
            self.apply_objects("pods", pod(f"p-{name}", on=f"n-{name}"))
        self.cache.drain_planner_changes()
        self.cache.drain_changes()

    def interrupt(self, name: str, kind: str = "spotInterruption", seconds: float = 0, **more: Any) -> None:
        message = InterruptionMessage.model_validate({"kind": kind, "id": "terminate", "at": at(seconds), **more})
        self.interrupted_capacity.observe(self.cache.nodeclaims[name], [message])

    def early_evicted_pods(self, name: str, kind: str = "spotInterruption", **more: Any) -> list[str] | None:
        """The pods to evict before a decision of the node's workflow, or None if the workflow decides."""
        message = InterruptionMessage.model_validate({"kind": kind, "id": "terminate", "at": at(0), **more})
        found = self.interrupted_capacity.start_early_eviction(self.cache.nodeclaims[name], [message])
        return None if found is None else sorted(pod.name for pod in found.pods)

    def advance_to(self, seconds: float) -> None:
        self.now = at(seconds)
        self.interrupted_capacity.expire(self.now)

    def pending_pods(self) -> list[str]:
        return sorted(
            one.name for one in classify_pods(self.cache, Nominations(), not_ready_tracker(self), self.now).pending
        )

    def terminating_nodeclaims(self) -> list[str]:
        """NodeClaims that the planner receives as deleting."""
        return [one.key for one in self.cache.drain_planner_changes() if one.kind == "claim" and one.fact.deleting]  # type: ignore[union-attr]


@pytest.fixture
def harness() -> InterruptedCapacityHarness:
    return InterruptedCapacityHarness()


def test_burst_makes_each_offering_unavailable_once(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes(*(f"a{number}" for number in range(50)))
    harness.add_nodes(*(f"b{number}" for number in range(50)), zone="us-west-2b")
    for number in range(50):
        harness.interrupt(f"a{number}", seconds=number / 10)
        harness.interrupt(f"b{number}", seconds=number / 10)
    assert [one.burst_ends_at for one in harness.notified] == [None, None, at(0) + INTERRUPTION_WINDOW]
    found = harness.notified[-1].unavailable
    assert {(one.instance_type, one.zone, one.capacity_type) for one in found} == {
        ("m6i.large", "us-west-2a", "spot"),
        ("m6i.large", "us-west-2b", "spot"),
    }
    assert {one.until for one in found} == {at(0) + UNAVAILABLE_FOR}
    assert list(harness.interrupted_capacity.unavailable_offerings(at(0))) == list(found)


def test_continuing_burst_extends_unavailability(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a", "b")
    harness.interrupt("a")
    harness.now = at(RENOTIFY_AFTER.total_seconds())
    harness.interrupt("b", seconds=RENOTIFY_AFTER.total_seconds())
    assert [one.until for one in harness.notified[-1].unavailable] == [at(30) + UNAVAILABLE_FOR]


def test_unavailability_expires(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a")
    assert not harness.interrupted_capacity.unavailable_offerings(at(0) + UNAVAILABLE_FOR)


def test_late_message_shortens_unavailability(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a", "b")
    harness.now = at(120)
    harness.interrupt("a", seconds=0)
    assert [one.until for one in harness.notified[-1].unavailable] == [at(180)]
    harness.now = at(1000)
    harness.interrupt("b", seconds=0)
    assert len(harness.notified) == 1 and harness.cache.interrupted == {"a"}


@pytest.mark.parametrize(
    ("kind", "capacity", "reservation", "is_unavailable"),
    [
        ("spotInterruption", "spot", "", True),
        ("spotInterruption", "on-demand", "", False),
        ("capacityReservationInterruption", "reserved", "cr-1", True),
        ("rebalanceRecommendation", "spot", "", False),
        ("scheduledChange", "spot", "", False),
        ("instanceTerminating", "spot", "", False),
        ("instanceStatus", "spot", "", False),
    ],
)
def test_only_reclaimed_capacity_becomes_unavailable(
    harness: InterruptedCapacityHarness, kind: str, capacity: str, reservation: str, is_unavailable: bool
) -> None:
    reserved = {"karpenter.k8s.aws/capacity-reservation-id": reservation} if reservation else {}
    harness.add_nodes("a", kind=capacity, **reserved)
    harness.interrupt("a", kind)
    assert [one.reservation_id for notification in harness.notified for one in notification.unavailable] == [
        reservation
    ] * is_unavailable


def test_pods_of_interrupted_nodes_are_pending_before_deletion(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a", "b", "c")
    assert harness.pending_pods() == []
    harness.interrupt("a")
    harness.interrupt("b")
    assert harness.pending_pods() == ["p-a", "p-b"] and harness.cache.drain_changes().pods
    assert harness.terminating_nodeclaims() == ["a", "b"]
    assert not harness.cache.nodeclaims["a"].deleting, (
        "its workflow is told of a deletion only after the API server reports it"
    )


def test_burst_within_seconds_is_one_batch(harness: InterruptedCapacityHarness) -> None:
    names = [f"c{number:03}" for number in range(300)]
    harness.add_nodes(*names)
    notified: list[ObservedDemand] = []
    provisioning_trigger = ProvisioningTrigger(
        harness.cache, Nominations(), not_ready_tracker(harness), None, notified.append
    )
    for step in range(30):
        harness.now = at(step / 10)
        for name in names[10 * step : 10 * step + 10]:
            harness.interrupt(name, seconds=step / 10)
        provisioning_trigger.update(harness.cache.drain_changes(), harness.now, known=True)
    harness.now = at(3.4)
    provisioning_trigger.update(harness.cache.drain_changes(), harness.now, known=True)
    assert notified[-1].pods == 300 and len(notified) < 10
    assert all(later.newest_pod_at - one.newest_pod_at < BatchWindow().idle for one, later in pairwise(notified)), (
        "the batch window stays open"
    )
    assert not any(one.at_once for one in notified)


def test_successors_of_evicted_pods_do_not_keep_the_batch_open(harness: InterruptedCapacityHarness) -> None:
    """Otherwise no node would launch until the last node of a burst is tainted."""
    harness.add_nodes("a", "b", "c")
    notified: list[ObservedDemand] = []
    provisioning_trigger = ProvisioningTrigger(
        harness.cache, Nominations(), not_ready_tracker(harness), None, notified.append
    )
    for name in ("a", "b", "c"):
        harness.interrupt(name)
    provisioning_trigger.update(harness.cache.drain_changes(), harness.now, known=True)
    for step, name in enumerate(("a", "b"), start=1):
        harness.now = at(step)
        harness.delete_objects("pods", pod(f"p-{name}", on=f"n-{name}"))
        harness.apply_objects("pods", pod(f"new-{name}"))
        provisioning_trigger.update(harness.cache.drain_changes(), harness.now, known=True)
    assert [(one.pods, one.newest_pod_at) for one in notified] == [(3, at(0))] * 3


def test_update_of_an_interrupted_nodeclaim_keeps_the_interruption(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a")
    harness.cache.drain_planner_changes()
    harness.apply_objects("nodeclaims", claim("a", phase="Initialized", labels=labels(), annotations={"other": "news"}))
    assert harness.terminating_nodeclaims() == ["a"]
    (fact,) = (one.fact for one in harness.cache.snapshot_changes() if one.kind == "claim")
    assert isinstance(fact, NodeClaimFact) and fact.deleting and fact.instance_terminating


def test_nomination_to_an_interrupted_node_does_not_count(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.apply_objects("pods", pod("new"))
    nominations = Nominations()
    nominations.nominate({"uid-new": "a"}, harness.now)
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), harness.now).nominated == {"uid-new"}
    harness.interrupt("a")
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness), harness.now).nominated == set()


def test_policy_ignore_keeps_nodes_but_offering_is_unavailable(harness: InterruptedCapacityHarness) -> None:
    harness.rules = LifecycleRules.model_validate({"interruption": {"spotInterruption": {"action": "ignore"}}})
    harness.add_nodes("a")
    harness.interrupt("a")
    assert harness.pending_pods() == [] and len(harness.notified) == 1


def test_pods_are_not_pending_after_the_interruption_window(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a")
    assert harness.interrupted_capacity.next_expiry == at(0) + INTERRUPTION_WINDOW
    harness.advance_to(INTERRUPTION_WINDOW.total_seconds() - 1)
    assert harness.pending_pods() == ["p-a"]
    harness.cache.drain_planner_changes()
    harness.advance_to(INTERRUPTION_WINDOW.total_seconds())
    assert (
        harness.pending_pods() == []
        and harness.terminating_nodeclaims() == []
        and harness.interrupted_capacity.next_expiry is None
    )
    harness.interrupt("a")
    assert harness.pending_pods() == [], "a repeated message has no effect"


def test_deleted_nodeclaim_is_forgotten(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a")
    harness.delete_objects("nodeclaims", claim("a"))
    harness.advance_to(1)
    assert harness.interrupted_capacity.next_expiry is None and not harness.cache.interrupted


def test_burst_counts_recent_interruptions_including_deleted_nodes(harness: InterruptedCapacityHarness) -> None:
    early, late = [f"a{number}" for number in range(BURST_SIZE - 2)], ["b", "c"]
    harness.add_nodes(*early, *late)
    for name in early:
        harness.interrupt(name)
        harness.delete_objects("nodeclaims", claim(name))
    harness.advance_to(60)
    harness.interrupt("b", seconds=60)
    harness.interrupt("b", seconds=61)
    assert harness.interrupted_capacity.burst.ends_at(harness.now) is None
    harness.apply_objects("nodeclaims", claim("c", phase="Initialized", labels=labels(), deleting=True))
    harness.interrupt("c", seconds=60)
    ends = [harness.interrupted_capacity.burst.ends_at(one) for one in (harness.now, at(0) + INTERRUPTION_WINDOW)]
    assert ends == [at(0) + INTERRUPTION_WINDOW, None]


def test_early_evictions_count_for_a_burst(harness: InterruptedCapacityHarness) -> None:
    names = [f"a{number}" for number in range(BURST_SIZE)]
    harness.add_nodes(*names)
    for name in names:
        assert harness.early_evicted_pods(name) == [f"p-{name}"]
    assert harness.interrupted_capacity.burst.ends_at(harness.now) == at(0) + INTERRUPTION_WINDOW


def test_policy_ignore_causes_no_burst(harness: InterruptedCapacityHarness) -> None:
    harness.rules = LifecycleRules.model_validate({"interruption": {"spotInterruption": {"action": "ignore"}}})
    names = [f"a{number}" for number in range(BURST_SIZE)]
    harness.add_nodes(*names)
    for name in names:
        harness.interrupt(name)
    assert harness.interrupted_capacity.burst.ends_at(harness.now) is None


def test_continuing_burst_is_signaled_again(harness: InterruptedCapacityHarness) -> None:
    names = [f"a{number}" for number in range(2 * BURST_SIZE)]
    harness.add_nodes(*names)
    for number, name in enumerate(names):
        harness.now = at(10 * number)
        harness.interrupt(name, seconds=10 * number)
    burst_ends = [one.burst_ends_at for one in harness.notified if one.burst_ends_at]
    assert (
        burst_ends[0] == at(0) + INTERRUPTION_WINDOW
        and burst_ends[-1] >= at(100) + INTERRUPTION_WINDOW - RENOTIFY_AFTER
    )
    assert all(later - before >= RENOTIFY_AFTER for before, later in pairwise(dict.fromkeys(burst_ends)))


def test_withdrawn_interruption_has_no_effect(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a", status="withdrawn")
    harness.interrupt("a", status="over")
    assert harness.pending_pods() == [] and not harness.notified


def test_message_from_the_future_does_not_extend_unavailability(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    harness.interrupt("a", seconds=90)
    assert [one.until for one in harness.notified[-1].unavailable] == [harness.now + timedelta(minutes=3)]


CALL = [{"name": "deregister", "http": {"url": "http://a.b"}}]


@pytest.mark.parametrize(
    ("kind", "rules", "expected"),
    [
        ("spotInterruption", None, ["p-a"]),
        ("capacityReservationInterruption", None, ["p-a"]),
        ("spotInterruption", {"interruption": {"spotInterruption": {"doNotDisrupt": "override"}}}, ["p-a"]),
        ("rebalanceRecommendation", None, None),
        ("rebalanceRecommendation", {"interruption": {"rebalanceRecommendation": {"action": "drain"}}}, None),
        ("scheduledChange", None, None),
        ("instanceStatus", None, None),
        ("spotInterruption", {"interruption": {"spotInterruption": {"action": "ignore"}}}, None),
        ("spotInterruption", {"interruption": {"spotInterruption": {"action": "terminate"}}}, None),
        ("spotInterruption", {"drain": {"surgeSingleReplicas": True}}, None),
        ("spotInterruption", {"hooks": {"beforeDrain": CALL}}, None),
        (
            "spotInterruption",
            {"hooks": {"afterDrain": CALL}},
            ["p-a"],
        ),
    ],
)
def test_early_eviction_by_event_kind_and_rules(
    harness: InterruptedCapacityHarness, kind: str, rules: dict[str, Any] | None, expected: list[str] | None
) -> None:
    harness.rules = LifecycleRules.model_validate(rules) if rules else None
    harness.add_nodes("a")
    assert harness.early_evicted_pods("a", kind) == expected


def test_early_eviction_starts_with_the_first_drain_group(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a")
    more: dict[str, dict[str, Any]] = {
        "daemon": {"owner": "DaemonSet"},
        "critical": {"priorityClassName": "system-node-critical"},
        "kept": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
        "ended": {"phase": "Succeeded"},
        "leaving": {"metadata": {"deletionTimestamp": at(0).isoformat()}},
        "static": {"owner": "Node"},
        "second": {},
    }
    for name, fields in more.items():
        harness.apply_objects("pods", pod(name, on="n-a", **fields))
    assert harness.early_evicted_pods("a") == ["p-a", "second"]
    for name in ("p-a", "second", "kept", "leaving"):
        harness.delete_objects("pods", pod(name, on="n-a"))
    assert harness.early_evicted_pods("a") == ["daemon"]
    harness.delete_objects("pods", pod("daemon", on="n-a"))
    assert harness.early_evicted_pods("a") == ["critical"]


def test_no_early_eviction_of_deleting_starting_or_expired_nodes(harness: InterruptedCapacityHarness) -> None:
    harness.add_nodes("a", "b", "c")
    harness.apply_objects("nodeclaims", claim("a", phase="Initialized", labels=labels(), deleting=True))
    harness.apply_objects("nodeclaims", claim("b", phase="Registered", labels=labels()))
    harness.delete_objects("nodes", node("n-c", of="c"))
    assert [harness.early_evicted_pods(name) for name in "abc"] == [None, None, None]
    harness.add_nodes("d")
    assert harness.early_evicted_pods("d", status="withdrawn") is None
    harness.advance_to(INTERRUPTION_WINDOW.total_seconds())
    assert harness.early_evicted_pods("d") is None


def test_early_evicted_node_is_recorded_until_the_window_ends(harness: InterruptedCapacityHarness) -> None:
    """Otherwise its workflow would see an empty node and request a permit."""
    harness.add_nodes("a")
    assert harness.early_evicted_pods("a") == ["p-a"] and len(harness.notified) == 1, (
        "its offering is unavailable from now on"
    )
    assert (
        harness.cache.early_evicted == {"a"} and harness.interrupted_capacity.next_expiry == at(0) + INTERRUPTION_WINDOW
    )
    harness.cache.drain_changes()
    harness.advance_to(INTERRUPTION_WINDOW.total_seconds())
    assert not harness.cache.early_evicted and harness.cache.drain_changes().nodeclaims == {"a"}
    harness.add_nodes("b")
    harness.now = at(0)
    assert harness.early_evicted_pods("b") == ["p-b"]
    harness.delete_objects("nodeclaims", claim("b"))
    assert not harness.cache.early_evicted
