"""Which instance types and offerings a NodeClaim is launched with: Karpenter's filters, in its order.

Pure: from the class's types and the claim to the candidates of one CreateFleet, or the reason why there are none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aws.instance_types import ResolvedTypes
from model import labels
from model.catalogue import InstanceType, Offering
from model.facts import Expression
from model.kinds import NodeClaim
from model.quantity import parse_resources
from model.requirements import Requirements
from model.resources import fits

MOST_TYPES: Final = 60
NOTHING_LEFT: Final = "all requested instance types were unavailable during launch"
_EXOTIC: Final = (labels.NVIDIA_GPU, labels.AMD_GPU, labels.NEURON, labels.NEURON_CORE, labels.GAUDI)

IsMarked = Callable[[str, str, str], bool]
"""(instance type, zone, capacity type) was refused lately."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance type with those of its offerings that may be launched, cheapest first."""

    type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        return self.offerings[0].price


@dataclass(frozen=True, slots=True)
class Selection:
    capacity_type: str
    tenancy: str
    candidates: tuple[Candidate, ...]


def select(claim: NodeClaim, types: ResolvedTypes, zones: Collection[str], marked: IsMarked) -> Selection | None:
    """`zones` have a subnet with room. None when nothing is left. Raises RequirementError."""
    wanted = requirements_of(claim)
    requests = parse_resources(claim.spec.resources.requests)
    found: Sequence[Candidate] = [
        candidate
        for one in _named(types, wanted)
        if (candidate := _candidate(one, wanted, zones, marked))
        and wanted.compatible(types.requirements(one))
        and fits(requests, one.allocatable())
    ]
    minimum = {key: one.min_values for key, one in wanted.items() if one.min_values}
    if not minimum:
        found = _without_exotic(found)
        found = _without_dear_spot(found)
    found = _cheapest(found, minimum)
    if not _keeps(found, {} if _is_relaxed(claim) else minimum):
        return None
    capacity_type = _capacity_type(found)
    narrowed = _of_capacity_type(found, capacity_type)
    return Selection(capacity_type, tenancy_of(wanted), tuple(narrowed)) if narrowed else None


def requirements_of(claim: NodeClaim) -> Requirements:
    """Raises model.requirements.RequirementError."""
    return Requirements.of(
        Expression(key=one.key, operator=one.operator, values=one.values, min_values=one.min_values)
        for one in claim.spec.requirements
    )


def tenancy_of(wanted: Requirements) -> str:
    """`dedicated` only where the claim leaves no other choice."""
    default, dedicated = labels.TENANCIES
    return default if _allows(wanted, labels.INSTANCE_TENANCY, default) else dedicated


def _named(types: ResolvedTypes, wanted: Requirements) -> Iterable[InstanceType]:
    """Where the claim names its types, the others need not be looked at."""
    named = wanted.get(labels.INSTANCE_TYPE)
    if named is None or named.complement:
        return types.types
    return [types.by_name[name] for name in sorted(named.values) if name in types.by_name]


def _candidate(
    instance_type: InstanceType, wanted: Requirements, zones: Collection[str], marked: IsMarked
) -> Candidate | None:
    offerings = [
        one
        for one in instance_type.offerings
        if one.available
        and one.zone in zones
        and _allows(wanted, labels.CAPACITY_TYPE, one.capacity_type)
        and _allows(wanted, labels.ZONE, one.zone)
        and _allows(wanted, labels.ZONE_ID, one.zone_id)
        and not marked(instance_type.name, one.zone, one.capacity_type)
    ]
    return _ordered(instance_type, offerings)


def _ordered(instance_type: InstanceType, offerings: Iterable[Offering]) -> Candidate | None:
    ordered = tuple(sorted(offerings, key=lambda one: (one.price, one.zone, one.capacity_type)))
    return Candidate(instance_type, ordered) if ordered else None


def _allows(wanted: Requirements, key: str, value: str) -> bool:
    return key not in wanted or wanted[key].has(value)


def _without_exotic(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Metal and accelerators are for those who ask for them: left out while anything else would do."""
    plain = [one for one in found if not _is_exotic(one.type)]
    return plain or found


def _is_exotic(one: InstanceType) -> bool:
    metal = any("metal" in size for size in one.labels.get(labels.INSTANCE_SIZE, ()))
    return metal or any(one.capacity.get(resource) for resource in _EXOTIC)


def _without_dear_spot(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Spot that costs more than the cheapest on-demand is no bargain."""
    on_demand = [o.price for one in found for o in one.offerings if o.capacity_type == labels.ON_DEMAND]
    if not on_demand:
        return found
    limit = min(on_demand)
    kept = (
        _ordered(one.type, (o for o in one.offerings if o.capacity_type != labels.SPOT or o.price <= limit))
        for one in found
    )
    return [one for one in kept if one]


def _cheapest(found: Sequence[Candidate], minimum: Mapping[str, int]) -> Sequence[Candidate]:
    """At most so many types as one request takes; those that bring values which minValues asks for come first."""
    ordered = sorted(found, key=lambda one: (one.price, one.type.name))
    if len(ordered) <= MOST_TYPES or not minimum:
        return ordered[:MOST_TYPES]
    missing = {key: (count, set[str]()) for key, count in minimum.items()}
    first = [one for one in ordered if _brings(one.type, missing)]
    rest = [one for one in ordered if one not in first]
    return sorted([*first, *rest][:MOST_TYPES], key=lambda one: (one.price, one.type.name))


def _keeps(found: Sequence[Candidate], minimum: Mapping[str, int]) -> bool:
    """Whether as many distinct values are left of each key as minValues asks for."""
    return all(
        len({value for one in found for value in one.type.labels.get(key, ())}) >= count
        for key, count in minimum.items()
    )


def _is_relaxed(claim: NodeClaim) -> bool:
    return claim.metadata.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED) == "true"


def _brings(one: InstanceType, missing: Mapping[str, tuple[int, set[str]]]) -> bool:
    """Whether it has a value of which there are too few still; notes it if so."""
    useful = False
    for key, (count, have) in missing.items():
        new = set(one.labels.get(key, ())) - have
        if new and len(have) < count:
            have |= new
            useful = True
    return useful


def _capacity_type(found: Sequence[Candidate]) -> str:
    offered = {offering.capacity_type for one in found for offering in one.offerings}
    return labels.SPOT if labels.SPOT in offered else labels.ON_DEMAND


def _of_capacity_type(found: Sequence[Candidate], capacity_type: str) -> Sequence[Candidate]:
    kept = (
        replace(one, offerings=tuple(o for o in one.offerings if o.capacity_type == capacity_type)) for one in found
    )
    return [one for one in kept if one.offerings]
