"""Pods keep their NotReady node, and it is not empty, until its grace period ends."""

from typing import Any

import pytest

from tenure.apis.labels import NOT_READY_INTERVALS
from tenure.controller.cache.nominations import Nominations
from tenure.controller.signals.pending_pods import classify_pods
from tenure.kube.facts.objects import node_fact
from tenure.model.facts import NodeFact
from tests.support.controller.builders import CacheHarness, at, claim, node, not_ready_tracker, pod, stamp

CNI = {"key": "cni.example.com/agent-not-ready", "effect": "NoExecute"}


def ready_conditions(seconds: float, status: str = "False") -> list[dict[str, Any]]:
    return [{"type": "Ready", "status": status, "lastTransitionTime": stamp(seconds)}]


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.add_running_node("up", "n-up")
    harness.apply_objects("pods", pod("p"))
    return harness


def set_ready(harness: CacheHarness, since: float, *, ready: bool, taints: list[dict[str, Any]] | None = None) -> None:
    raw = node("n-up", of="up", taints=taints)
    raw["status"]["conditions"] = ready_conditions(since, str(ready))
    harness.apply_objects("nodes", raw)


def nominate_pod() -> Nominations:
    nominations = Nominations()
    nominations.nominate({"uid-p": "up"}, at(0))
    return nominations


def assert_pending_from(harness: CacheHarness, nominations: Nominations, seconds: float) -> None:
    for now, expected in ((seconds - 1, False), (seconds, True)):
        pending = classify_pods(harness.cache, nominations, not_ready_tracker(harness, 60), at(now)).pending
        assert bool(pending) is expected


def test_pod_waits_for_its_notready_node_until_the_grace_period_ends(harness: CacheHarness) -> None:
    nominations = nominate_pod()
    set_ready(harness, 10, ready=False)
    assert classify_pods(harness.cache, nominations, not_ready_tracker(harness, 60), at(12)).next_expiry == at(70)
    assert_pending_from(harness, nominations, 70)


def test_pod_is_pending_at_the_end_of_the_grace_period_despite_a_recent_nomination(harness: CacheHarness) -> None:
    set_ready(harness, 10, ready=False)
    nominations = Nominations()
    nominations.nominate({"uid-p": "up"}, at(65))
    assert_pending_from(harness, nominations, 70)


def test_recovered_node_gives_its_pods_the_time_of_a_new_node(harness: CacheHarness) -> None:
    nominations = nominate_pod()
    set_ready(harness, 10, ready=False)
    set_ready(harness, 50, ready=True)
    assert_pending_from(harness, nominations, 70)


def test_recorded_intervals_shorten_the_grace_period(harness: CacheHarness) -> None:
    nominations = nominate_pod()
    harness.apply_objects(
        "nodeclaims", claim("up", phase="Initialized", annotations={NOT_READY_INTERVALS: f"{stamp(-40)}/{stamp(-10)}"})
    )
    set_ready(harness, 10, ready=False)
    assert_pending_from(harness, nominations, 40)


def test_returned_startup_taint_counts_from_its_observation(harness: CacheHarness) -> None:
    nominations = nominate_pod()
    raw = claim("up", phase="Initialized")
    raw["spec"]["startupTaints"] = [CNI]
    harness.apply_objects("nodeclaims", raw)
    harness.now = at(10)
    set_ready(harness, -40, ready=True, taints=[CNI])
    harness.now = at(30)
    set_ready(harness, -40, ready=True, taints=[CNI, {"key": "team", "effect": "NoSchedule"}])
    assert_pending_from(harness, nominations, 70)


def test_time_added_of_a_taint_is_used(harness: CacheHarness) -> None:
    taint = {**CNI, "timeAdded": stamp(-5)}
    set_ready(harness, -40, ready=True, taints=[taint])
    assert cached_node(harness).tainted == {"cni.example.com/agent-not-ready:NoExecute": at(-5)}
    assert node_fact(node("n", taints=[CNI])).tainted == {}


def test_returned_taint_counts_from_its_return(harness: CacheHarness) -> None:
    for seconds, taints in ((1, [CNI]), (5, []), (9, [CNI])):
        harness.now = at(seconds)
        set_ready(harness, -40, ready=True, taints=taints)
    assert list(cached_node(harness).tainted.values()) == [at(9)]


@pytest.mark.parametrize("changed", [{"ready": False}, {"taints": [CNI]}])
def test_pods_change_when_a_node_becomes_unusable_or_recovers(harness: CacheHarness, changed: dict[str, Any]) -> None:
    harness.cache.drain_changes()
    harness.apply_objects("nodes", node("n-up", of="up", labels={"a": "b"}))
    assert not harness.cache.drain_changes().pods
    harness.apply_objects("nodes", node("n-up", of="up", **changed))
    assert harness.cache.drain_changes().pods
    harness.apply_objects("nodes", node("n-up", of="up"))
    assert harness.cache.drain_changes().pods


def test_device_is_missing_since_its_observed_removal(harness: CacheHarness) -> None:
    def update_devices(seconds: float, **devices: str) -> None:
        harness.now = at(seconds)
        raw = node("n-up", of="up")
        raw["status"]["capacity"] = {"cpu": "2", "nvidia.com/gpu": "1"}
        raw["status"]["allocatable"] |= devices
        harness.apply_objects("nodes", raw)

    gpu = "nvidia.com/gpu"
    update_devices(1, **{gpu: "1"})
    assert cached_node(harness).missing == {}
    harness.cache.drain_changes()
    update_devices(5, **{gpu: "0"})
    assert cached_node(harness).missing == {gpu: at(5)} and harness.cache.drain_changes().pods
    update_devices(9)
    assert cached_node(harness).missing == {gpu: at(5)}, "the resource is no longer listed"
    update_devices(11, **{gpu: "1"})
    assert cached_node(harness).missing == {} and harness.cache.drain_changes().pods


def cached_node(harness: CacheHarness) -> NodeFact:
    return harness.cache.nodes["n-up"]


def test_nomination_lasts_while_its_pod_runs_on_a_deleting_node(harness: CacheHarness) -> None:
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"))
    nominations, up = nominate_pod(), harness.cache.nodeclaims["up"]
    for seconds, expiry in ((0, 110), (30, 110), (3600, 3620)):
        assert not_ready_tracker(harness).last_expiry(up, nominations, at(seconds)) == at(expiry)
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized"))
    assert not_ready_tracker(harness).last_expiry(up, nominations, at(3600)) == at(110), (
        "the old node is no longer deleted"
    )
