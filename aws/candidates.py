"""An instance type beside those of its offerings that one launch may use; what `selection.py` narrows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from model.catalogue import InstanceType, Offering


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance type with those of its offerings that may be launched, cheapest first."""

    type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        return self.offerings[0].price


def candidate(instance_type: InstanceType, offerings: Iterable[Offering]) -> Candidate | None:
    """None when there is nothing to launch."""
    ordered = tuple(sorted(offerings, key=_order))
    return Candidate(instance_type, ordered) if ordered else None


def keeping(found: Iterable[Candidate], keep: Callable[[Offering], bool]) -> Sequence[Candidate]:
    """With only the offerings that are kept; candidates left without any are gone."""
    kept = (candidate(one.type, (offering for offering in one.offerings if keep(offering))) for one in found)
    return [one for one in kept if one]


def _order(offering: Offering) -> tuple[float, str, str, str, str]:
    return offering.price, offering.zone, offering.capacity_type, offering.reservation_id, offering.partition
