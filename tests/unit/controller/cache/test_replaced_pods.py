"""The controller's cache and the planner find the same pods that a rollout replaces, whatever changed in between."""

from hypothesis import given
from hypothesis import strategies as some

from tenure.apis.labels import POD_TEMPLATE_HASH
from tenure.scheduling.pods import StartingPods
from tenure.scheduling.snapshot import ClusterFacts
from tests.support.controller.builders import CacheHarness, Json, pod, stamp

CHANGES = some.tuples(
    some.integers(0, 6), some.sampled_from(["pending", "starting", "ready", "failed", "deleted"]), some.booleans()
)
"""Number of the pod, its new state, and whether the planner gets all changes then."""


def pod_in(state: str, number: int) -> Json:
    """Pods 0 to 5 have two Deployments with three ReplicaSets each, and the last one none."""
    labels = {"app": f"app-{number % 2}", POD_TEMPLATE_HASH: f"hash-{number // 2}"} if number < 6 else {}
    owner = {"kind": "ReplicaSet", "uid": f"set-{number}", "controller": True}
    metadata = {"labels": labels, "ownerReferences": [owner], "creationTimestamp": stamp(number % 4)}
    raw = pod(f"p{number}", on="" if state == "pending" else "n1", metadata=metadata)
    raw["status"]["phase"] = "Failed" if state == "failed" else raw["status"]["phase"]
    if state == "ready":
        raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return raw


@given(some.lists(CHANGES, max_size=30))
def test_cache_and_planner_find_the_same_replaced_pods(changes: list[tuple[int, str, bool]]) -> None:
    harness, planner = CacheHarness(), ClusterFacts()
    cache = harness.cache
    for number, state, is_synced in (*changes, (0, "starting", True)):
        if state == "deleted":
            harness.delete_objects("pods", pod_in("pending", number))
        else:
            harness.apply_objects("pods", pod_in(state, number))
        if is_synced:
            for one in cache.drain_planner_changes():
                planner.apply(one)
            expected = StartingPods()
            for found in cache.pods.values():
                expected.update(None, found)
            replaced = expected.find_replaced(cache.pods.values())
            assert cache.starting_pods.find_replaced(cache.pods.values()) == replaced
            assert planner.starting_pods.find_replaced(planner.pods.values()) == replaced


def test_newer_starting_pod_replaces_an_older_one() -> None:
    """The example shows that the property above compares sets that are not empty."""
    harness = CacheHarness()
    harness.apply_objects("pods", pod_in("ready", 0), pod_in("pending", 2))
    replaced = harness.cache.starting_pods.find_replaced(harness.cache.pods.values())
    assert replaced == {"uid-p0"}
