"""The cheapest mix of machines for whole pods."""

import numpy as np
import pytest

from tenure.scheduling.packing.patterns import Sizes, solve_patterns, undominated_types

SMALL, LARGE = [15_900, 64], [31_800, 128]
"""Two machines, and what DaemonSets leave of them: millicores and GiB."""


def sizes(*rows: tuple[int, int, int]) -> Sizes:
    vectors = np.array([one[:2] for one in rows], dtype=np.int64)
    counts = np.array([one[2] for one in rows], dtype=np.int64)
    return Sizes(vectors, counts, counts)


def test_a_machine_that_wastes_half_of_itself_is_not_chosen_for_its_price_per_core() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.80])
    pattern_solution = solve_patterns(headroom, prices, sizes((8_000, 8, 30)))
    assert pattern_solution is not None
    assert pattern_solution.counts == pytest.approx([0, 10])
    assert pattern_solution.size_prices == pytest.approx([0.8 / 3])


def test_small_pods_fill_what_large_ones_leave() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.81])
    pattern_solution = solve_patterns(headroom, prices, sizes((8_000, 8, 10), (1_900, 4, 40)))
    assert pattern_solution is not None
    assert pattern_solution.counts == pytest.approx([10, 0]), "8,000 and four times 1,900 fit the small one"
    value = pattern_solution.value_headroom(
        np.array([SMALL]), pattern_solution.sizes.counts, first=0, most=1, forced=False
    )
    assert value == pytest.approx([0.40])


def test_what_is_worth_is_paid_for() -> None:
    headroom, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.75])
    requested = sizes((8_000, 8, 7), (1_000, 16, 13), (500, 1, 90))
    pattern_solution = solve_patterns(headroom, prices, requested)
    assert pattern_solution is not None
    assert float(pattern_solution.size_prices @ requested.counts) == pytest.approx(
        float(pattern_solution.counts @ prices)
    )


def test_nodes_that_are_needed_whatever_their_size_have_a_worth_of_their_own() -> None:
    pattern_solution = solve_patterns(np.array([SMALL, LARGE]), np.array([0.40, 0.75]), sizes((1_000, 1, 10)), nodes=4)
    assert pattern_solution is not None
    assert float(pattern_solution.counts.sum()) == pytest.approx(4) and pattern_solution.node_price > 0


def test_a_pod_that_no_machine_holds_makes_no_mix() -> None:
    assert solve_patterns(np.array([SMALL]), np.array([0.4]), sizes((99_000, 1, 1))) is None


def test_machines_that_another_outdoes_are_left_out() -> None:
    headroom = np.array([SMALL, LARGE, [31_800, 127], SMALL])
    assert sorted(undominated_types(headroom, np.array([0.40, 0.75, 0.75, 0.41]))) == [0, 1]
