"""Nodes planned into capacity reservations up to their available count, then into other capacity types."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_TYPE, ZONE
from tenure.model.facts import AffinityTerm, SpreadConstraint
from tenure.model.instance_types import InstanceType, Offering, ReservationHeadroom, UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.plan import Plan
from tests.unit.scheduling.builders import (
    COMMON,
    NOW,
    Cluster,
    expressions,
    instance_type,
    launched_nodeclaim,
    nodeclaim,
    pod,
    pods,
    pool,
    taint,
    types_of,
    values_of,
)

LARGE = instance_type("m.large", cpu=2, memory=8)
ALL_CAPACITY_TYPES = f"{CAPACITY_TYPE} In on-demand spot reserved"


def with_reservations(
    of: InstanceType,
    *ids: str,
    zone: str = "a",
    kind_of: Literal["default", "capacity-block"] = "default",
    available: bool = True,
) -> InstanceType:
    """The type with an offering in each of these reservations, and their labels."""
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
    """Available counts by reservation ID, with underscores for hyphens, observed 30 seconds ago."""
    at = NOW - timedelta(seconds=30)
    return {
        "reservations": {one.replace("_", "-"): ReservationHeadroom(available=n, at=at) for one, n in available.items()}
    }


def planned_offerings(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """Capacity type and reservations of each claim."""
    return sorted(
        (",".join(values_of(one, CAPACITY_TYPE)), values_of(one, CAPACITY_RESERVATION_ID)) for one in plan.claims
    )


@given(available=st.integers(0, 9), other=st.integers(0, 4), pod_count=st.integers(1, 20))
def test_planned_nodes_do_not_exceed_the_available_count(available: int, other: int, pod_count: int) -> None:
    instance_types = (with_reservations(LARGE, "cr-1", "cr-2"), COMMON[1])
    plan = Cluster(pool("default", ALL_CAPACITY_TYPES), *pods(pod_count), instance_types=instance_types).plan(
        **reservation_counts(cr_1=available, cr_2=other)
    )
    reservation_ids = [values_of(one, CAPACITY_RESERVATION_ID) for one in plan.claims]
    assert reservation_ids.count(("cr-1",)) <= available
    assert reservation_ids.count(("cr-2",)) <= other
    assert sum(len(one.pods) for one in plan.claims) == pod_count


def test_two_nodepools_share_one_reservation() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    one, two = ({"selector": {"team": team}} for team in ("a", "b"))
    pools = [pool(team, ALL_CAPACITY_TYPES, template_labels={"team": team}) for team in ("a", "b")]
    plan = Cluster(*pools, *pods(2, **one), *pods(2, **two), instance_types=instance_types).plan(
        **reservation_counts(cr_1=3)
    )
    assert planned_offerings(plan) == [("on-demand", ()), *[("reserved", ("cr-1",))] * 3]


def test_reservation_of_a_larger_type_replaces_several_nodes() -> None:
    large_type = instance_type("m.2xlarge", cpu=8, memory=32)
    instance_types = (with_reservations(LARGE, "cr-small"), with_reservations(large_type, "cr-large"))
    plan = Cluster(pool("default", ALL_CAPACITY_TYPES), *pods(5), instance_types=instance_types).plan(
        **reservation_counts(cr_small=5, cr_large=1)
    )
    assert [(values_of(one, CAPACITY_RESERVATION_ID), len(one.pods)) for one in plan.claims] == [(("cr-large",), 5)]


def test_smaller_of_equivalent_reservations_is_used() -> None:
    large_type = instance_type("m.2xlarge", cpu=8, memory=32)
    instance_types = (with_reservations(large_type, "cr-large"), with_reservations(LARGE, "cr-small"))
    (planned,) = (
        Cluster(pool("default", ALL_CAPACITY_TYPES), pod(), instance_types=instance_types)
        .plan(**reservation_counts(cr_small=1, cr_large=1))
        .claims
    )
    assert values_of(planned, CAPACITY_RESERVATION_ID) == ("cr-small",)
    assert types_of(planned) == ("m.large",)


@pytest.mark.parametrize(
    ("capacity_types", "available", "counts"),
    [
        pytest.param("on-demand spot", True, {"cr_1": 3}, id="NodePool without reserved capacity"),
        pytest.param("on-demand", True, {"cr_1": 3}, id="NodePool with on-demand capacity only"),
        pytest.param("on-demand spot reserved", True, {}, id="reservation without a count"),
        pytest.param("on-demand spot reserved", False, {"cr_1": 3}, id="unavailable reservation"),
    ],
)
def test_no_reservation_is_used(capacity_types: str, available: bool, counts: dict[str, int]) -> None:
    nodepool = pool("default", f"{CAPACITY_TYPE} In {capacity_types}")
    cluster = Cluster(nodepool, pod(), instance_types=(with_reservations(LARGE, "cr-1", available=available),))
    assert planned_offerings(cluster.plan(**reservation_counts(**counts))) == [("on-demand", ())]


def test_nodepool_with_only_reserved_capacity_waits_when_it_is_exhausted() -> None:
    cluster = Cluster(
        pool("default", f"{CAPACITY_TYPE} In reserved"), *pods(2), instance_types=(with_reservations(LARGE, "cr-1"),)
    )
    plan = cluster.plan(**reservation_counts(cr_1=1))
    assert planned_offerings(plan) == [("reserved", ("cr-1",))]
    assert len(plan.unschedulable) == 1


def test_pod_may_select_a_reservation_or_exclude_all() -> None:
    instance_types = (with_reservations(LARGE, "cr-1", "cr-2"),)
    named = pod(selector={CAPACITY_RESERVATION_ID: "cr-2"})
    assert planned_offerings(
        Cluster(pool(), named, instance_types=instance_types).plan(**reservation_counts(cr_1=1, cr_2=1))
    ) == [("reserved", ("cr-2",))]
    cluster = Cluster(pool("default", f"{CAPACITY_RESERVATION_ID} DoesNotExist"), pod(), instance_types=instance_types)
    assert planned_offerings(cluster.plan(**reservation_counts(cr_1=1, cr_2=1))) == [("on-demand", ())]


def test_rejection_excludes_only_its_reservation() -> None:
    cluster = Cluster(
        pool("default", ALL_CAPACITY_TYPES), pod(), instance_types=(with_reservations(LARGE, "cr-1", "cr-2"),)
    )
    until = NOW + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert planned_offerings(cluster.plan(unavailable=(full,), **reservation_counts(cr_1=3, cr_2=1))) == [
        ("reserved", ("cr-2",))
    ]


@pytest.mark.parametrize(("rejected_at", "expected"), [(10, "on-demand"), (-60, "reserved")])
def test_rejection_applies_until_the_next_count(rejected_at: float, expected: str) -> None:
    """The available counts were observed 30 seconds ago."""
    cluster = Cluster(pool("default", ALL_CAPACITY_TYPES), pod(), instance_types=(with_reservations(LARGE, "cr-1"),))
    until = NOW + timedelta(seconds=rejected_at) + UNAVAILABLE_FOR
    full = UnavailableOffering(
        instance_type="m.large", zone="a", capacity_type="reserved", reservation_id="cr-1", until=until
    )
    assert planned_offerings(cluster.plan(unavailable=(full,), **reservation_counts(cr_1=3)))[0][0] == expected


def test_uncounted_nodeclaims_reserve_their_slot() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    cluster = Cluster(pool("default", ALL_CAPACITY_TYPES), *pods(2), instance_types=instance_types)
    first = cluster.plan(**reservation_counts(cr_1=2))
    assert planned_offerings(first) == [("reserved", ("cr-1",))] * 2
    cluster.commit(first)
    cluster.add(*pods(1, cpu=1.8))
    assert planned_offerings(cluster.plan(after=1, **reservation_counts(cr_1=2))) == [("on-demand", ())]


def test_counted_nodeclaim_is_not_counted_again() -> None:
    instance_types = (with_reservations(LARGE, "cr-1"),)
    planned = (
        Cluster(pool("default", ALL_CAPACITY_TYPES), pod(), instance_types=instance_types)
        .plan(**reservation_counts(cr_1=1))
        .claims[0]
    )
    full: dict[str, Any] = {"allocatable": {"cpu": 100}}
    old = launched_nodeclaim("old", planned, LARGE, created=NOW - timedelta(minutes=5), **full)
    new = launched_nodeclaim("new", planned, LARGE, created=NOW, **full)
    for existing, expected in ((old, "reserved"), (new, "on-demand")):
        cluster = Cluster(pool("default", ALL_CAPACITY_TYPES), existing, pod(cpu=1.8), instance_types=instance_types)
        assert planned_offerings(cluster.plan(**reservation_counts(cr_1=1)))[0][0] == expected


def test_pending_nodeclaim_with_reservation_label_counts() -> None:
    pending = nodeclaim(
        "pending", labels={CAPACITY_RESERVATION_ID: "cr-1"}, requests={"cpu": 1800}, taints=(taint("full"),)
    )
    cluster = Cluster(
        pool("default", ALL_CAPACITY_TYPES), pending, pod(cpu=1.8), instance_types=(with_reservations(LARGE, "cr-1"),)
    )
    assert planned_offerings(cluster.plan(**reservation_counts(cr_1=1))) == [("on-demand", ())]


JOB = expressions("app In job")
BY_ZONE = {
    "affinity": (AffinityTerm(key=ZONE, selector=JOB),),
    "spreads": (SpreadConstraint.model_validate({"key": ZONE, "max_skew": 1, "selector": JOB}),),
}


@pytest.mark.parametrize("capacity_types", ["reserved", "on-demand reserved"])
@pytest.mark.parametrize(
    "term",
    [pytest.param("affinity", id="reserved-zone-term"), pytest.param("spreads", id="reserved-zone-spread")],
)
def test_zone_terms_are_satisfied_in_capacity_that_is_only_reserved(capacity_types: str, term: str) -> None:
    """A training job in a capacity block has such terms."""
    jobs = pods(2, cpu=1.5, labels={"app": "job"}, selector={CAPACITY_TYPE: "reserved"}, **{term: BY_ZONE[term]})
    instance_types = (with_reservations(LARGE, "cr-1"),)
    plan = Cluster(pool("default", f"{CAPACITY_TYPE} In {capacity_types}"), *jobs, instance_types=instance_types).plan(
        **reservation_counts(cr_1=4)
    )
    assert planned_offerings(plan) == [("reserved", ("cr-1",))] * 2 and not plan.unschedulable
    assert {values_of(one, ZONE) for one in plan.claims} == {("a",)}


@pytest.mark.parametrize(("in_a", "in_b", "placed"), [(1, 4, 3), (4, 1, 3), (2, 2, 4), (4, 4, 6)])
def test_spread_over_zones_stays_even_when_a_reservation_is_used_up(in_a: int, in_b: int, placed: int) -> None:
    jobs = pods(6, cpu=1.5, labels={"app": "job"}, selector={CAPACITY_TYPE: "reserved"}, spreads=BY_ZONE["spreads"])
    two_zones = with_reservations(with_reservations(LARGE, "cr-a"), "cr-b", zone="b")
    described = {**two_zones.labels, CAPACITY_RESERVATION_ID: ("cr-a", "cr-b")}
    instance_types = (two_zones.model_copy(update={"labels": described}),)
    plan = Cluster(pool("default", ALL_CAPACITY_TYPES), *jobs, instance_types=instance_types).plan(
        **reservation_counts(cr_a=in_a, cr_b=in_b)
    )
    zones = [values_of(one, ZONE) for one in plan.claims]
    assert len(zones) == placed and len(plan.unschedulable) == 6 - placed
    assert abs(zones.count(("a",)) - zones.count(("b",))) <= 1


def test_zone_without_reserved_instances_left_is_no_domain() -> None:
    jobs = pods(2, cpu=1.5, labels={"app": "job"}, selector={CAPACITY_TYPE: "reserved"}, spreads=BY_ZONE["spreads"])
    plan = Cluster(pool("default", ALL_CAPACITY_TYPES), *jobs, instance_types=(with_reservations(LARGE, "cr-1"),)).plan(
        **reservation_counts(cr_1=0)
    )
    assert not plan.claims and len(plan.unschedulable) == 2
