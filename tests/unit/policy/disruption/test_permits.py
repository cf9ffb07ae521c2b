"""Who gets a permit now, and what the others wait for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.decision import BudgetHeadroom, ConcurrentZoneLimit, PastDisruption
from tenure.model.signals import PermitRequest
from tenure.model.workflow_states import NodePoolCount, Permit
from tenure.policy.disruption.budgets import AllowedDisruptions, PermitCandidate
from tenure.policy.disruption.permits import PermitDecisions, decide_permits, request_key, stable_cause, update_record

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def permit_request(name: str, *, by: str = "", reason: Any = "Empty", minutes_ago: float = 1) -> PermitRequest:
    since = NOW - timedelta(minutes=minutes_ago)
    return PermitRequest(claim_name=name, claim_uid=name, workflow_id=by or f"life/{name}", reason=reason, since=since)


def permit(name: str, *, by: str = "", minutes: float = 1, reason: str = "Empty") -> Permit:
    until = NOW + timedelta(minutes=minutes)
    owner = by or f"life/{name}"
    return Permit(
        claim_name=name,
        claim_uid=name,
        reason=reason,
        until=until,
        workflow_id=owner,
        since=until - timedelta(minutes=2),
    )


def allowed_disruptions(
    allowed: int, *existing: str, consuming: tuple[str, ...] = (), **more: Any
) -> AllowedDisruptions:
    count = NodePoolCount(existing=(*existing, *consuming), consuming=consuming)
    candidates = {
        one: PermitCandidate(zone=one.partition("-")[0], created=NOW - timedelta(hours=1)) for one in count.existing
    }
    return AllowedDisruptions(allowed=allowed, count=count, why="said", candidates=candidates, **more)


def decide(
    requests: list[PermitRequest], allowance: AllowedDisruptions, *permits: Permit, blocked_by: str = ""
) -> PermitDecisions:
    reasons = {one.reason for one in requests} or {"Empty"}
    return decide_permits("gpu", requests, permits, dict.fromkeys(reasons, allowance), NOW, blocked_by=blocked_by)


def names(requests: tuple[PermitRequest, ...]) -> list[str]:
    return [one.claim_name for one in requests]


def test_the_longest_waiting_goes_first_as_far_as_there_is_room() -> None:
    found = decide(
        [permit_request("a"), permit_request("b", minutes_ago=5), permit_request("c", minutes_ago=3)],
        allowed_disruptions(2, "a", "b", "c"),
    )
    assert names(found.granted) == ["b", "c"]
    assert found.why[request_key(permit_request("a"))] == "NodePool gpu: said, 2 permits out"


def test_a_permit_that_is_out_takes_room_until_its_node_is_on_its_way() -> None:
    requests = [permit_request("a")]
    assert names(decide(requests, allowed_disruptions(1, "a", "b"), permit("b")).granted) == []
    assert names(decide(requests, allowed_disruptions(1, "a", consuming=("b",)), permit("b")).granted) == ["a"]
    assert names(decide(requests, allowed_disruptions(1, "a", "b"), permit("b", minutes=-1)).granted) == ["a"]


def test_a_permit_counts_for_as_long_as_its_node_may_still_begin_to_go() -> None:
    six = {"begins_within": timedelta(minutes=6)}
    soon, late = (permit("b", by="command", minutes=ago).model_copy(update=six) for ago in (-5, -7))
    assert names(decide([permit_request("a")], allowed_disruptions(1, "a", "b"), soon).granted) == []
    assert names(decide([permit_request("a")], allowed_disruptions(1, "a", "b"), late).granted) == ["a"]
    found = decide([permit_request("b")], allowed_disruptions(5, "b"), soon)
    assert "out to command: Empty, until 2026-06-01T12:01:00" in found.why[request_key(permit_request("b"))]
    unread = AllowedDisruptions(allowed=0, read=False, why="no answer")
    assert decide([], unread, soon, late).active == (soon,)


def test_who_has_a_permit_is_known_for_as_long_as_the_node_is_on_its_way() -> None:
    lapsed = permit("b", minutes=-30)
    assert decide([], allowed_disruptions(1, "a", consuming=("b",)), lapsed).active == (lapsed,)
    assert decide([], allowed_disruptions(1, "a", "b"), lapsed).active == ()
    assert decide([], allowed_disruptions(1, "a"), lapsed).deleted == (lapsed,)


def test_one_node_is_not_permitted_to_two() -> None:
    command = permit_request("a", by="disruption/1", reason="Drifted", minutes_ago=5)
    found = decide([permit_request("a"), command], allowed_disruptions(5, "a"))
    assert [one.workflow_id for one in found.granted] == ["disruption/1"]
    assert "a permit for a is out to disruption/1: Drifted" in found.why[request_key(permit_request("a"))]


def test_who_has_a_permit_for_a_node_on_its_way_gets_it_again_whatever_is_left() -> None:
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
            "nodes go in z2 now, and perZone.zonesAtOnce is 1: z1",
        ),
    ],
)
def test_what_a_lifecycle_policy_narrows_keeps_a_node_and_is_named(limits: dict[str, Any], why: str) -> None:
    found = decide([permit_request("z1-a")], allowed_disruptions(5, "z1-a", **limits))
    assert names(found.granted) == [] and why in found.why[request_key(permit_request("z1-a"))]


def test_limits_by_zone_keep_nodes_of_that_zone_alone() -> None:
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
    ) == [
        "z1-a",
        "z1-b",
    ]


def test_a_paused_node_and_a_paused_pool_say_by_whom() -> None:
    paused = allowed_disruptions(5, "a").model_copy(
        update={"candidates": {"a": PermitCandidate(paused="is paused by ann")}}
    )
    assert decide([permit_request("a")], paused).why[request_key(permit_request("a"))] == "NodeClaim a is paused by ann"
    assert decide([permit_request("a")], allowed_disruptions(5, "a"), blocked_by="NodePool gpu is paused").why == {
        request_key(permit_request("a")): "NodePool gpu is paused"
    }


def test_what_was_not_read_grants_nothing_and_forgets_nothing() -> None:
    found = decide([permit_request("gone")], AllowedDisruptions(allowed=0, read=False, why="no answer"), permit("b"))
    assert names(found.waiting) == ["gone"] and found.active == (permit("b"),) and found.deleted == ()


def test_the_record_keeps_what_went_for_as_long_as_rates_look_back() -> None:
    old = PastDisruption(pool="gpu", reason="Drifted", at=NOW - timedelta(hours=2))
    used = [permit("a"), permit("b", reason="Expired")]
    assert [one.reason for one in update_record([old], used, "gpu", NOW - timedelta(hours=3))] == ["Drifted", "Empty"]
    assert [one.reason for one in update_record([old], used, "gpu", NOW - timedelta(hours=1))] == ["Empty"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "NodePool a: budget 10% of 20 nodes allows 2, 2 in use (NotReady or going), 0 permits out",
            "NodePool a: budget 10% of 30 nodes allows 3, 1 in use (NotReady or going), 2 permits out",
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
def test_counts_and_moments_make_no_other_cause(one: str, other: str, same: bool) -> None:
    assert (stable_cause(one) == stable_cause(other)) is same
