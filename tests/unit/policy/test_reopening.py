"""When time alone lets more nodes go than now."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.apis.nodepool import Budget
from tenure.model.disruption.planning import Disrupted
from tenure.policy.disruption.budgets import Asking
from tenure.policy.disruption.limits import PoolWishes, opens, reopens

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""A Monday."""


def wishes(*budgets: dict[str, Any], **rules: Any) -> PoolWishes:
    found = [Budget.model_validate(one) for one in budgets]
    return PoolWishes("a", found, DisruptionRules.model_validate(rules) if rules else None)


@pytest.mark.parametrize(
    ("pool", "when"),
    [
        (wishes(), None),
        (wishes({"nodes": "0"}), None),
        (wishes({"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}), "2026-06-01T17:00"),
        (wishes({"nodes": "0", "schedule": "0 13 * * *", "duration": "8h"}), None),
        (wishes({"nodes": "0", "schedule": "every day", "duration": "8h"}), None),
        (wishes(windows=[{"schedule": "0 22 * * *", "duration": "4h"}]), "2026-06-01T22:00"),
        (
            wishes(windows=[{"schedule": "0 22 * * *", "duration": "4h", "timeZone": "Asia/Tokyo"}]),
            "2026-06-01T13:00",
        ),
        (wishes(windows=[{"schedule": "0 11 * * *", "duration": "4h"}]), None),
        (wishes(freezes=[{"start": "2026-05-20", "end": "2026-06-03"}]), "2026-06-03T00:00"),
        (wishes(freezes=[{"start": "2026-07-20", "end": "2026-08-03"}]), None),
        (wishes(freezes=[{"start": "2026-01-20", "end": "2026-02-03"}]), None),
        (
            wishes(
                {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"},
                windows=[{"schedule": "0 14 * * *", "duration": "1h"}],
            ),
            "2026-06-01T14:00",
        ),
    ],
)
def test_what_ends_or_opens_first(pool: PoolWishes, when: str | None) -> None:
    expected = datetime.fromisoformat(f"{when}:00+00:00") if when else None
    assert reopens([wishes(), pool], NOON) == expected


def test_a_rate_frees_the_next_when_the_first_of_those_that_went_is_past_it() -> None:
    went = [Disrupted(pool="a", reason="Empty", at=NOON - timedelta(minutes=ago)) for ago in (50, 20, 90)]
    other = Disrupted(pool="b", reason="Empty", at=NOON - timedelta(minutes=59))
    pool = wishes(rates=[{"nodes": "2", "within": "1h"}])
    assert opens(pool, [*went, other], [], NOON) == NOON + timedelta(minutes=10)
    assert opens(wishes(), went, [], NOON) is None


def test_a_node_comes_of_age() -> None:
    asking = [Asking(created=NOON - timedelta(minutes=one)) for one in (10, 30, 70)]
    assert opens(wishes(minimumNodeAge="1h"), [], asking, NOON) == NOON + timedelta(minutes=30)
    assert opens(wishes(minimumNodeAge="soon"), [], asking, NOON) is None


def test_a_window_may_open_before_a_node_comes_of_age() -> None:
    pool = wishes(windows=[{"schedule": "0 14 * * *", "duration": "1h"}], minimumNodeAge="12h")
    assert opens(pool, [], [Asking(created=NOON)], NOON) == NOON + timedelta(hours=2)
