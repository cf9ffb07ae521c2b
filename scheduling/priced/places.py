"""Everywhere a pod can go in a pass, as arrays: homes that stand, and behind them nodes that are bought in this pass.

`packing.py` fills them; a bought node is filled up to the room of the instance type it is meant to become.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from model.facts import HostPort
from scheduling.homes import Homes
from scheduling.pools import Offer, Option, Refusal
from scheduling.priced.attachments import Attachments
from scheduling.priced.demand import Variant
from scheduling.priced.ports import clash
from scheduling.priced.topology import UNLIMITED
from scheduling.typetable import Amounts, Indices, Mask

_GROWTH: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Bought nodes that so far ask for the same: a pool, and what pods narrowed it to."""

    offer: Offer
    option: Option


@dataclass(slots=True)
class Bought:
    """A node to be bought. `rows` are the instance types it is kept good for, the first the one it is meant to be."""

    lane: int
    rows: Indices
    room: Amounts
    pods: list[str] = field(default_factory=list)
    ports: list[HostPort] = field(default_factory=list)
    """Host ports of its pods."""


class Places:
    def __init__(
        self,
        homes: Homes,
        resources: Sequence[str],
        attachments: Attachments | None = None,
        free: Amounts | None = None,
    ) -> None:
        """`resources` in the order of the columns of every amount here; `free` where the homes' room is known so."""
        self.homes = homes
        self.attachments = attachments or Attachments(len(homes.homes), {}, {})
        self.resources = tuple(resources)
        self.columns = {key: number for number, key in enumerate(self.resources)}
        self.first = len(homes.homes)
        """Number of the first place that is bought."""
        self.count = self.first
        self.free: Amounts = np.zeros((self.first + _GROWTH, len(self.resources)), dtype=np.int64)
        self.free[: self.first] = free_of(homes, self.resources) if free is None else free
        self.bought: list[Bought] = []
        self.lanes: list[Lane] = []
        self._lane_ids: dict[tuple[int, int], int] = {}
        self._lane_of: Indices = np.zeros(_GROWTH, dtype=np.intp)
        self._target: Indices = np.zeros(_GROWTH, dtype=np.intp)
        self._narrowed: dict[Variant, list[int]] = {}
        self._ports: dict[HostPort, set[int]] = {}

    def vector(self, requests: Mapping[str, int]) -> Amounts:
        return np.array([requests.get(key, 0) for key in self.resources], dtype=np.int64)

    def admitted(self, variant: Variant) -> Mask:
        """The places whose taints and labels let the pods in, and whose target would still be allowed."""
        known: Mask = np.zeros(self.count, dtype=bool)
        known[: self.first] = self.homes.admitted(variant)
        into = self._into(variant)
        if into:
            lanes = self._lane_of[: self.count - self.first]
            known[self.first :] = np.array([lane >= 0 for lane in into], dtype=bool)[lanes]
            for lane, following in enumerate(into):
                if following >= 0 and following != lane:
                    self._check_targets(known, lane, following)
        return known

    def _check_targets(self, known: Mask, lane: int, following: int) -> None:
        numbers = np.flatnonzero(self._lane_of[: self.count - self.first] == lane)
        types = self.lanes[following].option.types
        known[self.first + numbers] &= types[self._target[numbers]]

    def counts(self, vector: Amounts, chosen: Mask) -> Amounts:
        """How many pods of this size each of the chosen places has room for."""
        asked = np.flatnonzero(vector)
        if not len(asked):
            return np.where(chosen, UNLIMITED, 0)
        counts = np.zeros(self.count, dtype=np.int64)
        numbers = np.flatnonzero(chosen)
        counts[numbers] = (self.free[numbers][:, asked] // vector[asked]).min(axis=1)
        return counts

    def open_room(self, variant: Variant) -> Amounts:
        """What is left on the bought nodes that such pods may join."""
        chosen = np.flatnonzero(self.admitted(variant)[self.first :])
        return np.asarray(self.free[self.first + chosen].sum(axis=0), dtype=np.int64)

    def take(self, place: int, vector: Amounts, pods: Sequence[str], variant: Variant) -> None:
        """Put pods there; a bought node is narrowed by what they ask for."""
        self.free[place] -= vector * len(pods)
        if place >= self.first:
            number = place - self.first
            one = self.bought[number]
            one.pods += pods
            one.lane = int(self._into(variant)[one.lane])
            self._lane_of[number] = one.lane

    def buy(self, offer: Offer, option: Option, rows: Indices, room: Amounts) -> int:
        """A new node with so much room, kept good for all `rows`; its number among the places."""
        number = self.count - self.first
        if self.count == len(self.free):
            self.free = np.concatenate((self.free, np.zeros_like(self.free)))
        if number == len(self._lane_of):
            self._lane_of = np.concatenate((self._lane_of, np.zeros_like(self._lane_of)))
            self._target = np.concatenate((self._target, np.zeros_like(self._target)))
        self.free[self.count] = room
        lane = self._lane(offer, option)
        self._lane_of[number], self._target[number] = lane, rows[0]
        self.bought.append(Bought(lane, rows, room))
        for port in offer.template.ports_of(rows):
            self._ports.setdefault(port, set()).add(self.count)
        self.count += 1
        return self.count - 1

    def joined(self, place: int, variant: Variant) -> Lane | None:
        """What a bought node becomes when such pods join it, whatever type it was meant to be; None: they cannot."""
        lane = self._into(variant)[self.bought[place - self.first].lane]
        return self.lanes[lane] if lane >= 0 else None

    def grow(self, place: int, rows: Indices, room: Amounts) -> None:
        """A bought node is to be another, larger type."""
        one, number = self.bought[place - self.first], place - self.first
        self.free[place] += room - one.room
        one.rows, one.room = rows, room
        self._target[number] = rows[0]
        lane = self.lanes[one.lane]
        for port in lane.offer.template.ports_of(rows):
            self._ports.setdefault(port, set()).add(place)

    def used(self, number: int) -> Amounts:
        """What the pods of a bought node ask for together."""
        return np.asarray(self.bought[number].room - self.free[self.first + number], dtype=np.int64)

    def lane_at(self, place: int) -> Lane | None:
        """None for a home."""
        return self.lanes[self.bought[place - self.first].lane] if place >= self.first else None

    def domain(self, place: int, key: str) -> str | None:
        """The value of a label where it is certain."""
        lane = self.lane_at(place)
        if lane is None:
            return self.homes.domains(key)[place]
        one = lane.option.requirements.get(key)
        return next(iter(one.values)) if one is not None and not one.complement and len(one.values) == 1 else None

    def ports_free(self, ports: Iterable[HostPort], chosen: Mask) -> Mask:
        """The chosen places where none of these ports is taken."""
        free = chosen.copy()
        for taken, where in self._ports.items():
            if any(clash(taken, port) for port in ports):
                free[[place for place in where if place < len(free)]] = False
        return free

    def take_ports(self, place: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            self._ports.setdefault(port, set()).add(place)
            if place >= self.first:
                self.bought[place - self.first].ports.append(port)

    def _lane(self, offer: Offer, option: Option) -> int:
        key = (id(offer), id(option))
        known = self._lane_ids.get(key)
        if known is None:
            known = self._lane_ids[key] = len(self.lanes)
            self.lanes.append(Lane(offer, option))
        return known

    def _into(self, variant: Variant) -> list[int]:
        """Per lane the lane that it becomes when such pods join it; -1 where they cannot."""
        into = self._narrowed.setdefault(variant, [])
        while len(into) < len(self.lanes):
            lane = self.lanes[len(into)]
            option = lane.offer.narrowed(lane.option, variant)
            into.append(-1 if isinstance(option, Refusal) else self._lane(lane.offer, option))
        return into


def free_of(homes: Homes, resources: Sequence[str]) -> Amounts:
    """The room of each home, in the order of these columns."""
    rows = [[max(0, home.room.get(key, 0)) for key in resources] for home in homes.homes]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(resources))


def shares(fitting: Amounts, count: int, *, one_place: bool) -> Amounts:
    """How many of `count` each place gets, in order; with `one_place` all on the first that takes most."""
    if one_place:
        taken = np.zeros_like(fitting)
        if len(fitting) and fitting.max() > 0:
            best = int(np.minimum(fitting, count).argmax())
            taken[best] = min(int(fitting[best]), count)
        return taken
    before = np.concatenate(([0], np.cumsum(np.minimum(fitting, count))[:-1]))
    return np.asarray(np.clip(count - before, 0, fitting), dtype=np.int64)
