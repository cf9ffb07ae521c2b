"""Offerings that recently had no capacity, from the caller and from launches of this process.

The Provisioning workflow stores them durably. The ones in this process only save calls for other pools.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import product
from typing import Final

from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import latest_unavailable_offerings

_MOST: Final = 5_000


class UnavailableForNodeClass:
    """Unavailable offerings of one EC2NodeClass and its placement group at one time."""

    def __init__(
        self, offerings: Iterable[UnavailableOffering], *, node_class: str, placement_group: str, now: datetime
    ) -> None:
        concerned = [
            offering
            for offering in offerings
            if now < offering.until
            and offering.node_class in ("", node_class)
            and offering.placement_group in ("", placement_group)
        ]
        self.full_subnets = frozenset(offering.subnet_id for offering in concerned if offering.subnet_id)
        self._unavailable = {
            (offering.instance_type, offering.zone, offering.capacity_type, offering.partition)
            for offering in concerned
            if not offering.subnet_id and not offering.reservation_id
        }

    def covers(self, instance_type: str, zone: str, capacity_type: str, partition: str = "") -> bool:
        """Whether the offering is unavailable. An entry without a partition covers all partitions.

        Reservations do not count here, because their free capacity is known.
        """
        if not self._unavailable:
            return False
        keys = product((instance_type, "*"), (zone, "*"), (capacity_type, "*"), {partition, ""})
        return any(key in self._unavailable for key in keys)


class UnavailableOfferings:
    """A new rejection extends the entry of its offering."""

    def __init__(self) -> None:
        self._offerings: tuple[UnavailableOffering, ...] = ()

    def add(self, offerings: Collection[UnavailableOffering], now: datetime) -> None:
        if offerings:
            self._offerings = latest_unavailable_offerings((*self._offerings, *offerings), now)[-_MOST:]

    def for_nodeclass(
        self, known: Iterable[UnavailableOffering], *, node_class: str, placement_group: str, now: datetime
    ) -> UnavailableForNodeClass:
        return UnavailableForNodeClass(
            (*known, *self._offerings), node_class=node_class, placement_group=placement_group, now=now
        )
