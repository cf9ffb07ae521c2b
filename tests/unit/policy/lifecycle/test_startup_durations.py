"""What is expected of a start-up, from those that were."""

from datetime import timedelta

import pytest

from tenure.policy.lifecycle.initialization import decide_expected, default_expected_duration, summary_of


def test_times_are_summed_up_by_rank() -> None:
    found = summary_of([5, 1, 3, 2, 4, 10, 9, 8, 7, 6, 100])
    assert (found.count, found.median, found.p90, found.longest) == (11, 6, 10, 100)
    with pytest.raises(ValueError, match="nothing"):
        summary_of([])


def test_one_straggler_does_not_make_others_seem_quick() -> None:
    assert decide_expected([40.0] * 20 + [600.0]) == timedelta(seconds=80)


def test_where_many_take_long_that_is_what_is_expected() -> None:
    assert decide_expected([40.0] * 5 + [400.0] * 5) == timedelta(seconds=500)


def test_too_few_say_nothing_and_a_share_of_the_deadline_stands_in() -> None:
    assert decide_expected([60.0, 60.0]) is None
    assert default_expected_duration(timedelta(minutes=30)) == timedelta(minutes=3)


def test_what_takes_no_time_is_given_some() -> None:
    assert decide_expected([0.0, 0.0, 1.0]) == default_expected_duration(timedelta(seconds=1)) == timedelta(seconds=10)
