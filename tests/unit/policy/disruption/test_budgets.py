"""Disruption budgets: arithmetic, reasons, windows in UTC, and invalid budgets."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tenure.apis.cron import MACROS
from tenure.apis.nodepool import Budget
from tenure.model.workflow_states import NodePoolCount
from tenure.policy.disruption.budgets import decide_allowed_disruptions, is_active, share_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""A Monday."""


def count(total: int, consuming: int = 0) -> NodePoolCount:
    names = tuple(f"uid-{number}" for number in range(total))
    return NodePoolCount(existing=names, consuming=names[:consuming])


def allowed(budgets: list[dict[str, Any]], nodes: NodePoolCount, *, reason: str = "Empty", now: datetime = NOON) -> int:
    found = [Budget.model_validate(one) for one in budgets]
    return decide_allowed_disruptions(found, nodes, reason=reason, now=now).allowed


@pytest.mark.parametrize(
    ("written", "total", "nodes"),
    [
        ("0", 10, 0),
        ("3", 10, 3),
        ("3", 1, 3),
        ("0%", 10, 0),
        ("10%", 0, 0),
        ("10%", 1, 1),
        ("10%", 2, 1),
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("55%", 20, 11),
        ("100%", 7, 7),
    ],
)
def test_percentage_of_nodes_is_rounded_up(written: str, total: int, nodes: int) -> None:
    assert share_of(written, total) == nodes


@pytest.mark.parametrize(
    ("budgets", "nodes", "left"),
    [
        ([{"nodes": "2"}], count(5), 2),
        ([{"nodes": "2"}], count(5, 1), 1),
        ([{"nodes": "2"}], count(5, 2), 0),
        ([{"nodes": "2"}], count(5, 4), 0),
        ([{"nodes": "10%"}], count(2, 1), 0),
        ([{"nodes": "50%"}, {"nodes": "1"}], count(10), 1),
        ([{"nodes": "0"}, {"nodes": "100%"}], count(10), 0),
        ([], count(4), 4),
    ],
)
def test_strictest_budget_counts_minus_consuming_nodes(
    budgets: list[dict[str, Any]], nodes: NodePoolCount, left: int
) -> None:
    assert allowed(budgets, nodes) == left


def test_notready_nodes_use_the_budget_of_every_reason_but_repair() -> None:
    nodes = NodePoolCount(existing=("a", "b", "c", "d"), consuming=("a", "b", "c"), unavailable=("a", "b"))
    budgets = [Budget.model_validate({"nodes": "2"})]
    repair = decide_allowed_disruptions(budgets, nodes, reason="Unhealthy", now=datetime(2026, 6, 1, tzinfo=UTC))
    assert (repair.allowed, repair.allowed_unavailable) == (1, 1)
    assert repair.why == "budget 2 of 4 nodes allows 2, 1 in use (terminating)"
    assert allowed([{"nodes": "2"}], nodes) == 0


