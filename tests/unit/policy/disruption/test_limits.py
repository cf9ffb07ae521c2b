"""Allowed disruptions by budgets and LifecyclePolicies, and the times at which limits open."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.apis.nodepool import Budget
from tenure.model.disruption.decision import METHODS, Method, PastDisruption
from tenure.model.operator_requests import InvalidRules
from tenure.policy.disruption.budgets import PermitCandidate
from tenure.policy.disruption.limits import (
    NodeCounted,
    PoolDisruptionRules,
    decide_limits,
    decide_pool_budgets,
    next_budget_opening,
    next_pool_opening,
    problems_of,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""A Monday."""


def nodes(total: int, consuming: int = 0, *, pool: str = "a", zone: str = "z1") -> list[NodeCounted]:
    return [
        NodeCounted(uid=f"{pool}-{zone}-{number}", pool=pool, zone=zone, consuming=number < consuming)
        for number in range(total)
    ]


def pool_rules(name: str = "a", *budgets: dict[str, Any], **rules: Any) -> PoolDisruptionRules:
    found = [Budget.model_validate(one) for one in budgets]
    return PoolDisruptionRules(name, found, DisruptionRules.model_validate(rules) if rules else None)


def past_disruptions(reason: Method, *hours_ago: float, pool: str = "a") -> list[PastDisruption]:
    return [PastDisruption(pool=pool, reason=reason, at=NOON - timedelta(hours=ago)) for ago in hours_ago]


def headroom(
    pool: PoolDisruptionRules,
    counted: list[NodeCounted],
    *,
    reason: Method = "Drifted",
    past: list[PastDisruption] | None = None,
    now: datetime = NOON,
) -> tuple[int, str]:
    found = decide_pool_budgets([pool], counted, past or [], now).pools[pool.name][reason]
    return found.allowed, found.why


def test_budgets_are_decided_per_nodepool_and_reason() -> None:
    found = decide_pool_budgets(
        [
            pool_rules("a", {"nodes": "2"}),
            pool_rules("b", {"nodes": "50%", "reasons": ["Drifted"]}, {"nodes": "0", "reasons": ["Empty"]}),
        ],
        [*nodes(5, 1), *nodes(4, pool="b")],
        [],
        NOON,
    )
    assert {method: one.allowed for method, one in found.pools["a"].items()} == dict.fromkeys(METHODS, 1)
    assert {method: one.allowed for method, one in found.pools["b"].items()} == {
        "Empty": 0,
        "Expired": 4,
        "Drifted": 2,
        "Underutilized": 4,
        "Unhealthy": 4,
    }


def test_invalid_budget_blocks_only_its_nodepool_and_is_named() -> None:
    broken = pool_rules(
        "a", {"nodes": "5"}, {"nodes": "1", "schedule": "0 25 * * *", "duration": "1h", "reasons": ["Empty"]}
    )
    found = decide_pool_budgets([broken, pool_rules("b", {"nodes": "1"})], [*nodes(5), *nodes(5, pool="b")], [], NOON)
    assert {one.allowed for one in found.pools["a"].values()} == {0}
    assert {one.allowed for one in found.pools["b"].values()} == {1}
    assert all("cannot be read: schedule '0 25 * * *'" in one.why for one in found.pools["a"].values())


@pytest.mark.parametrize(
    ("rate", "past", "left"),
    [
        ({"nodes": "3", "within": "24h"}, [], 3),
        ({"nodes": "3", "within": "24h"}, past_disruptions("Drifted", 1, 5), 1),
        ({"nodes": "3", "within": "24h"}, past_disruptions("Drifted", 1, 5, 23.9), 0),
        ({"nodes": "3", "within": "24h"}, past_disruptions("Drifted", 1, 5, 24), 1),
        ({"nodes": "3", "within": "1h"}, past_disruptions("Drifted", 0.5, 5, 23), 2),
        ({"nodes": "3", "within": "24h"}, past_disruptions("Empty", 1, 2, 3), 0),
        ({"nodes": "3", "within": "24h", "reasons": ["Drifted"]}, past_disruptions("Empty", 1, 2, 3), 3),
        ({"nodes": "3", "within": "24h", "reasons": ["Empty"]}, past_disruptions("Empty", 1, 2, 3), 20),
        ({"nodes": "3", "within": "24h"}, past_disruptions("Drifted", 1, 2, 3, pool="b"), 3),
        ({"nodes": "10%", "within": "24h"}, past_disruptions("Drifted", 1), 1),
    ],
)
def test_rate_counts_past_disruptions_within_its_period(
    rate: dict[str, Any], past: list[PastDisruption], left: int
) -> None:
    assert headroom(pool_rules("a", rates=[rate]), nodes(20), past=past)[0] == left


