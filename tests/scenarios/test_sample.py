"""Which rows CI plays with the worker killed."""

from tests.scenarios.sample import commit_seed, draw_sample

TESTS = [f"test-{number}" for number in range(20)]


def test_a_seed_gives_the_same_rows_whatever_the_order_they_were_found_in() -> None:
    assert draw_sample(TESTS, 7, 6) == draw_sample(TESTS, 7, 6)
    assert set(draw_sample(TESTS[::-1], 7, 6)) == set(draw_sample(TESTS, 7, 6))
    assert len(draw_sample(TESTS, 7, 6)) == 6 and len(draw_sample(TESTS, 7, 99)) == 20


def test_commits_give_different_rows_in_time() -> None:
    seeds = [commit_seed(f"{number:08x}0000") for number in range(40)]
    assert {test for seed in seeds for test in draw_sample(TESTS, seed, 6)} == set(TESTS)
