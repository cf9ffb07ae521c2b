"""Nodes planned into capacity reservations: as many as there is room for, then what can be bought otherwise."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_TYPE
from tenure.model.instance_types import InstanceType, Offering, ReservationRoom, UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.provisioning import Plan
from tests.unit.scheduling.builders import (
    COMMON,
    NOW,
    World,
    claim,
    kind,
    launched,
    pod,
    pods,
    pool,
    types_of,
    values_of,
)

LARGE = kind("m.large", cpu=2, memory=8)
EVERYTHING = f"{CAPACITY_TYPE} In on-demand spot reserved"


def reserved(
    of: InstanceType,
    *ids: str,
    zone: str = "a",
    kind_of: Literal["default", "capacity-block"] = "default",
    available: bool = True,
) -> InstanceType:
    """The type with an offering in each of these reservations, and the labels that go with them."""
    more = tuple(
        Offering(
            zone=zone,
            capacity_type="reserved",
            price=of.offerings[0].price / 10_000_000,
            reservation_id=one,
            reservation_type=kind_of,
            available=available,
        )
        for one in ids
    )
    described = {CAPACITY_RESERVATION_ID: ids, CAPACITY_RESERVATION_INTERRUPTIBLE: ("false",)}
    return of.model_copy(update={"offerings": (*of.offerings, *more), "labels": {**of.labels, **described}})


def rooms(**available: int) -> dict[str, Any]:
    """By id with underscores for hyphens; counted half a minute ago."""
    at = NOW - timedelta(seconds=30)
    return {
        "reservations": {one.replace("_", "-"): ReservationRoom(available=n, at=at) for one, n in available.items()}
    }


def bought(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """Capacity type and reservations of each claim."""
    return sorted(
        (",".join(values_of(one, CAPACITY_TYPE)), values_of(one, CAPACITY_RESERVATION_ID)) for one in plan.claims
    )


def test_reservations_are_filled_before_anything_is_bought() -> None:
    world = World(pool("default", EVERYTHING), *pods(4), kinds=(reserved(LARGE, "cr-1"),))
    plan = world.plan(**rooms(cr_1=3))
    assert bought(plan) == [("on-demand", ()), *[("reserved", ("cr-1",))] * 3]
    assert not plan.unplaced


@given(room=st.integers(0, 9), other=st.integers(0, 4), wanted=st.integers(1, 20))
def test_no_more_nodes_are_planned_into_a_reservation_than_it_has_room_for(room: int, other: int, wanted: int) -> None:
    kinds = (reserved(LARGE, "cr-1", "cr-2"), COMMON[1])
    plan = World(pool("default", EVERYTHING), *pods(wanted), kinds=kinds).plan(**rooms(cr_1=room, cr_2=other))
    into = [values_of(one, CAPACITY_RESERVATION_ID) for one in plan.claims]
    assert into.count(("cr-1",)) <= room
    assert into.count(("cr-2",)) <= other
    assert sum(len(one.pods) for one in plan.claims) == wanted


def test_two_pools_share_one_reservation() -> None:
    kinds = (reserved(LARGE, "cr-1"),)
    one, two = ({"selector": {"team": team}} for team in ("a", "b"))
    pools = [pool(team, EVERYTHING, template_labels={"team": team}) for team in ("a", "b")]
    plan = World(*pools, *pods(2, **one), *pods(2, **two), kinds=kinds).plan(**rooms(cr_1=3))
    assert bought(plan) == [("on-demand", ()), *[("reserved", ("cr-1",))] * 3]


def test_a_reservation_of_a_larger_machine_takes_pods_that_would_need_several() -> None:
    huge = kind("m.2xlarge", cpu=8, memory=32)
    kinds = (reserved(LARGE, "cr-small"), reserved(huge, "cr-huge"))
    plan = World(pool("default", EVERYTHING), *pods(5), kinds=kinds).plan(**rooms(cr_small=5, cr_huge=1))
    assert [(values_of(one, CAPACITY_RESERVATION_ID), len(one.pods)) for one in plan.claims] == [(("cr-huge",), 5)]


def test_of_reservations_that_do_alike_the_smaller_machine_is_taken() -> None:
    huge = kind("m.2xlarge", cpu=8, memory=32)
    kinds = (reserved(huge, "cr-huge"), reserved(LARGE, "cr-small"))
    (planned,) = World(pool("default", EVERYTHING), pod(), kinds=kinds).plan(**rooms(cr_small=1, cr_huge=1)).claims
    assert values_of(planned, CAPACITY_RESERVATION_ID) == ("cr-small",)
    assert types_of(planned) == ("m.large",)


@pytest.mark.parametrize("capacity_types", ["on-demand spot", "on-demand"])
def test_a_pool_that_does_not_allow_reserved_capacity_gets_none(capacity_types: str) -> None:
    world = World(pool("default", f"{CAPACITY_TYPE} In {capacity_types}"), pod(), kinds=(reserved(LARGE, "cr-1"),))
    assert bought(world.plan(**rooms(cr_1=3))) == [("on-demand", ())]


def test_a_pool_of_reserved_capacity_alone_waits_when_it_is_used_up() -> None:
    world = World(pool("default", f"{CAPACITY_TYPE} In reserved"), *pods(2), kinds=(reserved(LARGE, "cr-1"),))
    plan = world.plan(**rooms(cr_1=1))
    assert bought(plan) == [("reserved", ("cr-1",))]
    assert len(plan.unplaced) == 1


def test_a_pod_may_name_its_reservation_or_ask_for_none() -> None:
    kinds = (reserved(LARGE, "cr-1", "cr-2"),)
    named = pod(selector={CAPACITY_RESERVATION_ID: "cr-2"})
    assert bought(World(pool(), named, kinds=kinds).plan(**rooms(cr_1=1, cr_2=1))) == [("reserved", ("cr-2",))]
    world = World(pool("default", f"{CAPACITY_RESERVATION_ID} DoesNotExist"), pod(), kinds=kinds)
    assert bought(world.plan(**rooms(cr_1=1, cr_2=1))) == [("on-demand", ())]


def test_a_room_that_nobody_counted_is_none() -> None:
    world = World(pool("default", EVERYTHING), pod(), kinds=(reserved(LARGE, "cr-1"),))
    assert bought(world.plan()) == [("on-demand", ())]


def test_a_reservation_that_is_about_to_end_is_not_used() -> None:
    world = World(pool("default", EVERYTHING), pod(), kinds=(reserved(LARGE, "cr-1", available=False),))
    assert bought(world.plan(**rooms(cr_1=3))) == [("on-demand", ())]


def test_a_refusal_closes_one_reservation_and_no_other() -> None:
    world = World(pool("default", EVERYTHING), pod(), kinds=(reserved(LARGE, "cr-1", "cr-2"),))
    until = NOW + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert bought(world.plan(unavailable=(full,), **rooms(cr_1=3, cr_2=1))) == [("reserved", ("cr-2",))]


@pytest.mark.parametrize(("made", "expected"), [(10, "on-demand"), (-60, "reserved")])
def test_a_refusal_holds_until_ec2_has_counted_anew(made: float, expected: str) -> None:
    """Rooms were counted half a minute ago."""
    world = World(pool("default", EVERYTHING), pod(), kinds=(reserved(LARGE, "cr-1"),))
    until = NOW + timedelta(seconds=made) + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert bought(world.plan(unavailable=(full,), **rooms(cr_1=3)))[0][0] == expected


def test_claims_that_are_not_counted_yet_hold_their_place() -> None:
    kinds = (reserved(LARGE, "cr-1"),)
    world = World(pool("default", EVERYTHING), *pods(2), kinds=kinds)
    first = world.plan(**rooms(cr_1=2))
    assert bought(first) == [("reserved", ("cr-1",))] * 2
    world.commit(first)
    world.add(*pods(1, cpu=1.8))
    assert bought(world.plan(after=1, **rooms(cr_1=2))) == [("on-demand", ())]


def test_a_claim_that_ec2_has_counted_is_not_counted_again() -> None:
    kinds = (reserved(LARGE, "cr-1"),)
    planned = World(pool("default", EVERYTHING), pod(), kinds=kinds).plan(**rooms(cr_1=1)).claims[0]
    full: dict[str, Any] = {"allocatable": {"cpu": 100}}
    old = launched("old", planned, LARGE, created=NOW - timedelta(minutes=5), **full)
    new = launched("new", planned, LARGE, created=NOW, **full)
    for standing, expected in ((old, "reserved"), (new, "on-demand")):
        world = World(pool("default", EVERYTHING), standing, pod(cpu=1.8), kinds=kinds)
        assert bought(world.plan(**rooms(cr_1=1)))[0][0] == expected


def test_a_waiting_claim_with_a_label_alone_counts_too() -> None:
    held = claim("held", labels={CAPACITY_RESERVATION_ID: "cr-1"}, requests={"cpu": 1800})
    world = World(pool("default", EVERYTHING), held, pod(cpu=1.8), kinds=(reserved(LARGE, "cr-1"),))
    assert bought(world.plan(**rooms(cr_1=1))) == [("on-demand", ())]
