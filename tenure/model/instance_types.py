"""Instance types, their offerings, and the shards of offerings that the launch groups of a storm ask from.

Shards have no capacity pool (a type in a zone, as spot) in common, so that one more interruption cannot take all that
was bought. Each has types enough for EC2 to choose from.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final, Literal

from tenure.apis.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_TYPE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_LABELS,
    SPOT,
    ZONE,
    ZONE_ID,
)
from tenure.apis.resources import Resources
from tenure.model.base import Value

Market = Literal["", "default", "capacity-block", "interruptible"]
"""The kind of reservation that reserved capacity comes from; empty where it is not reserved."""

# What an offering decides rather than its instance type: a requirement has to hold for one offering as a whole.
OFFERING_KEYS: Final = (ZONE, ZONE_ID, CAPACITY_TYPE, *RESERVATION_LABELS, PLACEMENT_GROUP_PARTITION)


class Offering(Value):
    zone: str
    zone_id: str = ""
    capacity_type: str
    """`spot`, `on-demand` or `reserved`."""
    price: float
    """US dollars an hour."""
    available: bool = True
    """False keeps the price known while nothing can be launched here."""
    reservation_id: str = ""
    reservation_type: Literal["", "default", "capacity-block"] = ""
    interruptible: bool = False
    partition: str = ""
    overlaid: bool = False

    def label(self, key: str) -> str:
        """The value of one of OFFERING_KEYS on its nodes; empty where they do not have it."""
        if key in RESERVATION_LABELS:
            return self.reserved_labels[key]
        return {
            ZONE: self.zone,
            ZONE_ID: self.zone_id,
            CAPACITY_TYPE: self.capacity_type,
            PLACEMENT_GROUP_PARTITION: self.partition,
        }[key]

    @property
    def market(self) -> Market:
        """Of its reservation; empty where it is not reserved."""
        return "interruptible" if self.interruptible else self.reservation_type

    @property
    def reserved_labels(self) -> dict[str, str]:
        """Of a node in its reservation; all empty where it is not reserved, and the node has none of them."""
        return reservation_labels(self.reservation_id, self.market)


class InstanceType(Value):
    """An EC2 instance type as it would run under one EC2NodeClass."""

    name: str
    labels: dict[str, tuple[str, ...]]
    """Possible values of the node's labels, by key. A well-known key that is absent does not exist."""
    capacity: dict[str, int]
    overhead: dict[str, int]
    """kube-reserved, system-reserved and the hard eviction threshold together."""
    offerings: tuple[Offering, ...]
    image_id: str = ""
    """The one image that strict compatibility maps to this type; empty when none does."""
    overlaid: bool = False

    @property
    def placement_group(self) -> str:
        """Id of the group that its instances are launched into; empty without one."""
        return next(iter(self.labels.get(PLACEMENT_GROUP_ID, ())), "")

    def allocatable(self) -> dict[str, int]:
        """Capacity less overhead, never below zero."""
        return {key: max(0, amount - self.overhead.get(key, 0)) for key, amount in self.capacity.items()}


class UnavailableOffering(Value):
    """An offering that EC2 could not provide; it is not offered again before `until`."""

    instance_type: str
    """`*` for every type, as when the spot service-linked role is missing."""
    zone: str
    """`*` for every zone."""
    capacity_type: str
    """`*` for every capacity type, as when a spread placement group is full."""
    until: datetime
    reason: str = ""
    reservation_id: str = ""
    placement_group: str = ""
    """Only launches into this placement group are refused."""
    partition: str = ""
    subnet_id: str = ""
    """Only this subnet is without addresses."""
    node_class: str = ""
    """Only launches of this EC2NodeClass; empty for all."""

    def covers(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        return (
            self.capacity_type in ("*", capacity_type)
            and self.instance_type in ("*", instance_type)
            and self.zone in ("*", zone)
        )


class ReservationHeadroom(Value):
    available: int
    at: datetime
    """When EC2 was queried: later launches are not counted."""


class Catalogue(Value):
    """Every instance type by EC2NodeClass. Resolved again when a NodeClass or a price changes."""

    by_node_class: dict[str, tuple[InstanceType, ...]] = {}


def reservation_labels(reservation_id: str, market: Market) -> dict[str, str]:
    return {
        CAPACITY_RESERVATION_ID: reservation_id,
        CAPACITY_RESERVATION_TYPE: "default" if market == "interruptible" else market,
        CAPACITY_RESERVATION_INTERRUPTIBLE: str(market == "interruptible").lower() if market else "",
    }


def drop_zero_amounts(resources: Resources) -> dict[str, int]:
    """A plain copy without zero entries, as `status.capacity` shows it."""
    return {key: amount for key, amount in resources.items() if amount}


MIN_TYPES_PER_SHARD: Final = 5
"""Karpenter warns of spot requests with fewer (reference 2.4)."""
MIN_SHARDS: Final = 3
"""Slices: no interruption of a pool takes more than about a third. More cost more, as measured in
docs/decisions/interruption-spreading.md."""
_ANY: Final = "*"
_EXCLUSION_DURATION: Final = timedelta(hours=1)


class OfferingShard(Value):
    """Of one zone, every so-many-th instance type by price."""

    zone: str
    part: int = 0
    parts: int = 1

    def format(self) -> str:
        """As an annotation has it."""
        return f"{self.zone}/{self.part}/{self.parts}"

    @classmethod
    def read(cls, text: str) -> "OfferingShard | None":
        """None for text in another form."""
        zone, *numbers = text.split("/")
        if not zone or len(numbers) != 2 or not all(one.isdecimal() for one in numbers):
            return None
        part, parts = int(numbers[0]), int(numbers[1])
        return cls(zone=zone, part=part, parts=parts) if part < parts else None

    def select_types(self, by_price: Sequence[str]) -> Sequence[str]:
        return by_price[self.part :: self.parts]

    def list_excluded_offerings(
        self, by_price: Sequence[str], zones: Iterable[str], now: datetime
    ) -> tuple[UnavailableOffering, ...]:
        """The offerings to treat as unavailable; offerings other than spot do not change."""
        mine = set(self.select_types(by_price))
        others = [(_ANY, zone) for zone in zones if zone != self.zone]
        others += [(name, _ANY) for name in by_price if name not in mine]
        return tuple(
            UnavailableOffering(
                instance_type=name, zone=zone, capacity_type=SPOT, until=now + _EXCLUSION_DURATION, reason="Slice"
            )
            for name, zone in others
        )


def list_offering_shards(by_price: Sequence[str], zones: Sequence[str]) -> tuple[OfferingShard, ...]:
    """A zone each; where there are fewer zones than slices are wanted, zones are divided by types. `by_price`: instance
    types, the cheapest first."""
    parts = max(1, min(ceil(MIN_SHARDS / max(1, len(zones))), len(by_price) // MIN_TYPES_PER_SHARD))
    return tuple(OfferingShard(zone=zone, part=part, parts=parts) for part in range(parts) for zone in zones)
