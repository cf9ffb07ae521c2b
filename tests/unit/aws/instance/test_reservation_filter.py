"""Capacity reservations and placement group partitions that a launch uses."""

from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import ResolvedCapacityReservation
from tenure.apis.nodeclaim import NodeClaim
from tenure.aws.instance.filter import Selection, select_offerings
from tenure.aws.instancetype.resolver import Region, ResolvedTypes, resolve_types
from tenure.aws.nodeclass.placement_groups import PlacementGroup
from tests.support.aws.builders import SETTINGS, ZONES, build_nodeclaim, build_nodeclass, region, resolved_status

ON_DEMAND = (labels.CAPACITY_TYPE, "In", "on-demand")
EITHER = (labels.CAPACITY_TYPE, "In", "on-demand", "spot")
RESERVED = (labels.CAPACITY_TYPE, "In", "on-demand", "spot", "reserved")
BLOCK = ("reservationType", "capacity-block")


def resolve_with_reservations(in_region: Region, *reservations: tuple[Any, ...]) -> ResolvedTypes:
    """Each reservation is an ID, type, zone, and more fields as in the status."""
    found = [
        ResolvedCapacityReservation.from_object(
            {"id": r[0], "instanceType": r[1], "availabilityZone": f"us-west-2{r[2]}", **dict(r[3:])}
        )
        for r in reservations
    ]
    return resolve_types(in_region, build_nodeclass(resolved_status()), SETTINGS, reservations=found)


def select_for(resolved: ResolvedTypes, *requirements: tuple[Any, ...], **remaining: int) -> Selection | None:
    """Select with `remaining` instances per reservation; other reservations have one."""
    requested = build_nodeclaim(*(requirements or (RESERVED,)))
    return select_offerings(
        requested, resolved, ZONES, lambda *offering: False, lambda one: remaining.get(one.replace("-", "_"), 1)
    )


def reservations(selection: Selection | None) -> list[str]:
    return [] if selection is None else [o.reservation_id for one in selection.candidates for o in one.offerings]


def names(selection: Selection | None) -> list[str]:
    return [] if selection is None else [one.type.name for one in selection.candidates]


def test_reserved_capacity_is_preferred_to_spot_if_available() -> None:
    resolved = resolve_with_reservations(region("m5.large"), ("cr-1", "m5.large", "a"))
    found = select_for(resolved)
    assert found is not None and (found.capacity_type, found.market) == (labels.RESERVED, "default")
    for other in (select_for(resolved, EITHER), select_for(resolved, cr_1=0)):
        assert other is not None and (other.capacity_type, other.market) == (labels.SPOT, "")


def test_request_uses_cheapest_kind_of_reservation() -> None:
    in_region = region("m5.large", "m5.xlarge")
    kinds = (
        ("cr-1", "m5.xlarge", "a"),
        ("cr-2", "m5.large", "a", BLOCK),
        ("cr-3", "m5.large", "a", ("interruptible", True)),
    )
    found = select_for(resolve_with_reservations(in_region, *kinds))
    assert found is not None and (found.market, reservations(found)) == ("capacity-block", ["cr-2"])
    found = select_for(resolve_with_reservations(in_region, kinds[0], kinds[2]))
    assert found is not None and (found.market, reservations(found)) == ("interruptible", ["cr-3"])


def test_equal_prices_prefer_default_then_block_then_interruptible_reservations() -> None:
    interruptible = ("cr-3", "m5.large", "a", ("interruptible", True))
    in_region = region("m5.large")
    found = select_for(
        resolve_with_reservations(in_region, interruptible, ("cr-2", "m5.large", "a", BLOCK), ("cr-1", "m5.large", "b"))
    )
    assert found is not None and (found.market, reservations(found)) == ("default", ["cr-1"])
    found = select_for(resolve_with_reservations(in_region, interruptible, ("cr-2", "m5.large", "a", BLOCK)))
    assert found is not None and found.market == "capacity-block"


def test_capacity_block_request_names_one_block() -> None:
    blocks = [("cr-1", "m5.xlarge", "a", BLOCK), ("cr-2", "m5.large", "a", BLOCK), ("cr-3", "m5.large", "b", BLOCK)]
    found = select_for(resolve_with_reservations(region("m5.large", "m5.xlarge"), *blocks))
    assert (names(found), reservations(found)) == (["m5.large"], ["cr-2"])


def test_zone_uses_reservation_with_most_remaining_instances() -> None:
    resolved = resolve_with_reservations(
        region("m5.large"), *(("cr-" + n, "m5.large", z) for n, z in ("1a", "2a", "3b"))
    )
    assert reservations(select_for(resolved, cr_1=1, cr_2=5, cr_3=2)) == ["cr-2", "cr-3"]


