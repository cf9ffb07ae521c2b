"""Offering shards are disjoint, cover all capacity pools together, and each leaves EC2 a choice of types."""

from collections import Counter
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.instance_types import MIN_SHARDS, MIN_TYPES_PER_SHARD, OfferingShard, list_offering_shards

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.integers(0, 40), st.integers(0, 6))
def test_every_capacity_pool_is_in_exactly_one_shard(types: int, zones: int) -> None:
    names, zone_names = [f"t{number}" for number in range(types)], [f"z{number}" for number in range(zones)]
    found = list_offering_shards(names, zone_names)
    times = Counter((name, one.zone) for one in found for name in one.select_types(names))
    assert set(times) == set(product(names, zone_names)) and set(times.values()) <= {1}
    assert all(len(one.select_types(names)) >= min(types, MIN_TYPES_PER_SHARD) for one in found)
    if zones and types >= MIN_SHARDS * MIN_TYPES_PER_SHARD:
        assert len(found) >= MIN_SHARDS


@given(st.integers(1, 40), st.integers(1, 6), st.data())
def test_shard_excludes_exactly_the_spot_offerings_of_other_shards(types: int, zones: int, data: st.DataObject) -> None:
    names, zone_names = [f"t{number}" for number in range(types)], [f"z{number}" for number in range(zones)]
    one = data.draw(st.sampled_from(list_offering_shards(names, zone_names)))
    unavailable_offerings = one.list_excluded_offerings(names, zone_names, NOW)

    def is_available(name: str, zone: str, kind: str) -> bool:
        return not any(mark.covers(name, zone, kind) for mark in unavailable_offerings)

    selected = {(name, one.zone) for name in one.select_types(names)}
    assert {pool for pool in product(names, zone_names) if is_available(*pool, "spot")} == selected
    assert all(
        is_available(*pool, "on-demand") and is_available(*pool, "reserved") for pool in product(names, zone_names)
    )


def test_shards_with_the_cheapest_types_come_first_in_every_zone() -> None:
    names = [f"t{number}" for number in range(12)]
    assert [one.format() for one in list_offering_shards(names, ["a", "b"])] == ["a/0/2", "b/0/2", "a/1/2", "b/1/2"]
    assert [one.format() for one in list_offering_shards(names, ["a", "b", "c", "d"])] == [
        "a/0/1",
        "b/0/1",
        "c/0/1",
        "d/0/1",
    ]


@pytest.mark.parametrize("text", ["", "a", "a/1", "a/1/1", "a/2/1", "/0/1", "a/x/2", "a/0/1/2", "a/-1/2"])
def test_invalid_text_is_no_shard(text: str) -> None:
    assert OfferingShard.read(text) is None


def test_formatted_shard_is_read_back() -> None:
    one = OfferingShard(zone="us-west-2a", part=1, parts=3)
    assert OfferingShard.read(one.format()) == one
