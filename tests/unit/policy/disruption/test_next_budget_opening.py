"""When time alone lets more nodes go than now."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.apis.nodepool import Budget
from tenure.model.disruption.decision import PastDisruption
from tenure.policy.disruption.budgets import PermitCandidate
from tenure.policy.disruption.limits import PoolDisruptionRules, next_budget_opening, next_pool_opening

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""A Monday."""


def pool_rules(*budgets: dict[str, Any], **rules: Any) -> PoolDisruptionRules:
    found = [Budget.model_validate(one) for one in budgets]
    return PoolDisruptionRules("a", found, DisruptionRules.model_validate(rules) if rules else None)


@pytest.mark.parametrize(
    ("pool", "when"),
    [
        (pool_rules(), None),
        (pool_rules({"nodes": "0"}), None),
        (pool_rules({"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}), "2026-06-01T17:00"),
        (pool_rules({"nodes": "0", "schedule": "0 13 * * *", "duration": "8h"}), None),
        (pool_rules({"nodes": "0", "schedule": "every day", "duration": "8h"}), None),
        (pool_rules(windows=[{"schedule": "0 22 * * *", "duration": "4h"}]), "2026-06-01T22:00"),
        (
            pool_rules(windows=[{"schedule": "0 22 * * *", "duration": "4h", "timeZone": "Asia/Tokyo"}]),
            "2026-06-01T13:00",
        ),
        (pool_rules(windows=[{"schedule": "0 11 * * *", "duration": "4h"}]), None),
        (pool_rules(freezes=[{"start": "2026-05-20", "end": "2026-06-03"}]), "2026-06-03T00:00"),
        (pool_rules(freezes=[{"start": "2026-07-20", "end": "2026-08-03"}]), None),
        (pool_rules(freezes=[{"start": "2026-01-20", "end": "2026-02-03"}]), None),
        (
            pool_rules(
                {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"},
                windows=[{"schedule": "0 14 * * *", "duration": "1h"}],
            ),
            "2026-06-01T14:00",
        ),
    ],
)
def test_what_ends_or_opens_first(pool: PoolDisruptionRules, when: str | None) -> None:
    expected = datetime.fromisoformat(f"{when}:00+00:00") if when else None
    assert next_budget_opening([pool_rules(), pool], NOON) == expected


def test_a_rate_frees_the_next_when_the_first_of_those_that_went_is_past_it() -> None:
    went = [PastDisruption(pool="a", reason="Empty", at=NOON - timedelta(minutes=ago)) for ago in (50, 20, 90)]
    other = PastDisruption(pool="b", reason="Empty", at=NOON - timedelta(minutes=59))
    pool = pool_rules(rates=[{"nodes": "2", "within": "1h"}])
    assert next_pool_opening(pool, [*went, other], [], NOON) == NOON + timedelta(minutes=10)
    assert next_pool_opening(pool_rules(), went, [], NOON) is None


def test_a_node_comes_of_age() -> None:
    candidates = [PermitCandidate(created=NOON - timedelta(minutes=one)) for one in (10, 30, 70)]
    assert next_pool_opening(pool_rules(minimumNodeAge="1h"), [], candidates, NOON) == NOON + timedelta(minutes=30)
    assert next_pool_opening(pool_rules(minimumNodeAge="soon"), [], candidates, NOON) is None


def test_a_window_may_open_before_a_node_comes_of_age() -> None:
    pool = pool_rules(windows=[{"schedule": "0 14 * * *", "duration": "1h"}], minimumNodeAge="12h")
    assert next_pool_opening(pool, [], [PermitCandidate(created=NOON)], NOON) == NOON + timedelta(hours=2)
