"""Who gets a permit now, and what the others wait for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.planning import Disrupted, Room, ZonesAtOnce
from tenure.model.signals import PermitAsked
from tenure.model.workflow_states import Permit, PoolCount
from tenure.policy.disruption.budgets import Allowance, Asking
from tenure.policy.disruption.permits import Decision, after, cause_of, decide_permits, key_of

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def wish(name: str, *, by: str = "", reason: Any = "Empty", minutes_ago: float = 1) -> PermitAsked:
    since = NOW - timedelta(minutes=minutes_ago)
    return PermitAsked(claim_name=name, claim_uid=name, workflow_id=by or f"life/{name}", reason=reason, since=since)


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


def left(allowed: int, *standing: str, consuming: tuple[str, ...] = (), **more: Any) -> Allowance:
    count = PoolCount(standing=(*standing, *consuming), consuming=consuming)
    asking = {one: Asking(zone=one.partition("-")[0], created=NOW - timedelta(hours=1)) for one in count.standing}
    return Allowance(allowed=allowed, count=count, why="said", asking=asking, **more)


def decided(wishes: list[PermitAsked], allowance: Allowance, *permits: Permit, held: str = "") -> Decision:
    reasons = {one.reason for one in wishes} or {"Empty"}
    return decide_permits("gpu", wishes, permits, dict.fromkeys(reasons, allowance), NOW, held=held)


def names(wishes: tuple[PermitAsked, ...]) -> list[str]:
    return [one.claim_name for one in wishes]


def test_the_longest_waiting_goes_first_as_far_as_there_is_room() -> None:
    found = decided([wish("a"), wish("b", minutes_ago=5), wish("c", minutes_ago=3)], left(2, "a", "b", "c"))
    assert names(found.granted) == ["b", "c"]
    assert found.why[key_of(wish("a"))] == "NodePool gpu: said, 2 permits out"


def test_a_permit_that_is_out_takes_room_until_its_node_is_on_its_way() -> None:
    wishes = [wish("a")]
    assert names(decided(wishes, left(1, "a", "b"), permit("b")).granted) == []
    assert names(decided(wishes, left(1, "a", consuming=("b",)), permit("b")).granted) == ["a"]
    assert names(decided(wishes, left(1, "a", "b"), permit("b", minutes=-1)).granted) == ["a"]


def test_a_permit_counts_for_as_long_as_its_node_may_still_begin_to_go() -> None:
    six = {"begins_within": timedelta(minutes=6)}
    soon, late = (permit("b", by="command", minutes=ago).model_copy(update=six) for ago in (-5, -7))
    assert names(decided([wish("a")], left(1, "a", "b"), soon).granted) == []
    assert names(decided([wish("a")], left(1, "a", "b"), late).granted) == ["a"]
    found = decided([wish("b")], left(5, "b"), soon)
    assert "out to command: Empty, until 2026-06-01T12:01:00" in found.why[key_of(wish("b"))]
    unread = Allowance(allowed=0, read=False, why="no answer")
    assert decided([], unread, soon, late).out == (soon,)


def test_who_has_a_permit_is_known_for_as_long_as_the_node_is_on_its_way() -> None:
    lapsed = permit("b", minutes=-30)
    assert decided([], left(1, "a", consuming=("b",)), lapsed).out == (lapsed,)
    assert decided([], left(1, "a", "b"), lapsed).out == ()
    assert decided([], left(1, "a"), lapsed).gone == (lapsed,)


def test_one_node_is_not_permitted_to_two() -> None:
    command = wish("a", by="disruption/1", reason="Drifted", minutes_ago=5)
    found = decided([wish("a"), command], left(5, "a"))
    assert [one.workflow_id for one in found.granted] == ["disruption/1"]
    assert "a permit for a is out to disruption/1: Drifted" in found.why[key_of(wish("a"))]


def test_who_has_a_permit_for_a_node_on_its_way_gets_it_again_whatever_is_left() -> None:
    found = decided([wish("a")], left(0, consuming=("a",)), permit("a", minutes=-1))
    assert names(found.granted) == ["a"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"cluster": Room(allowed=0, why="clusterNodes 3")}, "all NodePools: clusterNodes 3"),
        ({"youngest": timedelta(hours=2)}, "younger than minimumNodeAge 2h"),
        ({"zones": {"z1": Room(allowed=0, why="perZone")}}, "NodePool gpu in z1: perZone"),
        ({"zones_at_once": ZonesAtOnce(most=1, begun=("z2",))}, "nodes go in z2 now, and perZone.zonesAtOnce is 1: z1"),
    ],
)
def test_what_a_lifecycle_policy_narrows_keeps_a_node_and_is_named(limits: dict[str, Any], why: str) -> None:
    found = decided([wish("z1-a")], left(5, "z1-a", **limits))
    assert names(found.granted) == [] and why in found.why[key_of(wish("z1-a"))]


def test_limits_by_zone_keep_nodes_of_that_zone_alone() -> None:
    wishes = [wish("z1-a", minutes_ago=9), wish("z1-b", minutes_ago=8), wish("z2-a", minutes_ago=7)]
    standing = ("z1-a", "z1-b", "z2-a")
    one_each = {zone: Room(allowed=1, why="perZone") for zone in ("z1", "z2")}
    assert names(decided(wishes, left(5, *standing, zones=one_each)).granted) == ["z1-a", "z2-a"]
    assert names(decided(wishes, left(5, *standing, zones_at_once=ZonesAtOnce(most=1))).granted) == ["z1-a", "z1-b"]


def test_a_paused_node_and_a_paused_pool_say_by_whom() -> None:
    paused = left(5, "a").model_copy(update={"asking": {"a": Asking(paused="is paused by ann")}})
    assert decided([wish("a")], paused).why[key_of(wish("a"))] == "NodeClaim a is paused by ann"
    assert decided([wish("a")], left(5, "a"), held="NodePool gpu is paused").why == {
        key_of(wish("a")): "NodePool gpu is paused"
    }


def test_what_was_not_read_grants_nothing_and_forgets_nothing() -> None:
    found = decided([wish("gone")], Allowance(allowed=0, read=False, why="no answer"), permit("b"))
    assert names(found.waiting) == ["gone"] and found.out == (permit("b"),) and found.gone == ()


def test_the_record_keeps_what_went_for_as_long_as_rates_look_back() -> None:
    old = Disrupted(pool="gpu", reason="Drifted", at=NOW - timedelta(hours=2))
    used = [permit("a"), permit("b", reason="Expired")]
    assert [one.reason for one in after([old], used, "gpu", NOW - timedelta(hours=3))] == ["Drifted", "Empty"]
    assert [one.reason for one in after([old], used, "gpu", NOW - timedelta(hours=1))] == ["Empty"]


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
    assert (cause_of(one) == cause_of(other)) is same
