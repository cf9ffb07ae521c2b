"""Nodes planned into capacity reservations: as many as there is room for, then what can be bought otherwise."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_TYPE
from tenure.model.instance_types import InstanceType, Offering, ReservationHeadroom, UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.plan import Plan
from tests.unit.scheduling.builders import (
    COMMON,
    NOW,
    Cluster,
    instance_type,
    launched_nodeclaim,
    nodeclaim,
    pod,
    pods,
    pool,
    types_of,
    values_of,
)

LARGE = instance_type("m.large", cpu=2, memory=8)
EVERYTHING = f"{CAPACITY_TYPE} In on-demand spot reserved"


def with_reservations(
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


def reservation_counts(**available: int) -> dict[str, Any]:
    """By id with underscores for hyphens; counted half a minute ago."""
    at = NOW - timedelta(seconds=30)
    return {
        "reservations": {one.replace("_", "-"): ReservationHeadroom(available=n, at=at) for one, n in available.items()}
    }


def bought_offerings(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """Capacity type and reservations of each claim."""
    return sorted(
        (",".join(values_of(one, CAPACITY_TYPE)), values_of(one, CAPACITY_RESERVATION_ID)) for one in plan.claims
    )


def test_reservations_are_filled_before_anything_is_bought() -> None:
    cluster = Cluster(pool("default", EVERYTHING), *pods(4), instance_types=(with_reservations(LARGE, "cr-1"),))
    plan = cluster.plan(**reservation_counts(cr_1=3))
    assert bought_offerings(plan) == [("on-demand", ()), *[("reserved", ("cr-1",))] * 3]
    assert not plan.unschedulable


@given(available=st.integers(0, 9), other=st.integers(0, 4), pod_count=st.integers(1, 20))
def test_no_more_nodes_are_planned_into_a_reservation_than_it_has_room_for(
    available: int, other: int, pod_count: int
) -> None:
    instance_types = (with_reservations(LARGE, "cr-1", "cr-2"), COMMON[1])
    plan = Cluster(pool("default", EVERYTHING), *pods(pod_count), instance_types=instance_types).plan(
        **reservation_counts(cr_1=available, cr_2=other)
    )
    into = [values_of(one, CAPACITY_RESERVATION_ID) for one in plan.claims]
    assert into.count(("cr-1",)) <= available
    assert into.count(("cr-2",)) <= other
    assert sum(len(one.pods) for one in plan.claims) == pod_count


def test_two_pools_share_one_reservation() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    one, two = ({"selector": {"team": team}} for team in ("a", "b"))
    pools = [pool(team, EVERYTHING, template_labels={"team": team}) for team in ("a", "b")]
    plan = Cluster(*pools, *pods(2, **one), *pods(2, **two), instance_types=instance_types).plan(
        **reservation_counts(cr_1=3)
    )
    assert bought_offerings(plan) == [("on-demand", ()), *[("reserved", ("cr-1",))] * 3]


def test_a_reservation_of_a_larger_machine_takes_pods_that_would_need_several() -> None:
    huge = instance_type("m.2xlarge", cpu=8, memory=32)
    instance_types = (with_reservations(LARGE, "cr-small"), with_reservations(huge, "cr-huge"))
    plan = Cluster(pool("default", EVERYTHING), *pods(5), instance_types=instance_types).plan(
        **reservation_counts(cr_small=5, cr_huge=1)
    )
    assert [(values_of(one, CAPACITY_RESERVATION_ID), len(one.pods)) for one in plan.claims] == [(("cr-huge",), 5)]


def test_of_reservations_that_do_alike_the_smaller_machine_is_taken() -> None:
    huge = instance_type("m.2xlarge", cpu=8, memory=32)
    instance_types = (with_reservations(huge, "cr-huge"), with_reservations(LARGE, "cr-small"))
    (planned,) = (
        Cluster(pool("default", EVERYTHING), pod(), instance_types=instance_types)
        .plan(**reservation_counts(cr_small=1, cr_huge=1))
        .claims
    )
    assert values_of(planned, CAPACITY_RESERVATION_ID) == ("cr-small",)
    assert types_of(planned) == ("m.large",)


@pytest.mark.parametrize("capacity_types", ["on-demand spot", "on-demand"])
def test_a_pool_that_does_not_allow_reserved_capacity_gets_none(capacity_types: str) -> None:
    cluster = Cluster(
        pool("default", f"{CAPACITY_TYPE} In {capacity_types}"),
        pod(),
        instance_types=(with_reservations(LARGE, "cr-1"),),
    )
    assert bought_offerings(cluster.plan(**reservation_counts(cr_1=3))) == [("on-demand", ())]


def test_a_pool_of_reserved_capacity_alone_waits_when_it_is_used_up() -> None:
    cluster = Cluster(
        pool("default", f"{CAPACITY_TYPE} In reserved"), *pods(2), instance_types=(with_reservations(LARGE, "cr-1"),)
    )
    plan = cluster.plan(**reservation_counts(cr_1=1))
    assert bought_offerings(plan) == [("reserved", ("cr-1",))]
    assert len(plan.unschedulable) == 1


def test_a_pod_may_name_its_reservation_or_ask_for_none() -> None:
    instance_types = (with_reservations(LARGE, "cr-1", "cr-2"),)
    named = pod(selector={CAPACITY_RESERVATION_ID: "cr-2"})
    assert bought_offerings(
        Cluster(pool(), named, instance_types=instance_types).plan(**reservation_counts(cr_1=1, cr_2=1))
    ) == [("reserved", ("cr-2",))]
    cluster = Cluster(pool("default", f"{CAPACITY_RESERVATION_ID} DoesNotExist"), pod(), instance_types=instance_types)
    assert bought_offerings(cluster.plan(**reservation_counts(cr_1=1, cr_2=1))) == [("on-demand", ())]


def test_a_room_that_nobody_counted_is_none() -> None:
    cluster = Cluster(pool("default", EVERYTHING), pod(), instance_types=(with_reservations(LARGE, "cr-1"),))
    assert bought_offerings(cluster.plan()) == [("on-demand", ())]


def test_a_reservation_that_is_about_to_end_is_not_used() -> None:
    cluster = Cluster(
        pool("default", EVERYTHING), pod(), instance_types=(with_reservations(LARGE, "cr-1", available=False),)
    )
    assert bought_offerings(cluster.plan(**reservation_counts(cr_1=3))) == [("on-demand", ())]


def test_a_refusal_closes_one_reservation_and_no_other() -> None:
    cluster = Cluster(pool("default", EVERYTHING), pod(), instance_types=(with_reservations(LARGE, "cr-1", "cr-2"),))
    until = NOW + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert bought_offerings(cluster.plan(unavailable=(full,), **reservation_counts(cr_1=3, cr_2=1))) == [
        ("reserved", ("cr-2",))
    ]


@pytest.mark.parametrize(("made", "expected"), [(10, "on-demand"), (-60, "reserved")])
def test_a_refusal_holds_until_ec2_has_counted_anew(made: float, expected: str) -> None:
    """Rooms were counted half a minute ago."""
    cluster = Cluster(pool("default", EVERYTHING), pod(), instance_types=(with_reservations(LARGE, "cr-1"),))
    until = NOW + timedelta(seconds=made) + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert bought_offerings(cluster.plan(unavailable=(full,), **reservation_counts(cr_1=3)))[0][0] == expected


def test_claims_that_are_not_counted_yet_hold_their_place() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    cluster = Cluster(pool("default", EVERYTHING), *pods(2), instance_types=instance_types)
    first = cluster.plan(**reservation_counts(cr_1=2))
    assert bought_offerings(first) == [("reserved", ("cr-1",))] * 2
    cluster.commit(first)
    cluster.add(*pods(1, cpu=1.8))
    assert bought_offerings(cluster.plan(after=1, **reservation_counts(cr_1=2))) == [("on-demand", ())]


def test_a_claim_that_ec2_has_counted_is_not_counted_again() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    planned = (
        Cluster(pool("default", EVERYTHING), pod(), instance_types=instance_types)
        .plan(**reservation_counts(cr_1=1))
        .claims[0]
    )
    full: dict[str, Any] = {"allocatable": {"cpu": 100}}
    old = launched_nodeclaim("old", planned, LARGE, created=NOW - timedelta(minutes=5), **full)
    new = launched_nodeclaim("new", planned, LARGE, created=NOW, **full)
    for existing, expected in ((old, "reserved"), (new, "on-demand")):
        cluster = Cluster(pool("default", EVERYTHING), existing, pod(cpu=1.8), instance_types=instance_types)
        assert bought_offerings(cluster.plan(**reservation_counts(cr_1=1)))[0][0] == expected


def test_a_waiting_claim_with_a_label_alone_counts_too() -> None:
    pending = nodeclaim("held", labels={CAPACITY_RESERVATION_ID: "cr-1"}, requests={"cpu": 1800})
    cluster = Cluster(
        pool("default", EVERYTHING), pending, pod(cpu=1.8), instance_types=(with_reservations(LARGE, "cr-1"),)
    )
    assert bought_offerings(cluster.plan(**reservation_counts(cr_1=1))) == [("on-demand", ())]
