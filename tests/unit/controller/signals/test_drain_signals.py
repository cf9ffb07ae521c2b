"""Signals about a blocked drain: each relevant change once, and few of a drain whose budgets flap."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.controller.signals.drain_changes import DrainChanges
from tests.support.controller.builders import CacheHarness, at, claim, node, pod
from tests.support.kube.builders import persistent_volume_json, volume_attachment_json
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, CLAIM, NotifierHarness, build_notifier

Json = dict[str, Any]
DAY = 86_400
EBS = "ebs.csi.aws.com"
ACTIONS_PER_SIGNAL = 3
"""The signal, the activity, and the timer of the next pass."""


def draining_claim(message: str = "default/web: a budget", **more: Any) -> Json:
    raw = claim("c1", phase="Initialized", deleting=True, **more)
    raw["status"]["conditions"].append({"type": "Drained", "status": "Unknown", "reason": "Draining"})
    raw["status"]["conditions"][-1]["message"] = message
    return raw


def budget(allowed: int = 0, healthy: int = 1, namespace: str = "default") -> Json:
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "expectedPods": 2, "desiredHealthy": 1}
    metadata = {"name": "web", "namespace": namespace, "uid": "uid-web"}
    return {"metadata": metadata, "spec": {"selector": {}, "minAvailable": 1}, "status": status}


@pytest.fixture
def harness() -> NotifierHarness:
    """A notifier that has signaled the blocked drain of a node with two pods."""
    harness = build_notifier()
    harness.apply_objects("nodes", node("n1", of="c1"))
    harness.apply_objects("pods", pod("web", on="n1"), pod("db", on="n1"))
    harness.apply_objects("poddisruptionbudgets", budget())
    harness.apply_objects("nodeclaims", draining_claim())
    harness.notify()
    return harness


def signal_count(harness: NotifierHarness) -> int:
    return len(harness.signal_queue.arguments_to(CLAIM))


RELEVANT: dict[str, Callable[[NotifierHarness], None]] = {
    "allowed disruptions": lambda harness: harness.apply_objects("poddisruptionbudgets", budget(allowed=1)),
    "healthy pods": lambda harness: harness.apply_objects("poddisruptionbudgets", budget(healthy=2)),
    "deleted budget": lambda harness: harness.delete_objects("poddisruptionbudgets", budget()),
    "annotated pod": lambda harness: harness.apply_objects(
        "pods", pod("web", on="n1", metadata={"annotations": {DO_NOT_DISRUPT: "true"}})
    ),
    "terminating pod": lambda harness: harness.apply_objects(
        "pods", pod("web", on="n1", metadata={"deletionTimestamp": "2026-01-01T12:01:00Z"})
    ),
    "deleted pod": lambda harness: harness.delete_objects("pods", pod("web", on="n1")),
    "attached volume": lambda harness: harness.apply_objects(
        "volumeattachments", volume_attachment_json("data", "n1", driver=EBS)
    ),
    "NotReady node": lambda harness: harness.apply_objects("nodes", node("n1", of="c1", ready=False)),
    "earlier deadline": lambda harness: harness.apply_objects(
        "nodeclaims", draining_claim(annotations={NODECLAIM_TERMINATION_TIMESTAMP: "2026-01-01T13:00:00Z"})
    ),
}


@pytest.mark.parametrize("change", RELEVANT.values(), ids=RELEVANT)
def test_change_of_a_blocked_drain_is_signaled(
    harness: NotifierHarness, change: Callable[[NotifierHarness], None]
) -> None:
    before = harness.last_observed()
    change(harness)
    harness.notify(2)
    assert harness.last_observed().drain not in ("", before.drain)


VOLUME = persistent_volume_json("data", driver=EBS)


@pytest.mark.parametrize(
    "change",
    [
        lambda harness: harness.apply_objects("persistentvolumes", {**VOLUME, "status": {"phase": "Released"}}),
        lambda harness: harness.delete_objects("persistentvolumes", VOLUME),
    ],
    ids=["released", "deleted"],
)
def test_volume_that_is_no_longer_awaited_is_signaled(
    harness: NotifierHarness, change: Callable[[NotifierHarness], None]
) -> None:
    harness.apply_objects("persistentvolumes", {**VOLUME, "status": {"phase": "Bound"}})
    harness.apply_objects("volumeattachments", volume_attachment_json("data", "n1", driver=EBS))
    harness.notify(2)
    before = harness.last_observed()
    change(harness)
    harness.notify(10)
    assert harness.last_observed().drain not in ("", before.drain)


def test_detached_volume_is_signaled(harness: NotifierHarness) -> None:
    volume = volume_attachment_json("data", "n1", driver=EBS)
    without = harness.last_observed().drain
    harness.apply_objects("volumeattachments", volume)
    harness.notify(2)
    harness.delete_objects("volumeattachments", volume)
    harness.notify(10)
    assert harness.last_observed().drain == without


def test_other_changes_are_not_signaled(harness: NotifierHarness) -> None:
    before = signal_count(harness)
    harness.apply_objects("poddisruptionbudgets", budget(allowed=1, namespace="other"))
    harness.apply_objects("pods", pod("elsewhere", on="n2"), pod("done", on="n1", phase="Succeeded"))
    harness.apply_objects("volumeattachments", volume_attachment_json("data", "n2", driver=EBS))
    harness.apply_objects("nodeclaims", draining_claim("default/web: another message"))
    harness.notify(2)
    assert signal_count(harness) == before


def test_drain_without_published_blockers_causes_no_signal(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", draining_claim(""))
    harness.notify(1)
    before = signal_count(harness)
    assert harness.last_observed().drain == ""
    for change in RELEVANT.values():
        change(harness)
        harness.apply_objects("nodeclaims", draining_claim(""))
        harness.notify(2)
    assert signal_count(harness) == before


def test_new_session_waits_for_budgets_and_volumes(harness: NotifierHarness) -> None:
    sent = harness.signal_queue.sent
    restarted = NotifierHarness(sent)
    restarted.apply_objects("nodes", node("n1", of="c1"))
    restarted.apply_objects("pods", pod("web", on="n1"), pod("db", on="n1"))
    restarted.apply_objects("nodeclaims", draining_claim())
    restarted.notify(known=replace(ALL_SYNCED, drains=False))
    assert restarted.signal_queue.signals == []
    restarted.apply_objects("poddisruptionbudgets", budget())
    restarted.notify(1)
    assert restarted.signal_queue.signals == []
    restarted.apply_objects("poddisruptionbudgets", budget(allowed=1))
    restarted.notify(2)
    assert signal_count(restarted) == 1


def test_flapping_budget_causes_few_signals(harness: NotifierHarness) -> None:
    before = signal_count(harness)
    for second in range(120, DAY, 120):
        harness.apply_objects("poddisruptionbudgets", budget(healthy=1 + second // 120 % 7))
        harness.notify(second)
    assert ACTIONS_PER_SIGNAL * (signal_count(harness) - before) <= 300


def test_last_change_of_a_flapping_budget_is_signaled_later(harness: NotifierHarness) -> None:
    for second in range(1, 20):
        harness.apply_objects("poddisruptionbudgets", budget(healthy=second))
        harness.notify(second)
    due, before = harness.notifier.next_due_at(), signal_count(harness)
    assert due is not None
    harness.notify((due - at(0)).total_seconds())
    assert signal_count(harness) == before + 1


@pytest.mark.parametrize("change", ["allowed disruptions", "deleted pod"])
def test_evictable_or_deleted_pod_is_signaled_soon_after_flapping(harness: NotifierHarness, change: str) -> None:
    for second in range(120, DAY // 4, 120):
        harness.apply_objects("poddisruptionbudgets", budget(healthy=1 + second // 120 % 7))
        harness.notify(second)
    before = signal_count(harness)
    RELEVANT[change](harness)
    harness.notify(DAY // 4 + timedelta(seconds=30).total_seconds())
    assert signal_count(harness) == before + 1


def test_digest_of_a_drain_takes_little_time_with_many_budgets() -> None:
    harness = CacheHarness()
    budgets = [budget() for _ in range(1000)]
    for number, one in enumerate(budgets):
        one["metadata"]["name"], one["spec"]["selector"] = str(number), {"matchLabels": {"app": str(number)}}
    harness.apply_objects("poddisruptionbudgets", *budgets)
    harness.apply_objects("nodeclaims", draining_claim())
    harness.apply_objects("nodes", node("n1", of="c1"))
    labels = [{"labels": {"app": str(number)}} for number in range(1000)]
    harness.apply_objects("pods", *(pod(str(number), on="n1", metadata=one) for number, one in enumerate(labels)))
    drains, nodeclaim = DrainChanges(harness.cache), harness.cache.nodeclaims["c1"]
    began = time.process_time()
    for number in range(3):
        harness.apply_objects("poddisruptionbudgets", budgets[number])
        assert drains.digest_of(nodeclaim, harness.cache.nodes_of(nodeclaim), harness.now)[0]
    assert time.process_time() - began < 1
