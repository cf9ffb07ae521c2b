"""What EC2 lately said cannot be had: what the caller knows, and what this process heard itself.

The Provisioning workflow keeps the durable marks and hands them to every plan and every launch; what is kept here is
but a hint that spares a launch of another pool the round trip.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import product
from typing import Final

from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import latest

_MOST: Final = 5_000


class Marks:
    """Those that concern one EC2NodeClass and its placement group at one moment."""

    def __init__(
        self, marks: Iterable[UnavailableOffering], *, node_class: str, placement_group: str, now: datetime
    ) -> None:
        concerned = [
            mark
            for mark in marks
            if now < mark.until
            and mark.node_class in ("", node_class)
            and mark.placement_group in ("", placement_group)
        ]
        self.full_subnets = frozenset(mark.subnet_id for mark in concerned if mark.subnet_id)
        self._refused = {
            (mark.instance_type, mark.zone, mark.capacity_type, mark.partition)
            for mark in concerned
            if not mark.subnet_id and not mark.reservation_id
        }

    def covers(self, instance_type: str, zone: str, capacity_type: str, partition: str = "") -> bool:
        """A mark without a partition covers all of them. Reservations are told apart by their room, not here."""
        if not self._refused:
            return False
        keys = product((instance_type, "*"), (zone, "*"), (capacity_type, "*"), {partition, ""})
        return any(key in self._refused for key in keys)


class Unavailable:
    """Each new refusal renews its mark."""

    def __init__(self) -> None:
        self._marks: tuple[UnavailableOffering, ...] = ()

    def learn(self, marks: Collection[UnavailableOffering], now: datetime) -> None:
        if marks:
            self._marks = latest((*self._marks, *marks), now)[-_MOST:]

    def marks(
        self, known: Iterable[UnavailableOffering], *, node_class: str, placement_group: str, now: datetime
    ) -> Marks:
        """What is `known` to the caller, and what was heard here."""
        return Marks((*known, *self._marks), node_class=node_class, placement_group=placement_group, now=now)
