"""Signals about empty nodes: their start time, early evictions, NotReady nodes, and a failover of the watch."""

from dataclasses import replace

import pytest

from tenure.controller.cache.availability import early_eviction_holds
from tests.support.controller.builders import (
    NOW,
    at,
    claim,
    node,
    pod,
    stamp,
)
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, CLAIM, NotifierHarness


def test_emptied_node_is_signaled_with_its_empty_since(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(1)
    assert not harness.last_observed().empty and harness.last_observed().consolidation == "WhenEmpty/30s"
    harness.now = at(5)
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(5.1)
    assert harness.last_observed().empty_since == at(5)


def test_node_after_early_eviction_is_not_signaled_as_empty(harness: NotifierHarness) -> None:
    """Its workflow receives the interruption instead. If AWS does not interrupt the node, it is signaled as empty."""
    harness.add_running_node()
    harness.apply_objects("pods", pod("p1", on="n1"))
    harness.notify()
    signal_count = len(harness.signal_queue.arguments_to(CLAIM))
    harness.cache.set_early_evicted("c1", early_evicted=True)
    harness.delete_objects("pods", pod("p1", on="n1"))
    harness.notify(5)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == signal_count
    harness.cache.set_early_evicted("c1", early_evicted=False)
    harness.notify(300)
    assert harness.last_observed().empty


@pytest.mark.parametrize(
    ("evicted_at", "tainted", "until"),
    [
        (stamp(-60), True, 240),
        (stamp(-60), False, 0),
        (stamp(-300), True, 0),
        (stamp(3600), True, 0),
        ("lately", True, 0),
        ("2026-03-01T12:00:00", True, 0),
        ("", True, 0),
    ],
)
def test_node_early_evicted_by_an_earlier_worker_is_not_empty_during_the_window(
    harness: NotifierHarness, evicted_at: str, tainted: bool, until: float
) -> None:
    """SQS delivers its message again. Without the disrupted taint, the annotation alone does not count."""
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}] if tainted else []
    annotations = {"tenure.sh/early-evicted-at": evicted_at} if evicted_at else {}
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1", taints=taints, annotations=annotations))
    harness.notify()
    assert harness.last_observed().empty == (not until)
    assert [(one.scope, one.name, one.until) for one in early_eviction_holds(harness.cache, harness.now)] == (
        [("node", "c1", at(until))] if until else []
    )
    if until:
        assert harness.notifier.next_due_at() == at(until)
    harness.notify(until)
    assert harness.last_observed().empty and not early_eviction_holds(harness.cache, harness.now)


def test_notready_node_within_its_grace_period_is_not_empty(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    harness.notify(100)
    observed = harness.last_observed()
    assert (
        not observed.empty
        and not observed.node_ready
        and (observed.not_ready_since, observed.not_ready_reason) == (at(-40), "NotReady")
    )
    assert harness.notifier.next_due_at() == at(260)
    harness.notify(260)
    assert harness.last_observed().empty_since == at(110)


@pytest.mark.parametrize("planned", [10, 30])
def test_empty_node_is_held_during_the_warm_up(harness: NotifierHarness, planned: float) -> None:
    """Pods that a new host has not planned yet may need the node, although it may be empty since long."""
    harness.add_running_node()
    harness.notify(1, replace(ALL_SYNCED, warm_up_until=at(30)))
    first = harness.last_observed()
    assert not harness.signal_queue.signals[-1].low_priority
    assert first.empty and first.empty_since_unseen and first.hold_until == at(30)
    assert harness.notifier.next_due_at() == at(30)
    harness.notify(planned)
    assert harness.last_observed() == first.model_copy(
        update={"hold_until": None, "number": harness.last_observed().number}
    )


def test_missing_workflow_of_an_empty_node_is_started_during_the_warm_up(harness: NotifierHarness) -> None:
    harness.add_running_node()
    warming_up = replace(ALL_SYNCED, warm_up_until=at(30))
    harness.notifier.restart_workflow(harness.cache.nodeclaims["c1"], warming_up, at(1))
    assert harness.last_observed().hold_until == at(30)


def test_occupied_node_is_signaled_during_the_warm_up(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(1, replace(ALL_SYNCED, warm_up_until=at(30)))
    assert not harness.last_observed().empty


def test_routine_observations_of_a_new_host_have_low_priority(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1)
    harness.apply_objects("nodes", node("n1", of="c1", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    harness.notify(2)
    assert [one.low_priority for one in harness.signal_queue.signals if one.workflow_id == CLAIM] == [True, False]


def test_empty_since_is_marked_as_unseen_if_the_node_was_empty_at_start(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    assert harness.last_observed().empty_since == NOW and harness.last_observed().empty_since_unseen
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1, "the assumed time is not signaled as observed"
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(3)
    harness.now = at(5)
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(5.1)
    assert harness.last_observed().empty_since == at(5) and not harness.last_observed().empty_since_unseen