@pytest.mark.parametrize(
    ("budgets", "reason", "left"),
    [
        ([{"nodes": "0", "reasons": ["Drifted"]}], "Empty", 10),
        ([{"nodes": "0", "reasons": ["Drifted"]}], "Drifted", 0),
        ([{"nodes": "0", "reasons": ["Drifted", "Empty"]}], "Empty", 0),
        ([{"nodes": "3"}, {"nodes": "1", "reasons": ["Empty"]}], "Empty", 1),
        ([{"nodes": "3"}, {"nodes": "1", "reasons": ["Empty"]}], "Drifted", 3),
        ([{"nodes": "0"}], "Empty", 0),
        ([{"nodes": "0", "reasons": None}], "Empty", 0),
        ([{"nodes": "0", "reasons": []}], "Empty", 10),
        ([{"nodes": "3"}, {"nodes": "0", "reasons": []}], "Unhealthy", 3),
        ([{"nodes": "0", "reasons": ["Unhealthy"]}], "Unhealthy", 0),
        ([{"nodes": "0", "reasons": ["Unhealthy"]}], "Empty", 10),
        ([{"nodes": "0", "reasons": ["Unhealthy"]}], "Drifted", 10),
        ([{"nodes": "0", "reasons": ["Unhealthy"]}], "Underutilized", 10),
    ],
)
def test_budget_applies_to_its_reasons_or_to_all_without_reasons(
    budgets: list[dict[str, Any]], reason: str, left: int
) -> None:
    assert allowed(budgets, count(10), reason=reason) == left


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "active"),
    [
        ("0 9 * * *", "8h", datetime(2026, 6, 1, 8, 59, tzinfo=UTC), False),
        ("0 9 * * *", "8h", datetime(2026, 6, 1, 9, 0, tzinfo=UTC), True),
        ("0 9 * * *", "8h", datetime(2026, 6, 1, 16, 59, tzinfo=UTC), True),
        ("0 9 * * *", "8h", datetime(2026, 6, 1, 17, 1, tzinfo=UTC), False),
        ("0 9 * * 1-5", "8h", datetime(2026, 6, 6, 12, 0, tzinfo=UTC), False),
        ("0 22 * * *", "4h", datetime(2026, 6, 2, 1, 0, tzinfo=UTC), True),
        ("30 23 31 12 *", "2h30m", datetime(2027, 1, 1, 1, 30, tzinfo=UTC), True),
        ("@daily", "10m", datetime(2026, 6, 1, 0, 5, tzinfo=UTC), True),
        ("@daily", "10m", datetime(2026, 6, 1, 0, 15, tzinfo=UTC), False),
        ("@hourly", "30m", datetime(2026, 6, 1, 12, 29, tzinfo=UTC), True),
        ("@hourly", "30m", datetime(2026, 6, 1, 12, 31, tzinfo=UTC), False),
        ("@weekly", "24h", datetime(2026, 6, 7, 12, 0, tzinfo=UTC), True),
        ("@monthly", "24h", datetime(2026, 6, 1, 12, 0, tzinfo=UTC), True),
        ("@yearly", "24h", datetime(2026, 1, 1, 12, 0, tzinfo=UTC), True),
    ],
)
def test_budget_is_active_for_its_duration_after_each_scheduled_time(
    schedule: str, duration: str, now: datetime, active: bool
) -> None:
    assert is_active(Budget(nodes="1", schedule=schedule, duration=duration), now) is active


def test_schedule_is_evaluated_in_utc() -> None:
    budget = Budget(nodes="1", schedule="0 9 * * *", duration="1h")
    berlin = timezone(timedelta(hours=2))
    assert is_active(budget, datetime(2026, 6, 1, 11, 30, tzinfo=berlin))
    assert not is_active(budget, datetime(2026, 6, 1, 9, 30, tzinfo=berlin))


def test_inactive_budget_limits_nothing() -> None:
    closed = {"nodes": "0", "schedule": "0 9 * * *", "duration": "1h"}
    assert allowed([closed], count(3)) == 3
    assert allowed([closed, {"nodes": "2"}], count(3)) == 2
    assert allowed([closed], count(3), now=NOON.replace(hour=9, minute=30)) == 0


def test_macros_are_those_of_the_crd() -> None:
    names = ("annually", "yearly", "monthly", "weekly", "daily", "midnight", "hourly")
    assert set(MACROS) == {f"@{name}" for name in names}


@pytest.mark.parametrize(
    "budget",
    [
        {"nodes": "five"},
        {"nodes": "%"},
        {"nodes": "1", "schedule": "99 9 * * *", "duration": "1h"},
        {"nodes": "1", "schedule": "@fortnightly", "duration": "1h"},
        {"nodes": "1", "schedule": "0 9 * * *", "duration": "a while"},
    ],
)
def test_invalid_budget_allows_no_disruption_and_is_named(budget: dict[str, Any]) -> None:
    budgets = [Budget(nodes="100%"), Budget.model_validate(budget)]
    found = decide_allowed_disruptions(budgets, count(10), reason="Empty", now=NOON)
    assert found.allowed == 0
    assert "cannot be read" in found.why


def test_explanation_contains_the_arithmetic() -> None:
    found = decide_allowed_disruptions([Budget(nodes="10%")], count(12, 1), reason="Empty", now=NOON)
    assert found.allowed == 1
    assert found.why == "budget 10% of 12 nodes allows 2, 1 in use (NotReady or terminating)"