def test_exhausted_rate_names_the_next_time() -> None:
    reason = headroom(
        pool_rules("a", rates=[{"nodes": "1", "within": "4h"}]), nodes(20), past=past_disruptions("Drifted", 1, 3)
    )[1]
    assert reason == "rate 1 of 20 nodes within 4h: 2 disrupted, next disruption at 2026-06-01T13:00+00:00"


BERLIN = {"schedule": "0 2 * * *", "duration": "2h", "timeZone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        # In summer, 02:00 in Berlin is 00:00 UTC.
        (datetime(2026, 6, 1, 0, 0, tzinfo=UTC), True),
        (datetime(2026, 6, 1, 1, 59, tzinfo=UTC), True),
        (datetime(2026, 6, 1, 2, 0, tzinfo=UTC), False),
        (datetime(2026, 5, 31, 23, 59, tzinfo=UTC), False),
        # In winter, 02:00 in Berlin is 01:00 UTC.
        (datetime(2026, 12, 1, 0, 30, tzinfo=UTC), False),
        (datetime(2026, 12, 1, 1, 30, tzinfo=UTC), True),
        # On 29 March 02:00 does not exist, so the window opens at 03:00, which is 01:00 UTC.
        (datetime(2026, 3, 29, 1, 30, tzinfo=UTC), True),
        (datetime(2026, 3, 29, 0, 30, tzinfo=UTC), False),
    ],
)
def test_window_follows_its_time_zone_and_summer_time(now: datetime, is_open: bool) -> None:
    assert (headroom(pool_rules("a", windows=[BERLIN]), nodes(3), now=now)[0] > 0) is is_open


