"""Nodes and NodeClaims that exist: their room, and which pods may count on it.

`scheduling/state.py` makes the homes from its facts; `scheduling/priced/packing.py` fills them before it buys.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from model.facts import Taint, Toleration
from model.labels import HOSTNAME
from model.requirement import Requirement
from model.requirements import Requirements
from scheduling.demand import Variant
from scheduling.tolerance import untolerated
from scheduling.typetable import Amounts, Mask

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Home:
    """Where a pod may go without anything being bought."""

    name: str
    requirements: Requirements
    """Its labels; for a claim that is not launched, everything it may still become."""
    taints: tuple[Taint, ...]
    room: Mapping[str, int]
    initialized: bool = False
    settled: bool = True
    """False: not launched, so that it offers only what any outcome of the launch satisfies."""
    claim: str = ""
    """The NodeClaim behind it, if there is one."""

    def admits(self, variant: Variant) -> bool:
        """Whether the labels satisfy the pod; taints and room are separate questions."""
        if self.settled:
            return self.requirements.compatible_strictly(variant.requirements)
        return self.requirements.implies(variant.requirements)

    def could_be(self, wanted: Requirements) -> bool:
        """Whether the labels satisfy this, or may do so once it is launched."""
        return self.requirements.compatible_strictly(wanted) if self.settled else self.requirements.compatible(wanted)


class Homes:
    """All homes as arrays, initialized ones first, then by name: the order in which they are filled."""

    def __init__(self, homes: Iterable[Home]) -> None:
        self.homes = sorted(homes, key=lambda home: (not home.initialized, home.name))
        self.index = {home.name: number for number, home in enumerate(self.homes)}
        self.resources = sorted({key for home in self.homes for key in home.room})
        self._taint_ids = _numbered(home.taints for home in self.homes)
        self._settled: Mask = np.array([home.settled for home in self.homes], dtype=bool)
        self._by_key: dict[str, tuple[list[str | None], Amounts]] = {}
        self._admitted: dict[Variant, Mask] = {}
        self._domains: dict[str, list[str | None]] = {}
        self._noticed: dict[tuple[object, object], Mask] = {}
        self._shut: Mask | None = None
        self.there: Sequence[int] = range(len(self.homes))
        """Numbers of those that are there; the others are nobody's domain any more."""

    def without(self, gone: Mask, shut: Mask) -> "Homes":
        """The same homes under the same numbers, but that some are gone and some let nobody in. What was found out
        about them is shared."""
        less = copy(self)
        less._shut = gone | shut
        less.there = np.flatnonzero(~gone).tolist()
        return less

    def domains(self, key: str) -> list[str | None]:
        """Of each the value of a label, where it is certain."""
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = [_certain(home.requirements.get(key)) for home in self.homes]
        return known

    def noticed(self, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...] | None) -> Mask:
        """Those that satisfy one of the alternatives, or may do so, if there are any; and whose taints are tolerated,
        unless these do not matter (None)."""
        key = tuple(alternatives), tolerations
        known = self._noticed.get(key)
        if known is None:
            fine = (
                (not alternatives or any(home.could_be(one) for one in alternatives))
                and (tolerations is None or untolerated(tolerations, home.taints, tolerate_preferences=True) is None)
                for home in self.homes
            )
            known = self._noticed[key] = np.fromiter(fine, dtype=bool, count=len(self.homes))
        return known

    def admitted(self, variant: Variant) -> Mask:
        """The homes whose taints and labels let the pod in."""
        known = self._admitted.get(variant)
        if known is None:
            known = self._admitted[variant] = self._tolerated(variant) & self._labelled(variant)
        return known if self._shut is None else known & ~self._shut

    def _tolerated(self, variant: Variant) -> Mask:
        distinct, numbers = self._taint_ids
        fine = [
            untolerated(variant.tolerations, taints, tolerate_preferences=variant.tolerate_preferences) is None
            for taints in distinct
        ]
        return np.array(fine, dtype=bool)[numbers]

    def _labelled(self, variant: Variant) -> Mask:
        mask: Mask = self._settled.copy()
        for one in variant.requirements.values():
            mask &= self._satisfying(one)
        for number in np.flatnonzero(~self._settled):
            mask[number] = self.homes[number].admits(variant)
        return mask

    def _satisfying(self, one: Requirement) -> Mask:
        values, numbers = self._values(one.key)
        fine = [not one.present if value is None else one.has(value) for value in values]
        return np.array(fine, dtype=bool)[numbers]

    def _values(self, key: str) -> tuple[list[str | None], Amounts]:
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = _numbered(_label(home, key) for home in self.homes)
        return known


def home_labels(name: str, labels: Mapping[str, str]) -> Requirements:
    """A node's labels; one without a hostname label is called by its name."""
    return Requirements.of_labels({HOSTNAME: name, **labels})


def _certain(one: Requirement | None) -> str | None:
    return next(iter(one.values)) if one is not None and not one.complement and len(one.values) == 1 else None


def _label(home: Home, key: str) -> str | None:
    one = home.requirements.get(key)
    return next(iter(one.values), None) if one is not None and home.settled else None


def _numbered(items: Iterable[T]) -> tuple[list[T], Amounts]:
    ids: dict[T, int] = {}
    numbers = [ids.setdefault(item, len(ids)) for item in items]
    return list(ids), np.array(numbers, dtype=np.int64)