def test_types_without_reservation_are_left_out() -> None:
    resolved = resolve_with_reservations(
        region("m5.large", "c5.large", "m5.xlarge"), ("cr-1", "m5.large", "a"), ("cr-2", "m5.xlarge", "a")
    )
    assert names(select_for(resolved)) == ["m5.large", "m5.xlarge"]


def test_min_values_take_precedence_over_reservations() -> None:
    resolved = resolve_with_reservations(region("m5.large", "c5.large"), ("cr-1", "m5.large", "a"))
    raw = build_nodeclaim(RESERVED).to_object()
    raw["spec"]["requirements"].append({"key": labels.INSTANCE_FAMILY, "operator": "Exists", "minValues": 2})
    found = select_offerings(NodeClaim.from_object(raw), resolved, ZONES, lambda *offering: False, lambda one: 5)
    assert found is not None and found.capacity_type == labels.SPOT


def test_reservation_requirements_limit_offerings_not_types() -> None:
    resolved = resolve_with_reservations(
        region("m5.large"), ("cr-1", "m5.large", "a"), ("cr-2", "m5.large", "a", BLOCK)
    )
    by_id = (labels.CAPACITY_RESERVATION_ID, "In", "cr-1")
    by_kind = (labels.CAPACITY_RESERVATION_TYPE, "In", "capacity-block")
    assert reservations(select_for(resolved, RESERVED, by_id)) == ["cr-1"]
    assert reservations(select_for(resolved, RESERVED, by_kind)) == ["cr-2"]
    none = select_for(resolved, RESERVED, (labels.CAPACITY_RESERVATION_ID, "DoesNotExist"))
    assert none is not None and none.capacity_type == labels.SPOT


def test_reservation_without_subnet_or_expiring_is_not_used() -> None:
    resolved = resolve_with_reservations(
        region("m5.large"), ("cr-1", "m5.large", "d"), ("cr-2", "m5.large", "a", ("state", "expiring"))
    )
    found = select_for(resolved)
    assert found is not None and found.capacity_type == labels.SPOT


def test_reserved_price_is_near_zero_but_grows_with_size() -> None:
    resolved = resolve_with_reservations(
        region("m5.large", "m5.xlarge"), ("cr-1", "m5.large", "a"), ("cr-2", "m5.xlarge", "a")
    )
    prices = [
        next(o.price for o in one.offerings if o.reservation_id) for one in (resolved.types[0], resolved.types[1])
    ]
    base = next(o.price for o in resolved.by_name["m5.large"].offerings if o.capacity_type == "on-demand")
    assert sorted(prices)[0] == base / 10_000_000
    assert prices[0] != prices[1]


def test_type_with_reservations_has_reservation_labels() -> None:
    resolved = resolve_with_reservations(
        region("m5.large", "c5.large"), ("cr-2", "m5.large", "a", BLOCK), ("cr-1", "m5.large", "b")
    )
    described = resolved.by_name["m5.large"].labels
    assert described[labels.CAPACITY_TYPE] == ("on-demand", "spot", "reserved")
    assert [described[key] for key in labels.RESERVATION_LABELS] == [
        ("cr-1", "cr-2"),
        ("capacity-block", "default"),
        ("false",),
    ]
    assert not set(labels.RESERVATION_LABELS) & resolved.by_name["c5.large"].labels.keys()


def select_in_partitions(
    *requirements: tuple[Any, ...], unavailable_partitions: tuple[str, ...] = ()
) -> Selection | None:
    group = PlacementGroup(id="pg-1", strategy="partition", partitions=3)
    resolved = resolve_types(region("m5.large"), build_nodeclass(resolved_status()), SETTINGS, group)
    return select_offerings(
        build_nodeclaim(ON_DEMAND, *requirements),
        resolved,
        ZONES,
        lambda *offering: offering[3] in unavailable_partitions,
    )


def test_lowest_required_partition_is_selected() -> None:
    key = labels.PLACEMENT_GROUP_PARTITION
    found = select_in_partitions((key, "In", "3", "2"))
    assert found is not None and found.partition == "2"
    assert {offering.partition for one in found.candidates for offering in one.offerings} == {"2"}
    free = select_in_partitions()
    assert free is not None and free.partition == ""
    assert len(free.candidates[0].offerings) == len(ZONES)
    assert select_in_partitions((key, "In", "7")) is None


def test_unavailable_partition_is_skipped() -> None:
    key = labels.PLACEMENT_GROUP_PARTITION
    found = select_in_partitions((key, "In", "3", "2"), unavailable_partitions=("2",))
    assert found is not None and found.partition == "3"
    assert select_in_partitions((key, "In", "2"), unavailable_partitions=("2",)) is None
