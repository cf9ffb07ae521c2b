"""Which rows CI plays with the worker killed."""

from tests.scenarios.sample import drawn, seed_of

TESTS = [f"test-{number}" for number in range(20)]


def test_a_seed_gives_the_same_rows_whatever_the_order_they_were_found_in() -> None:
    assert drawn(TESTS, 7, 6) == drawn(TESTS, 7, 6)
    assert set(drawn(TESTS[::-1], 7, 6)) == set(drawn(TESTS, 7, 6))
    assert len(drawn(TESTS, 7, 6)) == 6 and len(drawn(TESTS, 7, 99)) == 20


def test_commits_give_different_rows_in_time() -> None:
    seeds = [seed_of(f"{number:08x}0000") for number in range(40)]
    assert {test for seed in seeds for test in drawn(TESTS, seed, 6)} == set(TESTS)
