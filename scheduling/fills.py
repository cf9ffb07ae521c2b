"""What a node to be bought holds so far, and which instance types still fit it.

A fill is immutable, and equal fills are one object: a thousand equal nodes are worked out once.
Used by `scheduling/packing.py`; `scheduling/emission.py` turns the last one into a NodeClaim.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from model.quantity import format_amount
from model.requirements import Requirements
from scheduling.demand import Variant
from scheduling.pools import Offer, Option, Refusal
from scheduling.typetable import Amounts, Indices, Mask, TypeTable

STRICT: Final = "Strict"
BEST_EFFORT: Final = "BestEffort"
_UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    offer: Offer
    option: Option
    used: Amounts
    rows: Indices
    """The instance types that are still possible, as rows of the pool's table."""

    def counts(self, rows: Indices, vector: Amounts) -> Amounts:
        """How many more pods of this size each of the rows has room for."""
        asked = np.flatnonzero(vector > 0)
        if not len(asked):
            return np.full(len(rows), _UNLIMITED, dtype=np.int64)
        room = self.offer.template.room[np.ix_(rows, asked)] - self.used[asked]
        return np.asarray(np.maximum(room // vector[asked], 0).min(axis=1), dtype=np.int64)


@dataclass(slots=True)
class Fills:
    """Makes fills, one object for equal ones."""

    min_values_policy: str = STRICT
    _known: dict[tuple[Option, bytes, bytes], Fill] = field(default_factory=dict)

    def start(
        self, offer: Offer, variant: Variant, requests: dict[str, int], count: int, reservation: str = ""
    ) -> tuple[Fill, int] | Refusal:
        """A new node of this pool with as many of `count` equal pods as one instance type can take.

        With `reservation` it is bought from that one, without it from none.
        """
        option = offer.narrowed(None, variant, reservation)
        if isinstance(option, Refusal):
            return option
        vector = offer.table.vector(requests)
        if vector is None:
            return _unknown_resource(offer.table, requests)
        empty = Fill(offer, option, np.zeros_like(vector), np.flatnonzero(option.types))
        grown = self._grow(empty, option, vector, count, offer.within_limits(option.types))
        return grown or self._why_not(empty, vector)

    def start_reserved(
        self, offer: Offer, variant: Variant, requests: dict[str, int], count: int
    ) -> tuple[Fill, int] | None:
        """As `start`, from the reservation whose machine takes most of the pods, the smallest machine of equals."""
        tries = (self.start(offer, variant, requests, count, one) for one in offer.reservations())
        found = [one for one in tries if not isinstance(one, Refusal)]
        return min(found, key=lambda one: (-one[1], float(offer.prices(one[0].option).min())), default=None)

    def extend(self, fill: Fill, variant: Variant, requests: dict[str, int], count: int) -> tuple[Fill, int] | None:
        """The fill with as many of `count` equal pods added as go; None when not one does."""
        option = fill.offer.narrowed(fill.option, variant)
        vector = fill.offer.table.vector(requests)
        if isinstance(option, Refusal) or vector is None:
            return None
        return self._grow(fill, option, vector, count, option.types)

    def _grow(self, fill: Fill, option: Option, vector: Amounts, count: int, allowed: Mask) -> tuple[Fill, int] | None:
        rows = fill.rows[allowed[fill.rows]]
        if not len(rows):
            return None
        counts = np.minimum(fill.counts(rows, vector), count)
        added = self._most(fill.offer.table, option.requirements, rows, counts)
        if added == 0:
            return None
        return self._fill(fill.offer, option, fill.used + vector * added, rows[counts >= added]), added

    def _most(self, table: TypeTable, requirements: Requirements, rows: Indices, counts: Amounts) -> int:
        """The largest number of pods after which enough different types remain for minValues."""
        if self.min_values_policy != STRICT or not _asks_variety(requirements):
            return int(counts.max())
        for added in np.unique(counts)[::-1]:
            if added > 0 and not missing_variety(table, requirements, rows[counts >= added]):
                return int(added)
        return 0

    def _fill(self, offer: Offer, option: Option, used: Amounts, rows: Indices) -> Fill:
        key = (option, used.tobytes(), rows.tobytes())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Fill(offer, option, used, rows)
        return known

    def _why_not(self, empty: Fill, vector: Amounts) -> Refusal:
        offer, rows = empty.offer, empty.rows
        fitting = rows[empty.counts(rows, vector) > 0]
        if not len(fitting):
            return _too_small(offer, rows, vector)
        mask: Mask = np.zeros(len(offer.table), dtype=bool)
        mask[fitting] = True
        allowed = np.flatnonzero(offer.within_limits(mask))
        if not len(allowed):
            return _over_limit(offer, fitting)
        missing = missing_variety(offer.table, empty.option.requirements, allowed)
        return Refusal(f"minValues cannot be kept: {missing}")


def missing_variety(table: TypeTable, requirements: Requirements, rows: Indices) -> str:
    """The first minValues that these types do not reach, in words; empty when all are reached."""
    for key, one in requirements.items():
        if one.min_values is not None and (found := table.distinct(key, rows)) < one.min_values:
            return f"{key} needs {one.min_values} different values and {found} fit"
    return ""


def _asks_variety(requirements: Requirements) -> bool:
    return any(one.min_values is not None for one in requirements.values())


def _unknown_resource(table: TypeTable, requests: dict[str, int]) -> Refusal:
    missing = [key for key, amount in sorted(requests.items()) if amount > 0 and key not in table.columns]
    return Refusal(f"no instance type has {', '.join(missing)}")


def _too_small(offer: Offer, rows: Indices, vector: Amounts) -> Refusal:
    """Names the first resource that no type has enough of; else that none has enough of all together."""
    room = offer.template.room[rows].max(axis=0)
    for number in np.flatnonzero(vector > room):
        key = offer.table.resources[number]
        asked, most = format_amount(key, int(vector[number])), format_amount(key, max(0, int(room[number])))
        return Refusal(f"needs {asked} {key}; the largest instance type allowed has {most} beside its DaemonSets")
    asked = ", ".join(f"{format_amount(key, n)} {key}" for key, n in offer.table.amounts(vector).items())
    return Refusal(f"no single instance type allowed has {asked} together beside its DaemonSets")


def _over_limit(offer: Offer, fitting: Indices) -> Refusal:
    for key, limit in offer.budget.limits.items():
        left = offer.budget.left(key) or 0
        column = offer.table.columns.get(key)
        least = 1 if column is None else int(offer.table.capacity[fitting, column].min())
        if least > left:
            shown = [format_amount(key, amount) for amount in (limit, max(left, 0), least)]
            return Refusal(
                f"limit {key} {shown[0]}: {shown[1]} left, the smallest instance type that fits has {shown[2]}"
            )
    return Refusal("the limits together leave no instance type that fits")
