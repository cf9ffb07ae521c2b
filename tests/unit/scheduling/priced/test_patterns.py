"""The cheapest mix of machines for whole pods."""

import numpy as np
import pytest

from tenure.scheduling.packing.instance_mix import Sizes, cheapest_mix, worthwhile

SMALL, LARGE = [15_900, 64], [31_800, 128]
"""Two machines, and what DaemonSets leave of them: millicores and GiB."""


def sizes(*said: tuple[int, int, int]) -> Sizes:
    vectors = np.array([one[:2] for one in said], dtype=np.int64)
    counts = np.array([one[2] for one in said], dtype=np.int64)
    return Sizes(vectors, counts, counts)


def test_a_machine_that_wastes_half_of_itself_is_not_chosen_for_its_price_per_core() -> None:
    room, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.80])
    mix = cheapest_mix(room, prices, sizes((8_000, 8, 30)))
    assert mix is not None
    assert mix.counts == pytest.approx([0, 10])
    assert mix.worth == pytest.approx([0.8 / 3])


def test_small_pods_fill_what_large_ones_leave() -> None:
    room, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.81])
    mix = cheapest_mix(room, prices, sizes((8_000, 8, 10), (1_900, 4, 40)))
    assert mix is not None
    assert mix.counts == pytest.approx([10, 0]), "8,000 and four times 1,900 fit the small one"
    value = mix.value(np.array([SMALL]), mix.sizes.counts, first=0, most=1, forced=False)
    assert value == pytest.approx([0.40])


def test_what_is_worth_is_paid_for() -> None:
    room, prices = np.array([SMALL, LARGE]), np.array([0.40, 0.75])
    asked = sizes((8_000, 8, 7), (1_000, 16, 13), (500, 1, 90))
    mix = cheapest_mix(room, prices, asked)
    assert mix is not None
    assert float(mix.worth @ asked.counts) == pytest.approx(float(mix.counts @ prices))


def test_nodes_that_are_needed_whatever_their_size_have_a_worth_of_their_own() -> None:
    mix = cheapest_mix(np.array([SMALL, LARGE]), np.array([0.40, 0.75]), sizes((1_000, 1, 10)), nodes=4)
    assert mix is not None
    assert float(mix.counts.sum()) == pytest.approx(4) and mix.node > 0


def test_a_pod_that_no_machine_holds_makes_no_mix() -> None:
    assert cheapest_mix(np.array([SMALL]), np.array([0.4]), sizes((99_000, 1, 1))) is None


def test_machines_that_another_outdoes_are_left_out() -> None:
    room = np.array([SMALL, LARGE, [31_800, 127], SMALL])
    assert sorted(worthwhile(room, np.array([0.40, 0.75, 0.75, 0.41]))) == [0, 1]
