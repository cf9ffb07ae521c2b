"""An error of a subscriber affects one object: other objects, other subscribers and the watch continue."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tenure import metrics
from tenure.controller.cache.changes import ChangeBatch, ChangeSet, SyncedKinds
from tenure.controller.cache.cluster_cache import ClusterCache
from tests.support.controller.meter import RecordingMeter

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KNOWN = SyncedKinds(nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=None)


class Subscriber:
    def __init__(self, faulty: str = "") -> None:
        self.faulty = faulty
        self.seen = ChangeSet()

    def on_changes(self, batch: ChangeBatch) -> None:
        if self.faulty in batch.changes.nodepools:
            raise ValueError(f"{self.faulty} is not valid")
        self.seen.merge(batch.changes)


def batch(*pools: str) -> ChangeBatch:
    return ChangeBatch(ChangeSet(nodeclaims={"c"}, nodepools={*pools}, pods=True), KNOWN, NOW)


@pytest.fixture
def cache() -> ClusterCache:
    return ClusterCache(lambda: NOW)


def test_error_of_one_object_leaves_the_others_to_every_subscriber(cache: ClusterCache) -> None:
    first, second = Subscriber("bad"), Subscriber()
    for one in (first, second):
        cache.subscribe(ChangeBatch, one.on_changes)
    cache.publish(batch("bad", "good"))
    assert first.seen == ChangeSet(nodeclaims={"c"}, nodepools={"good"}, pods=True)
    assert second.seen == batch("bad", "good").changes
    ((key, found),) = cache.invalid_objects.items().items()
    assert (key.kind, key.name, found.message) == ("NodePool", "bad", "bad is not valid")


def test_additions_of_a_subscriber_reach_later_ones_after_an_error(cache: ClusterCache) -> None:
    def add_claim(changed: ChangeBatch) -> None:
        if "bad" in changed.changes.nodepools:
            raise ValueError("no")
        changed.changes.nodeclaims.add("added")

    later = Subscriber()
    cache.subscribe(ChangeBatch, add_claim)
    cache.subscribe(ChangeBatch, later.on_changes)
    cache.publish(batch("bad", "good"))
    assert later.seen.nodeclaims == {"c", "added"} and later.seen.nodepools == {"bad", "good"}


def test_object_is_valid_again_once_its_changes_are_handled(cache: ClusterCache) -> None:
    subscriber = Subscriber("bad")
    cache.subscribe(ChangeBatch, subscriber.on_changes)
    cache.publish(batch("bad"))
    subscriber.faulty = ""
    cache.publish(batch("good"))
    assert [key.name for key in cache.invalid_objects.items()] == ["bad"], "the object was not handled"
    cache.publish(batch("bad"))
    assert not cache.invalid_objects.items()


def test_changes_split_into_one_per_object() -> None:
    changes = replace(batch("a", "b").changes, volume_claims={"default/v"}, deleted_nodepools={"old"})
    merged = ChangeSet()
    found = []
    for kind, name, one in changes.split():
        found.append((kind, name))
        merged.merge(one)
    assert merged == changes and len(found) == len(set(found)) == 6
    assert all(changes.has_object(kind, name) for kind, name in found) and not changes.has_object("NodePool", "c")


def test_negative_gauge_is_recorded_as_zero() -> None:
    """The CRD admits negative limits, and the SDK refuses negative values."""
    meter = RecordingMeter()
    metrics.NODEPOOLS_LIMIT.record(meter, -5, nodepool="p", resource_type="cpu")
    assert meter.drain_records() == [(metrics.NODEPOOLS_LIMIT.name, ("p", "cpu"), 0)]