def test_window_opens_once_in_an_hour_that_comes_twice() -> None:
    """On 25 October, 02:00 to 03:00 in Berlin comes twice: from 00:00 UTC and from 01:00 UTC."""
    pool = pool_rules("a", windows=[{"schedule": "45 2 * * *", "duration": "10m", "timeZone": "Europe/Berlin"}])
    times = [datetime(2026, 10, 25, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(180)]
    opened = [f"{now:%H:%M}" for now in times if headroom(pool, nodes(3), now=now)[0]]
    assert opened == [f"00:{minute}" for minute in range(45, 55)]


def test_closed_window_names_its_opening_and_applies_to_its_reasons() -> None:
    pool = pool_rules("a", windows=[BERLIN | {"reasons": ["Drifted"]}])
    assert headroom(pool, nodes(3)) == (0, "outside of its windows, the next opens at 2026-06-02T02:00+02:00")
    assert headroom(pool, nodes(3), reason="Empty")[0] == 3


def test_one_open_window_is_sufficient() -> None:
    lunch = {"schedule": "0 12 * * *", "duration": "30m"}
    assert headroom(pool_rules("a", windows=[BERLIN, lunch]), nodes(3))[0] == 3


@pytest.mark.parametrize(
    ("freeze", "left"),
    [
        ({"start": "2026-06-01", "end": "2026-06-02"}, 0),
        ({"start": "2026-06-01T12:00", "end": "2026-06-01T12:30"}, 0),
        ({"start": "2026-06-01T12:00:00+02:00", "end": "2026-06-01T12:00:00Z"}, 3),
        ({"start": "2026-06-01T14:00:00+02:00", "end": "2026-06-01T12:00:01Z"}, 0),
        ({"start": "2026-06-01T12:30", "end": "2026-06-02"}, 3),
        ({"start": "2026-05-01", "end": "2026-06-01T12:00"}, 3),
        ({"start": "2026-06-01T13:30", "end": "2026-06-02", "timeZone": "Europe/Berlin"}, 0),
        ({"start": "2026-06-01", "end": "2026-06-02", "reasons": ["Empty"]}, 3),
    ],
)
def test_freeze_blocks_between_start_and_end(freeze: dict[str, Any], left: int) -> None:
    assert headroom(pool_rules("a", freezes=[freeze]), nodes(3))[0] == left


def test_freeze_message_has_end_and_reason() -> None:
    reason = headroom(
        pool_rules("a", freezes=[{"start": "2026-06-01", "end": "2026-06-03", "why": "audit"}]), nodes(3)
    )[1]
    assert reason == "frozen until 2026-06-03T00:00+00:00: audit"


def test_budgets_per_zone_and_zones_at_once() -> None:
    pool = pool_rules("a", perZone={"nodes": "50%", "zonesAtOnce": 2})
    found = decide_pool_budgets(
        [pool], [*nodes(4, 1, zone="z1"), *nodes(3, zone="z2"), *nodes(9, pool="b", zone="z3")], [], NOON
    )
    assert {zone: one.allowed for zone, one in found.zones["a"].items()} == {"z1": 1, "z2": 2}
    assert found.zones_at_once["a"].max_zones == 2 and found.zones_at_once["a"].active_zones == ("z1",)
    assert "b" not in found.zones


@pytest.mark.parametrize(("limit", "left"), [("2", 0), ("3", 0), ("4", 1), ("50%", 2), ("0", 0)])
def test_cluster_budget_counts_nodes_of_all_nodepools(limit: str, left: int) -> None:
    found = decide_pool_budgets([pool_rules("a", clusterNodes=limit)], [*nodes(4, 1), *nodes(6, 2, pool="b")], [], NOON)
    assert found.cluster["a"].allowed == left


def test_minimum_node_age_is_returned() -> None:
    assert decide_pool_budgets([pool_rules("a", minimumNodeAge="30m")], [], [], NOON).youngest == {
        "a": timedelta(minutes=30)
    }


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"minimumNodeAge": "0s"}, "spec.disruption.minimumNodeAge: '0s': invalid duration, expected e.g. 30m"),
        ({"windows": [BERLIN | {"timeZone": "Berlin"}]}, "spec.disruption.windows[0]: timeZone 'Berlin': unknown"),
        ({"windows": [BERLIN | {"timeZone": "../etc"}]}, "timeZone '../etc': unknown"),
        ({"windows": [BERLIN, BERLIN | {"schedule": "0 25 * * *"}]}, "windows[1]: schedule '0 25 * * *'"),
        ({"windows": [BERLIN | {"schedule": "0 0 31 2 *"}]}, "schedule '0 0 31 2 *'"),
        ({"freezes": [{"start": "2026-13-01", "end": "2026-12-01"}]}, "'2026-13-01': invalid time, expected"),
        (
            {"freezes": [{"start": "2026-12-02", "end": "2026-12-01"}]},
            "end '2026-12-01' is not after start '2026-12-02'",
        ),
        ({"rates": [{"nodes": "1", "within": "0h"}]}, "rates[0]: '0h': invalid duration"),
        ({"clusterNodes": "some"}, "clusterNodes: 'some': invalid number of nodes, expected e.g. '5'"),
        ({"perZone": {"nodes": "half"}}, "perZone.nodes: 'half': invalid number of nodes"),
    ],
)
def test_invalid_rule_is_named_and_blocks_its_nodepool(rules: dict[str, Any], expected: str) -> None:
    (problem,) = problems_of(DisruptionRules.model_validate(rules))
    assert expected in problem
    found = decide_pool_budgets([pool_rules("a", **rules), pool_rules("b")], [*nodes(3), *nodes(3, pool="b")], [], NOON)
    assert {one.allowed for one in found.pools["a"].values()} == {0}
    assert {one.allowed for one in found.pools["b"].values()} == {3}
    assert all(one.why.startswith("disruption") for one in found.pools["a"].values())


@pytest.mark.parametrize(
    ("pool", "fixed"),
    [
        (pool_rules("a", {"nodes": "0"}), True),
        (pool_rules("a", {"nodes": "0%"}), True),
        (pool_rules("a", {"nodes": "1"}), False),
        (pool_rules("a", {"nodes": "1%"}), False),
        (pool_rules("a", {"nodes": "0", "reasons": ["Empty"]}), False),
        (pool_rules("a", {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}), True),
        (pool_rules("a", {"nodes": "0", "schedule": "0 13 * * *", "duration": "8h"}), False),
        (pool_rules("a", {"nodes": "0", "schedule": "at noon", "duration": "8h"}), True),
        (pool_rules("a", freezes=[{"start": "2026-05-20", "end": "2026-06-03"}]), True),
        (pool_rules("a", freezes=[{"start": "2026-07-20", "end": "2026-08-03"}]), False),
        (pool_rules("a", windows=[{"schedule": "0 22 * * *", "duration": "4h"}]), True),
        (pool_rules("a", windows=[{"schedule": "0 11 * * *", "duration": "4h"}]), False),
        (pool_rules("a", rates=[{"nodes": "many", "within": "1h"}]), True),
        (pool_rules("a", rates=[{"nodes": "1", "within": "1h"}]), False),
        (PoolDisruptionRules("a", unread=InvalidRules(rollout="LifecyclePolicy p: spec.rollout: no")), True),
    ],
)
def test_limit_that_no_node_can_change_is_fixed(pool: PoolDisruptionRules, fixed: bool) -> None:
    found = decide_limits(pool, nodes(4, 1), past_disruptions("Drifted", 0.5), reason="Drifted", now=NOON)
    assert found.fixed is fixed


