"""Filters instance types and offerings for a NodeClaim, in Karpenter's order (reference 2.4), and reservations."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import parse_resources
from tenure.apis.resources import fits
from tenure.aws.instancetype.resolver import ResolvedTypes
from tenure.model.facts import Expression
from tenure.model.instance_types import InstanceType, Market, Offering
from tenure.model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance type with its launchable offerings, cheapest first."""

    type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        return self.offerings[0].price


def make_candidate(instance_type: InstanceType, offerings: Iterable[Offering]) -> Candidate | None:
    ordered = tuple(sorted(offerings, key=_offering_order))
    return Candidate(instance_type, ordered) if ordered else None


def filter_offerings(found: Iterable[Candidate], predicate: Callable[[Offering], bool]) -> Sequence[Candidate]:
    candidates = (
        make_candidate(one.type, (offering for offering in one.offerings if predicate(offering))) for one in found
    )
    return [one for one in candidates if one]


def _offering_order(offering: Offering) -> tuple[float, str, str, str, str]:
    return offering.price, offering.zone, offering.capacity_type, offering.reservation_id, offering.partition


Remaining = Callable[[str], int]
"""Free capacity of a reservation in instances, by its ID."""

_PREFERRED: Final[tuple[Market, ...]] = ("default", "capacity-block", "interruptible")
"""Order of the kinds at equal prices. A request launches only one of them."""


def reserved_only(found: Sequence[Candidate], remaining: Remaining) -> Sequence[Candidate]:
    """The candidates with reserved offerings of the cheapest kind; empty if no reservation has free capacity."""
    reserved = filter_offerings(
        found, lambda one: one.capacity_type == labels.RESERVED and remaining(one.reservation_id) > 0
    )
    kinds = {kind: of for kind in _PREFERRED if (of := _of_kind(reserved, kind))}
    if not kinds:
        return ()
    kind = min(kinds, key=lambda kind: (_lowest_price(kinds[kind]), _PREFERRED.index(kind)))
    chosen = _cheapest_block(kinds[kind]) if kind == "capacity-block" else kinds[kind]
    return [one for each in chosen if (one := _one_per_zone(each, remaining))]


def _of_kind(reserved: Sequence[Candidate], kind: Market) -> Sequence[Candidate]:
    return filter_offerings(reserved, lambda one: one.market == kind)


def _lowest_price(found: Sequence[Candidate]) -> float:
    return min(one.price for one in found)


