"""The cheapest mix of instance types for indivisible pods."""

import numpy as np
import pytest

from tenure.scheduling.packing.patterns import Sizes, solve_patterns, undominated_types

SMALL, LARGE = [15_900, 64], [31_800, 128]
"""Headroom of two instance types after DaemonSets: millicores and GiB."""


def sizes(*rows: tuple[int, int, int]) -> Sizes:
    vectors = np.array([one[:2] for one in rows], dtype=np.int64)
    counts = np.array([one[2] for one in rows], dtype=np.int64)
    return Sizes(vectors, counts, counts)


def test_pattern_accounts_for_unusable_capacity() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.80])
    pattern_solution = solve_patterns(headroom, prices, sizes((8_000, 8, 30)))
    assert pattern_solution is not None
    assert pattern_solution.counts == pytest.approx([0, 10])
    assert pattern_solution.size_prices == pytest.approx([0.8 / 3])


def test_small_pods_fill_the_rest_of_large_ones() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.81])
    pattern_solution = solve_patterns(headroom, prices, sizes((8_000, 8, 10), (1_900, 4, 40)))
    assert pattern_solution is not None
    assert pattern_solution.counts == pytest.approx([10, 0]), (
        "one pod of 8,000 and four of 1,900 millicores fit the small type"
    )
    value = pattern_solution.value_headroom(
        np.array([SMALL]), pattern_solution.sizes.counts, first=0, most=1, forced=False
    )
    assert value == pytest.approx([0.40])


def test_value_of_all_pods_equals_the_price_of_the_mix() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.75])
    requested = sizes((8_000, 8, 7), (1_000, 16, 13), (500, 1, 90))
    pattern_solution = solve_patterns(headroom, prices, requested)
    assert pattern_solution is not None
    assert float(pattern_solution.size_prices @ requested.counts) == pytest.approx(
        float(pattern_solution.counts @ prices)
    )


def test_required_node_count_has_its_own_price() -> None:
    pattern_solution = solve_patterns(np.array([SMALL, LARGE]), np.array([0.40, 0.75]), sizes((1_000, 1, 10)), nodes=4)
    assert pattern_solution is not None
    assert float(pattern_solution.counts.sum()) == pytest.approx(4) and pattern_solution.node_price > 0


def test_pod_larger_than_every_type_has_no_solution() -> None:
    assert solve_patterns(np.array([SMALL]), np.array([0.4]), sizes((99_000, 1, 1))) is None


def test_dominated_types_are_excluded() -> None:
    headroom = np.array([SMALL, LARGE, [31_800, 127], SMALL])
    assert sorted(undominated_types(headroom, np.array([0.40, 0.75, 0.75, 0.41]))) == [0, 1]