def test_unreadable_rules_block_the_disruptions_they_may_limit() -> None:
    all_blocked = PoolDisruptionRules("a", unread=InvalidRules(disruption="LifecyclePolicy p: spec.disruption: no"))
    drift_blocked = PoolDisruptionRules("b", unread=InvalidRules(rollout="LifecyclePolicy p: spec.rollout: no"))
    both = [*nodes(20), *nodes(20, pool="b")]
    found = decide_pool_budgets([all_blocked, drift_blocked, pool_rules("c")], [*both, *nodes(20, pool="c")], [], NOON)
    assert {method: one.allowed for method, one in found.pools["a"].items()} == dict.fromkeys(METHODS, 0)
    assert found.pools["a"]["Empty"].why == "LifecyclePolicy p: spec.disruption: no"
    assert {method: one.allowed for method, one in found.pools["b"].items()} == {
        "Empty": 20,
        "Expired": 20,
        "Drifted": 0,
        "Unhealthy": 20,
        "Underutilized": 20,
    }
    assert found.pools["c"]["Drifted"].allowed == 20
    assert found.pools["b"]["Drifted"].why == "LifecyclePolicy p: spec.rollout: no"
    assert decide_limits(all_blocked, both, [], reason="Expired", now=NOON).allowed == 0


@pytest.mark.parametrize(
    ("pool", "when"),
    [
        (pool_rules(), None),
        (pool_rules("a", {"nodes": "0"}), None),
        (pool_rules("a", {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}), "2026-06-01T17:00"),
        (pool_rules("a", {"nodes": "0", "schedule": "0 13 * * *", "duration": "8h"}), None),
        (pool_rules("a", {"nodes": "0", "schedule": "every day", "duration": "8h"}), None),
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
                "a",
                {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"},
                windows=[{"schedule": "0 14 * * *", "duration": "1h"}],
            ),
            "2026-06-01T14:00",
        ),
    ],
)
def test_next_budget_opening_is_the_earliest_change(pool: PoolDisruptionRules, when: str | None) -> None:
    expected = datetime.fromisoformat(f"{when}:00+00:00") if when else None
    assert next_budget_opening([pool_rules(), pool], NOON) == expected


def test_rate_opens_when_an_old_disruption_leaves_its_period() -> None:
    past = [PastDisruption(pool="a", reason="Empty", at=NOON - timedelta(minutes=ago)) for ago in (50, 20, 90)]
    other = PastDisruption(pool="b", reason="Empty", at=NOON - timedelta(minutes=59))
    pool = pool_rules(rates=[{"nodes": "2", "within": "1h"}])
    assert next_pool_opening(pool, [*past, other], [], NOON) == NOON + timedelta(minutes=10)
    assert next_pool_opening(pool_rules(), past, [], NOON) is None


def test_minimum_node_age_opens_when_a_candidate_reaches_it() -> None:
    candidates = [PermitCandidate(created=NOON - timedelta(minutes=one)) for one in (10, 30, 70)]
    assert next_pool_opening(pool_rules(minimumNodeAge="1h"), [], candidates, NOON) == NOON + timedelta(minutes=30)
    assert next_pool_opening(pool_rules(minimumNodeAge="soon"), [], candidates, NOON) is None


def test_window_may_open_before_a_candidate_reaches_the_minimum_age() -> None:
    pool = pool_rules(windows=[{"schedule": "0 14 * * *", "duration": "1h"}], minimumNodeAge="12h")
    assert next_pool_opening(pool, [], [PermitCandidate(created=NOON)], NOON) == NOON + timedelta(hours=2)
