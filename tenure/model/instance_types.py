"""Instance types, their offerings, and the shards of offerings for launches after an interruption burst.

Shards have no spot capacity pool (a type in a zone) in common, so another interruption cannot take all replacements.
Each shard has enough types for EC2 to choose from.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from tenure.model.base import Message, Value

Market = Literal["", "default", "capacity-block", "interruptible"]
"""The kind of reservation of reserved capacity; empty if it is not reserved."""

# Labels that depend on the offering, not the instance type. One offering must satisfy all requirements on them.
OFFERING_KEYS: Final = (ZONE, ZONE_ID, CAPACITY_TYPE, *RESERVATION_LABELS, PLACEMENT_GROUP_PARTITION)
_FIELD_BY_LABEL: Final = {
    ZONE: "zone",
    ZONE_ID: "zone_id",
    CAPACITY_TYPE: "capacity_type",
    PLACEMENT_GROUP_PARTITION: "partition",
}


class Offering(Value):
    zone: str
    zone_id: str = ""
    capacity_type: str
    """`spot`, `on-demand` or `reserved`."""
    price: float
    """US dollars an hour."""
    available: bool = True
    """False: nothing can be launched, but the price stays known."""
    reservation_id: str = ""
    reservation_type: Literal["", "default", "capacity-block"] = ""
    interruptible: bool = False
    partition: str = ""
    overlaid: bool = False

    def label(self, key: str) -> str:
        """The value of one of OFFERING_KEYS on its nodes; empty if they do not have the label."""
        if key in RESERVATION_LABELS:
            return self.reserved_labels[key]
        value: str = getattr(self, _FIELD_BY_LABEL[key])
        return value

    @property
    def market(self) -> Market:
        """Of its reservation; empty if it is not reserved."""
        return "interruptible" if self.interruptible else self.reservation_type

    @property
    def reserved_labels(self) -> dict[str, str]:
        """Labels of a node in its reservation. Without one, all values are empty and the node has no such label."""
        return reservation_labels(self.reservation_id, self.market)


class DeviceTemplate(Value):
    """Equal devices that a DRA driver will publish for a node, as in `spec.devices` of a ResourceSlice."""

    driver: str
    pool: str
    name: str
    """Of the first device."""
    count: int
    attributes: dict[str, dict[str, str | bool]]
    capacity: dict[str, dict[str, str]] = {}


class TypeDevices(Value):
    """The DRA devices of an instance type as amounts, by the names that pods request."""

    amounts: dict[str, int]
    drivers: dict[str, tuple[str, ...]]
    """The drivers whose devices each demand may get. Amounts that several demands share are left out."""


DevicesByNodeClass = Mapping[str, Mapping[str, TypeDevices]]
"""Instance types with devices that pods request, by EC2NodeClass and name."""


class InstanceType(Value):
    """An EC2 instance type with the configuration of one EC2NodeClass."""

    name: str
    labels: dict[str, tuple[str, ...]]
    """Possible values of the node's labels, by key. A well-known key that is absent does not exist."""
    capacity: dict[str, int]
    overhead: dict[str, int]
    """kube-reserved, system-reserved and the hard eviction threshold together."""
    offerings: tuple[Offering, ...]
    image_id: str = ""
    """The image that strict compatibility selects for this type; empty if there is none."""
    overlaid: bool = False
    ebs_attachments: int | None = None
    """How many volumes the EBS CSI driver attaches to a new node; None for no limit."""
    device_templates: tuple[DeviceTemplate, ...] = ()

    @property
    def placement_group(self) -> str:
        """ID of the placement group of its instances; empty without one."""
        return next(iter(self.labels.get(PLACEMENT_GROUP_ID, ())), "")

    def allocatable(self) -> dict[str, int]:
        """Capacity minus overhead, at least zero."""
        return {key: max(0, amount - self.overhead.get(key, 0)) for key, amount in self.capacity.items()}


class UnavailableOffering(Message):
    """An offering that EC2 could not provide; it is not requested before `until`."""

    instance_type: str
    """`*` for every type, for example when the spot service-linked role is missing."""
    zone: str
    """`*` for every zone."""
    capacity_type: str
    """`*` for every capacity type, for example when a spread placement group is full."""
    until: datetime
    reason: str = ""
    reservation_id: str = ""
    placement_group: str = ""
    """If set, only launches into this placement group fail."""
    partition: str = ""
    subnet_id: str = ""
    """If set, only this subnet has no free addresses."""
    node_class: str = ""
    """If set, only launches of this EC2NodeClass fail."""

    def covers(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        return (
            self.capacity_type in ("*", capacity_type)
            and self.instance_type in ("*", instance_type)
            and self.zone in ("*", zone)
        )


class ReservationHeadroom(Value):
    available: int
    at: datetime
    """When EC2 was queried. `available` includes no later launch."""


class Catalogue(Value):
    """Instance types by EC2NodeClass, resolved again when an EC2NodeClass or a price changes."""

    by_node_class: dict[str, tuple[InstanceType, ...]] = {}


def reservation_labels(reservation_id: str, market: Market) -> dict[str, str]:
    return {
        CAPACITY_RESERVATION_ID: reservation_id,
        CAPACITY_RESERVATION_TYPE: "default" if market == "interruptible" else market,
        CAPACITY_RESERVATION_INTERRUPTIBLE: str(market == "interruptible").lower() if market else "",
    }


def drop_zero_amounts(resources: Resources) -> dict[str, int]:
    """A copy without zero entries, as in `status.capacity`."""
    return {key: amount for key, amount in resources.items() if amount}


MIN_TYPES_PER_SHARD: Final = 5
"""Karpenter warns about spot requests with fewer types (reference 2.4)."""
MIN_SHARDS: Final = 3
"""The interruption of a capacity pool takes at most about a third of the nodes. More shards cost more, as measured in
docs/decisions/interruption-spreading.md."""
_ANY: Final = "*"
_EXCLUSION_DURATION: Final = timedelta(hours=1)


class OfferingShard(Message):
    """One zone, and every `parts`-th instance type by price, starting with number `part`."""

    zone: str
    part: int = 0
    parts: int = 1

    def format(self) -> str:
        """The annotation's value, such as `us-west-2a/0/3`."""
        return f"{self.zone}/{self.part}/{self.parts}"

    @classmethod
    def read(cls, text: str) -> "OfferingShard | None":
        """Parse the result of `format`; None for any other text."""
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
        """The spot offerings outside this shard, to be treated as unavailable."""
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
    """One shard per zone; with fewer than MIN_SHARDS zones, each zone is divided by instance types.

    `by_price`: instance types, cheapest first.
    """
    parts = max(1, min(ceil(MIN_SHARDS / max(1, len(zones))), len(by_price) // MIN_TYPES_PER_SHARD))
    return tuple(OfferingShard(zone=zone, part=part, parts=parts) for part in range(parts) for zone in zones)
