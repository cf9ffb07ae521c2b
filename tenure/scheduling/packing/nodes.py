"""Everywhere a pod can go in a pass, as arrays: homes that stand, and behind them nodes that are bought in this pass.

`packing.py` fills them; a bought node is filled up to the room of the instance type it is meant to become.

How many volumes CSI drivers can still attach on each home (reference 2.7).

`planning.py` makes it from CSINodes and the pods that run; `places.py` holds it for `packing.py`. A node that is yet to
be made has no limit that is known: its drivers tell it once they run there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.model.facts import HostPort
from tenure.scheduling.existing_nodes import Homes
from tenure.scheduling.instance_type_table import Amounts, Indices, Mask
from tenure.scheduling.nodepool_template import Offer, Option, Refusal
from tenure.scheduling.packing.pod_requirements import NO_VOLUMES, Variant, Volumes
from tenure.scheduling.packing.topology import UNLIMITED
from tenure.scheduling.snapshot import Facts
from tenure.scheduling.taints import clash
from tenure.scheduling.volumes import Attachment, Needs, attachments


class Attachments:
    """Of homes by their number."""

    def __init__(self, homes: int, limits: Mapping[int, Mapping[str, int]], held: Mapping[int, Iterable[Attachment]]):
        """`limits` by driver, and what the pods of a home `held` there already."""
        self._homes = homes
        self._room: dict[str, Amounts] = {}
        self._held: dict[Attachment, set[int]] = {}
        for number, of in limits.items():
            for driver, limit in of.items():
                rooms = self._room.setdefault(driver, np.full(homes, UNLIMITED, dtype=np.int64))
                rooms[number] = limit
        for number, there in held.items():
            self._hold(number, there)

    def caps(self, volumes: Volumes, places: int) -> Amounts | None:
        """How many such pods each of so many places takes; None where no limit concerns them."""
        own = dict(volumes.own)
        drivers = {*own, *(driver for driver, _ in volumes.shared)} & self._room.keys()
        if not drivers:
            return None
        caps = np.full(places, UNLIMITED, dtype=np.int64)
        for driver in sorted(drivers):
            coming = self._coming([one for one in volumes.shared if one[0] == driver])
            room, each = self._room[driver] - coming, own.get(driver, 0)
            # What is over its limit already still takes pods that bring nothing new.
            fits = np.maximum(room, 0) // each if each else np.where((room >= 0) | (coming == 0), UNLIMITED, 0)
            caps[: self._homes] = np.minimum(caps[: self._homes], fits)
        return caps

    def take(self, place: int, volumes: Volumes, pods: int) -> None:
        """So many of them go there."""
        if place >= self._homes or volumes is NO_VOLUMES:
            return
        self._hold(place, volumes.shared)
        for driver, each in volumes.own:
            if driver in self._room:
                self._room[driver][place] -= each * pods

    def _hold(self, number: int, wanted: Iterable[Attachment]) -> None:
        for one in set(wanted):
            where = self._held.setdefault(one, set())
            if number not in where and one[0] in self._room:
                self._room[one[0]][number] -= 1
            where.add(number)

    def _coming(self, shared: Iterable[Attachment]) -> Amounts:
        """Per home how many of them are not there yet."""
        coming = np.zeros(self._homes, dtype=np.int64)
        for one in shared:
            coming += 1
            coming[list(self._held.get(one, ()))] -= 1
        return coming


def standing(facts: Facts, homes: Homes) -> tuple[dict[int, Mapping[str, int]], dict[int, set[Attachment]]]:
    """The limits of the homes that have any, and what is attached there for pods that run or are ending."""
    limits, held = dict[int, Mapping[str, int]](), dict[int, set[Attachment]]()
    for number, home in enumerate(homes.homes):
        known = facts.storage.csi_nodes.get(home.name)
        if known is not None and known.limits:
            limits[number] = known.limits
            held[number] = {one for pod in facts.bound_to(home.name) for one in attachments(pod, facts.storage)}
    return limits, held


def alike(found: Mapping[str, Needs], held: Iterable[set[Attachment]]) -> dict[str, Volumes]:
    """By UID what pods' volumes ask for, such that pods which ask for the same are interchangeable."""
    users = Counter(one for needs in found.values() for one in needs.attachments)
    shared = {one for one, times in users.items() if times > 1} | set[Attachment]().union(*held)
    return {
        uid: Volumes(
            needs.alternatives,
            tuple(sorted(Counter(driver for driver, _ in needs.attachments - shared).items())),
            needs.attachments & shared,
        )
        for uid, needs in found.items()
    }


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
