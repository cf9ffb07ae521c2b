"""NodePools as what can be bought from them now: a template, the types that satisfy it, and room under the limits.

Between `tenure/scheduling/instance_type_table.py` (what exists) and `tenure/scheduling/packing/packer.py` (what is
chosen).

Capacity reservations in one pass: how many more nodes each takes, and which of them a new node is planned into.

A node is planned into one reservation and says so in its requirements, so that no more nodes are ever planned into it
than EC2 says it has room for. `tenure/scheduling/packing/instance_selection.py` asks here before it buys anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tenure.apis.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_TYPE,
    INITIALIZED,
    NODEPOOL,
    REGISTERED,
    RESERVED,
    nodeclass_label,
)
from tenure.apis.resources import NODES, Resources
from tenure.model.facts import ClaimFact, DaemonSetFact, HostPort, PoolFact
from tenure.model.instance_types import ReservationRoom, UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.daemonsets import overhead, ports
from tenure.scheduling.instance_type_table import Amounts, Indices, Mask, Prices, TypeTable
from tenure.scheduling.pods import Variant
from tenure.scheduling.taints import clash, describe, untolerated


class Rooms:
    """What EC2 counted, less the NodeClaims that it cannot have counted yet; one for all pools, since they share."""

    def __init__(self, known: Mapping[str, ReservationRoom], claims: Iterable[ClaimFact] = ()) -> None:
        self._known = known
        self._left = {key: room.available for key, room in known.items()}
        for claim in claims:
            key = reservation_of(claim)
            if key in known and not _counted(claim, known[key]):
                self._left[key] -= 1

    def left(self, reservation_id: str) -> int:
        return max(0, self._left.get(reservation_id, 0))

    def refute(self, mark: UnavailableOffering) -> bool:
        """EC2 refused a reservation for want of room, and has counted some in it since."""
        room = self._known.get(mark.reservation_id)
        return room is not None and room.available > 0 and room.at > mark.until - UNAVAILABLE_FOR

    def take(self, reservation_id: str, nodes: int) -> None:
        self._left[reservation_id] = self.left(reservation_id) - nodes


def reservation_of(claim: ClaimFact) -> str:
    """The one reservation that it was planned into, or runs in."""
    for one in claim.requirements:
        if one.key == CAPACITY_RESERVATION_ID and one.operator == "In" and len(one.values) == 1:
            return one.values[0]
    return claim.labels.get(CAPACITY_RESERVATION_ID, "")


def _counted(claim: ClaimFact, room: ReservationRoom) -> bool:
    """One that was made after the count is not in it, nor one that has no instance."""
    return claim.launched and claim.created <= room.at


INTERNAL = (REGISTERED, INITIALIZED)
NOT_TO_BE_HAD = "can be had now: EC2 has no capacity for them"


class Template:
    """A NodePool's template beside the instance types of its NodeClass; the same until one of them changes."""

    def __init__(self, pool: PoolFact, table: TypeTable, daemons: Iterable[DaemonSetFact]) -> None:
        self.pool = pool
        self.table = table
        self.labels = {
            **pool.template_labels,
            NODEPOOL: pool.name,
            nodeclass_label(pool.node_class_group, pool.node_class_kind): pool.node_class,
        }
        internal = dict.fromkeys(INTERNAL, "true")
        self.requirements = Requirements.of(pool.requirements).intersection(
            Requirements.of_labels(self.labels), Requirements.of_labels(internal)
        )
        daemons = tuple(daemons)
        self.overhead = overhead(table, daemons, self.requirements, pool.taints)
        self._ports = ports(table, daemons, self.requirements, pool.taints)
        self.room = table.allocatable - self.overhead

    def ports_of(self, rows: Indices) -> tuple[HostPort, ...]:
        """Host ports that DaemonSets take on any of these types."""
        return tuple(port for port, taken in self._ports if taken[rows].any())

    def ports_free(self, wanted: Iterable[HostPort]) -> Mask:
        """The types on which no DaemonSet takes any of these host ports."""
        free: Mask = np.ones(len(self.table), dtype=bool)
        for port, taken in self._ports:
            if any(clash(port, one) for one in wanted):
                free &= ~taken
        return free


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A template narrowed by what pods ask for: the types and offerings that remain."""

    requirements: Requirements
    types: Mask
    offerings: Mask
    reservation: str = ""
    """The one capacity reservation that it is bought from; empty for anything that is not reserved."""


class Refusal(str):
    """Why a pod cannot have a node of a pool, in words."""

    __slots__ = ()


@dataclass(slots=True)
class Budget:
    """What a pool may still buy. Amounts are in the units of `model.resources`; None is no limit."""

    limits: Resources
    used: Resources

    def left(self, key: str) -> int | None:
        return self.limits[key] - self.used.get(key, 0) if key in self.limits else None

    def spend(self, amounts: Resources) -> None:
        self.used = {**self.used, **{key: self.used.get(key, 0) + amount for key, amount in amounts.items()}}


@dataclass(slots=True, eq=False)
class Offer:
    """One pool in one pass."""

    template: Template
    available: Mask
    budget: Budget
    rooms: Rooms = field(default_factory=lambda: Rooms({}))
    _narrowed: dict[tuple[Option | None, Variant, str], Option | Refusal] = field(default_factory=dict)
    _options: dict[tuple[Requirements, str], Option | Refusal] = field(default_factory=dict)
    _prices: dict[Option, Prices] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.template.pool.name

    @property
    def table(self) -> TypeTable:
        return self.template.table

    @property
    def limited(self) -> bool:
        return bool(self.budget.limits)

    def base(self) -> Option | Refusal:
        """The bare template, nothing reserved."""
        return self._option(self.template.requirements, self.available & ~self.table.reserved, "")

    def narrowed(self, option: Option | None, variant: Variant, reservation: str = "") -> Option | Refusal:
        """The option (None: the bare template) with a pod's demands added, or why they do not go together.

        `reservation` is for the bare template alone: an option stays in its reservation, or out of all.
        """
        key = (option, variant, option.reservation if option else reservation)
        known = self._narrowed.get(key)
        if known is None:
            known = self._narrowed[key] = self._narrow(*key)
        return known

    def limited_to(self, option: Option, wanted: Requirements) -> Option | Refusal:
        """The option with these requirements added, whoever asks for them."""
        refusal = option.requirements.incompatibility(wanted)
        return (
            Refusal(refusal)
            if refusal
            else self._option(
                option.requirements.intersection(wanted), self.available & ~self.table.reserved, option.reservation
            )
        )

    def reservations(self) -> list[str]:
        """Those with room in which there is something for this pool's NodeClass, by id."""
        ids = set(self.table.reservations[self.available & self.table.reserved])
        return sorted(one for one in ids if self.rooms.left(one) > 0)

    def prices(self, option: Option) -> Prices:
        """The cheapest offering of each type that the option allows."""
        known = self._prices.get(option)
        if known is None:
            known = self._prices[option] = self.table.cheapest(option.offerings)
        return known

    def within_limits(self, types: Mask) -> Mask:
        """The types of which one more may be bought without passing a limit."""
        if not self.limited:
            return types
        nodes = self.budget.left(NODES)
        if nodes is not None and nodes < 1:
            return np.zeros_like(types)
        allowed = types
        for key in self.budget.limits:
            left = self.budget.left(key)
            if left is not None and key in self.table.columns:
                allowed = allowed & (self.table.capacity[:, self.table.columns[key]] <= left)
        return allowed

    def spend(self, rows: Indices, nodes: int = 1) -> None:
        """Count nodes against the limits, as the largest of these types in each resource (reference 2.11)."""
        if self.limited:
            self.budget.spend({key: nodes * amount for key, amount in {**self.bound(rows), NODES: 1}.items()})

    def bound(self, rows: Indices) -> dict[str, int]:
        """The largest capacity among these types."""
        return self.table.amounts(largest_of(self.table.capacity, rows))

    def _narrow(self, option: Option | None, variant: Variant, reservation: str) -> Option | Refusal:
        pool = self.template.pool
        taint = untolerated(variant.tolerations, pool.taints, tolerate_preferences=variant.tolerate_preferences)
        if taint is not None:
            return Refusal(f"taint {describe(taint)} is not tolerated")
        before = option.requirements if option else self.template.requirements
        refusal = before.incompatibility(variant.requirements)
        if refusal:
            return Refusal(refusal)
        wanted = before.intersection(variant.requirements)
        if not reservation:
            return self._option(wanted, self.available & ~self.table.reserved, reservation)
        within = _within(reservation)
        refusal = wanted.incompatibility(within)
        if refusal:
            return Refusal(refusal)
        return self._option(wanted.intersection(within), self.available, reservation)

    def _option(self, requirements: Requirements, available: Mask, reservation: str) -> Option | Refusal:
        """Equal requirements are one option."""
        known = self._options.get((requirements, reservation))
        if known is None:
            known = self._options[requirements, reservation] = self._found(requirements, available, reservation)
        return known

    def _found(self, requirements: Requirements, available: Mask, reservation: str) -> Option | Refusal:
        fitting = self.table.types_with(requirements)
        if not fitting.any():
            return Refusal(f"no instance type satisfies {requirements.without(*self._own_keys())}")
        possible = self.table.offerings_with(requirements)
        offerings = possible & available & fitting[self.table.offering_rows]
        types = fitting & self.table.rows_of(offerings)
        if not types.any():
            return Refusal(_no_offering(int(fitting.sum()), bool((possible & fitting[self.table.offering_rows]).any())))
        return Option(requirements, types, offerings, reservation)

    def _own_keys(self) -> tuple[str, ...]:
        return (*INTERNAL, *(key for key in self.template.labels if key not in self.template.pool.template_labels))


def _within(reservation: str) -> Requirements:
    return Requirements((one_of(CAPACITY_TYPE, RESERVED), one_of(CAPACITY_RESERVATION_ID, reservation)))


def largest_of(amounts: Amounts, rows: Indices) -> Amounts:
    """The largest amount of each column among some rows."""
    return np.asarray(amounts[rows].max(axis=0), dtype=np.int64)


def without_internal(requirements: Requirements) -> Requirements:
    """As a NodeClaim carries them: what only DaemonSets ask for is left out (reference 2.8)."""
    return requirements.without(*INTERNAL)


def by_preference(pools: Iterable[PoolFact]) -> list[PoolFact]:
    """The pools that make nodes for pods: weight, then name, both descending (reference 2.3)."""
    usable = [pool for pool in pools if pool.ready and not pool.deleting and not pool.static]
    return sorted(usable, key=lambda pool: (pool.weight, pool.name), reverse=True)


def _no_offering(types: int, known: bool) -> str:
    if known:
        return f"none of the {types} instance types that satisfy it {NOT_TO_BE_HAD}"
    return f"none of the {types} instance types that satisfy it is sold in the zones and capacity types allowed"
