"""Memory discovered on nodes: the smallest value counts, and unused images are dropped after sixty days."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model import discovered_capacity as module
from tenure.model.discovered_capacity import (
    DiscoveredCapacity,
    DiscoveredCapacityState,
    ObservedCapacity,
    image_spec_key,
    with_discovered_memory,
)
from tests.unit.scheduling.builders import GIB, instance_type

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MIB = 1 << 20
DAY = timedelta(days=1)
TABLES = st.dictionaries(
    st.sampled_from(["ami-1", "ami-2"]),
    st.dictionaries(st.sampled_from(["m5.large", "m5.xlarge", "c5.large"]), st.integers(1, 9), min_size=1),
).map(lambda images: DiscoveredCapacity(images=images))


def discovered_memory(memory: int, image: str = "ami-1", instance_type: str = "m5.large") -> DiscoveredCapacity:
    return DiscoveredCapacity(images={image: {instance_type: memory}})


def observed_capacity(discovered: DiscoveredCapacity, *in_use: str) -> ObservedCapacity:
    return ObservedCapacity(discovered=discovered, images=in_use)


def test_smallest_memory_counts_in_any_order() -> None:
    low, high = discovered_memory(7640 * MIB), discovered_memory(7650 * MIB)
    for first, second in ((high, low), (low, high)):
        assert first.merge(second).get_memory("ami-1", "m5.large") == 7640 * MIB
    assert low.merge(discovered_memory(7700 * MIB)) is low


def test_memory_is_kept_per_image_and_instance_type() -> None:
    known = (
        discovered_memory(1)
        .merge(discovered_memory(2, image="ami-2"))
        .merge(discovered_memory(3, instance_type="m5.xlarge"))
    )
    assert (known.get_memory("ami-1", "m5.large"), known.get_memory("ami-2", "m5.large")) == (1, 2)
    assert (known.get_memory("ami-1", "m5.xlarge"), known.get_memory("ami-2", "m5.xlarge"), known.entry_count) == (
        3,
        None,
        3,
    )


@given(TABLES, TABLES)
def test_updates_are_exactly_the_missing_entries(one: DiscoveredCapacity, other: DiscoveredCapacity) -> None:
    difference = one.find_updates(other)
    assert other.merge(difference) == other.merge(one)
    assert other.merge(one).images == one.merge(other).images
    assert not one.find_updates(other.merge(one)).images


def test_retained_memory_only_decreases() -> None:
    retained = (
        DiscoveredCapacityState()
        .apply_observation(observed_capacity(discovered_memory(8), "ami-1"), NOW)
        .apply_observation(observed_capacity(discovered_memory(9), "ami-1"), NOW)
    )
    assert retained.discovered == discovered_memory(8)
    assert retained.apply_observation(
        observed_capacity(discovered_memory(7), "ami-1"), NOW
    ).discovered == discovered_memory(7)


def test_unused_image_is_retained_for_sixty_days() -> None:
    retained = DiscoveredCapacityState().apply_observation(observed_capacity(discovered_memory(8), "ami-1"), NOW)
    retained = retained.apply_observation(observed_capacity(DiscoveredCapacity(), "ami-2"), NOW + DAY)
    assert retained.apply_observation(
        observed_capacity(DiscoveredCapacity(), "ami-2"), NOW + 60 * DAY
    ).discovered == discovered_memory(8)
    assert (
        retained.apply_observation(observed_capacity(DiscoveredCapacity(), "ami-2"), NOW + 61 * DAY).discovered
        == DiscoveredCapacity()
    )


def test_memory_of_a_spec_applies_to_that_spec_and_expires_with_the_image() -> None:
    known = discovered_memory(8).merge(discovered_memory(7, image=image_spec_key("ami-1", "123")))
    assert [known.get_memory("ami-1", "m5.large", spec) for spec in ("", "123", "456")] == [8, 7, 8]
    retained = DiscoveredCapacityState().apply_observation(observed_capacity(known, "ami-1"), NOW)
    assert not retained.unused_since
    assert (
        retained.apply_observation(observed_capacity(DiscoveredCapacity()), NOW)
        .apply_observation(observed_capacity(DiscoveredCapacity()), NOW + 60 * DAY)
        .discovered
        == DiscoveredCapacity()
    )


def test_image_in_use_never_expires_and_renewed_use_restarts_its_period() -> None:
    retained = DiscoveredCapacityState().apply_observation(observed_capacity(discovered_memory(8), "ami-1"), NOW)
    assert retained.apply_observation(
        observed_capacity(DiscoveredCapacity(), "ami-1"), NOW + 999 * DAY
    ).discovered == discovered_memory(8)
    back = retained.apply_observation(observed_capacity(DiscoveredCapacity()), NOW + DAY).apply_observation(
        observed_capacity(DiscoveredCapacity(), "ami-1"), NOW + 50 * DAY
    )
    assert not back.unused_since
    assert back.apply_observation(
        observed_capacity(DiscoveredCapacity()), NOW + 61 * DAY
    ).discovered == discovered_memory(8)


def test_longest_unused_image_is_dropped_first_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    retained = (
        DiscoveredCapacityState()
        .apply_observation(observed_capacity(discovered_memory(1, "ami-old")), NOW)
        .apply_observation(observed_capacity(discovered_memory(2, "ami-newer")), NOW + DAY)
    )
    retained = retained.apply_observation(
        observed_capacity(discovered_memory(3, "ami-used"), "ami-used"), NOW + 2 * DAY
    )
    assert set(retained.discovered.images) == {"ami-used", "ami-newer"}
    assert set(retained.unused_since) == {"ami-newer"}


def test_thousands_of_entries_fit_into_a_payload() -> None:
    def table(entries: int) -> DiscoveredCapacity:
        images = [f"ami-{number:017x}" for number in range(entries // 500)]
        return DiscoveredCapacity(images={one: {f"m7gd.metal-{n}xl": 2**40 + n for n in range(500)} for one in images})

    assert len(DiscoveredCapacityState(discovered=table(2000)).model_dump_json()) < 80_000
    assert len(DiscoveredCapacityState(discovered=table(module.MAX_ENTRIES)).model_dump_json()) < 500_000


def test_state_is_unchanged_after_json() -> None:
    retained = DiscoveredCapacityState().apply_observation(
        observed_capacity(discovered_memory(8).merge(discovered_memory(9, "ami-2")), "ami-1"), NOW
    )
    assert DiscoveredCapacityState.model_validate(json.loads(retained.model_dump_json())) == retained


def test_discovered_memory_replaces_capacity_and_keeps_overhead() -> None:
    one = instance_type("m5.large", cpu=2, memory=8).model_copy(update={"image_id": "ami-1"})
    less, more = (
        with_discovered_memory(one, discovered_memory(7 * GIB)),
        with_discovered_memory(one, discovered_memory(9 * GIB)),
    )
    assert (less.capacity["memory"], more.capacity["memory"]) == (7 * GIB, 9 * GIB)
    assert less.capacity["cpu"] == one.capacity["cpu"] and less.overhead == one.overhead
    assert less.allocatable()["memory"] == 7 * GIB - GIB // 2
    assert with_discovered_memory(one, discovered_memory(7 * GIB, image="ami-2")) is one
