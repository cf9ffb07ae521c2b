"""NodeOverlays and their effect on instance types: prices and extended resources.

Planning and launches both use `apply_overlays`, so they agree.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tenure.apis.durations import quote
from tenure.apis.labels import INSTANCE_TYPE, MEMORY, NODEPOOL, WELL_KNOWN, WELL_KNOWN_RESOURCES
from tenure.apis.nodeoverlay import ADJUSTMENT, PRICE
from tenure.apis.quantity import MAX_AMOUNT
from tenure.model.base import Value
from tenure.model.facts import Expression
from tenure.model.instance_types import OFFERING_KEYS, InstanceType, Offering
from tenure.model.requirements import Requirement, RequirementError, Requirements

_HUGEPAGES: Final = "hugepages-"


class OverlayFact(Value):
    name: str
    uid: str = ""
    generation: int = 0
    weight: int = 0
    requirements: tuple[Expression, ...] = ()
    price: str = ""
    """US dollars an hour, as in the spec; empty if not set."""
    adjustment: str = ""
    """`+x`, `-x`, `+n%` or `-n%`; empty if not set."""
    capacity: dict[str, int] = {}
    """Extended resources, in the units of `tenure/apis/resources.py`."""
    problem: str = ""
    """Why the overlay is invalid; empty if it is valid."""

    @property
    def changes_price(self) -> bool:
        return bool(self.price or self.adjustment)

    def adjust_price(self, price: float) -> float:
        """The adjusted price in US dollars an hour; at least zero."""
        if self.price:
            return float(self.price)
        if not self.adjustment:
            return price
        share = self.adjustment.endswith("%")
        change = price * float(self.adjustment[:-1]) / 100 if share else float(self.adjustment)
        return max(0.0, price + change)


MAX_PRICE: Final = 1e6
"""US dollars an hour, or percent. Far above every offering; a larger number may be infinite as a float."""


def find_overlay_problem(overlay: OverlayFact) -> str:
    """The problem of a single overlay and its remedy; empty if it is valid."""
    if overlay.problem:
        return overlay.problem
    try:
        Requirements.from_expressions(overlay.requirements)
    except RequirementError as error:
        return f"spec.requirements: {error}"
    for key in WELL_KNOWN_RESOURCES:
        if key in overlay.capacity:
            return f"spec.capacity.{key}: set by the instance type, expected extended resources only"
    if overlay.price and not re.search(PRICE, overlay.price):
        return f"spec.price: {overlay.price!r}: invalid price, expected US dollars an hour, e.g. '0.25'"
    if overlay.adjustment and not re.search(ADJUSTMENT, overlay.adjustment):
        return f"spec.priceAdjustment: {overlay.adjustment!r}: invalid, expected e.g. '+0.05', '-0.1', '+10%' or '-25%'"
    for field, amount in (("price", overlay.price), ("priceAdjustment", overlay.adjustment)):
        if amount and not abs(float(amount.rstrip("%"))) <= MAX_PRICE:
            return f"spec.{field}: {quote(amount)}: too large, expected at most {MAX_PRICE:.0f}"
    if overlay.price and overlay.adjustment:
        return "spec.price: mutually exclusive with spec.priceAdjustment: remove one of them"
    oversized = next((key for key, amount in overlay.capacity.items() if amount >= MAX_AMOUNT), "")
    if oversized:
        return f"spec.capacity.{oversized}: too large, expected less than {MAX_AMOUNT}"
    negative = next((key for key, amount in overlay.capacity.items() if amount < 0), "")
    return f"spec.capacity.{negative}: negative, expected the amount of a node" if negative else ""


def sort_by_precedence(overlays: Iterable[OverlayFact]) -> list[OverlayFact]:
    """Highest precedence first: by weight, then by name, both descending (reference 2.21)."""
    return sorted(overlays, key=lambda one: (one.weight, one.name), reverse=True)


def pool_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that the NodePool determines, without those of the instance type or offering."""
    return {key: value for key, value in labels.items() if key not in WELL_KNOWN or key == NODEPOOL}


def apply_overlays(
    types: Iterable[InstanceType], overlays: Iterable[OverlayFact], labels: Mapping[str, str]
) -> Iterator[InstanceType]:
    """The instance types with the overlays for a NodePool with these labels applied; the others are unchanged.

    For the price of an offering, and for a resource, the overlay with the highest precedence applies. Raises
    RequirementError.
    """
    ordered = sort_by_precedence(overlays)
    reaches = [(one, OverlayReach(one, labels)) for one in ordered]
    chosen = [(one, reach) for one, reach in reaches if reach.possible]
    return (_apply_to_type(kind, chosen) for kind in types)


class OverlayReach:
    """The instance types that an overlay selects in a NodePool with these labels. Raises RequirementError."""

    def __init__(self, overlay: OverlayFact, labels: Mapping[str, str]) -> None:
        requirements = Requirements.from_expressions(overlay.requirements)
        own = pool_labels(labels)
        self.possible = all(one.has(own[key]) for key, one in requirements.items() if key in own)
        rest = {key: one for key, one in requirements.items() if key not in own}
        self._of_type = {key: one for key, one in rest.items() if key not in OFFERING_KEYS}
        self._of_offering = {key: one for key, one in rest.items() if key in OFFERING_KEYS}

    def offering_indexes(self, kind: InstanceType) -> Sequence[int]:
        """Indexes in `kind.offerings` that the overlay selects."""
        if not self.possible or not all(_is_satisfied(one, _values(kind, key)) for key, one in self._of_type.items()):
            return ()
        if not self._of_offering:
            return range(len(kind.offerings))
        return [index for index, one in enumerate(kind.offerings) if self._matches_offering(one)]

    def _matches_offering(self, offering: Offering) -> bool:
        return all(
            _is_satisfied(one, (value,) if (value := offering.label(key)) else ())
            for key, one in self._of_offering.items()
        )


def _apply_to_type(kind: InstanceType, overlays: Sequence[tuple[OverlayFact, OverlayReach]]) -> InstanceType:
    prices: dict[int, float] = {}
    added: dict[str, int] = {}
    for overlay, reach in overlays:
        reached = reach.offering_indexes(kind)
        if reached and overlay.changes_price:
            for index in reached:
                prices.setdefault(index, overlay.adjust_price(kind.offerings[index].price))
        if reached:
            added = {**overlay.capacity, **added}
    return _with_overlay_values(kind, prices, added) if prices or added else kind


def _with_overlay_values(kind: InstanceType, prices: Mapping[int, float], added: Mapping[str, int]) -> InstanceType:
    offerings = tuple(
        one.model_copy(update={"price": prices[index], "overlaid": True}) if index in prices else one
        for index, one in enumerate(kind.offerings)
    )
    # Memory reserved for huge pages is not available for other uses.
    pages = sum(amount for key, amount in added.items() if key.startswith(_HUGEPAGES))
    overhead = {**kind.overhead, MEMORY: kind.overhead.get(MEMORY, 0) + pages} if pages else kind.overhead
    return kind.model_copy(
        update={
            "offerings": offerings,
            "capacity": {**kind.capacity, **added},
            "overhead": overhead,
            "overlaid": bool(added),
        }
    )


def _values(kind: InstanceType, key: str) -> Sequence[str]:
    return (kind.name,) if key == INSTANCE_TYPE else kind.labels.get(key, ())


def _is_satisfied(requirement: Requirement, values: Sequence[str]) -> bool:
    return any(map(requirement.has, values)) if values else not requirement.present
