"""Permits: which requests are granted and why others wait, reservations, records, and due times of checks."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tenure.model.disruption.decision import BudgetHeadroom, ConcurrentZoneLimit, PastDisruption
from tenure.model.disruption.permits import PermitReservation, ReservationRequest
from tenure.model.signals import PermitRequest
from tenure.model.workflow_states import NodePoolCount, Permit
from tenure.policy.disruption.budgets import AllowedDisruptions, PermitCandidate
from tenure.policy.disruption.permits import (
    FIXED_CHECK_INTERVAL,
    MAX_RECORDED,
    PermitDecisions,
    decide_permits,
    merge_records,
    next_check_at,
    parse_record,
    request_key,
    reservations_lapse_at,
    reserved_by_others,
    serialize_record,
    stable_cause,
    update_record,
    update_reservations,
)
from tests.unit.policy.builders import NOW, after


def permit_request(name: str, *, by: str = "", reason: Any = "Empty", minutes_ago: float = 1) -> PermitRequest:
    since = NOW - timedelta(minutes=minutes_ago)
    return PermitRequest(claim_name=name, claim_uid=name, workflow_id=by or f"node/{name}", reason=reason, since=since)


def permit(name: str, *, by: str = "", minutes: float = 1, reason: str = "Empty") -> Permit:
    until = NOW + timedelta(minutes=minutes)
    owner = by or f"node/{name}"
    return Permit(
        claim_name=name,
        claim_uid=name,
        reason=reason,
        until=until,
        workflow_id=owner,
        since=until - timedelta(minutes=2),
    )


def allowed_disruptions(
    allowed: int, *existing: str, consuming: tuple[str, ...] = (), unavailable: tuple[str, ...] = (), **more: Any
) -> AllowedDisruptions:
    count = NodePoolCount(existing=(*existing, *consuming), consuming=consuming, unavailable=unavailable)
    candidates = {
        one: PermitCandidate(zone=one.partition("-")[0], created=NOW - timedelta(hours=1)) for one in count.existing
    }
    return AllowedDisruptions(allowed=allowed, count=count, why="said", candidates=candidates, **more)


def decide(
    requests: list[PermitRequest], allowance: AllowedDisruptions, *permits: Permit, blocked_by: str = ""
) -> PermitDecisions:
    reasons = {one.reason for one in requests} or {"Empty"}
    return decide_permits("gpu", requests, permits, dict.fromkeys(reasons, allowance), NOW, blocked_by=blocked_by)


def with_starting_node(name: str, allowance: AllowedDisruptions) -> AllowedDisruptions:
    """Budgets do not count a node that was never initialized."""
    candidates = {**allowance.candidates, name: PermitCandidate(created=NOW, initialized=False)}
    return allowance.model_copy(update={"candidates": candidates})


def names(requests: tuple[PermitRequest, ...]) -> list[str]:
    return [one.claim_name for one in requests]


def test_longest_waiting_requests_are_granted_first() -> None:
    found = decide(
        [permit_request("a"), permit_request("b", minutes_ago=5), permit_request("c", minutes_ago=3)],
        allowed_disruptions(2, "a", "b", "c"),
    )
    assert names(found.granted) == ["b", "c"]
    assert found.why[request_key(permit_request("a"))] == "NodePool gpu: said, 2 permits granted"


def test_repair_of_a_node_that_never_initialized_needs_no_budget_and_no_minimum_age() -> None:
    nothing = with_starting_node("a", allowed_disruptions(0, "b", minimum_node_age=timedelta(days=1)))
    requests = [permit_request("a", reason="Unhealthy"), permit_request("b", reason="Unhealthy")]
    assert names(decide(requests, nothing).granted) == ["a"]
    assert names(decide([permit_request("a")], nothing).granted) == []
    young = allowed_disruptions(1, "b", minimum_node_age=timedelta(days=1))
    assert names(decide([permit_request("b", reason="Unhealthy")], young).granted) == ["b"]


def test_permit_for_a_node_that_never_initialized_uses_no_budget() -> None:
    budget = with_starting_node("a", allowed_disruptions(1, "b", "c"))
    requests = [permit_request("b", reason="Unhealthy", minutes_ago=2), permit_request("c", reason="Unhealthy")]
    found = decide(requests, budget, permit("a", reason="Unhealthy"))
    assert names(found.granted) == ["b"] and found.active and not found.deleted
    first = permit_request("a", reason="Unhealthy", minutes_ago=3)
    assert names(decide([first, *requests], budget).granted) == ["a", "b"]


def test_granted_permit_consumes_the_budget_until_its_node_does() -> None:
    requests = [permit_request("a")]
    assert names(decide(requests, allowed_disruptions(1, "a", "b"), permit("b")).granted) == []
    assert names(decide(requests, allowed_disruptions(1, "a", consuming=("b",)), permit("b")).granted) == ["a"]
    assert names(decide(requests, allowed_disruptions(1, "a", "b"), permit("b", minutes=-1)).granted) == ["a"]


def test_unavailable_nodes_wait_only_for_nodes_that_are_disrupted() -> None:
    requests = [permit_request("a"), permit_request("b"), permit_request("c")]
    lost: dict[str, Any] = {"consuming": ("a", "b"), "unavailable": ("a", "b"), "allowed_unavailable": 1}
    found = decide(requests, allowed_disruptions(0, "c", **lost))
    assert names(found.granted) == ["a"]
    assert set(found.why) == {request_key(permit_request(name)) for name in "bc"}
    held = decide(requests[1:], allowed_disruptions(0, "c", **lost), permit("a"))
    assert held.active == (permit("a"),) and names(held.granted) == []
    lapsed = decide(requests[1:], allowed_disruptions(0, "c", **lost), permit("a", minutes=-1))
    assert lapsed.active == () and names(lapsed.granted) == ["b"]
    closed: dict[str, Any] = {**lost, "allowed_unavailable": 0}
    assert names(decide(requests, allowed_disruptions(0, "c", **closed)).granted) == []


@pytest.mark.parametrize("first", ["a", "b"])
def test_limits_that_ignore_unavailable_nodes_count_their_permits(first: str) -> None:
    """Rates, and budgets for repair: `allowed` does not count the NotReady node `a`."""
    limit = allowed_disruptions(1, "b", consuming=("a",), unavailable=("a",))
    requests = [permit_request(name, minutes_ago=5 if name == first else 1) for name in "ab"]
    assert names(decide(requests, limit).granted) == [first]
    other = [one for one in requests if one.claim_name != first]
    assert names(decide(other, limit, permit(first)).granted) == []


def test_permit_counts_while_its_disruption_may_still_begin() -> None:
    six = {"begins_within": timedelta(minutes=6)}
    valid, lapsed = (permit("b", by="command", minutes=ago).model_copy(update=six) for ago in (-5, -7))
    assert names(decide([permit_request("a")], allowed_disruptions(1, "a", "b"), valid).granted) == []
    assert names(decide([permit_request("a")], allowed_disruptions(1, "a", "b"), lapsed).granted) == ["a"]
    found = decide([permit_request("b")], allowed_disruptions(5, "b"), valid)
    assert (
        "command holds a permit for b: Empty, until 2026-06-01T12:01:00" in found.why[request_key(permit_request("b"))]
    )
    unread = AllowedDisruptions(allowed=0, read=False, why="no answer")
    assert decide([], unread, valid, lapsed).active == (valid,)


def test_expired_permit_stays_active_while_its_node_terminates() -> None:
    lapsed = permit("b", minutes=-30)
    assert decide([], allowed_disruptions(1, "a", consuming=("b",)), lapsed).active == (lapsed,)
    assert decide([], allowed_disruptions(1, "a", "b"), lapsed).active == ()
    assert decide([], allowed_disruptions(1, "a"), lapsed).deleted == (lapsed,)


def test_node_is_permitted_to_one_workflow_only() -> None:
    command = permit_request("a", by="disruption/1", reason="Drifted", minutes_ago=5)
    found = decide([permit_request("a"), command], allowed_disruptions(5, "a"))
    assert [one.workflow_id for one in found.granted] == ["disruption/1"]
    assert "disruption/1 holds a permit for a: Drifted" in found.why[request_key(permit_request("a"))]


def test_permit_for_a_terminating_node_is_renewed_without_budget() -> None:
    found = decide([permit_request("a")], allowed_disruptions(0, consuming=("a",)), permit("a", minutes=-1))
    assert names(found.granted) == ["a"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"cluster": BudgetHeadroom(allowed=0, why="clusterNodes 3")}, "all NodePools: clusterNodes 3"),
        ({"minimum_node_age": timedelta(hours=2)}, "younger than minimumNodeAge 2h"),
        ({"zones": {"z1": BudgetHeadroom(allowed=0, why="perZone")}}, "NodePool gpu in z1: perZone"),
        (
            {"zones_at_once": ConcurrentZoneLimit(max_zones=1, active_zones=("z2",))},
            "nodes are disrupted in z2, and perZone.zonesAtOnce is 1: z1",
        ),
    ],
)
def test_policy_limit_rejects_a_request_and_is_named(limits: dict[str, Any], why: str) -> None:
    found = decide([permit_request("z1-a")], allowed_disruptions(5, "z1-a", **limits))
    assert names(found.granted) == [] and why in found.why[request_key(permit_request("z1-a"))]


def test_zone_limits_apply_only_to_nodes_of_the_zone() -> None:
    requests = [
        permit_request("z1-a", minutes_ago=9),
        permit_request("z1-b", minutes_ago=8),
        permit_request("z2-a", minutes_ago=7),
    ]
    existing = ("z1-a", "z1-b", "z2-a")
    one_each = {zone: BudgetHeadroom(allowed=1, why="perZone") for zone in ("z1", "z2")}
    assert names(decide(requests, allowed_disruptions(5, *existing, zones=one_each)).granted) == ["z1-a", "z2-a"]
    assert names(
        decide(requests, allowed_disruptions(5, *existing, zones_at_once=ConcurrentZoneLimit(max_zones=1))).granted
    ) == ["z1-a", "z1-b"]


def test_pause_of_node_or_nodepool_is_the_reason() -> None:
    paused = allowed_disruptions(5, "a").model_copy(
        update={"candidates": {"a": PermitCandidate(paused="is paused by ann")}}
    )
    assert decide([permit_request("a")], paused).why[request_key(permit_request("a"))] == "NodeClaim a is paused by ann"
    assert decide([permit_request("a")], allowed_disruptions(5, "a"), blocked_by="NodePool gpu is paused").why == {
        request_key(permit_request("a")): "NodePool gpu is paused"
    }


def test_unread_budget_grants_nothing_and_keeps_permits() -> None:
    found = decide([permit_request("gone")], AllowedDisruptions(allowed=0, read=False, why="no answer"), permit("b"))
    assert names(found.waiting) == ["gone"] and found.active == (permit("b"),) and found.deleted == ()


def test_record_keeps_disruptions_for_the_longest_rate_period() -> None:
    old = PastDisruption(pool="gpu", reason="Drifted", at=NOW - timedelta(hours=2))
    used = [permit("a"), permit("b", reason="Expired")]
    assert [one.reason for one in update_record([old], used, "gpu", NOW - timedelta(hours=3))] == ["Drifted", "Empty"]
    assert [one.reason for one in update_record([old], used, "gpu", NOW - timedelta(hours=1))] == ["Empty"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "NodePool a: budget 10% of 20 nodes allows 2, 2 in use (NotReady or terminating), 0 permits granted",
            "NodePool a: budget 10% of 30 nodes allows 3, 1 in use (NotReady or terminating), 2 permits granted",
            True,
        ),
        (
            "NodePool a: budget 1 of 6 nodes allows 1, 1 in use",
            "NodePool a: budget 0 of 6 nodes allows 0, 0 in use",
            False,
        ),
        ("NodePool a: the budget could not be read: no", "NodePool a: budget 1 of 6 nodes allows 1, 1 in use", False),
        ("3 per 1h, next at 2026-01-01T10:00:00+00:00", "3 per 1h, next at 2026-01-01T10:20:00Z", True),
    ],
)
def test_stable_cause_ignores_counts_and_times(one: str, other: str, same: bool) -> None:
    assert (stable_cause(one) == stable_cause(other)) is same


USED_UP = {"Empty": AllowedDisruptions(allowed=0)}


def lease(until: datetime) -> Permit:
    return Permit(claim_name="a", claim_uid="uid-a", reason="Empty", until=until)


IN_70_SECONDS = lease(after(seconds=70))


@pytest.mark.parametrize(("checks", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 240), (5000, 240)])
def test_check_interval_grows_without_changes(checks: int, seconds: int) -> None:
    assert next_check_at(checks, USED_UP, (), NOW) == after(seconds=seconds)


def test_next_check_is_not_later_than_a_permit_expiry() -> None:
    out = (lease(after(seconds=-5)), lease(after(seconds=70)), lease(after(seconds=100)))
    assert next_check_at(4, USED_UP, out, NOW) == after(seconds=70)


def test_next_check_includes_the_begin_period_of_a_command_permit() -> None:
    out = (lease(after(seconds=70)).model_copy(update={"begins_within": timedelta(seconds=40)}),)
    assert next_check_at(4, USED_UP, out, NOW) == after(seconds=110)


def test_next_check_is_not_later_than_a_reservation_expiry() -> None:
    assert next_check_at(4, USED_UP, (IN_70_SECONDS,), NOW, reserved_until=after(seconds=20)) == after(seconds=20)
    assert next_check_at(4, USED_UP, (IN_70_SECONDS,), NOW, reserved_until=after(seconds=90)) == after(seconds=70)


def test_next_check_is_not_later_than_a_budget_opening() -> None:
    assert next_check_at(4, {"Empty": AllowedDisruptions(allowed=0, opens=after(seconds=90))}, (), NOW) == after(
        seconds=90
    )


def test_fixed_budget_is_checked_only_at_its_opening() -> None:
    allowed_disruptions = {"Empty": AllowedDisruptions(allowed=0, fixed=True, opens=after(minutes=40))}
    assert next_check_at(1, allowed_disruptions, (IN_70_SECONDS,), NOW) == after(minutes=40)
    assert next_check_at(1, {"Empty": AllowedDisruptions(allowed=0, fixed=True)}, (), NOW) == NOW + FIXED_CHECK_INTERVAL


def test_one_budget_that_is_not_fixed_is_checked_regularly() -> None:
    allowed_disruptions = {
        "Empty": AllowedDisruptions(allowed=0, fixed=True, opens=after(minutes=40)),
        **{"Drifted": AllowedDisruptions(allowed=0)},
    }
    assert next_check_at(1, allowed_disruptions, (), NOW) == after(seconds=30)


def test_paused_nodepool_is_checked_at_the_end_of_the_pause() -> None:
    check_at = partial(
        next_check_at, 1, {"Empty": AllowedDisruptions(allowed=3, opens=after(minutes=1))}, (), NOW, blocked_by="paused"
    )
    assert check_at(until=after(minutes=50)) == after(minutes=50)
    assert check_at(until=after(days=3)) == check_at() == NOW + FIXED_CHECK_INTERVAL


def test_opening_in_the_past_is_checked_soon() -> None:
    """The timer for the opening fired, but the clock of the budget check was still behind."""
    allowed_disruptions = {"Empty": AllowedDisruptions(allowed=0, fixed=True, opens=after(seconds=-1))}
    assert next_check_at(1, allowed_disruptions, (), NOW) == after(seconds=5)


IN_1_MINUTE, IN_8_MINUTES = NOW + timedelta(minutes=1), NOW + timedelta(minutes=8)


def reservation_request(pool: str, **minutes_by_uid: int) -> ReservationRequest:
    """`minutes_by_uid` are the minutes from now until each reservation expires."""
    until = {uid: NOW + timedelta(minutes=minutes) for uid, minutes in minutes_by_uid.items()}
    return ReservationRequest(pool=pool, workflow_id=pool, desired=until)


def test_reservations_of_other_nodepools_are_visible() -> None:
    ledger = update_reservations((), reservation_request("a", a1=1), NOW)
    assert reserved_by_others(ledger, "a") == ()
    ledger = update_reservations(ledger, reservation_request("b", b1=1, b2=8), NOW)
    assert reserved_by_others(ledger, "b") == ("a1",) and reserved_by_others(ledger, "a") == ("b1", "b2")


def test_reservation_request_replaces_only_those_of_its_nodepool() -> None:
    ledger = (
        PermitReservation(pool="a", claim_uid="a1", until=NOW),
        PermitReservation(pool="a", claim_uid="a2", until=IN_8_MINUTES),
        PermitReservation(pool="b", claim_uid="b1", until=IN_1_MINUTE),
    )
    assert update_reservations(ledger, reservation_request("b", b2=1), NOW) == (
        ledger[1],
        PermitReservation(pool="b", claim_uid="b2", until=IN_1_MINUTE),
    )
    assert update_reservations(ledger, reservation_request("b"), NOW) == (ledger[1],)


def test_reservations_of_others_expire_at_the_earliest_time() -> None:
    ledger = update_reservations((), reservation_request("a", a1=8, a2=3), NOW)
    assert reservations_lapse_at(ledger, "b") == NOW + timedelta(minutes=3)
    assert reservations_lapse_at(ledger, "a") is None


def past_disruption(uid: str, minutes_ago: float) -> PastDisruption:
    return PastDisruption(pool="web", reason="Drifted", at=NOW - timedelta(minutes=minutes_ago), uid=uid)


def test_merged_record_has_no_duplicates_and_no_old_entries() -> None:
    nameless = past_disruption("", 5)
    one, other = (
        [past_disruption("a", 9), past_disruption("b", 3), nameless, nameless],
        [past_disruption("b", 3), past_disruption("c", 1), nameless, past_disruption("d", 99)],
    )
    found = merge_records(one, other, since=NOW - timedelta(hours=1))
    assert [entry.uid for entry in found] == ["a", "", "", "b", "c"]


def test_record_is_parsed_as_serialized() -> None:
    record = (past_disruption("a", 9), past_disruption("b", 0.001))
    assert parse_record(serialize_record(record), "web") == record
    assert serialize_record(()) == "" and parse_record("", "web") == ()


def test_serialized_record_keeps_the_newest_entries() -> None:
    record = tuple(past_disruption(f"{number}", MAX_RECORDED + 5 - number) for number in range(MAX_RECORDED + 5))
    text = serialize_record(record)
    assert parse_record(text, "web") == record[5:] and len(text) < 100_000


@pytest.mark.parametrize(
    "text",
    [
        *("{", "7", '[["Expired","2026-01-01T00:00:00Z","u"]]', '[["Drifted","soon","u"]]', "[[1]]"),
        '[["Drifted","2026-01-01T00:00:00","u"]]',
        pytest.param("[" * 100_000, id="nested"),
    ],
)
def test_invalid_record_is_empty(text: str) -> None:
    assert parse_record(text, "web") == ()
