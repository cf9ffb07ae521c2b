"""Which rows CI runs with a killed worker."""

from tests.scenarios.sample import commit_seed, draw_sample

TESTS = [f"test-{number}" for number in range(20)]


def test_seed_selects_the_same_rows_in_any_order() -> None:
    assert draw_sample(TESTS, 7, 6) == draw_sample(TESTS, 7, 6)
    assert set(draw_sample(TESTS[::-1], 7, 6)) == set(draw_sample(TESTS, 7, 6))
    assert len(draw_sample(TESTS, 7, 6)) == 6 and len(draw_sample(TESTS, 7, 99)) == 20


def test_commits_cover_all_rows_over_time() -> None:
    seeds = [commit_seed(f"{number:08x}0000") for number in range(40)]
    assert {test for seed in seeds for test in draw_sample(TESTS, seed, 6)} == set(TESTS)
