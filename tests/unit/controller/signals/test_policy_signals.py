"""Signals that depend on LifecyclePolicies: rules, startup durations, and headroom of NodePools."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tenure.controller.signals import notifier
from tenure.kube.client.list_watch import Delta
from tenure.model.observations import ObservedNodePool
from tests.support.controller.builders import (
    at,
    claim,
    node,
    pool,
)
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, CLAIM, NotifierHarness
from tests.unit.controller.test_lifecycle_policies import policy
from workflows.search_attributes import DEADLINE


def test_rules_are_signaled_only_to_nodeclaims_of_their_nodepool(harness: NotifierHarness) -> None:
    policies = harness.policies
    harness.add_running_node()
    harness.apply_objects("nodepools", pool("gpu"))
    harness.apply_objects("nodeclaims", claim("g1", pool="gpu"))
    policies.update(harness.cache._changes)
    harness.notify(1)
    signal_count = len(harness.signal_queue.signals)
    policies.on_deltas([Delta(policy("p", nodePoolSelector={"names": ["general"]}, drain={"deadline": "2h"}))])
    policies.update(harness.cache._changes)
    harness.notify(2)
    assert [one.workflow_id for one in harness.signal_queue.signals[signal_count:]] == [CLAIM]
    rules = harness.last_observed().rules
    assert rules is not None and rules.drain is not None and rules.drain.deadline == "2h"
    harness.notify(3)
    assert len(harness.signal_queue.signals) == signal_count + 1


def test_usage_is_signaled_at_once_to_nodepools_with_rollout_rules(
    harness: NotifierHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "USAGE_SIGNAL_INTERVAL_PER_NODECLAIM", timedelta(hours=1))
    harness.policies.on_deltas([Delta(policy("p", rollout={"waves": [{"nodes": "1"}, {}]}))])
    harness.policies.update(harness.cache._changes)
    for seconds in (0, 2):
        harness.apply_objects("nodeclaims", claim(f"c{seconds}", phase="Launched"))
        harness.notify(seconds)
    first, second = harness.signal_queue.arguments_to("prod/nodepool/general")
    assert first.rollout == second.rollout is not None and first.usage != second.usage


def test_unreadable_interruption_rules_are_signaled_to_nodeclaims(harness: NotifierHarness) -> None:
    policies = harness.policies
    harness.add_running_node()
    policies.on_deltas([Delta(policy("p", interruption={"scheduledChange": {"lead": "soon"}}))])
    policies.update(harness.cache._changes)
    harness.notify(1)
    assert "spec.interruption.scheduledChange.lead" in harness.last_observed().events_unread


def test_policy_of_hooks_is_signaled_to_nodeclaims(harness: NotifierHarness) -> None:
    policies = harness.policies
    harness.add_running_node()
    hook = {"name": "warn", "http": {"url": "https://hooks.example.com"}}
    for name, timeout in (("below", "1m"), ("all", "1m")):
        policies.on_deltas([Delta(policy(name, hooks={"afterDrain": [hook | {"timeout": timeout}]}))])
        policies.update(harness.cache._changes)
    harness.notify(1)
    assert harness.last_observed().hook_policies == {"afterDrain": "all"}
    policies.on_deltas([Delta(policy("all"), is_deleted=True)])
    policies.update(harness.cache._changes)
    harness.notify(2)
    assert harness.last_observed().hook_policies == {"afterDrain": "below"}


def test_nodeclaims_are_signaled_after_policies_are_synced(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1, replace(ALL_SYNCED, policies=False))
    assert harness.signal_queue.arguments_to(CLAIM) == []
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1


def test_changed_startup_expectations_alone_cause_no_signal(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    signal_count, observers = len(harness.signal_queue.signals), harness.notifier._observers
    assert observers is not None
    for number in range(5):
        others = claim(f"o{number}", phase="Initialized", pool="other")
        harness.apply_objects("nodeclaims", others)
    changes = harness.cache.drain_changes()
    observers.update(changes, known=True, counted=True)
    harness.cache.requeue_nodeclaim("c1")
    harness.notify(1)
    assert [one for one in harness.signal_queue.signals[signal_count:] if one.workflow_id == CLAIM] == []


def test_workflow_starts_with_expected_durations_and_launch_deadline(harness: NotifierHarness) -> None:
    policies = harness.policies
    policies.on_deltas([Delta(policy("p", launch={"deadline": "4m"}))])
    harness.apply_objects("nodeclaims", claim("c1"))
    policies.update(harness.cache._changes)
    harness.notify()
    start = next(one.start for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert start is not None and start.attributes is not None
    expected = harness.last_observed().expected
    assert expected is not None and expected.default.initialization == timedelta(minutes=3)
    assert start.attributes.get(DEADLINE) == at(-100) + timedelta(minutes=4)


def test_nodepool_is_signaled_for_more_headroom_but_not_for_less(harness: NotifierHarness) -> None:
    harness.add_running_node()

    def observed_at(seconds: float) -> list[ObservedNodePool]:
        observers, changes = harness.notifier._observers, harness.cache.drain_changes()
        assert observers is not None
        observers.update(changes, known=True, counted=True)
        harness.notifier.notify(changes, ALL_SYNCED, at(seconds))
        return harness.signal_queue.arguments_to("prod/nodepool/general")

    assert [one.freed for one in observed_at(0)] == [0]
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    assert len(observed_at(5)) == 1
    harness.apply_objects("nodes", node("n1", of="c1"))
    first, second = observed_at(10)
    assert second.freed > 0 and second.is_headroom_only(first)
