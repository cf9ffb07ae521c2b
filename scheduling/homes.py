"""Nodes and NodeClaims that exist: their room, and which pods may count on it.

`scheduling/state.py` makes the homes from its facts; `scheduling/packing.py` fills them before anything is bought.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from model.facts import Taint
from model.labels import HOSTNAME
from model.requirement import Requirement
from model.requirements import Requirements
from scheduling.demand import Variant
from scheduling.tolerance import untolerated
from scheduling.typetable import Amounts, Mask

T = TypeVar("T")
_UNLIMITED: Final = np.iinfo(np.int64).max


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
        table = [[home.room.get(key, 0) for key in self.resources] for home in self.homes]
        shape = (len(self.homes), len(self.resources))
        self._room: Amounts = np.maximum(np.array(table, dtype=np.int64).reshape(shape), 0)
        self._columns = {key: number for number, key in enumerate(self.resources)}
        self._taint_ids = _numbered(home.taints for home in self.homes)
        self._settled: Mask = np.array([home.settled for home in self.homes], dtype=bool)
        self._by_key: dict[str, tuple[list[str | None], Amounts]] = {}
        self._admitted: dict[Variant, Mask] = {}

    def place(self, variant: Variant, requests: Mapping[str, int], count: int) -> list[tuple[str, int]]:
        """Fill the homes with up to `count` equal pods: the name of each home used, and how many it took."""
        if not self.homes:
            return []
        fitting = np.where(self.admitted(variant), self._counts(requests), 0)
        before = np.concatenate(([0], np.cumsum(np.minimum(fitting, count))[:-1]))
        taken = np.clip(count - before, 0, fitting)
        used = np.flatnonzero(taken)
        for number in used:
            self._take(int(number), requests, int(taken[number]))
        return [(self.homes[number].name, int(taken[number])) for number in used]

    def place_on(self, name: str, variants: Iterable[Variant], requests: Mapping[str, int]) -> bool:
        """Put one pod on this very home if any reading of its demands goes there and it fits."""
        number = self.index.get(name)
        if number is None or not any(self.admitted(variant)[number] for variant in variants):
            return False
        if any(amount > self._left(number, key) for key, amount in requests.items()):
            return False
        self._take(number, requests, 1)
        return True

    def admitted(self, variant: Variant) -> Mask:
        """The homes whose taints and labels let the pod in."""
        known = self._admitted.get(variant)
        if known is None:
            known = self._admitted[variant] = self._tolerated(variant) & self._labelled(variant)
        return known

    def _left(self, number: int, key: str) -> int:
        return int(self._room[number, self._columns[key]]) if key in self._columns else 0

    def _take(self, number: int, requests: Mapping[str, int], count: int) -> None:
        for key, amount in requests.items():
            if key in self._columns:
                self._room[number, self._columns[key]] -= amount * count

    def _counts(self, requests: Mapping[str, int]) -> Amounts:
        """How many such pods fit each home by resources alone."""
        counts = np.full(len(self.homes), _UNLIMITED, dtype=np.int64)
        for key, amount in requests.items():
            if amount <= 0:
                continue
            if key not in self._columns:
                return np.zeros(len(self.homes), dtype=np.int64)
            counts = np.minimum(counts, self._room[:, self._columns[key]] // amount)
        return np.maximum(counts, 0)

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


def _label(home: Home, key: str) -> str | None:
    one = home.requirements.get(key)
    return next(iter(one.values), None) if one is not None and home.settled else None


def _numbered(items: Iterable[T]) -> tuple[list[T], Amounts]:
    ids: dict[T, int] = {}
    numbers = [ids.setdefault(item, len(ids)) for item in items]
    return list(ids), np.array(numbers, dtype=np.int64)
