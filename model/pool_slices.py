"""Capacity pools, divided among the launch groups of a storm: one more interruption cannot take all that was bought.

A pool is a type in a zone, as spot. Slices have no pool in common, and each has types enough for EC2 to choose from.
`controller/slicing.py` deals them out, `activities/launching.py` leaves out what is not in one.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from model.base import Value
from model.catalogue import UnavailableOffering
from model.labels import SPOT

LEAST_TYPES: Final = 5
"""Karpenter warns of spot requests with fewer (reference 2.4)."""
ENOUGH: Final = 3
"""Slices: no interruption of a pool takes more than about a third. More cost more, as measured in
docs/decisions/storms-are-spread.md."""
_ANY: Final = "*"
_FOR: Final = timedelta(hours=1)
"""Longer than a request takes to be made; they are never kept."""


class PoolSlice(Value):
    """Of one zone, every so-many-th instance type by price."""

    zone: str
    part: int = 0
    parts: int = 1

    def text(self) -> str:
        """As an annotation has it."""
        return f"{self.zone}/{self.part}/{self.parts}"

    @classmethod
    def read(cls, text: str) -> "PoolSlice | None":
        """None for what is no such text."""
        zone, *numbers = text.split("/")
        if not zone or len(numbers) != 2 or not all(one.isdecimal() for one in numbers):
            return None
        part, parts = int(numbers[0]), int(numbers[1])
        return cls(zone=zone, part=part, parts=parts) if part < parts else None

    def types(self, by_price: Sequence[str]) -> Sequence[str]:
        return by_price[self.part :: self.parts]

    def leaves_out(
        self, by_price: Sequence[str], zones: Iterable[str], now: datetime
    ) -> tuple[UnavailableOffering, ...]:
        """As if it could not be had now; what is not spot is left as it is."""
        mine = set(self.types(by_price))
        others = [(_ANY, zone) for zone in zones if zone != self.zone]
        others += [(name, _ANY) for name in by_price if name not in mine]
        return tuple(
            UnavailableOffering(instance_type=name, zone=zone, capacity_type=SPOT, until=now + _FOR, reason="Slice")
            for name, zone in others
        )


def slices(by_price: Sequence[str], zones: Sequence[str]) -> tuple[PoolSlice, ...]:
    """A zone each; where there are fewer zones than slices are wanted, zones are divided by types. `by_price`: instance
    types, the cheapest first."""
    parts = max(1, min(ceil(ENOUGH / max(1, len(zones))), len(by_price) // LEAST_TYPES))
    return tuple(PoolSlice(zone=zone, part=part, parts=parts) for part in range(parts) for zone in zones)
