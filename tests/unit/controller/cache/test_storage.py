"""Storage objects in the cluster cache: changes for the planner, and pods that wait for a claim."""

from datetime import datetime

import pytest

from tenure.controller.cache.nominations import Nominations
from tenure.controller.signals.pending_pods import MIN_SIGNAL_INTERVAL, Batcher, classify_pods, waiting_for
from tenure.scheduling.snapshot import Change, ClusterFacts
from tests.support.controller.builders import CacheHarness, Json, at, not_ready_tracker, pod


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects("storageclasses", {"metadata": {"name": "gp3", "uid": "s"}, "provisioner": "ebs.csi.aws.com"})
    harness.apply_objects("persistentvolumes", {"metadata": {"name": "pv", "uid": "v"}, "spec": {"nfs": {}}})
    harness.apply_objects("persistentvolumeclaims", claim())
    harness.apply_objects("csinodes", {"metadata": {"name": "n", "uid": "c"}, "spec": {"drivers": []}})
    return harness


def claim(name: str = "data", **spec: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def keys(changes: tuple[Change, ...]) -> set[tuple[str, str]]:
    return {(one.kind, one.key) for one in changes}


ALL_KEYS = {("storage_class", "gp3"), ("volume", "pv"), ("volume_claim", "default/data"), ("csi_node", "n")}


def test_planner_receives_every_storage_kind_as_change_and_in_snapshots(harness: CacheHarness) -> None:
    changes = harness.cache.drain_planner_changes()
    assert keys(changes) == ALL_KEYS and keys(harness.cache.snapshot_changes()) == ALL_KEYS
    facts = ClusterFacts()
    for change in changes:
        facts.apply(change)
    assert facts.storage.claims["default/data"] == harness.cache.storage.claims["default/data"]
    assert set(facts.storage.csi_nodes) == {"n"} and set(facts.storage.volumes) == {"pv"}


def test_deletion_is_a_change_without_fact(harness: CacheHarness) -> None:
    harness.cache.drain_planner_changes()
    harness.delete_objects("persistentvolumeclaims", claim())
    harness.delete_objects("persistentvolumes", {"metadata": {"name": "pv", "uid": "v"}})
    changes = harness.cache.drain_planner_changes()
    assert keys(changes) == {("volume_claim", "default/data"), ("volume", "pv")}
    assert all(one.fact is None for one in changes) and not harness.cache.storage.claims


def test_update_without_changed_facts_is_no_change(harness: CacheHarness) -> None:
    harness.cache.drain_planner_changes(), harness.cache.drain_changes()
    same = claim()
    same["status"] = {"phase": "Pending", "conditions": []}
    harness.apply_objects("persistentvolumeclaims", same)
    assert not harness.cache.drain_planner_changes() and not harness.cache.drain_changes().volume_claims


def test_unreadable_object_affects_no_other(harness: CacheHarness) -> None:
    harness.apply_objects(
        "storageclasses", {"metadata": {"name": "odd", "uid": "o"}}, {"metadata": {"name": "x"}, "provisioner": "p"}
    )
    assert set(harness.cache.storage.classes) == {"gp3", "x"}


def test_fact_of_another_kind_raises_type_error(harness: CacheHarness) -> None:
    volume = harness.cache.storage.volumes["pv"]
    with pytest.raises(TypeError, match="a volume_claim was announced and a VolumeFact given"):
        ClusterFacts().apply(Change(kind="volume_claim", key="default/data", fact=volume))


def test_pods_waiting_for_a_changed_claim_are_signaled_again(harness: CacheHarness) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    harness.apply_objects("pods", pod("uses", volumes=volumes), pod("other"))
    batcher = Batcher()

    def is_signaled(now: datetime) -> bool:
        pending = classify_pods(harness.cache, Nominations(), not_ready_tracker(harness), now).pending
        return batcher.decide_signal(pending, now) is not None

    assert is_signaled(at(0))
    harness.cache.drain_changes()
    harness.apply_objects("persistentvolumeclaims", claim(volumeName="pv"))
    changes = harness.cache.drain_changes()
    assert changes.pods and changes.volume_claims == {"default/data"}
    waiting_uids = waiting_for(harness.cache, changes.volume_claims)
    assert waiting_uids == ["uid-uses"]
    later = at(1 + MIN_SIGNAL_INTERVAL.total_seconds())
    assert not is_signaled(later)
    batcher.renotify(waiting_uids)
    assert is_signaled(later)


def test_no_pod_waits_for_an_unchanged_or_unused_claim(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("p"))
    assert waiting_for(harness.cache, ()) == [] and waiting_for(harness.cache, {"default/data"}) == []