def _cheapest_block(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """A request can only name one capacity block."""
    cheapest = min(found, key=lambda one: (one.price, one.type.name))
    reservation = cheapest.offerings[0].reservation_id
    return filter_offerings([cheapest], lambda one: one.reservation_id == reservation)


def _one_per_zone(found: Candidate, remaining: Remaining) -> Candidate | None:
    """Keep the reservation with the most free capacity per zone: only one override may have a type and subnet."""
    fullest: dict[str, Offering] = {}
    for one in found.offerings:
        known = fullest.get(one.zone)
        if known is None or remaining(one.reservation_id) > remaining(known.reservation_id):
            fullest[one.zone] = one
    ids = {one.reservation_id for one in fullest.values()}
    return make_candidate(found.type, (one for one in found.offerings if one.reservation_id in ids))


MOST_TYPES: Final = 60
ALL_TYPES_UNAVAILABLE: Final = "all requested instance types were unavailable during launch"
_EXOTIC: Final = (labels.NVIDIA_GPU, labels.AMD_GPU, labels.NEURON, labels.NEURON_CORE, labels.GAUDI)

IsUnavailable = Callable[[str, str, str, str], bool]
"""Whether EC2 recently had no capacity for (instance type, zone, capacity type, partition or empty)."""


@dataclass(frozen=True, slots=True)
class Selection:
    capacity_type: str
    tenancy: str
    candidates: tuple[Candidate, ...]
    market: Market = ""
    """The kind of the reservations, if reserved."""
    partition: str = ""
    """Partition of the placement group; if empty, EC2 chooses one."""


def select_offerings(
    claim: NodeClaim,
    types: ResolvedTypes,
    zones: Collection[str],
    is_unavailable: IsUnavailable,
    remaining: Remaining = lambda _: 0,
) -> Selection | None:
    """The offerings of one capacity type to request; None if no offering is left.

    `zones`: zones with a usable subnet. Raises RequirementError.
    """
    requirements = requirements_of(claim)
    requests = parse_resources(claim.spec.resources.requests)
    found: Sequence[Candidate] = [
        candidate
        for one in _named_types(types, requirements)
        if (candidate := _available_candidate(one, requirements, zones, is_unavailable))
        and requirements.is_compatible(types.requirements(one))
        and fits(requests, one.allocatable())
    ]
    minimum = {key: one.min_values for key, one in requirements.items() if one.min_values}
    # Reservations may not satisfy minValues, because they are few. Then the launch does without them.
    unreserved = filter_offerings(found, lambda one: one.capacity_type != labels.RESERVED)
    choices = (
        _restrict_candidates(some, requirements, minimum, claim)
        for some in (reserved_only(found, remaining), unreserved)
    )
    return next((one for one in choices if one), None)


def _restrict_candidates(
    found: Sequence[Candidate], requirements: Requirements, minimum: Mapping[str, int], claim: NodeClaim
) -> Selection | None:
    if not minimum:
        found = _without_exotic(found)
        found = _without_expensive_spot(found)
    found = _take_cheapest(found, minimum)
    if not found or not _meets_min_values(found, {} if _is_relaxed(claim) else minimum):
        return None
    capacity_type = _capacity_type(found)
    partition, restricted = _in_partition(
        filter_offerings(found, lambda offering: offering.capacity_type == capacity_type), requirements
    )
    market = restricted[0].offerings[0].market
    return Selection(capacity_type, tenancy_of(requirements), tuple(restricted), market, partition)


def requirements_of(claim: NodeClaim) -> Requirements:
    """Raises model.requirements.RequirementError."""
    return Requirements.from_expressions(
        Expression(key=one.key, operator=one.operator, values=one.values, min_values=one.min_values)
        for one in claim.spec.requirements
    )


def tenancy_of(requirements: Requirements) -> str:
    """`default` if the claim allows it, else `dedicated`."""
    default, dedicated = labels.TENANCIES
    return default if _allows(requirements, labels.INSTANCE_TENANCY, default) else dedicated


def _named_types(types: ResolvedTypes, requirements: Requirements) -> Iterable[InstanceType]:
    """The types that the claim names; all types if it names none."""
    named = requirements.get(labels.INSTANCE_TYPE)
    if named is None or named.complement:
        return types.types
    return [types.by_name[name] for name in sorted(named.values) if name in types.by_name]


def _available_candidate(
    instance_type: InstanceType, requirements: Requirements, zones: Collection[str], is_unavailable: IsUnavailable
) -> Candidate | None:
    names_reservation = any(key in requirements for key in labels.RESERVATION_LABELS)
    offerings = [
        one
        for one in instance_type.offerings
        if one.available
        and one.zone in zones
        and _allows(requirements, labels.CAPACITY_TYPE, one.capacity_type)
        and _allows(requirements, labels.ZONE, one.zone)
        and _allows(requirements, labels.ZONE_ID, one.zone_id)
        and _allows_optional(requirements, labels.PLACEMENT_GROUP_PARTITION, one.partition)
        and (
            not names_reservation
            or all(_allows_optional(requirements, key, value) for key, value in one.reserved_labels.items())
        )
        and not is_unavailable(instance_type.name, one.zone, one.capacity_type, one.partition)
    ]
    return make_candidate(instance_type, offerings)


def _allows(requirements: Requirements, key: str, value: str) -> bool:
    return key not in requirements or requirements[key].has(value)


def _allows_optional(requirements: Requirements, key: str, value: str) -> bool:
    """Like `_allows`; an empty value means that the offering does not have the label."""
    return _allows(requirements, key, value) if value else key not in requirements or not requirements[key].present


def _without_exotic(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Exclude bare-metal and accelerated types unless requested or the only option."""
    plain = [one for one in found if not _is_exotic(one.type)]
    return plain or found


def _is_exotic(one: InstanceType) -> bool:
    metal = any("metal" in size for size in one.labels.get(labels.INSTANCE_SIZE, ()))
    return metal or any(one.capacity.get(resource) for resource in _EXOTIC)


def _without_expensive_spot(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Exclude spot offerings that cost more than the cheapest on-demand offering."""
    on_demand = [o.price for one in found for o in one.offerings if o.capacity_type == labels.ON_DEMAND]
    if not on_demand:
        return found
    limit = min(on_demand)
    return filter_offerings(found, lambda one: one.capacity_type != labels.SPOT or one.price <= limit)


def _take_cheapest(found: Sequence[Candidate], minimum: Mapping[str, int]) -> Sequence[Candidate]:
    """The cheapest types, at most as many as one request may have; types with values that minValues needs come
    first."""
    ordered = sorted(found, key=lambda one: (one.price, one.type.name))
    if len(ordered) <= MOST_TYPES or not minimum:
        return ordered[:MOST_TYPES]
    missing = {key: (count, set[str]()) for key, count in minimum.items()}
    first = [one for one in ordered if _adds_missing_value(one.type, missing)]
    rest = [one for one in ordered if one not in first]
    return sorted([*first, *rest][:MOST_TYPES], key=lambda one: (one.price, one.type.name))


def _meets_min_values(found: Sequence[Candidate], minimum: Mapping[str, int]) -> bool:
    return all(
        len({value for one in found for value in one.type.labels.get(key, ())}) >= count
        for key, count in minimum.items()
    )


def _is_relaxed(claim: NodeClaim) -> bool:
    return claim.metadata.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED) == "true"


def _adds_missing_value(one: InstanceType, missing: Mapping[str, tuple[int, set[str]]]) -> bool:
    """Whether the type has a value that minValues still needs; adds its values to `missing` if so."""
    useful = False
    for key, (count, have) in missing.items():
        new = set(one.labels.get(key, ())) - have
        if new and len(have) < count:
            have |= new
            useful = True
    return useful


def _capacity_type(found: Sequence[Candidate]) -> str:
    offered = {offering.capacity_type for one in found for offering in one.offerings}
    return next(kind for kind in (labels.RESERVED, labels.SPOT, labels.ON_DEMAND) if kind in offered)


def _in_partition(found: Sequence[Candidate], requirements: Requirements) -> tuple[str, Sequence[Candidate]]:
    """The lowest partition, in string order, if the claim has a requirement for partitions; else EC2 chooses."""
    partitions = {offering.partition for one in found for offering in one.offerings}
    if labels.PLACEMENT_GROUP_PARTITION in requirements:
        lowest = min(partitions)
        return lowest, filter_offerings(found, lambda offering: offering.partition == lowest)
    return "", [one for each in found if (one := make_candidate(each.type, _merge_partitions(each.offerings)))]


def _merge_partitions(offerings: Iterable[Offering]) -> Iterable[Offering]:
    return dict.fromkeys(one.model_copy(update={"partition": ""}) if one.partition else one for one in offerings)
